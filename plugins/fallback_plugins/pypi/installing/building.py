"""Builds of wheels for an environment's packages that have none, in the gates' sandbox (ADR-0090).

Outside the sandbox a source archive is only bytes: it is checked against its hash, and its
``pyproject.toml`` is read. The build's requirements are installed from wheels only. The archive is unpacked
and built inside, without network. The result is untrusted: exactly one regular file is accepted, with the
name of the wanted wheel.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from fallback_plugins.pypi.archives import MemberTooLargeError, fetched, file_name, member_text
from fallback_plugins.pypi.installing.install import NOT_COMPILED, reason, run_uv
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.indexes import Indexes, asking_for
from fallback_plugins.pypi.manifests.pyproject import parse_toml, table_of, tables, texts
from fallback_plugins.pypi.manifests.pythons import minor_of
from fallback_plugins.pypi.manifests.requirements import clean
from fallback_plugins.pypi.probes.build_probe import NEEDS
from fallback_plugins.pypi.probes.observed import source_of
from fallback_plugins.pypi.uv_words import one_line, release_before
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import keep, kept
from fallback_plugins.shared.installation import Installed, Level, this_python, today, version_of
from fallback_plugins.shared.scratch import scratch_folder
from fallback_plugins.shared.store import InstalledStore
from fallback_tier.errors import RecipeError, ToolFailedError
from fallback_tier.gate_ports import GateContext

#: Most wheels that are built for one environment. Old projects lack one or two, applications of some
#: hundred packages five or six (two of two examined); each costs a listing, an archive and up to two runs.
MAX_BUILT = 10

#: Most builds that are tried for one environment, on all Pythons and for all days: a second Python may need
#: most of them again.
MAX_TRIED = 15

#: Most listings that are requested for one environment, each by a run of uv, also if a registry lists no
#: archive, or if the wheel is already built. A repository decides what uv reports as missing.
MAX_LISTED = 40

#: To be raised when the way in which wheels are built changes: older wheels are not reused.
_FORMAT = 2

#: Paths that change with the system's packages: a build that failed for lack of one is then tried again.
_SYSTEM = (
    *map(Path, ("/usr/bin", "/usr/local/bin", "/usr/include", "/usr/lib")),
    *map(Path, ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed")),
)

#: uv's text after releases that it may not build. If there are several, the newest comes last.
_UNBUILT = re.compile(r" ha(?:s|ve) no usable wheels")
_TOO_MANY = "not built: as many as one set may have were built or tried before"

#: What a wheel is built for: a Python, and the day of the releases (empty: any).
_For = tuple[Path, str]

#: A package's name, and its specifier or release.
_Asked = tuple[str, str]

#: Wall clock limit of one build, both runs together. A fix does not wait for longer compilations.
BUILD_TIMEOUT_S = 180.0

#: Time that remains for the second run if the first used nearly all of it.
_LEAST_S = 1.0

#: Limit for a built wheel: a compiled one with debugging symbols has some 10 MB.
MAX_WHEEL_BYTES = 100 * 1024**2

#: Limit for an archive's pyproject.toml, and for the backend's list of further requirements.
MAX_SAYING_BYTES = 100_000

#: Limit for the backend's name and its folders, written as JSON (characters). They are part of a command,
#: and no system accepts an argument of more than 128 KiB.
MAX_BACKEND_CHARS = 1_000

#: Most requirements of one build; the largest builds have about ten.
MAX_BUILD_REQUIREMENTS = 50

#: A source that names no build system is built with this one (PEP 517, PEP 518).
_USUAL_BACKEND, _USUAL_NEEDS = "setuptools.build_meta:__legacy__", ("setuptools>=40.8.0", "wheel")
_BACKEND = re.compile(r"[A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?", re.ASCII)
_FILE_NAME = re.compile(r"[\w.+!-]+\.whl", re.ASCII)
_ARCHIVES = (".tar.gz", ".zip")

#: 1980, the first year that a zip file can store, so that one source always gives the same wheel.
_SOURCE_DATE_EPOCH = "315532800"
_PATH = "/usr/local/bin:/usr/bin:/bin"


class NotBuiltError(ToolFailedError):
    """An archive from which no wheel was built; ``problem`` gives the reason in a few words."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, next_step="Ask for a release that has a wheel.")


