"""Reads what a release ships, in memory and within limits. Nothing is unpacked, nothing runs.

npm tarballs, sdists, wheels, zips, and folders that a client installed into. An archive is anybody's:
whoever made it may have made it to harm a reader (links, ``..``, bombs, two files of one name).
"""

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from fallback_audit.disk_errors import blamed
from fallback_tier.errors import FallbackError, InputError
from fallback_tier.limits import MAX_FILE_BYTES

#: A release as it is downloaded. The largest pure-code releases are below 20 MB.
MAX_ARCHIVE_BYTES = 64 * 1024 * 1024

#: All of it, unpacked. gzip reaches 1,000 : 1; real packages stay below 10 : 1.
MAX_UNPACKED_BYTES = 512 * 1024 * 1024

#: What is kept of it: the source files of one language, in memory twice (both releases).
MAX_KEPT_BYTES = 64 * 1024 * 1024

#: Headers of one member in a tar (long names, pax records): tarfile reads them whole.
MAX_HEADER_BYTES = 1024 * 1024

#: Files and folders in it. Large npm packages have some 10,000.
MAX_MEMBERS = 50_000

_TAR = (".tgz", ".tar.gz", ".tar")
_ZIP = (".zip", ".whl")

Keep = Callable[[str], bool]


class ArchiveError(InputError):
    """An archive that can't be read, or that must not be."""

    code = "archive"


class _Member(NamedTuple):
    name: str
    read: Callable[[int], bytes]


def read_release(path: Path, keep: Keep) -> dict[str, bytes]:
    """Content by path of those files that ``keep`` wants, without the archive's own top folder.

    Raises ArchiveError: no such file, no known format, damaged, over a limit above, or a member that
    is a link, a device, twice there, or leads outside.
    """
    try:
        if path.is_dir():
            return _kept(path, _folder(path), keep)
        if path.stat().st_size > MAX_ARCHIVE_BYTES:
            raise _refused(
                path, f"it is larger than {MAX_ARCHIVE_BYTES:,} bytes", kind="archive_too_large"
            )
        return _without_top_folder(path, _from_archive(path, keep), keep)
    except OSError as error:
        raise _blamed(path, error, error.strerror or str(error), kind="unreadable") from error
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,
    ) as error:
        raise _blamed(path, error, f"it is damaged ({error})", kind="damaged") from error
    except (
        NotImplementedError,
        RuntimeError,
    ) as error:  # how zipfile says: an odd method, a password
        raise _refused(path, f"it can't be unpacked ({error})") from error


def _from_archive(path: Path, keep: Keep) -> dict[str, bytes]:
    def anywhere(name: str) -> bool:
        return keep(name) or keep(name.partition("/")[2])

    name = path.name.lower()
    with path.open("rb") as stream:
        if name.endswith(_TAR):
            return _kept(path, _tar(path, stream, packed=not name.endswith(".tar")), anywhere)
        if name.endswith(_ZIP):
            return _kept(path, _zip(path, stream), anywhere)
    raise _refused(
        path, f"its name ends in none of {', '.join((*_TAR, *_ZIP))}", kind="not_an_archive"
    )


def _kept(path: Path, members: Iterable[_Member], keep: Keep) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    total = 0
    for count, member in enumerate(members, start=1):
        if count > MAX_MEMBERS:
            raise _refused(
                path, f"it has more than {MAX_MEMBERS:,} members", kind="too_many_members"
            )
        name = _plain(path, member.name)
        if name in seen:
            raise _refused(path, f"{name!r} is in it twice", kind="duplicate_name")
        seen.add(name)
        if not keep(name):
            continue
        content = member.read(MAX_FILE_BYTES + 1)
        total += len(content)
        if len(content) > MAX_FILE_BYTES or total > MAX_KEPT_BYTES:
            raise _refused(
                path,
                f"{name!r} makes it larger than what is read into memory",
                kind="files_too_large",
            )
        files[name] = content
    return files


