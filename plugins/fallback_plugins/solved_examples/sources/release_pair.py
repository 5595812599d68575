"""A solved example from two releases: what the fixed one changed in the vulnerable one's source.

Releases come from the registries, by the real clients: npm packs a tarball, uv unpacks a wheel. No script
runs and nothing is built. The clients work in scratch folders, as the user has configured them.

1. Two releases: the lowest that the advisory calls fixed, and the newest affected one below it.
2. The source files that differ, without files that do not matter (``release_files``).
3. Few enough: all of them. Too many: those that the advisory names. Still too many: no example. A
   release that changed much more than the fix would teach a model the wrong change.
4. Edits. If they are all that changed, with digests of the vulnerable release's files: a copy of it
   is recognised, and gets the whole fix. A part of the change is shown, and never replayed (ADR-0013).

A release is read in memory and within limits: npm tarballs, sdists, wheels, zips, and folders that a client
installed into. Nothing is unpacked, nothing runs. An archive may be made to harm a reader (links, ``..``,
bombs, two files of one name).
"""

import gzip
import io
import json
import lzma
import re
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, NoReturn

from packaging.version import InvalidVersion, Version

from fallback_audit.disk_errors import blamed
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.solved_examples.sources.release_files import (
    LANGUAGES,
    ChangedFile,
    changed_files,
    edits_between,
    is_source,
)
from fallback_plugins.solved_examples.store.records import text_sha256
from fallback_tier.advisory import Advisory, canonical_name, sort_key
from fallback_tier.advisory.matching import PackageMatcher
from fallback_tier.errors import EditError, FallbackError, InputError, ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.files.inputs import parse_toml
from fallback_tier.limits import MAX_FILE_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import ExampleOrigin, ExampleProvenance, SolvedExample

#: Source files and changed lines (removed and added) of one example: 95 of 100 real fixes have at most
#: 4 files, and at most 187 lines (627 of the data set). A larger change is more than a fix.
MAX_FILES = 4
MAX_CHANGED_LINES = 200

#: Changed files between the releases, at most. With more, a release is more than a fix, whatever the
#: advisory names.
MAX_FILES_BETWEEN = 40

#: Releases below the fixed one that are examined: an unaffected branch may lie between.
MAX_STEPS_DOWN = 10

_IMPORT = re.compile(r"\b(?:import|from|require)\b")
_MODULE = re.compile(r"[\w-]+")

_OTHER_WAY = "Write the example by hand, or take the commit of the fix instead of the releases."


class NoExampleError(InputError):
    """Two releases from which no example can be made, with the reason."""

    code = "no_example"


@dataclass(frozen=True)
class Pair:
    """One package, vulnerable and fixed."""

    ecosystem: str
    package: str
    vulnerable: str
    fixed: str


def choose_pair(
    advisory: Advisory,
    package: str | None,
    releases: "RegistryReleases",
    *,
    vulnerable: str | None = None,
    fixed: str | None = None,
) -> Pair:
    """Return the releases to compare, of a package that the advisory names (the first by default).

    Raises NoExampleError if the advisory names no such package or no fixed version, or none of the next
    releases below it is affected; ToolError if the registry can't be reached.
    """
    ecosystem, name, matcher = _named(advisory, package)
    fixed = fixed or next(iter(matcher.fixed), None)
    if fixed is None:
        raise _no_example(f"{advisory.id} names no fixed version of {name}", "Give --fixed.")
    below: str | None = fixed
    for _ in range(0 if vulnerable else MAX_STEPS_DOWN):
        below = releases.newest_below(ecosystem, name, below) if below else None
        if below and matcher.covers(below):
            vulnerable = below
            break
    if vulnerable is None:
        raise _no_example(
            f"no release of {name} near below {fixed} that is available is affected by {advisory.id}",
            "Give --vulnerable, or the releases' archives (--before, --after): of PyPI only wheels for"
            " this Python are asked for.",
            kind="none_affected",
        )
    return _checked(advisory, Pair(ecosystem, name, vulnerable, fixed))


