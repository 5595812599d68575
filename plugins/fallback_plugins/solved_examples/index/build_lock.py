"""One build of a store's index at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_plugins.solved_examples.interfaces import ExampleStoreError


@contextmanager
def only_builder(store: Path) -> Iterator[None]:
    """Two builds at once would do the same work twice. The system frees the lock of a killed one.

    Not on the store's own file: closing another descriptor of it drops SQLite's locks. Raises
    ExampleStoreError: another build is at work, or the lock can't be made.
    """
    path = store.with_name(f"{store.name}.indexing")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise ExampleStoreError(
            f"The lock {str(path)!r} can't be made: {error.strerror}.",
            next_step="Check the folder's permissions.",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ExampleStoreError(
                f"Another process is indexing {str(store)!r}.",
                next_step="Wait for its end; what it has done by then is kept.",
                kind="locked",
            ) from error
        yield
    finally:
        os.close(descriptor)
