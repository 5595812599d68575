"""Archives of source, as a registry has them: fetched, held against a hash, read in memory. Nothing is
unpacked to a file system, and nothing in them is run.
"""

import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress

#: Of an archive, as it is fetched: a package without wheels is small as a rule.
MAX_ARCHIVE_BYTES = 20_000_000

#: … and unpacked, in memory.
MAX_UNPACKED_BYTES = 200_000_000

#: Wall clock of one fetch.
FETCH_TIMEOUT_S = 30.0

#: Is this the member that is asked for?
Wanted = Callable[[str], bool]


def fetched(url: str, digest: str) -> bytes | None:
    """The archive that the registry's own listing names, held against its hash (``sha256:…``).

    None: it can't be had, or is another.
    """
    if not url.startswith(("https://", "http://127.0.0.1")):
        return None
    from fallback_tier.network import fetch  # a lock with wheels alone never pays for it

    try:
        content = fetch(url, max_bytes=MAX_ARCHIVE_BYTES, timeout_s=FETCH_TIMEOUT_S)
    except OSError:
        return None
    return content if f"sha256:{hashlib.sha256(content).hexdigest()}" == digest else None


def member_text(content: bytes, wanted: Wanted) -> str | None:
    """The text of its first file of a wanted name; None: it has none, or can't be read."""
    with suppress(tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError):
        if zipfile.is_zipfile(io.BytesIO(content)):
            return _from_zip(content, wanted)
        return _from_tar(content, wanted)
    return None


def _from_tar(content: bytes, wanted: Wanted) -> str | None:
    # 32: gzip's header, or none.
    unpacked = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(content, MAX_UNPACKED_BYTES)
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
        for member in archive:
            if member.isfile() and wanted(member.name):
                file = archive.extractfile(member)
                return None if file is None else file.read().decode("utf-8", "replace")
    return None


def _from_zip(content: bytes, wanted: Wanted) -> str | None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if wanted(member.filename) and member.file_size <= MAX_ARCHIVE_BYTES:
                return archive.read(member).decode("utf-8", "replace")
    return None
