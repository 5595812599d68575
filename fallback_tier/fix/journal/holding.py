"""Exclusive holding of a fix by one process: two would share a worktree, and write one trail.

A fix that stops before its end stays open in the trail, and the error says how to resume it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.errors import HeldError
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold


@contextmanager
def holding(workspace: Path, fix_id: str) -> Iterator[None]:
    """Hold a fix while it runs, resumes or is decided about: what is read from its trail stays true.

    Released when the process ends. Raises HeldError if another process holds it, StateFolderError.
    """
    folder = workspace / "held"
    # An identifier may be arbitrary text, so it is not used as a path.
    path = folder / hashlib.sha256(fix_id.encode("utf-8", "replace")).hexdigest()
    with writing_below(workspace):
        folder.mkdir(parents=True, exist_ok=True)
        lock = try_hold(path)
    if lock is None:
        raise HeldError(
            f"Fix {fix_id} is in use by another process.",
            next_step=f"Wait for it to end; `fallback-tier audit show {fix_id}` shows its progress.",
        )
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: no other process can have this name


@contextmanager
def resumable(fix_id: str) -> Iterator[None]:
    """Add a note to any error, including Ctrl-C, on how to resume the recorded fix (a PEP 678 note, so that
    its type stays), unless the error names that command."""
    command = f"`fallback-tier resume {fix_id}`"
    try:
        yield
    except BaseException as error:
        texts = (str(error), *getattr(error, "__notes__", ()))
        if not any(command in text for text in texts):
            error.add_note(f"{command} continues where it stopped.")
        raise
