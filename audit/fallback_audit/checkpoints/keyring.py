"""The folder of signing and trusted keys, separate from what they sign.

::

    signing.skey        signs (mode 0600; the folder 0700)
    previous.skey       signs too, while a rotation overlaps
    next.skey           made by an interrupted rotation, which continues with it
    <id>.vkey           trusted: may have signed anything
    <id>.retired.vkey   trusted for what it signed, but not for the latest checkpoint
    known/              the last signed checkpoint of each log

A folder with only ``*.vkey`` files is enough to verify. Private keys that others can read, and a folder
that others can write to, are refused.

Anyone who can change the database and the checkpoints, but not the keys, could remove all checkpoints,
rewrite the history, and have it signed by the next honest run. So the signer remembers logs, as SSH
remembers hosts: ``known/<id>`` names a log's folder, and the size and digest of the last checkpoint signed
there. A log has up to three ids: its folder as the caller names it, the folder that this resolves to, and
its history, identified by its first checkpoint. By it an older copy of a log is recognised at any path.
"""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from fallback_audit.checkpoints.checkpoint import Previous
from fallback_audit.checkpoints.note import Signer, Verifier
from fallback_audit.errors import KeyringError
from fallback_audit.files import (
    FILE_MODE,
    descriptor_of,
    lock,
    make_private_directory,
    sync_directory,
    write_whole,
)

SIGNING, PREVIOUS, NEXT = "signing.skey", "previous.skey", "next.skey"
TRUSTED, RETIRED = ".vkey", ".retired.vkey"
_KEYS = (".skey", TRUSTED)

#: A key's name is the log's origin. It is random unless a person chose it: no host name is in it.
_NAME_PREFIX, _NAME_BYTES = "fallback-tier/", 8

_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_KEYGEN = "Make one with `fallback-tier audit keygen`, or name the folder that has it with --keys."

_KeyT = TypeVar("_KeyT")

_ID_CHARACTERS = 16

#: Bytes that a disk writes whole or not at all.
_SECTOR = 512
_KNOWN = re.compile(r"([1-9][0-9]{0,15}) ([0-9a-f]{64})\n[^\n]*\n", re.ASCII)


class Rotation(NamedTuple):
    """A change of the signing key: the old and the new one."""

    old: Verifier
    new: Verifier


@dataclass(frozen=True)
class Keyring:
    """The keys of one folder when it was read. ``load`` it again to see a rotation."""

    folder: Path
    signing: Signer | None
    previous: Signer | None
    trusted: tuple[Verifier, ...]
    retired: tuple[Verifier, ...]

    @classmethod
    def load(cls, folder: Path) -> "Keyring":
        """Read a folder; a missing one counts as empty. Raises KeyringError: malformed, or exposed."""
        with explained(folder):
            if not folder.is_dir():
                return cls(folder, None, None, (), ())
            if folder.stat().st_mode & _OTHERS_WRITE:
                raise _exposed(
                    folder, "others can write to it", "chmod 700", kind="writable_by_others"
                )
            # Public keys first: a first key that another process makes now has its private half by then.
            public = {path: _public(path) for path in sorted(folder.glob("*" + TRUSTED))}
            signing, previous = _private(folder / SIGNING), _private(folder / PREVIOUS)
        retired = [key for path, key in public.items() if path.name.endswith(RETIRED)]
        signing_keys = [signer.verifier for signer in (signing, previous) if signer is not None]
        trusted = [key for key in (*signing_keys, *public.values()) if key not in retired]
        return cls(folder, signing, previous, _once(trusted), _once(retired))

    def signers(self) -> tuple[Signer, ...]:
        """Return the keys that sign: the current one, and the previous one while a rotation overlaps.

        Raises KeyringError if there is no current key.
        """
        if self.signing is None:
            raise KeyringError(
                f"There is no signing key in {self.folder}, so no checkpoint can be made.",
                next_step=_KEYGEN,
                kind="no_signing_key",
            )
        current_and_previous = (self.signing, self.previous)
        return tuple(dict.fromkeys(signer for signer in current_and_previous if signer is not None))

    def verifiers(self) -> tuple[Verifier, ...]:
        """Return all trusted keys, also retired ones: signatures of each may still be valid."""
        return self.trusted + self.retired

    def current(self) -> tuple[Verifier, ...]:
        """Return the keys that are not retired, one of which must have signed the *latest* checkpoint."""
        return self.trusted

    @property
    def origin_if_any(self) -> str | None:
        """Return the log's name, or None if the keys don't determine it."""
        try:
            return self.origin
        except KeyringError:
            return None

    @property
    def origin(self) -> str:
        """Return the log's name, which is its key's. Raises KeyringError: no key, or several names."""
        if self.signing is not None:
            return self.signing.name
        names = {verifier.name for verifier in self.verifiers()}
        if len(names) != 1:
            reason = "there is no key" if not names else "there are keys of several names"
            raise KeyringError(
                f"The keys in {self.folder} don't say whose checkpoints to trust: {reason}.",
                next_step=_KEYGEN,
                kind="several_names" if names else "no_key",
            )
        return names.pop()