def _checked(advisory: Advisory, pair: Pair) -> Pair:
    matcher = advisory.matcher(pair.ecosystem, pair.package)
    if matcher is None or matcher.covers(pair.fixed) or not matcher.covers(pair.vulnerable):
        raise _no_example(
            f"{advisory.id} does not call {pair.package} {pair.vulnerable} affected and {pair.fixed}"
            " not",
            "Give two versions, one on each side of the fix.",
            kind="not_a_fix",
        )
    return pair


def _named(advisory: Advisory, package: str | None) -> tuple[str, str, PackageMatcher]:
    for ecosystem in advisory.ecosystems:
        if ecosystem not in LANGUAGES:
            continue
        for name in advisory.packages(ecosystem):
            matcher = advisory.matcher(ecosystem, name)
            wanted = package is None or canonical_name(ecosystem, package) == name
            if wanted and matcher is not None:
                return ecosystem, name, matcher
    what = f"the package {package!r}" if package else "a package of npm or PyPI"
    raise _no_example(f"{advisory.id} does not name {what}", "Check --package.")


def example_from(
    advisory: Advisory,
    before: Path,
    after: Path,
    *,
    package: str | None = None,
    vulnerable: str | None = None,
    fixed: str | None = None,
    licence: str | None = None,
) -> SolvedExample:
    """Return the example from two releases: archives, or folders that a client unpacked. Versions and
    licence: by default those that the releases declare. Raises NoExampleError, ArchiveError."""
    ecosystem, name, _ = _named(advisory, package)
    old, new = (_Release.read(path, ecosystem) for path in (before, after))
    pair = _checked(
        advisory,
        Pair(
            ecosystem,
            name,
            vulnerable or _version(old, ecosystem, name, before),
            fixed or _version(new, ecosystem, name, after),
        ),
    )
    changed = changed_files(old.sources, new.sources, (pair.vulnerable, pair.fixed))
    chosen = _chosen(advisory, changed)
    whole = len(chosen) == len(changed)
    _check_whole(chosen, old, new)
    licence = licence or declared_licence(new.manifests) or declared_licence(old.manifests)
    if licence is None:
        raise _no_example(
            f"{pair.package} {pair.fixed} declares no licence",
            "Look it up and give it with --licence; code of unknown licence is not stored.",
            kind="no_licence",
        )
    languages = LANGUAGES[pair.ecosystem]
    return SolvedExample(
        example_id=f"release-{advisory.id}-{pair.package}-{pair.fixed}",
        advisory_id=advisory.id,
        advisory_aliases=advisory.aliases,
        advisory_text=advisory.text,
        ecosystem=pair.ecosystem,
        package=pair.package,
        cwe=advisory.cwe,
        language=languages[PurePosixPath(chosen[0].path).suffix.lower()],
        edits=tuple(edit for file in chosen for edit in _edits(file)),
        file_sha256={file.path: text_sha256(file.before) for file in chosen if whole},
        provenance=ExampleProvenance(
            origin=ExampleOrigin.RELEASE_PAIR,
            source=f"{pair.ecosystem} {pair.package} {pair.vulnerable} and {pair.fixed}"
            f" ({len(chosen)} of {len(changed)} changed source files)",
            revision=f"{pair.vulnerable}..{pair.fixed}",
        ),
        licence=licence,
    )


@dataclass(frozen=True)
class _Release:
    sources: Mapping[str, str]
    manifests: Mapping[str, bytes]

    @classmethod
    def read(cls, path: Path, ecosystem: str) -> "_Release":
        files = read_release(path, lambda name: is_source(ecosystem, name) or _is_manifest(name))
        sources: dict[str, str] = {}
        for name, content in files.items():
            if is_source(ecosystem, name):
                try:
                    name.encode("utf-8")
                    sources[name] = content.decode("utf-8")
                except UnicodeError:
                    continue  # edits can't contain it
        return cls(
            sources, {name: content for name, content in files.items() if _is_manifest(name)}
        )


