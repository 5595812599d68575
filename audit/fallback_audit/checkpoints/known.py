"""What the keys' folder knows of each log: its last checkpoint, so that a log can't be begun again unseen.

Whoever can change the database and the checkpoints, but not the keys, could remove all checkpoints, write
the history anew, and have it signed by the next honest run. The signer remembers, as SSH remembers hosts:
``known/<id>`` names a log's folder, and the size and digest of the last checkpoint that was signed there.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_audit.checkpoints.checkpoint import Previous
from fallback_audit.errors import KeyringError
from fallback_audit.files import FILE_MODE, make_private_directory

_ID_CHARACTERS = 16

#: What a disk writes whole or not at all, in bytes.
_SECTOR = 512
_KNOWN = re.compile(r"([1-9][0-9]{0,15}) ([0-9a-f]{64})\n[^\n]*\n", re.ASCII)


def known_files(keys: Path, log: Path) -> tuple[Path, ...]:
    """Where the keys' folder keeps what it knows of the log in this folder: by its name, and by where
    that leads, so that neither a link put in its place nor another name for it makes it a new one."""
    places = dict.fromkeys((str(log.absolute()), _led_to(log)))
    names = (hashlib.sha256(os.fsencode(place)).hexdigest() for place in places)
    return tuple(keys / "known" / name[:_ID_CHARACTERS] for name in names)


def recall(keys: Path, log: Path) -> dict[Path, Previous]:
    """The last checkpoint that was signed there, by the file that says so. Raises KeyringError."""
    found = {path: _read(path) for path in known_files(keys, log)}
    return {path: last for path, last in found.items() if last is not None}


def recall_all(keys: Path) -> frozenset[Previous]:
    """The last checkpoints that were signed with these keys, wherever their logs are.

    Raises KeyringError.
    """
    with _explained(keys / "known"):
        try:
            # Not those that are being written (``_replace``).
            paths = [path for path in (keys / "known").iterdir() if not path.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
    return frozenset(last for last in map(_read, paths) if last is not None)


def _read(path: Path) -> Previous | None:
    with _explained(path):
        try:
            found = _KNOWN.fullmatch(_settled(path))
        except FileNotFoundError:
            return None
    if found is None:
        raise KeyringError(
            f"{path}: it does not say which checkpoint was signed last.",
            next_step="Run `fallback-tier audit verify`; if the record is whole, delete this file.",
        )
    return Previous(int(found[1]), found[2])


def remember(keys: Path, log: Path, last: Previous) -> None:
    """Know this one from now on. A folder of keys that can't be written to learns nothing: it may be so."""
    place = _led_to(log).replace("\n", "?")
    for path in known_files(keys, log):
        content = f"{last.size} {last.sha256}\n{place}\n".encode(errors="surrogateescape")
        try:
            make_private_directory(path.parent)
            if not _overwritten(path, content):
                _replace(path, content)
        except OSError:
            return


def forget(keys: Path, log: Path) -> None:
    """Know nothing of this log any more. Raises KeyringError."""
    for path in known_files(keys, log):
        with _explained(path):
            path.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KeyringError(
            f"{path}: {error.strerror or error}.", next_step="Check its owner and mode."
        ) from error


def _overwritten(path: Path, content: bytes) -> bool:
    """In place, where it is as long: a file made anew each time costs more than the signature. It is
    one write, less than a sector, so neither a crash nor a lost current leaves half of it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fits = os.fstat(descriptor).st_size == len(content) <= _SECTOR
        return fits and os.pwrite(descriptor, content, 0) == len(content)
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}")  # one writer a log: the caller holds its lock
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, FILE_MODE), "wb") as file:
        file.write(content)
    fresh.replace(path)


def _settled(path: Path) -> str:
    """What it says, read until two readings agree: a writer may be overwriting it."""
    reported, again = None, path.read_text(errors="surrogateescape")
    while reported != again:
        reported, again = again, path.read_text(errors="surrogateescape")
    return again


def _led_to(log: Path) -> str:
    """Unlike ``Path.resolve``, this does not raise where links lead in a circle."""
    return os.path.realpath(log)