class KeyFolder:
    """A folder that is read again only if one of its keys has changed, so that a process which runs for
    weeks follows a rotation, and a checkpoint need not parse keys again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: object = None
        self._keyring: Keyring | None = None

    def load(self) -> Keyring:
        """As ``Keyring.load``. Raises KeyringError."""
        stamp = _stamp(self._folder)  # first: a change meanwhile is then noticed the next time
        if self._keyring is None or stamp is None or stamp != self._stamp:
            self._keyring, self._stamp = None, None
            self._keyring, self._stamp = Keyring.load(self._folder), stamp
        return self._keyring


def _stamp(folder: Path) -> object:
    """Return a value that changes with the keys and their permissions; None if it isn't available."""
    try:
        folder_stat = folder.stat()
        with os.scandir(folder) as entries:
            keys = sorted(
                (entry.name, *_version(entry.stat()))
                for entry in entries
                if entry.name.endswith(_KEYS)
            )
    except OSError:
        return None
    return folder_stat.st_ino, folder_stat.st_mode, keys


def _version(key: os.stat_result) -> tuple[int, ...]:
    return key.st_ino, key.st_mode, key.st_size, key.st_mtime_ns, key.st_ctime_ns


def generate(folder: Path, name: str | None = None) -> Keyring:
    """Make the first key durably, unless there is one, and return the folder's keys.

    Two processes may do so at once: both get the same key. Raises KeyringError.
    """
    with explained(folder), _locked(folder):
        if not (folder / SIGNING).exists():
            chosen = name or _NAME_PREFIX + secrets.token_hex(_NAME_BYTES)
            signer = Signer.generate(chosen)
            # Private key first: a folder with only a public key counts as verify-only.
            _write(folder / SIGNING, signer.skey)
            _write(folder / f"{signer.verifier.id.hex()}{TRUSTED}", signer.verifier.vkey)
    return Keyring.load(folder)


def rotate(folder: Path, announce: Callable[[Rotation], None]) -> Rotation:
    """Sign with a new key from now on, and with the old one too until ``end_overlap``.

    ``announce`` records the rotation (``SigningKeyRotated``) before the new key signs anything: if it
    raises, or the process dies, the next ``rotate`` continues with the same new key.
    """
    with explained(folder), _locked(folder):
        old = Keyring.load(folder).signers()[0]
        _finish_interrupted(folder, old)
        staged = _private(folder / NEXT)
        if staged is None:
            staged = Signer.generate(old.name)
            _write(folder / NEXT, staged.skey)
        rotation = Rotation(old.verifier, staged.verifier)
        announce(rotation)
        for key in rotation:
            _write(folder / f"{key.id.hex()}{TRUSTED}", key.vkey)
        # In this order there is always a signing key; a crash in between leaves the old one twice.
        _write(folder / PREVIOUS, old.skey)
        (folder / NEXT).replace(folder / SIGNING)
        sync_directory(folder)
        return rotation