class NotHadError(NotBuiltError):
    """The registry gives no archive that matches its listing, or not to this client: a retry has the same
    result, unless the registry changes."""


@dataclass(frozen=True)
class SourceArchive:
    """A release's source archive as the registry lists it. ``hash``: ``sha256:…``; ``registry``: the
    address of the registry that lists it."""

    name: str
    version: str
    file: str
    hash: str
    url: str
    registry: str = ""

    @property
    def ending(self) -> str:
        """The ending of its file name, by which it is unpacked; empty if it is not a source archive
        (PEP 625)."""
        return next((end for end in _ARCHIVES if self.file.endswith(end)), "")


@dataclass(frozen=True)
class BuildSystem:
    """How a source is built: the build's requirements, the backend, and the backend's folders in the
    source."""

    needs: tuple[str, ...] = _USUAL_NEEDS
    backend: str = _USUAL_BACKEND
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelBuild:
    """One build. ``until``: the day of the releases that it needs; empty: any."""

    context: GateContext
    archive: SourceArchive
    python: Path
    until: str

    def into(self, folder: Path) -> Installed:
        """Put the wheel into a folder.

        Raises NotBuiltError; its subclass NotHadError if the registry gives no archive that matches its
        listing; another ToolFailedError if the registry does not answer; ToolMissingError, SandboxError.
        """
        content = fetched(self.archive.url, self.archive.hash) if self.archive.ending else None
        if content is None:
            raise NotHadError(
                "the registry gives no archive that is as its listing says (asked for over TLS,"
                " without credentials)"
            )
        system = build_system(content)
        with gating.scratch(self.context) as scratch:
            # Keeps uv from reading settings in the folders above.
            (scratch / "uv.toml").write_text("", encoding="utf-8")
            name, wheel = self._built(content, system, scratch)
        (folder / name).write_bytes(wheel)
        return Installed(Level.EVERYTHING)

    def _built(self, content: bytes, system: BuildSystem, scratch: Path) -> tuple[str, bytes]:
        self._uv(["venv", "--no-project", "--python", str(self.python), "environment"], scratch)
        self._install(system.needs, scratch, "its pyproject.toml")
        started = monotonic()
        name, output = self._run(content, system, scratch, ask=True)
        spent = monotonic() - started
        if name == NEEDS:  # the backend reports more requirements than are declared (PEP 517)
            self._install(_needs_in(output), scratch, "its backend's own list")
            name, output = self._run(content, system, scratch, ask=False, spent_s=spent)
        check_name(name, self.archive)
        return name, output

    def _install(self, needs: Sequence[str], scratch: Path, where: str) -> None:
        """Install a build's requirements from wheels only. ``where``: the file that names them."""
        if len(needs) > MAX_BUILD_REQUIREMENTS:
            raise NotBuiltError(f"its build needs more than {MAX_BUILD_REQUIREMENTS} packages")
        try:
            lines = [clean(where, need) for need in needs]
        except RecipeError as error:
            raise NotBuiltError(f"what its build needs: {error.problem}") from error
        if lines:
            (scratch / "needs.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
            options = ["pip", "install", "--no-build", NOT_COMPILED, "-r", "needs.txt"]
            self._uv([*options, "--python", "environment/bin/python"], scratch)

    def _uv(self, arguments: Sequence[str], scratch: Path) -> None:
        result = run_uv(self.context, arguments, scratch, self.until)
        gating.check_reachable("uv", result)
        if not result.ok:
            raise NotBuiltError(f"what its build needs: {reason(result.output)}")

    def _run(
        self,
        content: bytes,
        system: BuildSystem,
        scratch: Path,
        *,
        ask: bool,
        spent_s: float = 0.0,
    ) -> tuple[str, bytes]:
        """Run the build in the sandbox. Return name and content of the one file that it left."""
        work = scratch / ("asking" if ask else "building")
        (work / "made").mkdir(parents=True)
        archive = f"archive{self.archive.ending}"
        (work / archive).write_bytes(content)
        request = {"archive": archive, "backend": system.backend, "path": system.path, "ask": ask}
        programs = scratch / "environment" / "bin"
        result = self.context.sandbox.run(
            [str(programs / "python"), "-I", "-c", source_of("build_probe"), json.dumps(request)],
            worktree=work,
            timeout_s=max(min(self.context.timeout_s, BUILD_TIMEOUT_S) - spent_s, _LEAST_S),
            env={"PATH": f"{programs}:{_PATH}", "SOURCE_DATE_EPOCH": _SOURCE_DATE_EPOCH},
            readable=[
                programs.parent,
                *pythons.readable(programs.parent),
                *pythons.headers(programs.parent),
            ],
        )
        if result.timed_out:
            raise NotBuiltError("its build did not end in time")
        if not result.ok:
            log = gating.relative_log(result, work)
            # A compiler's error comes before the failure of the command that called it.
            first = next((line for line in log.splitlines() if " error: " in f" {line}"), log)
            raise NotBuiltError(f"its build failed: {gating.in_short(first)}")
        return only_file(work / "made", MAX_WHEEL_BYTES)


@dataclass
class _Tried:
    """Builds for one Python and day: the requested ones, the built ones, and the failures with reasons."""

    asked: set[_Asked] = field(default_factory=set)
    wheels: dict[_Asked, Path] = field(default_factory=dict)
    failed: dict[_Asked, str] = field(default_factory=dict)


class Building:
    """Builds of one environment. ``indexes``: those that the project names. If it has its own index, the
    publisher of a package's archive is unknown."""

    def __init__(self, context: GateContext, indexes: Callable[[], Indexes]) -> None:
        self._context = context
        self._indexes = indexes
        self._store = InstalledStore.of(context)
        self._tried: dict[_For, _Tried] = {}
        self._left = MAX_TRIED
        self._listings = MAX_LISTED

    def build(self, python: Path, until: str, refusals: Sequence[str]) -> None:
        """Build what uv refused for lack of a wheel, if it was not tried before.

        Raises ToolFailedError if no registry answers, for a listing, an archive or a build's requirements:
        nothing is kept then. ToolMissingError, SandboxError. A failed build raises nothing: it is in
        ``failed``.
        """
        self._build_all(python, until, unbuilt("\n".join(refusals)))

    def build_again(self, python: Path, until: str, built: Sequence[str]) -> None:
        """Build what a similar environment has (``built``): as a rule it is in the cache. Raises as
        ``build`` does."""
        pairs = (label.split() for label in built)
        self._build_all(python, until, [(name, f"=={version}") for name, version in pairs])

    def _build_all(self, python: Path, until: str, requests: Sequence[_Asked]) -> None:
        tried = self._of(python, until)
        for request in requests:
            if request in tried.asked:
                continue
            tried.asked.add(request)
            if self._left and self._listings and len(tried.wheels) < MAX_BUILT:
                self._listings -= 1
                self._build(tried, python, until, *request)
            else:
                tried.failed[request] = _TOO_MANY

    def names(self, python: Path, until: str) -> frozenset[str]:
        """Return the names of the packages with a built wheel."""
        return frozenset(canonicalize_name(name) for name, _ in self._of(python, until).wheels)

    def links(self, python: Path, until: str) -> str:
        """Return lines of a requirements file by which uv finds the built wheels; empty if there are
        none."""
        folders = (wheel.as_uri() for wheel in self._of(python, until).wheels.values())
        return "\n".join(f"--find-links {folder}" for folder in folders)

    def built(self, python: Path, until: str, installed_pins: Sequence[str]) -> tuple[str, ...]:
        """Return the built wheels that are installed (``installed_pins``), by name and version."""
        pairs = (pin.partition("==") for pin in installed_pins)
        pins = {(canonicalize_name(name), version) for name, _, version in pairs}
        wheels = self._of(python, until).wheels
        return tuple(
            sorted(f"{name} {version}" for name, version in wheels if (name, version) in pins)
        )

    def failed(self, python: Path, until: str) -> tuple[tuple[str, str], ...]:
        """Return the releases without a built wheel, each with the reason."""
        tried = self._of(python, until)
        return tuple((in_words(request), why) for request, why in tried.failed.items())

    def _of(self, python: Path, until: str) -> _Tried:
        return self._tried.setdefault((python, until), _Tried())

    def _build(self, tried: _Tried, python: Path, until: str, name: str, spec: str) -> None:
        indexes = self._indexes()
        archive = None if indexes.own else listed(self._context, name, spec, python, until)
        if indexes.own or (archive is not None and not indexes.only(archive.registry)):
            tried.failed[name, spec] = "not built: the project names an index of its own"
            return
        if archive is None:
            return
        release = (archive.name, archive.version)
        if release in tried.wheels or release in tried.failed:
            return
        self._left -= 1
        key = self._key(archive, python, until)
        # A build that failed today is not tried again for the other tree, or for the next attempt.
        failures = self._context.cache / "unbuilt"
        failure = failures / f"{gating.content_key(key, self._context.timeout_s)}.json"
        failed_before = kept(failure)
        if failed_before is not None and failed_before["tried"] == tried_as():
            tried.failed[release] = failed_before["why"]
            return
        build = WheelBuild(self._context, archive, python, until)
        try:
            tried.wheels[release] = self._store.entry(key, build.into)
        except NotHadError as error:  # cheap to retry, and says nothing about the archive: not kept
            tried.failed[release] = f"not built: {error.problem}"
        except NotBuiltError as error:
            tried.failed[release] = why = f"not built: {error.problem}"
            keep(failure, {"tried": tried_as(), "why": why})

    def _key(self, archive: SourceArchive, python: Path, until: str) -> str:
        """Return a key of all that affects a wheel. It is built once, so the build's requirements are of
        that time, or of the requested day."""
        uv = version_of("uv", self._context.clients)
        by = (pythons.identity(python), until, *this_python(), uv)
        key = gating.content_key(_FORMAT, archive.name, archive.version, archive.hash, by)
        return f"wheel-{key}"


def tried_as() -> str:
    """Return a key of all that may have made a build fail: the day, and the system's packages."""
    return gating.content_key(today(), _system())


def _system() -> tuple[int, ...]:
    """Return numbers that change when a compiler, or a library's headers, are installed."""
    times = []
    for path in _SYSTEM:
        with suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return tuple(times)


def unbuilt(refusals: str) -> tuple[_Asked, ...]:
    """Return the releases that uv reports as having no wheel: names and specifiers, pins first."""
    line, unbuilt_releases = one_line(refusals), dict[_Asked, None]()
    for match in _UNBUILT.finditer(line):
        name, spec = release_before(line, match.start()) or ("", "")
        with suppress(InvalidSpecifier):
            SpecifierSet(spec)
            unbuilt_releases |= {(str(canonicalize_name(name)), spec): None} if name else {}
    return tuple(sorted(unbuilt_releases, key=lambda release: not release[1].startswith("==")))


def in_words(request: _Asked) -> str:
    """Return a release (``left 1.0``), or the requirement if none was looked for (``left==1.0``)."""
    name, version_or_spec = request
    return (
        f"{name} {version_or_spec}" if version_or_spec[:1].isdigit() else f"{name}{version_or_spec}"
    )


def listed(
    context: GateContext, name: str, spec: str, python: Path, until: str
) -> SourceArchive | None:
    """Return the archive of the newest release that a specifier and a day admit, for a Python.

    None if the registry lists none. Raises ToolFailedError if it does not answer, ToolMissingError.
    """
    with scratch_folder("uv") as folder:
        text = asking_for(name + spec, f"==3.{minor_of(python)}.*")
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        # The settings are in this generated manifest, so uv must read it.
        command = ["lock", "--resolution=highest", "--python", str(python)]
        result = run_uv(context, command, folder, until, {"UV_NO_CONFIG": ""})
        gating.check_reachable("uv", result, lambda: (name,))
        try:
            text = (folder / "uv.lock").read_text(encoding="utf-8") if result.ok else ""
            packages = tables(parse_toml("uv.lock", text).get("package"))
        except (OSError, RecipeError):
            return None
    for package in packages:
        sdist = table_of(package, "sdist")
        if package.get("name") == canonicalize_name(name) and sdist:
            url, digest = str(sdist.get("url", "")), str(sdist.get("hash", ""))
            registry, version = (
                table_of(package, "source").get("registry", ""),
                package.get("version"),
            )
            file = file_name(url)
            return SourceArchive(name, str(version), file, digest, url, str(registry))
    return None


def build_system(content: bytes) -> BuildSystem:
    """Return the build system that an archive's pyproject.toml names. Raises NotBuiltError."""

    def is_its_own(name: str) -> bool:
        return re.fullmatch(r"[^/]+/pyproject\.toml", name) is not None

    try:
        text = member_text(content, is_its_own, MAX_SAYING_BYTES) or ""
        table = table_of(parse_toml("pyproject.toml", text), "build-system")
    except MemberTooLargeError as error:
        raise NotBuiltError("its pyproject.toml is too large") from error
    except RecipeError as error:
        raise NotBuiltError("its pyproject.toml can't be read") from error
    if "requires" not in table:
        return BuildSystem()
    backend = str(table.get("build-backend", _USUAL_BACKEND))
    if _BACKEND.fullmatch(backend) is None:
        raise NotBuiltError("its build backend has no name that Python knows")
    needs, path = tuple(texts(table["requires"])), tuple(texts(table.get("backend-path")))
    if len(json.dumps((backend, path))) > MAX_BACKEND_CHARS:
        raise NotBuiltError(
            f"its build backend and where that lies have more than {MAX_BACKEND_CHARS:,} characters"
        )
    return BuildSystem(needs, backend, path)


def only_file(folder: Path, most: int) -> tuple[str, bytes]:
    """Return name and content of the one file that a run left in a folder. No link is followed, and only
    one regular file of at most ``most`` bytes is read. Raises NotBuiltError."""
    try:
        # The sandbox has ended: nothing changes the folder any more.
        with os.scandir(folder) as entries:
            first_two = [] if folder.is_symlink() else [*islice(entries, 2)]
        if len(first_two) != 1:
            raise NotBuiltError("its build left no single wheel")
        if not first_two[0].is_file(follow_symlinks=False):
            raise NotBuiltError("its build left something that is no file")
        if first_two[0].stat(follow_symlinks=False).st_size > most:
            raise NotBuiltError(f"its wheel has more than {most:,} bytes")
        return first_two[0].name, Path(first_two[0]).read_bytes()
    except OSError as error:
        raise NotBuiltError(f"its build left no readable file ({error.strerror})") from error


def check_name(file: str, archive: SourceArchive) -> None:
    """Raise NotBuiltError if a file's name is not that of a wheel of this release."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename:
        name, version = canonicalize_name(""), Version("0")
    is_wanted = name == canonicalize_name(archive.name) and version == Version(archive.version)
    if not is_wanted or _FILE_NAME.fullmatch(file) is None:
        raise NotBuiltError(f"its build left another file than its wheel: {file[:80]!a}")


def _needs_in(content: bytes) -> list[str]:
    with suppress(ValueError, RecursionError):
        needs = json.loads(content) if len(content) <= MAX_SAYING_BYTES else None
        if isinstance(needs, list) and all(isinstance(need, str) for need in needs):
            return needs
    raise NotBuiltError("it does not say what its build needs")
