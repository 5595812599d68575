"""The evidence store: content-addressed files next to the chain, named by their SHA-256; also models.

Only their owner can read them. Earlier releases encrypted raw prompts and answers (ADR-0126): such a file
is recognised, never read, and replaced once its content is put again.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from fallback_audit.disk_errors import blamed
from fallback_audit.errors import (
    DiskError,
    EncryptedEvidenceError,
    EvidenceError,
    FallbackError,
    UnreadEvidenceError,
)
from fallback_audit.events import Digest
from fallback_audit.files import (
    descriptor_of,
    lock,
    made_whole,
    make_private_directory,
    read_regular,
    sync_directory,
    write_whole,
)
from fallback_audit.ports import EvidenceStore

#: Largest piece of evidence. Twice the largest patch we make (8 MiB); logs are cut earlier.
MAX_EVIDENCE_BYTES = 16 * 1024 * 1024

#: First bytes of files that an earlier release encrypted. Evidence may begin so: compare its digest first.
ENCRYPTED = b"fallback-tier/evidence/v1\0"

#: Name of the file with the store's id, and the id's length in bytes.
_ID, _ID_BYTES = "id", 8

#: How a file's name begins until it is whole. A process that died may leave such a file.
PART_PREFIX = ".tmp-"

#: Errors of opening a planted link or socket, or a path with a file in place of a folder.
_PLANTED = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FAN_OUT = re.compile(r"[0-9a-f]{2}")

_ModelT = TypeVar("_ModelT", bound=BaseModel)


class StoredFile(NamedTuple):
    """A file in the store's folders. ``digest`` None: a part, left by a process that died.

    ``touched``: when it was last put, in seconds since the epoch.
    """

    path: Path
    digest: Digest | None
    size: int
    touched: float


class FileEvidenceStore:
    """``EvidenceStore`` on a directory: ``root/ab/cd…``, files 0600, directories 0700.

    Fan-out by the first byte keeps each directory small at a million files. The root is locked (flock)
    while a file is stored or removed, so that no file is removed just as ``put`` returns its digest.
    """

    def __init__(self, root: Path, *, max_bytes: int = MAX_EVIDENCE_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def identify(self) -> str:
        """Return the store's id, 16 hexadecimal characters, making one for a new store.

        It distinguishes the stores of several machines that write one audit trail. Raises EvidenceError.
        """
        try:
            make_private_directory(self._root)
            with self._locked(fcntl.LOCK_EX):
                store_id = self.identity()
                if store_id is None:
                    store_id = secrets.token_hex(_ID_BYTES)
                    write_whole(self._root / _ID, store_id.encode())
        except OSError as error:
            raise self._failed(self._root, error) from error
        return store_id

    def identity(self) -> str | None:
        """Return the store's id, or None if it has none."""
        try:
            return read_regular(self._root / _ID, 2 * _ID_BYTES).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def put(self, content: bytes) -> Digest:
        """Store durably and return the digest. Idempotent; an existing file counts as new again.

        Raises EvidenceError if over the size cap, if the disk fails, and if there is an altered file of
        this digest: replacing it would hide that.
        """
        if len(content) > self._max_bytes:
            raise EvidenceError(
                f"Evidence of {len(content):,} bytes is over the cap of {self._max_bytes:,}.",
                next_step="Cut the log or the patch before storing it.",
                kind="too_large",
            )
        digest = hashlib.sha256(content).hexdigest()
        path = self.path(digest)
        try:
            make_private_directory(path.parent)
            with self._locked(fcntl.LOCK_SH):
                if not path.exists() or self._is_encrypted(digest):
                    with made_whole(path, PART_PREFIX) as file:
                        file.write(content)
                else:
                    os.utime(path)
                    sync_directory(path.parent)
        except OSError as error:
            raise self._failed(path, error) from error
        return digest

    def get(self, digest: Digest) -> bytes:
        """Return the content of ``digest``.

        Raises EvidenceError: missing, altered; UnreadEvidenceError: it may not be read; DiskError: the
        system failed to read it; EncryptedEvidenceError: an earlier release encrypted it.
        """
        content = self._bytes(digest)
        # Check the digest first: content that only looks encrypted may be intact.
        if _digest(content) == digest:
            return content
        if content.startswith(ENCRYPTED):
            raise EncryptedEvidenceError(
                f"Evidence {self.path(digest)} was encrypted by an earlier release of fallback-tier, and "
                "this one can't read it.",
                next_step="Read it, or resume its fix, with the release that wrote it and its keys' "
                "folder. It is a model's prompt, answer or judgement: no patch and no log is lost.",
            )
        raise self._altered(self.path(digest), kind="altered")

    def files(self) -> Iterator[StoredFile]:
        """Yield all files in the store, directory by directory. Raises EvidenceError."""
        try:
            for folder in sorted(_entries(self._root), key=lambda entry: entry.name):
                if _FAN_OUT.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
                    yield from _files(folder)
        except OSError as error:
            raise self._failed(self._root, error) from error

    def find(self, digest: Digest) -> StoredFile | None:
        """Return the file of this digest, unread, or None if there is none. Raises EvidenceError."""
        path = self.path(digest)
        try:
            file_stat = path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(path, error) from error
        return StoredFile(path, digest, file_stat.st_size, file_stat.st_mtime)

    def remove(self, file: StoredFile, *, untouched_since: float) -> bool:
        """Delete a file unless it was put after ``untouched_since``, and return whether it was deleted.

        Call ``sync`` when done. Raises EvidenceError.
        """
        try:
            with self._locked(fcntl.LOCK_EX):
                if file.path.lstat().st_mtime > untouched_since:
                    return False
                file.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed(file.path, error) from error
        return True

    def sync(self) -> None:
        """Make removals durable. Raises EvidenceError."""
        try:
            for folder in _entries(self._root):
                if folder.is_dir(follow_symlinks=False):
                    sync_directory(Path(folder.path))
        except OSError as error:
            raise self._failed(self._root, error) from error

    def _bytes(self, digest: Digest) -> bytes:
        path = self.path(digest)
        try:
            # NOFOLLOW, NONBLOCK: a planted link or pipe is not evidence, and must not block.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = None
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    content = file.read(self._max_bytes + 1)
        except FileNotFoundError as error:
            raise EvidenceError(
                f"Evidence {digest} is missing from {self._root}.",
                next_step="Restore it from a copy; the audit trail still names its digest.",
                kind="missing",
            ) from error
        except OSError as error:
            failed = self._failed(path, error)
            if error.errno in _PLANTED or isinstance(failed, DiskError):
                raise failed from error
            raise UnreadEvidenceError(failed.problem, next_step=failed.next_step) from error
        if content is None:
            raise self._altered(path, kind="altered")
        return content

    def _is_encrypted(self, digest: Digest) -> bool:
        """Return whether an earlier release encrypted it. Raises EvidenceError: altered, unreadable."""
        try:
            self.get(digest)
        except EncryptedEvidenceError:
            return True
        return False

    def path(self, digest: str) -> Path:
        """Return the path of this digest's file, existing or not. Raises EvidenceError: not a digest."""
        if not _DIGEST.fullmatch(digest):
            raise EvidenceError(
                f"{digest[:80]!r} is not a SHA-256 digest (64 lower-case hex characters).",
                next_step="Copy the digest from the audit trail.",
                kind="not_a_digest",
            )
        return self._root / digest[:2] / digest[2:]

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        """Lock the root directory itself, which needs no lock file."""
        with descriptor_of(self._root, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            lock(descriptor, operation)
            yield

    def _altered(self, path: Path, *, kind: str = "") -> EvidenceError:
        return EvidenceError(
            f"Evidence {path} was altered: its bytes no longer match its name.",
            next_step="Keep the file for analysis, move it away, restore it from a copy.",
            kind=kind,
        )

    def _failed(self, path: Path, error: OSError) -> FallbackError:
        failed = EvidenceError(
            f"Evidence {path}: {error.strerror or error}.",
            next_step=f"Check free space, owner and mode of {self._root}.",
        )
        return blamed(error, f"Evidence {path}", failed)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entries(folder: Path | os.DirEntry[str]) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _files(folder: "os.DirEntry[str]") -> Iterator[StoredFile]:
    """Yield the store's files in one directory, ignoring others."""
    for entry in sorted(_entries(folder), key=lambda entry: entry.name):
        name = folder.name + entry.name
        is_whole = _DIGEST.fullmatch(name) is not None
        if not (is_whole or entry.name.startswith(PART_PREFIX)):
            continue
        try:
            file_stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # removed, or made whole, since the directory was read
            continue
        yield StoredFile(
            Path(entry.path), name if is_whole else None, file_stat.st_size, file_stat.st_mtime
        )


def put_document(evidence: EvidenceStore, model: BaseModel) -> Digest:
    """Store a pydantic model as JSON. Raises EvidenceError.

    In ASCII: its texts may have a lone surrogate, which JSON can escape and UTF-8 can't encode.
    """
    return evidence.put(json.dumps(model.model_dump(mode="json")).encode("ascii"))


def get_document(evidence: EvidenceStore, kind: type[_ModelT], digest: Digest) -> _ModelT:
    """Read a stored model. Raises EvidenceError: missing, altered, or in another version's format."""
    content = evidence.get(digest)
    try:
        return kind.model_validate(json.loads(content))
    except (ValidationError, ValueError) as error:
        raise EvidenceError(
            f"Evidence {digest} is no {kind.__name__} as this version writes it.",
            next_step="Resume with the version that started the fix, or start a new one.",
            kind="not_the_document",
        ) from error