def _version(release: _Release, ecosystem: str, package: str, path: Path) -> str:
    """Return the declared version. Raises NoExampleError if there is none, or another package's."""
    declared = declared_release(release.manifests)
    if declared is None or canonical_name(ecosystem, declared[0]) != package:
        whose = f"of {declared[0]}" if declared else "without a name and a version"
        raise _no_example(
            f"{str(path)!r} is a release {whose}, not of {package}",
            "Check the archives; --vulnerable and --fixed name the versions of one without metadata.",
            kind="another_package",
        )
    return declared[1]


def _is_manifest(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    metadata = folder.endswith((".dist-info", ".egg-info")) and "/" not in folder
    return file in _MANIFESTS and (not folder or metadata)


def _chosen(advisory: Advisory, changed: Sequence[ChangedFile]) -> list[ChangedFile]:
    """Return the few files that belong to the fix, those that the advisory names most clearly first."""
    if not changed:
        raise _no_example(
            "no source file differs between the releases", _OTHER_WAY, kind="no_change"
        )
    if len(changed) > MAX_FILES_BETWEEN:
        raise _no_example(
            f"{len(changed)} source files differ between the releases, more than {MAX_FILES_BETWEEN}:"
            " a release of much else besides the fix",
            _OTHER_WAY,
            kind="too_many_files",
        )
    ranked = sorted(changed, key=lambda file: (-file.mentions(advisory.text), file.path))
    if _fits(ranked):
        return ranked
    mentioned = [file for file in ranked if file.mentions(advisory.text)]
    if mentioned and _fits(mentioned):
        return mentioned
    lines = sum(len(file.changed_lines) for file in mentioned or ranked)
    raise _no_example(
        f"too much changed: {len(changed)} source files, {len(mentioned)} of them with a name in the"
        f" advisory; {lines:,} lines of those (limits: {MAX_FILES} files, {MAX_CHANGED_LINES} lines)",
        _OTHER_WAY,
        kind="too_much_changed",
    )


def _fits(files: Sequence[ChangedFile]) -> bool:
    lines = sum(len(file.changed_lines) for file in files)
    return len(files) <= MAX_FILES and lines <= MAX_CHANGED_LINES


def _check_whole(chosen: Sequence[ChangedFile], old: _Release, new: _Release) -> None:
    """Raise NoExampleError for a fix that needs a new file: edits can't create one, and half a fix
    misleads."""
    added = {_module(path): path for path in new.sources.keys() - old.sources.keys()}
    for file in chosen:
        imports = " ".join(line for line in file.changed_lines if _IMPORT.search(line))
        needed = sorted(added.keys() & set(_MODULE.findall(imports)))
        if needed:
            raise _no_example(
                f"the change of {file.path} needs the new file {added[needed[0]]}, which edits can't"
                " make",
                _OTHER_WAY,
                kind="new_file",
            )


def _module(path: str) -> str:
    pure = PurePosixPath(path)
    return pure.parent.name if pure.stem in {"index", "__init__"} else pure.stem


def _edits(file: ChangedFile) -> tuple[SearchReplace, ...]:
    try:
        return edits_between(file.path, file.before, file.after)
    except EditError as error:
        raise _no_example(error.problem.rstrip("."), _OTHER_WAY) from error


def _no_example(problem: str, next_step: str, *, kind: str = "") -> NoExampleError:
    return NoExampleError(f"No example was made: {problem}.", next_step=next_step, kind=kind)


#: Bytes of a release as it is downloaded. The largest pure-code releases are below 20 MB.
MAX_ARCHIVE_BYTES = 64 * 1024 * 1024

#: Bytes of all of it, unpacked. gzip reaches 1,000 : 1; real packages stay below 10 : 1.
MAX_UNPACKED_BYTES = 512 * 1024 * 1024

#: Bytes kept of it: the source files of one language, in memory twice (both releases).
MAX_KEPT_BYTES = 64 * 1024 * 1024

#: Bytes of the headers of one member in a tar (long names, pax records): tarfile reads them whole.
MAX_HEADER_BYTES = 1024 * 1024

#: Files and folders in it. Large npm packages have about 10,000.
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
    """Return the content by path of files that ``keep`` selects, without the archive's top folder. Raises
    ArchiveError for a missing file, an unknown format, damage, an exceeded limit (above), or a member that
    is a link, a device, a duplicate, or leads outside."""
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
        _check_count(path, count)
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
    # Read as a stream, so that no header makes it seek back.
    with tarfile.open(fileobj=io.BufferedReader(bounded), mode="r|") as tar:
        while (entry := tar.next()) is not None:
            count += 1
            _check_count(path, count)  # with folders
            # tarfile would keep all of them, with their headers.
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
                raise _unpacks_too_much(path)
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
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            raise _refused(
                root, f"{path.relative_to(root).as_posix()!r} is a link", kind="link_or_device"
            )
        if path.is_file():
            with path.open("rb") as file:
                yield _Member(path.relative_to(root).as_posix(), file.read)


class _Bounded(io.RawIOBase):
    """A stream that raises an error at MAX_UNPACKED_BYTES, or if a member's headers have more than
    MAX_HEADER_BYTES: so a bomb costs no more."""

    def __init__(self, path: Path, source: IO[bytes] | gzip.GzipFile) -> None:
        self._path = path
        self._source = source
        self._given = 0
        self._headers_end = MAX_HEADER_BYTES

    def member_ends(self, offset: int) -> None:
        """Set where the next member's headers begin. Raises ArchiveError past the limit: tarfile would
        count its way up to any offset, in a file that has long ended."""
        if offset > MAX_UNPACKED_BYTES:
            raise _unpacks_too_much(self._path)
        self._headers_end = offset + MAX_HEADER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read as any raw stream does. Raises ArchiveError at a limit."""
        content = self._source.read(len(buffer))
        self._given += len(content)
        if self._given > MAX_UNPACKED_BYTES:
            raise _unpacks_too_much(self._path)
        # Bytes that are read ahead count too: they are fewer than a header's limit.
        if self._given > self._headers_end + io.DEFAULT_BUFFER_SIZE + tarfile.RECORDSIZE:
            raise _refused(
                self._path,
                f"a member's headers have more than {MAX_HEADER_BYTES:,} bytes",
                kind="headers_too_large",
            )
        buffer[: len(content)] = content
        return len(content)


def _plain(path: Path, name: str) -> str:
    """Return the name of a member, relative and without detours. Raises ArchiveError if it leads
    outside."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name or ":" in name[:2]:
        raise _refused(path, f"{name!r} leads outside", kind="leads_outside")
    return str(pure)


def _without_top_folder(path: Path, files: dict[str, bytes], keep: Keep) -> dict[str, bytes]:
    """Return the files that ``keep`` selects, without npm's ``package/`` or an sdist's ``name-1.0/``. A
    wheel has no top folder: its folders are packages."""
    tops = {name.partition("/")[0] for name in files}
    single = len(tops) == 1 and all("/" in name for name in files)
    if not single or path.name.lower().endswith(".whl"):
        return {name: content for name, content in files.items() if keep(name)}
    bare = {name.partition("/")[2]: content for name, content in files.items()}
    return {name: content for name, content in bare.items() if keep(name)}


def _blamed(path: Path, error: Exception, why: str, *, kind: str) -> FallbackError:
    return blamed(error, f"The release {str(path)!r}", _refused(path, why, kind=kind))


def _check_count(path: Path, members: int) -> None:
    if members > MAX_MEMBERS:
        why = f"it has more than {MAX_MEMBERS:,} members"
        raise _refused(path, why, kind="too_many_members")


def _unpacks_too_much(path: Path) -> ArchiveError:
    why = f"unpacked it has more than {MAX_UNPACKED_BYTES:,} bytes"
    return _refused(path, why, kind="unpacked_too_large")


def _refused(path: Path, why: str, *, kind: str = "") -> ArchiveError:
    return ArchiveError(
        f"The release {str(path)!r} is not read: {why}.",
        next_step="Give the release's own archive (.tgz, .tar.gz, .whl, .zip) as it was published.",
        kind=kind,
    )


# --- What a package declares in its own metadata ----------------------------------------------------

#: Characters of a name or an SPDX expression. Some packages have the whole text there, which is no name.
_MAX_CHARS = 200

_CLASSIFIER = "License :: OSI Approved :: "

#: Files that may declare it, the most reliable first. ``METADATA`` and ``PKG-INFO`` are in folders named
#: after the package (``x.dist-info``, ``x.egg-info``).
_MANIFESTS = ("package.json", "pyproject.toml", "METADATA", "PKG-INFO")


def declared_licence(files: Mapping[str, bytes]) -> str | None:
    """Return the licence that ``files`` (content by path) declare, nearest the root first; None if none."""
    licences = (_declared(name, content) for name, content in _nearest_first(files, _MANIFESTS))
    return next(filter(None, licences), None)


def declared_release(files: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return the name and version of the package that files declare; None if they declare none."""
    for name, content in _nearest_first(files, ("package.json", "METADATA", "PKG-INFO")):
        release = _named_in(name, content)
        if all(isinstance(part, str) and part for part in release):
            return release
    return None


def _nearest_first(
    files: Mapping[str, bytes], names: tuple[str, ...]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of these names, in the order of the names, those nearest the root first."""
    paths = sorted(files, key=lambda path: (path.count("/"), path))
    for name in names:
        yield from ((name, files[path]) for path in paths if path.rpartition("/")[2] == name)


def _named_in(name: str, content: bytes) -> tuple[Any, Any]:
    text = content.decode("utf-8", "replace")
    if name != "package.json":
        headers = HeaderParser().parsestr(text)
        return headers["Name"], headers["Version"]
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    return (
        (manifest.get("name"), manifest.get("version"))
        if isinstance(manifest, dict)
        else (None, None)
    )


def _declared(name: str, content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
        match name:
            case "package.json":
                licence = _of_npm(json.loads(text))
            case "pyproject.toml":
                licence = _of_project(parse_toml(text))
            case _:
                licence = _of_metadata(text)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, not TOML
        return None
    licence = licence.strip() if isinstance(licence, str) else ""
    return licence if 0 < len(licence) <= _MAX_CHARS and "\n" not in licence else None


def _of_npm(manifest: Any) -> Any:
    if not isinstance(manifest, dict):
        return None
    licence = manifest.get("license") or manifest.get("licenses")
    if isinstance(licence, list):  # before 2015: [{"type": "MIT", "url": …}]
        licence = licence[0] if len(licence) == 1 else None
    return licence.get("type") if isinstance(licence, dict) else licence


def _of_project(document: dict[str, Any]) -> Any:
    project, tool = document.get("project"), document.get("tool")
    licence = project.get("license") if isinstance(project, dict) else None
    if isinstance(licence, dict):
        licence = licence.get("text")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    return licence or (poetry.get("license") if isinstance(poetry, dict) else None)


def _of_metadata(text: str) -> str | None:
    headers = HeaderParser().parsestr(text)
    licence = headers["License-Expression"] or headers["License"] or ""
    if licence.strip() and "\n" not in licence and licence.strip() != "UNKNOWN":
        return licence
    licences = [
        classifier.removeprefix(_CLASSIFIER)
        for classifier in headers.get_all("Classifier", ())
        if classifier.startswith(_CLASSIFIER)
    ]
    return licences[0] if len(licences) == 1 else None


# --- Releases from the registries -------------------------------------------------------------------

#: Seconds for one request or one download; slow links exist.
_CLIENT_TIMEOUT_S = 300.0

#: Characters of a client's output that an error quotes.
_MAX_WORDS = 400

#: Names that may follow "--" without becoming an address, a path or a tag.
_NPM_NAME = re.compile(r"(?:@\w[\w.~-]*/)?\w[\w.~-]*")
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_SEMVER = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")

_NPM = ("--ignore-scripts", "--allow-git=none", "--loglevel=error")
_UV = ("--no-python-downloads", "--no-progress", "--color=never")
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "UV_COMPILE_BYTECODE": ""}


@dataclass(frozen=True)
class RegistryReleases:
    """A package's releases in its registry. Nothing in them is run or built. Methods raise ToolError,
    InputError."""

    clients: ClientRunner

    def newest_below(self, ecosystem: str, package: str, version: str) -> str | None:
        """Return the newest release below a version; None if there is none. From PyPI only releases with a
        wheel for this Python count."""
        _check_release(ecosystem, package, version)
        with scratch_folder("releases") as folder:
            if ecosystem == "npm":
                spec = f"{package}@<{version}"
                result = self._run("npm", ["view", "--json", *_NPM, "--", spec, "version"], folder)
                versions = json.loads(result.output) if result.ok and result.output.strip() else []
                names = [versions] if isinstance(versions, str) else list(versions)
                return max(names, key=lambda name: sort_key("npm", name), default=None)
            (folder / "wanted.in").write_text(f"{package}<{version}\n", encoding="utf-8")
            compile_one = ["pip", "compile", "--no-deps", "--no-header", "--no-annotate"]
            result = self._run("uv", [*compile_one, "--no-build", *_UV, "wanted.in"], folder)
            line = re.search(r"^[\w.-]+==(\S+)", result.output, re.MULTILINE)
            if not result.ok and "unsatisfiable" in result.output:
                return None
            return line[1] if line and result.ok else _raise(result)

    def fetch(self, ecosystem: str, package: str, version: str, into: Path) -> Path:
        """Download npm's tarball, or a folder with a wheel's files, to below ``into``, and return its
        path."""
        _check_release(ecosystem, package, version)
        folder = into / version
        folder.mkdir(parents=True)
        if ecosystem == "npm":
            pack = ["pack", "--silent", *_NPM, f"--pack-destination={folder}"]
            result = self._run("npm", [*pack, "--", f"{package}@{version}"], folder)
            tarball = next(folder.glob("*.tgz"), None)
            return tarball if result.ok and tarball else _raise(result)
        install = ["pip", "install", "--no-deps", "--only-binary=:all:", "--link-mode=copy"]
        target = [f"--target={folder}", f"--python={sys.executable}"]
        result = self._run("uv", [*install, *_UV, *target, f"{package}=={version}"], into)
        return folder if result.ok else _raise(result)

    def _run(self, tool: str, arguments: Sequence[str], cwd: Path) -> CommandResult:
        return self.clients.run(
            tool, arguments, cwd=cwd, timeout_s=_CLIENT_TIMEOUT_S, env=_ENVIRONMENT
        )


def _check_release(ecosystem: str, package: str, version: str) -> None:
    """Raise InputError unless both are valid. They come from an advisory, and must not become an option, an
    address or a path."""
    if ecosystem == "npm":
        is_valid = bool(_NPM_NAME.fullmatch(package) and _SEMVER.fullmatch(version))
    else:
        is_valid = bool(_PYPI_NAME.fullmatch(package)) and _is_pep440(version)
    if not is_valid:
        raise InputError(
            f"{package!r} {version!r} is not a package and a version of {ecosystem}.",
            next_step="Check the advisory, or give --package, --vulnerable and --fixed.",
            kind="not_a_release",
        )


def _is_pep440(version: str) -> bool:
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def _raise(result: CommandResult) -> NoReturn:
    output = " ".join(result.output.replace("npm error", "").split())[:_MAX_WORDS]
    what = f"gave no answer in {_CLIENT_TIMEOUT_S:.0f} s" if result.timed_out else f"said: {output}"
    raise ToolFailedError(
        f"{result.argv[0]} could not get the release; it {what}.",
        next_step="Check the registry, or give the releases' archives (--before, --after).",
        output=result.output,
        kind="release_unavailable",
    )
