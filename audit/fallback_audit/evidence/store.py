"""The evidence store: content-addressed files beside the chain, named by their SHA-256."""

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest
from fallback_audit.files import make_private_directory, sync_directory

#: One piece of evidence. Twice the largest patch we make (8 MiB); logs are cut before.
MAX_EVIDENCE_BYTES = 16 * 1024 * 1024

_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileEvidenceStore:
    """``EvidenceStore`` on a directory: ``root/ab/cd…``, files 0600, directories 0700.

    Fan-out by the first byte keeps each directory small at a million files.
    """

    def __init__(self, root: Path, *, max_bytes: int = MAX_EVIDENCE_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def put(self, content: bytes) -> Digest:
        """Store durably and return the digest. Idempotent.

        Raises EvidenceError over the cap, where the disk refuses, and where a file of this digest
        is there but altered: replacing it would hide that.
        """
        if len(content) > self._max_bytes:
            raise EvidenceError(
                f"Evidence of {len(content):,} bytes is over the cap of {self._max_bytes:,}.",
                next_step="Cut the log or the patch before storing it.",
            )
        digest = hashlib.sha256(content).hexdigest()
        path = self.path(digest)
        try:
            if path.exists():
                self.get(digest)
                sync_directory(path.parent)
            else:
                make_private_directory(path.parent)
                _write_durably(path, content)
        except OSError as error:
            raise self._failed(path, error) from error
        return digest

    def get(self, digest: Digest) -> bytes:
        """The bytes of ``digest``. Raises EvidenceError: missing, altered, unreadable."""
        path = self.path(digest)
        try:
            # NOFOLLOW, NONBLOCK: a planted link or pipe is not evidence, and must not hang us.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = None
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    content = file.read(self._max_bytes + 1)
        except FileNotFoundError as error:
            raise EvidenceError(
                f"Evidence {digest} is missing from {self._root}.",
                next_step="Restore it from a copy; the audit trail still names its digest.",
            ) from error
        except OSError as error:
            raise self._failed(path, error) from error
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise EvidenceError(
                f"Evidence {path} was altered: its bytes no longer match its name.",
                next_step="Keep the file for analysis, move it away, restore it from a copy.",
            )
        return content

    def path(self, digest: str) -> Path:
        """The file of this digest, be it there or not: for people. Raises EvidenceError for no digest."""
        if not _DIGEST.fullmatch(digest):
            raise EvidenceError(
                f"{digest[:80]!r} is not a SHA-256 digest (64 lower-case hex characters).",
                next_step="Copy the digest from the audit trail.",
            )
        return self._root / digest[:2] / digest[2:]

    def _failed(self, path: Path, error: OSError) -> EvidenceError:
        return EvidenceError(
            f"Evidence {path}: {error.strerror or error}.",
            next_step=f"Check free space, owner and mode of {self._root}.",
        )


def _write_durably(path: Path, content: bytes) -> None:
    """Write beside, sync, rename, sync the directory: a crash leaves the whole file or none."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