def _tar(path: Path, stream: IO[bytes], *, packed: bool) -> Iterator[_Member]:
    bounded = _Bounded(path, gzip.GzipFile(fileobj=stream) if packed else stream)
    count = 0
    # Read as a stream: no header makes it seek back.
    with tarfile.open(fileobj=io.BufferedReader(bounded), mode="r|") as tar:
        while (entry := tar.next()) is not None:
            count += 1
            if count > MAX_MEMBERS:  # folders, too
                raise _refused(
                    path, f"it has more than {MAX_MEMBERS:,} members", kind="too_many_members"
                )
            # It would keep all of them, with their headers.
            tar.members.clear()  # type: ignore[attr-defined]
            bounded.member_ends(tar.offset)
            if entry.isdir():
                _plain(path, entry.name.rstrip("/") or ".")
                continue
            if not entry.isreg():
                raise _refused(path, f"{entry.name!r} is a link or a device", kind="link_or_device")
            file = tar.extractfile(entry)
            if file is not None:
                yield _Member(entry.name, file.read)


def _zip(path: Path, stream: IO[bytes]) -> Iterator[_Member]:
    total = 0
    with zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            total += entry.file_size
            if total > MAX_UNPACKED_BYTES:
                raise _refused(
                    path,
                    f"unpacked it has more than {MAX_UNPACKED_BYTES:,} bytes",
                    kind="unpacked_too_large",
                )
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise _refused(
                    path, f"{entry.filename!r} is a link or a device", kind="link_or_device"
                )
            if entry.is_dir():
                _plain(path, entry.filename.rstrip("/"))
                continue
            yield _Member(entry.filename, partial(_unzipped, archive, entry))


def _unzipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    with archive.open(entry) as file:
        return file.read(limit)


def _folder(root: Path) -> Iterator[_Member]:
    for place in sorted(root.rglob("*")):
        if place.is_symlink():
            raise _refused(
                root, f"{place.relative_to(root).as_posix()!r} is a link", kind="link_or_device"
            )
        if place.is_file():
            with place.open("rb") as file:
                yield _Member(place.relative_to(root).as_posix(), file.read)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error at MAX_UNPACKED_BYTES, or where a member's headers have more
    than MAX_HEADER_BYTES: a bomb costs no more."""

    def __init__(self, path: Path, source: IO[bytes] | gzip.GzipFile) -> None:
        self._path = path
        self._source = source
        self._given = 0
        self._headers_end = MAX_HEADER_BYTES

    def member_ends(self, offset: int) -> None:
        """The next member's headers begin there. Raises ArchiveError past the limit: tarfile would
        count its way up to any offset, in a file that has long ended."""
        if offset > MAX_UNPACKED_BYTES:
            raise self._too_large()
        self._headers_end = offset + MAX_HEADER_BYTES

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """As any raw stream. Raises ArchiveError at a limit."""
        content = self._source.read(len(buffer))
        self._given += len(content)
        if self._given > MAX_UNPACKED_BYTES:
            raise self._too_large()
        # What is read ahead is counted too: it is less than a header's limit.
        if self._given > self._headers_end + io.DEFAULT_BUFFER_SIZE + tarfile.RECORDSIZE:
            raise _refused(
                self._path,
                f"a member's headers have more than {MAX_HEADER_BYTES:,} bytes",
                kind="headers_too_large",
            )
        buffer[: len(content)] = content
        return len(content)

    def _too_large(self) -> ArchiveError:
        return _refused(
            self._path,
            f"unpacked it has more than {MAX_UNPACKED_BYTES:,} bytes",
            kind="unpacked_too_large",
        )


def _plain(path: Path, name: str) -> str:
    """The name of a member, relative and without detours."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name or ":" in name[:2]:
        raise _refused(path, f"{name!r} leads outside", kind="leads_outside")
    return str(pure)


def _without_top_folder(path: Path, files: dict[str, bytes], keep: Keep) -> dict[str, bytes]:
    """npm's ``package/``, an sdist's ``name-1.0/``. A wheel has none: its folders are packages."""
    tops = {name.partition("/")[0] for name in files}
    single = len(tops) == 1 and all("/" in name for name in files)
    if not single or path.name.lower().endswith(".whl"):
        return {name: content for name, content in files.items() if keep(name)}
    bare = {name.partition("/")[2]: content for name, content in files.items()}
    return {name: content for name, content in bare.items() if keep(name)}


def _blamed(path: Path, error: Exception, why: str, *, kind: str) -> FallbackError:
    return blamed(error, f"The release {str(path)!r}", _refused(path, why, kind=kind))


def _refused(path: Path, why: str, *, kind: str = "") -> ArchiveError:
    return ArchiveError(
        f"The release {str(path)!r} is not read: {why}.",
        next_step="Give the release's own archive (.tgz, .tar.gz, .whl, .zip) as it was published.",
        kind=kind,
    )