def end_overlap(folder: Path) -> Verifier | None:
    """Delete the previous private key, and return its public half, which stays as retired.

    Return None if no rotation overlaps. Make a checkpoint first: the latest needs the new key's signature.
    """
    with explained(folder), _locked(folder):
        previous = _private(folder / PREVIOUS)
        if previous is None:
            return None
        if previous != _private(folder / SIGNING):  # otherwise a rotation was interrupted
            stem = folder / previous.verifier.id.hex()
            _write(Path(f"{stem}{RETIRED}"), previous.verifier.vkey)
            Path(f"{stem}{TRUSTED}").unlink(missing_ok=True)
        (folder / PREVIOUS).unlink()
        sync_directory(folder)
        return previous.verifier


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Translate OSError to KeyringError."""
    try:
        yield
    except OSError as error:
        raise KeyringError(
            f"Keys in {error.filename or folder}: {error.strerror or error}.",
            next_step="Check the folder's owner and mode, and the space on its disk.",
        ) from error


def _finish_interrupted(folder: Path, signing: Signer) -> None:
    previous = _private(folder / PREVIOUS)
    if previous is not None and previous != signing:
        raise KeyringError(
            f"The rotation before this one still overlaps: {previous.verifier.vkey} signs too.",
            next_step="End it with `fallback-tier audit keygen --end-overlap`, then rotate again.",
            kind="overlap_not_over",
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time change the keys. The system releases the lock when the process ends.

    Raises OSError (TimeoutError: another process holds it).
    """
    make_private_directory(folder)
    with descriptor_of(folder / ".lock", os.O_RDWR | os.O_CREAT) as descriptor:
        lock(descriptor, fcntl.LOCK_EX)
        yield


def _write(path: Path, line: str) -> None:
    write_whole(path, f"{line}\n".encode())


def _private(path: Path) -> Signer | None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if mode & _OTHERS:
        raise _exposed(
            path, "others can read this private key", "chmod 600", kind="readable_by_others"
        )
    return _parsed(path, Signer.parse)


def _public(path: Path) -> Verifier:
    if path.stat().st_mode & _OTHERS_WRITE:
        raise _exposed(path, "others can write to it", "chmod 644", kind="writable_by_others")
    return _parsed(path, Verifier.parse)


def _parsed(path: Path, parse: Callable[[str], _KeyT]) -> _KeyT:
    try:
        return parse(path.read_text().strip())
    except UnicodeDecodeError:
        reason, next_step = "it is not text", "Restore it from its backup."
    except KeyringError as error:
        reason, next_step = error.problem, error.next_step
    raise KeyringError(f"{path}: {reason}", next_step=next_step)


def _exposed(path: Path, reason: str, command: str, *, kind: str = "") -> KeyringError:
    return KeyringError(
        f"{path}: {reason}, so its signatures would prove nothing.",
        next_step=f"`{command} {path}`, and rotate the key if somebody may have used this.",
        kind=kind,
    )


def _once(keys: list[Verifier]) -> tuple[Verifier, ...]:
    return tuple(dict.fromkeys(keys))


def known_files(keys: Path, log: Path) -> tuple[Path, ...]:
    """Return the files about the log in this folder: by the folder's name, and by the path it resolves to.

    So a log stays known if a link replaces its folder, or if the folder is named differently.
    """
    log_paths = dict.fromkeys((str(log.absolute()), _led_to(log)))
    names = (hashlib.sha256(os.fsencode(log_path)).hexdigest() for log_path in log_paths)
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
    """Return the last checkpoints that were signed with these keys, whatever folders their logs are in.

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
    match = _KNOWN.fullmatch(content)
    if not content.strip("\0"):  # after a power cut an unsynced file may be empty
        return None
    if match is None:
        raise KeyringError(
            f"{path}: it does not say which checkpoint was signed last.",
            next_step="Run `fallback-tier audit verify`; if the record is whole, delete this file.",
            kind="last_checkpoint_unreadable",
        )
    return Previous(int(match[1]), match[2])


def remember(keys: Path, log: Path, last: Previous, first: Previous) -> None:
    """Store ``last`` as the latest checkpoint of the log in this folder, whose first one is ``first``.

    A folder of keys that can't be written is left as it is: it may be read-only on purpose.
    """
    resolved = _led_to(log).replace("\n", "?")
    for path in (*known_files(keys, log), history_file(keys, first)):
        content = f"{last.size} {last.sha256}\n{resolved}\n".encode(errors="surrogateescape")
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
    """Overwrite the file in place if its length stays, and return whether that was done.

    Recreating it each time would take longer than the signature. The one write is at most a sector, so
    neither a crash nor a power cut leaves half of it.
    """
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
    fresh = path.with_name(f".{path.name}")  # one writer per log: the caller holds its lock
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, FILE_MODE), "wb") as file:
        file.write(content)
    fresh.replace(path)


def _settled(path: Path) -> str:
    """Return the file's text, read until two readings agree: a writer may be overwriting it."""
    before, text = None, path.read_text(errors="surrogateescape")
    while before != text:
        before, text = text, path.read_text(errors="surrogateescape")
    return text


def _led_to(log: Path) -> str:
    """Resolve the path. Unlike ``Path.resolve``, don't raise if links form a circle."""
    return os.path.realpath(log)
