"""The folder of checkpoints: one file each, never removed.

::

    000000000031/0000000000313131.checkpoint     a signed checkpoint, named by its size; the subfolder
                                                 by the size divided by 10,000
    frontier.json                                a cache: used only if its root was signed
    .lock                                        one writer at a time

Each checkpoint names the one before it by size and digest (``checkpoint``), so a file that is missing
between two others is noticed, and so is one replaced by another signed checkpoint. The folder alone can't
show that the *last* ones are missing: the database has more events then, or it was rolled back too, and
only a copy elsewhere shows it (a folder on another disk; ``audit prove --from``).
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fallback_audit.checkpoints.checkpoint import (
    Previous,
    SignedCheckpoint,
    named_by,
    open_checkpoint,
)
from fallback_audit.checkpoints.keyring import Keyring, recall, recall_all, recall_history
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import MAX_NOTE_BYTES, Verifier
from fallback_audit.errors import AuditIntegrityError, CheckpointError, TrailFault
from fallback_audit.files import (
    FILE_MODE,
    LOCK_TIMEOUT_S,
    descriptor_of,
    lock,
    make_private_directory,
    read_regular,
    write_whole,
)

#: Sizes per subfolder. A writer lists the subfolders and the files in the last one, and that must stay fast
#: as the log grows: for ten million events, in fixes of 16, it lists a thousand subfolders and 625 files.
SHARD_EVENTS = 10_000

_SHARD = re.compile(r"[0-9]{12}", re.ASCII)
_FILE = re.compile(r"([0-9]{16})\.checkpoint", re.ASCII)

_OVERSLEPT = (
    "If this log made no checkpoint while a rotation overlapped: rename ID.retired.vkey to ID.vkey, run "
    "`fallback-tier audit checkpoint`, and rename it back. Else somebody signed with a retired key."
)


def _file_of(folder: Path, size: int) -> Path:
    """Return the path of the checkpoint of this size, whether it exists or not."""
    return folder / f"{size // SHARD_EVENTS:012d}" / f"{size:016d}.checkpoint"


def _sizes_in(folder: Path) -> Iterator[int]:
    """Yield the sizes of which there are files, ascending. Raises OSError."""
    for shard in _shards(folder):
        yield from sorted(size for name in _names(shard) if (size := _size(name, shard)))


def _smallest_in(folder: Path) -> int:
    """Return the smallest size of which there is a file; 0 if there is none. Raises OSError."""
    return next(_sizes_in(folder), 0)


def _largest_in(folder: Path) -> int:
    """Return the largest size of which there is a file; 0 if there is none. Raises OSError."""
    for shard in reversed(_shards(folder)):
        for name in sorted(_names(shard), reverse=True):
            if size := _size(name, shard):
                return size
    return 0


def _shards(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(filter(_SHARD.fullmatch, _names(folder)))]


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _size(name: str, shard: Path) -> int:
    """Return the size in this file name; 0 if it is not a checkpoint's, or is in the wrong subfolder."""
    match = _FILE.fullmatch(name)
    size = int(match[1]) if match else 0
    return size if size // SHARD_EVENTS == int(shard.name) else 0


class CheckedCheckpoint(NamedTuple):
    """One file of the folder: the checkpoint if it can be trusted, else ``fault``, why not.

    A good checkpoint may also have a ``fault``: the one that it names before it is missing or altered.
    """

    size: int
    path: Path
    signed: SignedCheckpoint | None
    fault: TrailFault | None


