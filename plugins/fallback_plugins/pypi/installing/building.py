"""Which packages of an environment are built from their source, for want of a wheel (ADR-0090)."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.installing.archive_listing import listed
from fallback_plugins.pypi.installing.wheel_build import (
    NotBuiltError,
    NotHadError,
    SourceArchive,
    WheelBuild,
)
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.own_index import Indexes
from fallback_plugins.pypi.uv_words import one_line, release_before
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.at_base import keep, kept
from fallback_plugins.shared.store import InstalledStore
from fallback_plugins.shared.versions import this_python, today, version_of
from fallback_tier.gate_ports import GateContext

#: Wheels of one environment that are built. Old projects lack one or two, applications of some hundred
#: packages five or six (two of two looked at); each is a listing, an archive and up to two runs.
MAX_BUILT = 10

#: Builds that are tried for one environment, on all Pythons and for all days: a second Python may need most
#: of them anew.
MAX_TRIED = 15

#: Listings that are asked for one environment, a run of uv each: where a registry lists no archive, and of
#: what was built already, too. A repository decides what uv says that it lacks.
MAX_LISTED = 40

#: Changed with how a wheel is built: one of an older version is not taken.
_FORMAT = 2

#: Changed wherever the system's packages are: a build that failed for want of one is tried again.
_SYSTEM = (
    *map(Path, ("/usr/bin", "/usr/local/bin", "/usr/include", "/usr/lib")),
    *map(Path, ("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed")),
)

#: uv's words behind releases that it may not build. Several: the newest of them stands last.
_UNBUILT = re.compile(r" ha(?:s|ve) no usable wheels")

_TOO_MANY = "not built: as many as one set may have were built or tried before"

#: What is installed for: a Python, and the day of releases.
_For = tuple[Path, str]

#: A package, and the releases of it.
_Asked = tuple[str, str]


@dataclass
class _Tried:
    """For one Python and day: what was asked for, what was built, and what was not, with the reason."""

    asked: set[_Asked] = field(default_factory=set)
    wheels: dict[_Asked, Path] = field(default_factory=dict)
    failed: dict[_Asked, str] = field(default_factory=dict)


class Building:
    """The builds of one environment. ``indexes``: those that the project names. With one of its own nobody
    can tell whose archive has a package's name."""

    def __init__(self, context: GateContext, indexes: Callable[[], Indexes]) -> None:
        self._context = context
        self._indexes = indexes
        self._store = InstalledStore.of(context)
        self._tried: dict[_For, _Tried] = {}
        self._left = MAX_TRIED
        self._listings = MAX_LISTED

    def build(self, python: Path, until: str, refusals: Sequence[str]) -> None:
        """Build what uv refused for want of a wheel, what was not tried before.

        Raises ToolFailedError where no registry answers, be it for a listing, an archive or what a build
        needs: nothing is kept then. ToolMissingError, SandboxError. What no wheel comes of raises nothing:
        ``failed`` has it.
        """
        tried = self._of(python, until)
        for asked in unbuilt("\n".join(refusals)):
            if asked in tried.asked:
                continue
            tried.asked.add(asked)
            if self._left and self._listings and len(tried.wheels) < MAX_BUILT:
                self._listings -= 1
                self._build(tried, python, until, *asked)
            else:
                tried.failed[asked] = _TOO_MANY

    def links(self, python: Path, until: str) -> str:
        """Lines of a requirements file that have uv find what was built; empty: nothing was."""
        folders = (wheel.as_uri() for wheel in self._of(python, until).wheels.values())
        return "\n".join(f"--find-links {folder}" for folder in folders)

    def built(self, python: Path, until: str, there: Sequence[str]) -> tuple[str, ...]:
        """Those that are there (pins), by name and version."""
        pins = {(canonicalize_name(name), version) for name, version in map(_parted, there)}
        wheels = self._of(python, until).wheels
        return tuple(
            sorted(f"{name} {version}" for name, version in wheels if (name, version) in pins)
        )

    def failed(self, python: Path, until: str) -> tuple[tuple[str, str], ...]:
        """What no wheel came of, and why."""
        tried = self._of(python, until)
        return tuple((in_words(asked), why) for asked, why in tried.failed.items())

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
        # What failed once today is not tried again for the other tree, or for the next attempt.
        failures = self._context.cache / "unbuilt"
        failure = failures / f"{gating.content_key(key, self._context.timeout_s)}.json"
        before = kept(failure)
        if before is not None and before["tried"] == tried_as():
            tried.failed[release] = before["why"]
            return
        build = WheelBuild(self._context, archive, python, until)
        try:
            tried.wheels[release] = self._store.entry(key, build.into)
        except NotHadError as error:  # cheap to ask again, and no word on what is in it: not kept
            tried.failed[release] = f"not built: {error.problem}"
        except NotBuiltError as error:
            tried.failed[release] = why = f"not built: {error.problem}"
            keep(failure, {"tried": tried_as(), "why": why})

    def _key(self, archive: SourceArchive, python: Path, until: str) -> str:
        """All that decides a wheel. It is built once, so what its build needs is of that time, or of the
        day that is asked for."""
        by = (pythons.identity(python), until, *this_python())
        by = (*by, version_of("uv", self._context.clients))
        return (
            f"wheel-{gating.content_key(_FORMAT, archive.name, archive.version, archive.hash, by)}"
        )


def tried_as() -> str:
    """Stands for all that a build may owe its failure to: the day, and the system's packages."""
    return gating.content_key(today(), _system())


def _system() -> tuple[int, ...]:
    """What changes where a compiler, or a library's headers, are installed."""
    found = []
    for place in _SYSTEM:
        with suppress(OSError):
            found.append(place.stat().st_mtime_ns)
    return tuple(found)


def unbuilt(refusals: str) -> tuple[_Asked, ...]:
    """What uv has no wheel of, by its own words: names and specifiers, pins first."""
    found = dict.fromkeys(_named(one_line(refusals)))
    return tuple(sorted(found, key=lambda asked: not asked[1].startswith("==")))


def _named(line: str) -> Iterator[_Asked]:
    for behind in _UNBUILT.finditer(line):
        name, spec = release_before(line, behind.start()) or ("", "")
        try:
            SpecifierSet(spec)
        except InvalidSpecifier:
            continue
        if name:
            yield canonicalize_name(name), spec


def in_words(asked: _Asked) -> str:
    """A release (``left 1.0``), or what was asked for where none was looked for (``left==1.0``)."""
    name, which = asked
    return f"{name} {which}" if which[:1].isdigit() else f"{name}{which}"


def _parted(pin: str) -> tuple[str, str]:
    name, _, version = pin.partition("==")
    return name, version
