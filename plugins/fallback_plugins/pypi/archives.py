"""Source archives of a registry: they are fetched, compared with a hash, and read in memory.

Nothing is unpacked to a file system, and nothing in them is run.
"""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from fallback_tier.errors import ToolFailedError

#: The most bytes of a fetched archive. As a rule a package without wheels is small.
MAX_ARCHIVE_BYTES = 20_000_000

#: The most bytes of an archive that are unpacked to read it.
MAX_UNPACKED_BYTES = 200_000_000

#: The most files and folders of an archive that are read. The largest public archives have some 40,000.
MAX_MEMBERS = 100_000

#: The most bytes of an extended header in a tar archive, which has the name or other properties of one
#: file. A path has at most 4,096 bytes.
MAX_HEADER_BYTES = 1_000_000

#: The most bytes of all extended headers together. With 40,000 files and some 100 bytes for each they have
#: 4 MB. They are read record by record; the shortest record has five bytes.
MAX_HEADERS_BYTES = 10_000_000

_OF_NEXT = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (*_OF_NEXT, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)

#: Bytes that are read at a time to skip a file.
_CHUNK = 65_536

#: The most digits of a number in a tar archive: a file has fewer than 2⁶⁴ bytes.
_DIGITS = 20

_GZIP = b"\x1f\x8b"
_ZIP_ENTRY = b"PK\x01\x02"

#: The compression methods that are read; others unpack without a limit.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

#: What the standard library raises for malformed archives: encrypted ones, invalid numbers, negative or too
#: large sizes.
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
    LookupError,
)

#: The most characters of a name in a message.
_SHOWN = 80

#: Timeout of one fetch, by the wall clock.
FETCH_TIMEOUT_S = 30.0

#: The most characters that a message quotes of a network library's error.
_QUOTED = 300

#: Statuses of a registry or a proxy that are temporary, as are all from 500 on: the proxy requires
#: authentication, a request took too long or came too early, or there were too many requests.
_NOT_NOW = frozenset({407, 408, 425, 429})

#: Returns whether the member of this name is wanted.
Wanted = Callable[[str], bool]


class MemberTooLargeError(ToolFailedError):
    """A member of an archive is larger than the caller's limit."""


def fetched(url: str, digest: str) -> bytes | None:
    """Return the archive at a URL of the registry's listing; None as in ``page``, or if its hash is not
    ``digest`` (``sha256:…``). Raises as ``page`` does."""
    content = page(url)
    is_expected = content is not None and f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content if is_expected else None


def page(url: str) -> bytes | None:
    """Return a registry's document at a URL.

    None: the document isn't available, now or later. The registry answers with a status like 404 or with
    more than MAX_ARCHIVE_BYTES, or the URL or a redirect's is not fetched (``_is_fetched``; no redirect
    from TLS to plain HTTP is followed). Raises ToolFailedError if the registry does not answer now, so that
    the document may exist.
    """
    if not _is_fetched(url):
        return None
    # Imported here, since a lock that only has wheels doesn't need it.
    from fallback_tier.network import AddressError, AnswerTooLargeError, StatusError, fetch

    def allowed(hop: str) -> bool:
        return _is_fetched(hop) and (hop.startswith("https:") or url.startswith("http:"))

    try:
        return fetch(url, max_bytes=MAX_ARCHIVE_BYTES, timeout_s=FETCH_TIMEOUT_S, allowed=allowed)
    except (AddressError, AnswerTooLargeError):
        return None
    except OSError as error:
        if isinstance(error, StatusError) and error.status < 500 and error.status not in _NOT_NOW:
            return None
        cause = " ".join(str(error).split())[:_QUOTED] or type(error).__name__
        raise ToolFailedError(
            f"the registry {urlsplit(url).hostname} did not answer: {cause}",
            next_step="Check the network, the proxy and the registry settings, and run it again.",
            kind="no_answer",
        ) from error


def file_name(url: str) -> str:
    """Return the file name in a URL."""
    return unquote(PurePosixPath(urlsplit(url).path).name)


