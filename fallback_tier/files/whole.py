"""Files that are written whole or not at all; of a cache's small files the last used are kept."""

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

#: The limit of small results in one folder of a cache: each is some 100 bytes to 100 kB.
MAX_KEPT_FILES = 2_000

#: The limit of a file that is read: far above what is written there. A larger one is not ours.
MAX_KEPT_BYTES = 64 * 1024 * 1024

#: The ending of a file that is being written. After an hour its process is taken for dead.
_PARTIAL, _MAX_WRITING_NS = ".part", 3600 * 10**9


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old or the new content, also if several processes write it.

    Not synced: what must survive a power cut belongs in the audit trail (``fallback_audit.files``). Raises
    OSError; then nothing of it remains.
    """
    partial = path.with_name(f".{path.name[:32]}.{secrets.token_hex(4)}{_PARTIAL}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def keep(path: Path, content: bytes, most: int = MAX_KEPT_FILES) -> None:
    """Write a cache file, and remove all but the ``most`` last used of its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    last_used, killed_before = {}, time.time_ns() - _MAX_WRITING_NS
    for file in path.parent.iterdir():
        with suppress(FileNotFoundError):  # removed or renamed by another process meanwhile
            last_use = file.stat().st_atime_ns
            if file.suffix != _PARTIAL or last_use < killed_before:
                last_used[file] = last_use
    for file in sorted(last_used, key=last_used.__getitem__, reverse=True)[most:]:
        file.unlink(missing_ok=True)


def kept(path: Path, max_bytes: int = MAX_KEPT_BYTES) -> bytes | None:
    """Return a cached file's content, or None.

    This counts as a use; the time of writing stays. Raises OSError, also if there are more than
    ``max_bytes``.
    """
    with suppress(FileNotFoundError):
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            # Not EFBIG, which would be a disk failure.
            raise OSError(errno.EMSGSIZE, f"it has more than {max_bytes:,} bytes", str(path))
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
        return content
    return None
