"""What a source distribution says that it requires, read from its archive: nothing in it is run.

setuptools writes what setup.py computed into ``requires.txt`` when the archive is made. It may differ on
another machine, so that it can show that something is in the way, never that nothing is.
"""

import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress

from packaging.requirements import Requirement

from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.resolving.scratch_lock import ReleaseFile

#: Of an archive, as it is fetched: a package without wheels is small as a rule.
MAX_ARCHIVE_BYTES = 20_000_000

#: … and unpacked, in memory.
MAX_UNPACKED_BYTES = 200_000_000

#: Wall clock of one fetch.
FETCH_TIMEOUT_S = 30.0

_REQUIRES = ".egg-info/requires.txt"


def sdist_requirements(file: ReleaseFile) -> tuple[Requirement, ...] | None:
    """What it requires without extras, on this Python; None: it can't be had, or does not say."""
    content = _fetched(file)
    text = None if content is None else _requires_txt(content)
    return None if text is None else tuple(_parsed(text))


def _fetched(file: ReleaseFile) -> bytes | None:
    """The archive that the registry's own listing names, held against its hash."""
    if not file.url.startswith(("https://", "http://127.0.0.1")):
        return None
    from fallback_tier.network import fetch  # a lock with wheels alone never pays for it

    try:
        content = fetch(file.url, max_bytes=MAX_ARCHIVE_BYTES, timeout_s=FETCH_TIMEOUT_S)
    except OSError:
        return None
    return content if f"sha256:{hashlib.sha256(content).hexdigest()}" == file.hash else None


def _requires_txt(content: bytes) -> str | None:
    with suppress(tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError):
        if zipfile.is_zipfile(io.BytesIO(content)):
            return _from_zip(content)
        return _from_tar(content)
    return None


def _from_tar(content: bytes) -> str | None:
    # 32: gzip's header, or none.
    unpacked = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(content, MAX_UNPACKED_BYTES)
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(_REQUIRES):
                file = archive.extractfile(member)
                return None if file is None else file.read().decode("utf-8", "replace")
    return None


def _from_zip(content: bytes) -> str | None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if member.filename.endswith(_REQUIRES) and member.file_size <= MAX_ARCHIVE_BYTES:
                return archive.read(member).decode("utf-8", "replace")
    return None


def _parsed(text: str) -> Iterator[Requirement]:
    """The lines before the first section, and those of ``[:marker]`` that hold here."""
    applies = True
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            applies = not extra and _holds(marker)
        elif line and applies and (asked := requirement_in(line)) is not None:
            yield asked


def _holds(marker: str) -> bool:
    asked = requirement_in(f"it ; {marker}")
    return asked is not None and (asked.marker is None or asked.marker.evaluate())
