"""What the keys' folder knows of each log: its last checkpoint, so that a log can't be begun again unseen.

Whoever can change the database and the checkpoints, but not the keys, could remove all checkpoints, write
the history anew, and have it signed by the next honest run. The signer remembers, as SSH remembers hosts:
``known/<id>`` names a log's folder, and the size and digest of the last checkpoint that was signed there.

A log has up to three ids: its folder as the caller names it, the folder that this leads to, and its
history, which is its first checkpoint. The history finds an older copy of a log at any path.
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


def history_file(keys: Path, first: Previous) -> Path:
    """Return the file with the last checkpoint of the log that began with the checkpoint ``first``."""
    name = hashlib.sha256(f"history {first.size} {first.sha256}".encode()).hexdigest()
    return keys / "known" / name[:_ID_CHARACTERS]


def recall(keys: Path, log: Path) -> tuple[Previous, ...]:
    """Return the last checkpoints that were signed for this folder, by each of its names.

    Raises KeyringError.
    """
    read = map(_read, known_files(keys, log))
    return tuple(last for last in read if last is not None)


def recall_history(keys: Path, first: Previous) -> Previous | None:
    """Return the last checkpoint that was signed for the log that began with ``first``, in any folder.

    Raises KeyringError.
    """
    return _read(history_file(keys, first))


def recall_all(keys: Path) -> frozenset[Previous]:
    """The last checkpoints that were signed with these keys, wherever their logs are.

    Raises KeyringError.
    """
    with _explained(keys / "known"):
        paths = _files(keys)
    return frozenset(last for last in map(_read, paths) if last is not None)


def _files(keys: Path) -> list[Path]:
    try:
        # Skip files that are being written (``_replace``).
        return [path for path in (keys / "known").iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: Path) -> Previous | None:
    with _explained(path):
        try:
            content = _settled(path)
        except FileNotFoundError:
            return None
    found = _KNOWN.fullmatch(content)
    if not content.strip(
        "\0"
    ):  # a power cut kept the name of an unsynced file, and none of its bytes
        return None
    if found is None:
        raise KeyringError(
            f"{path}: it does not say which checkpoint was signed last.",
            next_step="Run `fallback-tier audit verify`; if the record is whole, delete this file.",
            kind="last_checkpoint_unreadable",
        )
    return Previous(int(found[1]), found[2])


def remember(keys: Path, log: Path, last: Previous, first: Previous) -> None:
    """Store ``last`` as the latest checkpoint of the log in this folder, whose first one is ``first``.

    A folder of keys that can't be written to is left as it is: it may be read-only on purpose.
    """
    place = _led_to(log).replace("\n", "?")
    for path in (*known_files(keys, log), history_file(keys, first)):
        content = f"{last.size} {last.sha256}\n{place}\n".encode(errors="surrogateescape")
        try:
            make_private_directory(path.parent)
            if not _overwritten(path, content):
                _replace(path, content)
        except OSError:
            return


def forget(keys: Path, log: Path, gone: Previous, first: Previous | None) -> None:
    """Remove what is known of this folder, of the log that began with ``first``, and of ``gone``.

    Raises KeyringError.
    """
    history = () if first is None else (history_file(keys, first),)
    with _explained(keys / "known"):
        of_gone = [path for path in _files(keys) if _read(path) == gone]
    for path in {*known_files(keys, log), *history, *of_gone}:
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
