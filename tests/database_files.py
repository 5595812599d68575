"""Database files and who opens them: an audit hook on ``open``, and deleted files that a process holds.

SQLite's own opening raises no audit event, so whatever the hook sees is Python code that opens a database
file, its log or its index. Closing any descriptor of it drops the locks that SQLite has on it (ADR-0091).
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_DATABASE = re.compile(r"\.(db|sqlite3?)(-wal|-shm|-journal)?$")


class DatabaseOpenedError(BaseException):
    """Python code opened a database file. No ``except Exception`` hides it."""


class _Hook:
    """Once added, a hook stays: it is switched on and off."""

    def __init__(self) -> None:
        self.depth = 0

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and self.depth:
            name = arguments[0]
            if isinstance(name, str | bytes) and _DATABASE.search(os.fsdecode(name)):
                print(f"Python code opened a database file: {name!r}", file=sys.stderr, flush=True)
                raise DatabaseOpenedError(name)


@cache
def _hook() -> _Hook:
    hook = _Hook()
    sys.addaudithook(hook)
    return hook


def watch() -> None:
    """From now on Python code of this process that opens a database file fails."""
    _hook().depth += 1


@contextmanager
def watched() -> Iterator[None]:
    """``watch`` for a while."""
    watch()
    try:
        yield
    finally:
        _hook().depth -= 1


def deleted_files(pid: int, below: Path = Path("/")) -> list[str]:
    """Deleted files of databases in the folder ``below`` that the process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = str(link.readlink())
        except OSError:  # closed meanwhile
            continue
        path = name.removesuffix(" (deleted)")
        if path != name and _DATABASE.search(path) and Path(path).is_relative_to(below):
            found.append(name)
    return found
