"""The state folder is on a disk that may be full: said by its place, whatever was written there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.errors import StateFolderError


@contextmanager
def writing_below(workspace: Path) -> Iterator[None]:
    """Raises StateFolderError for the system's own errors of what is done inside."""
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"The state folder {workspace} can't be written: {error.strerror}.",
            next_step="Free space there, or set another one with --state-dir.",
        ) from error