def _is_fetched(url: str) -> bool:
    """Return whether this is a URL over TLS, or over HTTP on this machine (127.0.0.1)."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname == "127.0.0.1")


def member_text(content: bytes, wanted: Wanted, max_bytes: int) -> str | None:
    """Return the text of the archive's first file with a wanted name; None if there is none, or the archive
    can't be read.

    Raises MemberTooLargeError for a file of more than ``max_bytes``, before it is read.
    """
    with suppress(*_UNREADABLE):
        if zipfile.is_zipfile(io.BytesIO(content)):
            return _from_zip(content, wanted, max_bytes)
        return _from_tar(content, wanted, max_bytes)
    return None


class _Unpacked:
    """A tar archive, compressed or not, that is read in parts: up to MAX_UNPACKED_BYTES, and never all in
    memory."""

    def __init__(self, content: bytes) -> None:
        packed = io.BytesIO(content)
        self._file = gzip.GzipFile(fileobj=packed) if content.startswith(_GZIP) else packed
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, and skip the padding of their last block. Raises ReadError."""
        blocks = self._blocks(size)
        data = self._file.read(blocks)
        if len(data) < size:
            raise tarfile.ReadError("it ends too soon")
        return data[:size]

    def skip(self, size: int) -> None:
        """Skip what ``read`` would read."""
        remaining = self._blocks(size)
        while remaining and (chunk := self._file.read(min(remaining, _CHUNK))):
            remaining -= len(chunk)

    def _blocks(self, size: int) -> int:
        blocks = -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        self._left -= blocks
        if size < 0 or self._left < 0:
            raise tarfile.ReadError(f"more than {MAX_UNPACKED_BYTES} bytes")
        return blocks


@dataclass
class _Extended:
    """The next file's name and size from extended headers. Other properties are not kept, nor are headers
    for all files, which each file would have to store."""

    name: str | None = None
    size: int | None = None

    def read(self, kind: bytes, text: bytes) -> None:
        """Read an extended header. Raises ReadError, ValueError."""
        if kind == tarfile.GNUTYPE_LONGNAME:
            self.name = _decoded(text.partition(b"\0")[0])
        for keyword, value in _records(text) if kind in _OF_NEXT else ():
            if keyword == b"path":
                self.name = _decoded(value)
            elif keyword == b"size":
                self.size = int(value[:_DIGITS])
            elif keyword.startswith(b"GNU.sparse."):
                raise tarfile.ReadError("a file with gaps")


def _records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (keyword, value) of records like ``LENGTH KEYWORD=VALUE``, each with a line end. This takes
    linear time; the standard library's reader takes quadratic time. Raises ReadError."""
    position = 0
    while position < len(text):
        length, space, _ = text[position : position + _DIGITS].partition(b" ")
        if not space or not length.isdigit():
            return
        begin, end = position + len(length) + 1, position + int(length)
        if not begin < end <= len(text):
            raise tarfile.ReadError("a record of no such length")
        keyword, _, value = text[begin : end - 1].partition(b"=")
        yield keyword, value
        position = end


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _from_tar(content: bytes, wanted: Wanted, max_bytes: int) -> str | None:
    """Return the text of the first wanted file. This reads header by header and keeps none; a TarFile would
    keep all of them."""
    unpacked, extended = _Unpacked(content), _Extended()
    members_left, header_bytes_left = MAX_MEMBERS, MAX_HEADERS_BYTES
    while members_left:
        header = unpacked.read(tarfile.BLOCKSIZE)
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if member.type == tarfile.GNUTYPE_SPARSE:
            return None
        if member.type in _LONG:
            header_bytes_left -= member.size
            if member.size > MAX_HEADER_BYTES or header_bytes_left < 0:
                return None
            extended.read(member.type, unpacked.read(member.size))
            continue
        members_left -= 1
        name = member.name if extended.name is None else extended.name
        size = member.size if extended.size is None else extended.size
        extended = _Extended()
        if size < 0:
            return None
        if member.isfile() and wanted(name):
            _check_size(name, size, max_bytes)
            return unpacked.read(size).decode("utf-8", "replace")
        if member.isfile() or member.type not in tarfile.SUPPORTED_TYPES:
            unpacked.skip(size)
    return None


def _from_zip(content: bytes, wanted: Wanted, max_bytes: int) -> str | None:
    if content.count(_ZIP_ENTRY) > MAX_MEMBERS:
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if wanted(member.filename) and member.compress_type in _ZIP_METHODS:
                _check_size(member.filename, member.file_size, max_bytes)
                with archive.open(member) as file:
                    # A member may unpack to more than its header says: unpack no more than the limit.
                    return file.read(max_bytes + 1).decode("utf-8", "replace")
    return None


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise MemberTooLargeError(
            f"the archive's {name[:_SHOWN]!a} has {size:,} bytes, more than {max_bytes:,}",
            next_step="Ask for a release that has a wheel.",
        )