class CheckpointLog:
    """Signed checkpoints in ``folder``, which need not exist before the first is added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: SignedCheckpoint | None = None
        self._first: Previous | None = None

    def path(self, size: int) -> Path:
        """Return the path of the checkpoint of this size, whether it exists or not."""
        return _file_of(self.folder, size)

    def sizes(self) -> Iterator[int]:
        """Yield the sizes of which there are files, ascending. Raises CheckpointError."""
        with self.explained():
            yield from _sizes_in(self.folder)

    def latest_size(self) -> int:
        """Return the largest size of which there is a file; 0 if there is none. Raises CheckpointError."""
        with self.explained():
            return _largest_in(self.folder)

    def latest(self, keyring: Keyring) -> SignedCheckpoint | None:
        """Return the largest. Raises AuditIntegrityError if only retired keys, or none, signed it."""
        size = self.latest_size()
        return self._open_current(size, keyring) if size else None

    def _open_current(self, size: int, keyring: Keyring) -> SignedCheckpoint:
        signed = self.open(size, keyring)
        if not set(signed.signed_by) & set(keyring.current()):
            raise AuditIntegrityError(
                f"Checkpoint {self.path(size)} can't be trusted: the latest one is signed by retired keys "
                "only.",
                next_step=_OVERSLEPT,
                kind="signed_by_retired_keys",
            )
        return signed

    def open(self, size: int, keyring: Keyring) -> SignedCheckpoint:
        """Open the checkpoint of this size. Raises AuditIntegrityError (no trusted key),
        CheckpointError."""
        path = self.path(size)
        note, trusted = self._read(path), keyring.verifiers()
        try:
            signed = self._known_to_be_good(note, trusted) or open_checkpoint(note, trusted)
        except AuditIntegrityError as error:
            raise _untrusted(path, error.problem, kind=error.kind) from error
        if signed.checkpoint.size != size:
            raise _untrusted(
                path, f"it is one of size {signed.checkpoint.size}", kind="another_size"
            )
        if signed.checkpoint.origin != keyring.origin:
            raise _untrusted(
                path, f"it is of the log {signed.checkpoint.origin}", kind="another_log"
            )
        return signed

    def checked(self, keyring: Keyring, *, after: int = 0) -> Iterator[CheckedCheckpoint]:
        """Yield the checkpoints larger than ``after``, ascending, each with what is wrong with it.

        If ``after`` (verified earlier) is given, the first one must name the checkpoint of that size. The
        latest must be signed by a key that is not retired. The last known to the keys' folder must exist.
        """
        gone = self.gone(keyring)
        before = self._named(after) if after else None
        last = self.latest_size()
        for size in self.sizes():
            if size <= after:
                continue
            path = self.path(size)
            signed: SignedCheckpoint | None = None
            try:
                opened = self._open_current if size == last else self.open
                signed = opened(size, keyring)
            except AuditIntegrityError as error:
                gone = None if gone is not None and gone.size == size else gone  # reported here
                yield CheckedCheckpoint(size, path, None, TrailFault.of(error))
            else:
                yield CheckedCheckpoint(
                    size, path, signed, _gap(before, signed.checkpoint.previous)
                )
            before = signed.named if signed else self._named(size)
        if gone is not None:  # at the last size: a larger one would count as signed later
            fault = TrailFault("known_checkpoint_missing", gone_because(gone, self.folder))
            yield CheckedCheckpoint(last, self.path(gone.size), None, fault)

    def _known_to_be_good(
        self, note: bytes, trusted: tuple[Verifier, ...]
    ) -> SignedCheckpoint | None:
        """Return the last added checkpoint if it has these bytes and its signers are still trusted."""
        last_added = self._made
        same = (
            last_added is not None
            and last_added.note == note
            and set(last_added.signed_by) <= set(trusted)
        )
        return last_added if same else None

    def gone(self, keyring: Keyring, latest: SignedCheckpoint | None = None) -> Previous | None:
        """Return the last checkpoint that the keys' folder knows, if it is missing here or altered.

        ``latest``: the checkpoint that was just read, which need not be read again.
        """
        latest_named = None if latest is None else latest.named
        last_signed = recall(keyring.folder, self.folder)
        return next(
            (last for last in last_signed if last != latest_named and not self._has(last)), None
        )

    def ahead(self, keyring: Keyring, latest: SignedCheckpoint | None = None) -> Previous | None:
        """Return the last checkpoint of this log, signed for any folder, if this copy does not have it.

        ``latest``: the checkpoint that was just read, which need not be read again. None also if the log
        has no checkpoint: then it has no history by which it could be recognised. Raises KeyringError,
        CheckpointError.
        """
        first = self.first()
        last = recall_history(keyring.folder, first) if first is not None else None
        if last is None or (latest is not None and last == latest.named) or self._has(last):
            return None
        return last

    def first(self) -> Previous | None:
        """Return the first checkpoint of this log, or None if it has none. Raises CheckpointError."""
        if self._first is None:
            with self.explained():
                size = _smallest_in(self.folder)
            self._first = self._named(size) if size else None
        return self._first

    def _has(self, checkpoint: Previous) -> bool:
        with self.explained():
            exists = self.path(checkpoint.size).is_file()
        return exists and self._named(checkpoint.size) == checkpoint

    def is_known(self, keyring: Keyring) -> bool:
        """Return whether the keys' folder knows how far this log went.

        It knows that by the log's path or, of a log that was moved, by its last checkpoint.
        """
        if recall(keyring.folder, self.folder):
            return True
        with self.explained():
            size = self.latest_size()
            return bool(size) and self._named(size) in recall_all(keyring.folder)

    def add(self, signed: SignedCheckpoint) -> None:
        """Store it durably, whole or not at all, under the caller's ``locked``. Raises CheckpointError.

        A checkpoint of the same size is replaced only by the same text with other signatures.
        """
        path = self.path(signed.checkpoint.size)
        with self.explained():
            if path.exists() and self._named(signed.checkpoint.size) != signed.named:
                raise CheckpointError(
                    f"{path}: there is another checkpoint of this size already.",
                    next_step="Run `fallback-tier audit verify`: history may have been rewritten.",
                    kind="another_of_this_size",
                )
            make_private_directory(path.parent)
            write_whole(path, signed.note)
        self._made = signed

    def frontier(self, signed: SignedCheckpoint) -> Frontier | None:
        """Return the cached frontier if it is exactly that of the signed tree, else None."""
        try:
            document = json.loads(read_regular(self.folder / "frontier.json", MAX_NOTE_BYTES))
            cached = Frontier(int(document["size"]), map(bytes.fromhex, document["hashes"]))
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        is_signed = (cached.size, cached.root()) == (signed.checkpoint.size, signed.checkpoint.root)
        return cached if is_signed else None

    def remember(self, frontier: Frontier) -> None:
        """Cache the frontier for the next writer.

        It is written in place and not synced: a failure only costs time. A half-written one has no signed
        root, and is not used.
        """
        document = {"size": frontier.size, "hashes": [digest.hex() for digest in frontier.hashes]}
        path = self.folder / "frontier.json"
        try:
            with descriptor_of(path, os.O_WRONLY | os.O_CREAT) as descriptor:
                os.ftruncate(descriptor, os.write(descriptor, json.dumps(document).encode()))
        except OSError:
            return

    @contextmanager
    def locked(self, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the lock of the only writer, across processes and threads. Raises CheckpointError."""
        with self.explained():
            make_private_directory(self.folder)
            descriptor = os.open(
                self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
            )
        try:
            with self.explained():
                lock(descriptor, fcntl.LOCK_EX, timeout_s)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Translate OSError to CheckpointError."""
        try:
            yield
        except TimeoutError as error:
            raise CheckpointError(
                f"Checkpoints in {self.folder}: another process holds the lock.",
                next_step="Wait for it to end, or find it with `fuser` on the file .lock there.",
                kind="locked",
            ) from error
        except OSError as error:
            raise CheckpointError(
                f"Checkpoints in {error.filename or self.folder}: {error.strerror or error}.",
                next_step="Check the folder's owner and mode, and the space on its disk.",
            ) from error

    def _named(self, size: int) -> Previous:
        return named_by(size, self._read(self.path(size)))

    def _read(self, path: Path) -> bytes:
        with self.explained():
            return read_regular(path, MAX_NOTE_BYTES + 1)


def gone_because(last: Previous, folder: Path) -> str:
    """Return a sentence part on the missing checkpoint ``last``, and how it may have gone."""
    return (
        f"a checkpoint of {last.size} events was signed for {folder}, and is not there now "
        "(removed, exchanged, or put back to an older state)"
    )


def ahead_because(last: Previous, folder: Path) -> str:
    """Return why a log that continues to ``last`` elsewhere must not be continued in ``folder``."""
    return (
        f"{folder} holds an older copy of it: these keys signed a checkpoint of {last.size} events of the "
        "same audit trail, which is not in this copy"
    )


def _gap(before: Previous | None, named: Previous | None) -> TrailFault | None:
    """Return the fault if the checkpoint ``named`` as the one before is not ``before``, else None."""
    if before == named:
        return None
    if named is None:
        return TrailFault(
            "not_the_first", "it says that it is the first, but there are checkpoints before it"
        )
    if before is None or before.size != named.size:
        return TrailFault(
            "checkpoint_missing",
            f"the checkpoint of size {named.size} before it is missing (removed)",
        )
    return TrailFault(
        "checkpoint_exchanged",
        f"the checkpoint of size {named.size} before it is another one (exchanged)",
    )


def _untrusted(path: Path, reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(
        f"Checkpoint {path} can't be trusted: {reason.rstrip('.')}.",
        next_step="Keep it for analysis; check that --keys names the keys of this deployment.",
        kind=kind,
    )
