"""Archives of source, as a registry has them: fetched, held against a hash, read in memory. Nothing is
unpacked to a file system, and nothing in them is run.
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

#: Of an archive, as it is fetched: a package without wheels is small as a rule.
MAX_ARCHIVE_BYTES = 20_000_000

#: … and unpacked, as it is read.
MAX_UNPACKED_BYTES = 200_000_000

#: Files and folders of an archive that are looked at: the largest public ones have some 40,000.
MAX_MEMBERS = 100_000

#: Of an extended header of a tar archive, which names one file, or tells of it: a path has at most 4,096
#: bytes.
MAX_HEADER_BYTES = 1_000_000

#: Of all of them together: with 40,000 files of some 100 bytes each it is 4 MB. They are read record by
#: record, the shortest of five bytes.
MAX_HEADERS_BYTES = 10_000_000

_OF_NEXT = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (*_OF_NEXT, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)

#: Bytes of what skips over a file that is not asked for, at a time.
_CHUNK = 65_536

#: Of a number in a tar archive (digits): a file has fewer than 2⁶⁴ bytes.
_DIGITS = 20

_GZIP = b"\x1f\x8b"
_ZIP_ENTRY = b"PK\x01\x02"

#: The others unpack without a bound.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

#: What the standard library raises for archives that somebody made to be odd: encrypted ones, numbers that
#: are none, sizes below nothing or above what a machine counts.
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

#: Of a name in a message (characters).
_SHOWN = 80

#: Wall clock of one fetch.
FETCH_TIMEOUT_S = 30.0

#: Of what a network library says of a failure (characters).
_QUOTED = 300

#: Statuses of a registry, or of what stands before it, that may be another one soon: a proxy that asks who
#: it is, a request that took too long or came too early, too many of them. And all from 500 on.
_NOT_NOW = frozenset({407, 408, 425, 429})

#: Is this the member that is asked for?
Wanted = Callable[[str], bool]


class MemberTooLargeError(ToolFailedError):
    """A member of an archive is larger than the caller's limit."""


def fetched(url: str, digest: str) -> bytes | None:
    """The archive that the registry's own listing names, held against its hash (``sha256:…``); None: as
    ``page``, or it is another archive. Raises as ``page`` does."""
    content = page(url)
    known = content is not None and f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content if known else None


def page(url: str) -> bytes | None:
    """Return a registry's document at an address.

    None: the registry does not give it, and will not do so the next time: it answers
    with a status like 404, with more than MAX_ARCHIVE_BYTES, or is not asked (``_is_fetched``: it, and each
    address that it leads to; from TLS nothing leads to plain HTTP). Raises
    ToolFailedError where it does not answer now, which says nothing of what it has.
    """
    if not _is_fetched(url):
        return None
    # A lock with wheels alone never pays for it.
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
        why = " ".join(str(error).split())[:_QUOTED] or type(error).__name__
        raise ToolFailedError(
            f"the registry {urlsplit(url).hostname} did not answer: {why}",
            next_step="Check the network, the proxy and the registry settings, and run it again.",
            kind="no_answer",
        ) from error


def file_name(url: str) -> str:
    """Return the file's name in its address."""
    return unquote(PurePosixPath(urlsplit(url).path).name)


def _is_fetched(url: str) -> bool:
    """Over TLS, or from this machine itself; and is it an address at all?"""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname == "127.0.0.1")


def member_text(content: bytes, wanted: Wanted, most: int) -> str | None:
    """The text of its first file of a wanted name; None: it has none, or can't be read.

    Raises MemberTooLargeError, before it is read, for one of more than ``most`` bytes.
    """
    with suppress(*_UNREADABLE):
        if zipfile.is_zipfile(io.BytesIO(content)):
            return _from_zip(content, wanted, most)
        return _from_tar(content, wanted, most)
    return None


class _Unpacked:
    """A tar archive, compressed or not, as it is read: so much of it, and never all of it in memory."""

    def __init__(self, content: bytes) -> None:
        packed = io.BytesIO(content)
        self._file = gzip.GzipFile(fileobj=packed) if content.startswith(_GZIP) else packed
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int) -> bytes:
        """So many bytes, and what fills the last block of them is left out. Raises ReadError."""
        blocks = self._blocks(size)
        found = self._file.read(blocks)
        if len(found) < size:
            raise tarfile.ReadError("it ends too soon")
        return found[:size]

    def skip(self, size: int) -> None:
        """As ``read``, and nothing of it is kept."""
        left = self._blocks(size)
        while left and (found := self._file.read(min(left, _CHUNK))):
            left -= len(found)

    def _blocks(self, size: int) -> int:
        blocks = -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        self._left -= blocks
        if size < 0 or self._left < 0:
            raise tarfile.ReadError(f"more than {MAX_UNPACKED_BYTES} bytes")
        return blocks


@dataclass
class _Extended:
    """What extended headers say of the next file: its name, its size. All else in them is not kept, nor is
    what they say of all files: each would have it."""

    name: str | None = None
    size: int | None = None

    def read(self, kind: bytes, text: bytes) -> None:
        """Raises ReadError, ValueError."""
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
    """``LENGTH KEYWORD=VALUE`` and a line's end each, in time in proportion to their length. The standard
    library's reader takes the square of it. Raises ReadError."""
    place = 0
    while place < len(text):
        length, space, _ = text[place : place + _DIGITS].partition(b" ")
        if not space or not length.isdigit():
            return
        begin, end = place + len(length) + 1, place + int(length)
        if not begin < end <= len(text):
            raise tarfile.ReadError("a record of no such length")
        keyword, _, value = text[begin : end - 1].partition(b"=")
        yield keyword, value
        place = end


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _from_tar(content: bytes, wanted: Wanted, most: int) -> str | None:
    """Read header by header, and nothing is kept: a TarFile keeps each, with all that was said of all."""
    unpacked, extended = _Unpacked(content), _Extended()
    members, left = MAX_MEMBERS, MAX_HEADERS_BYTES
    while members:
        header = unpacked.read(tarfile.BLOCKSIZE)
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if member.type == tarfile.GNUTYPE_SPARSE:
            return None
        if member.type in _LONG:
            left -= member.size
            if member.size > MAX_HEADER_BYTES or left < 0:
                return None
            extended.read(member.type, unpacked.read(member.size))
            continue
        members -= 1
        name = member.name if extended.name is None else extended.name
        size = member.size if extended.size is None else extended.size
        extended = _Extended()
        if size < 0:
            return None
        if member.isfile() and wanted(name):
            _check_size(name, size, most)
            return unpacked.read(size).decode("utf-8", "replace")
        if member.isfile() or member.type not in tarfile.SUPPORTED_TYPES:
            unpacked.skip(size)
    return None


def _from_zip(content: bytes, wanted: Wanted, most: int) -> str | None:
    if content.count(_ZIP_ENTRY) > MAX_MEMBERS:
        return None
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if wanted(member.filename) and member.compress_type in _ZIP_METHODS:
                _check_size(member.filename, member.file_size, most)
                with archive.open(member) as file:
                    # Of what unpacks to more than its header says, no more is unpacked than that.
                    return file.read(most + 1).decode("utf-8", "replace")
    return None


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        raise MemberTooLargeError(
            f"the archive's {name[:_SHOWN]!a} has {size:,} bytes, more than {most:,}",
            next_step="Ask for a release that has a wheel.",
        )
