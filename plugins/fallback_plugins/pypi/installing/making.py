"""Makes a virtual environment of a project's dependencies (ADR-0039).

Everything here runs outside the sandbox over copies of the manifests and takes wheels only
(``--no-build``): no source distribution and no local project is built, so no target's code runs. Where a
wheel is all that is missing, one is built in the sandbox (``building``).
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import Distribution, PackageMetadata, distributions
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.installing.building import Building
from fallback_plugins.pypi.installing.declared import Source
from fallback_plugins.pypi.installing.install import (
    NOT_COMPILED,
    InstallLadder,
    InstallPlan,
    Uv,
    bound,
    run_uv,
)
from fallback_plugins.pypi.installing.plan import Manifests, pins_of, release
from fallback_plugins.pypi.manifests.pythons import minor_of, ours
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installed import Installed, Level
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext

#: No source distribution and no local project is built out here.
_NEVER_BUILT = ("--no-build", NOT_COMPILED)

#: Before this minor version a new environment had setuptools in it, and releases of that time import its
#: ``pkg_resources`` without a word in what they require.
_WITHOUT_SETUPTOOLS = 12

#: The last releases that have ``pkg_resources`` (gone in 82, and warned of in 81).
_SETUPTOOLS = "setuptools<81"

#: Modules that packages import and nobody declares, since every environment or every Python had them: what
#: brings them now, and the minor version of Python from which they are gone.
_ONCE_THERE = {
    "pkg_resources": (_SETUPTOOLS, 0),
    "distutils": (_SETUPTOOLS, 12),
    "imp": ("zombie-imp", 12),
    "asyncore": ("pyasyncore", 12),
    "asynchat": ("pyasynchat", 12),
    "cgi": ("legacy-cgi", 13),
    "crypt": ("legacy-crypt", 13),
    "audioop": ("audioop-lts", 13),
    "telnetlib": ("standard-telnetlib", 13),
    "imghdr": ("standard-imghdr", 13),
    "pipes": ("standard-pipes", 13),
}

#: An import of one of them that is run when its module is: with nothing before it on its line.
_IMPORTS = re.compile(
    rb"^(?:(?:import|from)[ \t]+|__import__\(['\"])(" + "|".join(_ONCE_THERE).encode() + rb")\b",
    re.MULTILINE,
)

#: Folders of an environment that bring these modules, or come with them.
_BRINGING = frozenset({"setuptools", "pkg_resources", "_distutils_hack", "pip", "wheel"})

#: A module with an import at its start is smaller (bytes).
_MAX_MODULE = 500_000

#: Packages that may be of another day where the rest is of one: a helper that had no wheel yet, one that
#: the project released together with itself. A set with more of them is none of that day.
MAX_APART = 3

#: uv's own hints beside a resolution that failed: what has no release that serves before the day, or none
#: with a wheel.
_NOT_OF_THE_DAY = re.compile(
    r"\bhint: (?:`([\w.-]+)` was filtered by `exclude-newer`|Wheels are required for `([\w.-]+)`)"
)

_APART = "but for "

#: A day after every release; uv refuses ones that no calendar has.
_ANY_DAY = "9999-01-01T00:00:00Z"


@dataclass(frozen=True)
class Setting:
    """With which Python, and with releases up to which day (``2022-05-27``; empty: all).

    ``but_for``: up to MAX_APART packages that the day can't give may be of any day.
    """

    python: Path
    until: str = ""
    but_for: bool = False

    @property
    def how(self) -> tuple[str, ...]:
        """What is unusual in it, for the record."""
        other = () if self.python == ours() else (f"on Python 3.{minor_of(self.python)}",)
        return (*other, *([f"from releases up to {self.until}"] if self.until else []))

    def is_of(self, how: Sequence[str]) -> bool:
        """Was what is there so installed in this setting?"""
        usual = tuple(word for word in how if not word.startswith(_APART))
        return self.how == usual and self.but_for == (len(usual) < len(how))


def as_base(
    settings: Sequence[Setting], there: Installed | None
) -> tuple[Sequence[Setting], Sequence[Setting]]:
    """Of these, the one for a patched tree beside a base commit that was installed so; and others for all
    of it where that one has not all.

    What is compared must run on the same Python. What can't be had any more on ours is the patch's failure.
    Where only another Python had all of the base commit, and has not all of the patched tree, a further one
    shows that the two can't be compared (ADR-0077). None: it is the base commit, all of them are tried.
    """
    if there is None:
        return settings, ()
    alike = [one for one in settings if one.is_of(there.how)] or settings[:1]
    other = there.level is Level.EVERYTHING and there.how
    return alike, [one for one in settings if other and one not in alike]


class Making:
    """One environment in the making, from copies of the manifests in ``scratch``.

    ``made``: a folder of ours. ``starts``: does the test runner in it start? Asked of what is unusual: old
    releases may not run on today's Python. ``pins``: releases that are taken wherever the manifests admit
    them: those of the base commit, or of an earlier installation of the same. ``are_resolved``: what uv
    resolved these manifests to is among them, so that they go together. Whatever makes it raises
    ToolMissingError; ToolFailedError where no registry answers, or uv makes no environment.
    """

    def __init__(
        self,
        context: GateContext,
        manifests: Manifests,
        made: Path,
        scratch: Path,
        starts: Callable[[Path], bool],
        pins: Sequence[str] = (),
        *,
        are_resolved: bool = False,
    ) -> None:
        self._context = context
        self._manifests = manifests
        self._made = made
        self._scratch = scratch
        self._starts = starts
        self._pins = _beside_lock(pins, manifests.sources) if pins else ()
        self._are_resolved = are_resolved
        self._folder = manifests.copy_to(scratch)
        self._numbers = count()
        #: What uv said of each setting's failed resolutions.
        self._refusals: dict[Setting, list[str]] = {}
        self._building = Building(context, lambda: manifests.indexes)
        #: Where each setting's last try could have found what was built.
        self._linked: dict[Setting, str] = {}
        steps = tuple(manifests.everything(self._write))
        there = partial(_pins_in, made)
        self._plan = InstallPlan(steps, self._sources, manifests.runner, manifests.strays, there)

    def make(self, settings: Sequence[Setting], others: Sequence[Setting]) -> Installed:
        """All of it in the first setting that can have it, from wheels of a registry before any is built;
        in one of ``others`` only where none of ``settings`` can; else a part, in the first of them."""
        for some in (settings, others):
            ways = chain(self._from_wheels(some, settings[0]), self._with_built(some))
            if (found := next(ways, None)) is not None:
                return found
        return self._part(settings[0])

    def _from_wheels(self, settings: Sequence[Setting], first: Setting) -> Iterator[Installed]:
        for setting in settings if self._plan.everything else ():
            yield from self._whole(setting, is_first=setting is first)

    def _with_built(self, settings: Sequence[Setting]) -> Iterator[Installed]:
        """… as soon as what uv has no wheel of is built."""
        for setting in settings if self._plan.everything else ():
            while self._has_more(setting):
                yield from self._whole(setting, is_first=False)

    def _part(self, setting: Setting) -> Installed:
        """Install what one setting makes available."""
        if setting.until:
            found = self._part_of(setting)
            # A registry may tell no days, and what was right on that day may not run on today's Python.
            if found.level is not Level.METADATA and self._starts(self._made):
                return found
        return self._part_of(replace(setting, until=""))

    def _part_of(self, setting: Setting) -> Installed:
        self._linked[setting] = self._links(setting)
        found = self._ladder(setting).run()
        while self._has_more(setting):
            found = self._ladder(setting).run()
        failed = self._building.failed(setting.python, setting.until)
        return self._told(replace(found, unbuilt=failed), setting)

    def _has_more(self, setting: Setting) -> bool:
        """Build what was refused for want of a wheel. Is anything built that was not there to be had?"""
        refusals = self._refusals.get(setting, ())
        self._building.build(setting.python, setting.until, refusals)
        before, self._linked[setting] = self._linked.get(setting, ""), self._links(setting)
        return self._linked[setting] != before

    def _ladder(self, setting: Setting, apart: Sequence[str] = ()) -> InstallLadder:
        """Return the ladder of a new environment, for releases of a day with what every environment of that
        day had. ``apart``: what may be of any day."""
        minor = minor_of(setting.python)
        had = [_SETUPTOOLS] if setting.until and minor < _WITHOUT_SETUPTOOLS else []
        affected = {canonicalize_name(it) for it in self._context.advisory.packages(ECOSYSTEM)}
        beside = [
            line
            for line in (*had, *self._manifests.for_tests)
            if canonicalize_name(Requirement(line).name) not in affected
        ]
        missing = partial(self._missing, minor, affected)
        plan = replace(self._plan, beside=tuple(beside), missing=missing)
        return InstallLadder(plan, self._start(setting, apart), self._write)

    def _missing(self, minor: int, affected: Collection[str]) -> Sequence[str]:
        """Lines for modules that code imports at its start, and nothing brings, within what the project
        says of them; none for a package that the advisory is about."""
        lines: dict[str, None] = {}
        for module in self._imported(minor):
            line = Requirement(_ONCE_THERE[module][0])
            name = canonicalize_name(line.name)
            line.specifier &= self._manifests.bounds_of(name)
            if name not in affected:
                lines[str(line)] = None
        return [*lines]

    def _imported(self, minor: int) -> list[str]:
        """Modules of ``_ONCE_THERE`` that are gone from this Python, and imported by what is installed or
        by the project's own code."""
        gone = {name for name, (_, since) in _ONCE_THERE.items() if minor >= since}
        found: dict[str, None] = {}
        packages = [*self._made.glob("lib/python*/site-packages")]
        if any((place / "pkg_resources").is_dir() for place in packages):
            gone -= {"pkg_resources", "distutils"}
        for content in chain(_modules_in(packages), self._manifests.own_code()):
            found |= dict.fromkeys(it.decode() for it in _IMPORTS.findall(content))
        return [name for name in found if name in gone]

    def _links(self, setting: Setting) -> str:
        return self._building.links(setting.python, setting.until)

    def _told(self, found: Installed, setting: Setting) -> Installed:
        """With all that is unusual in it."""
        there = self._plan.there()
        built = self._building.built(setting.python, setting.until, there)
        return replace(found, how=(*setting.how, *found.how), built=built)

    @property
    def is_by_lock(self) -> bool:
        """Whether uv.lock pins all that is installed."""
        pins = (pin.partition("==") for pin in self._plan.there())
        return self._manifests.locked and self._manifests.pinned.issuperset(
            release(name, version) for name, _, version in pins
        )

    def _whole(self, setting: Setting, *, is_first: bool) -> Iterator[Installed]:
        """All of it, if it can be had so and starts."""
        try:
            found = self._but_for(setting) if setting.but_for else self._ladder(setting).whole()
        except ToolFailedError:
            if is_first:
                raise
            return  # a Python that does not work is treated as not installed
        if found is not None and (not setting.how or self._starts(self._made)):
            yield self._told(found, setting)

    def _but_for(self, setting: Setting) -> Installed | None:
        """All of it, from the day but for what uv says that the day can't give."""
        apart = self._not_of_the_day(replace(setting, but_for=False))
        while apart is not None and len(apart) <= MAX_APART:
            found = self._ladder(setting, apart).whole()
            if found is not None:
                if apart and len(self._plan.there()) <= 2 * len(apart):
                    return None  # the greater part is of any day
                return replace(found, how=(_APART + ", ".join(apart),) if apart else ())
            more = self._not_of_the_day(setting)
            apart = (
                None if not more or set(more) <= set(apart) else (*dict.fromkeys((*apart, *more)),)
            )
        return None

    def _not_of_the_day(self, setting: Setting) -> tuple[str, ...] | None:
        """Packages by uv's hints; none where the setting was not tried, None where it told of none."""
        if setting not in self._refusals:
            return ()
        hints = _NOT_OF_THE_DAY.findall("\n".join(self._refusals[setting]))
        return tuple(dict.fromkeys(later or built for later, built in hints)) or None

    def _start(self, setting: Setting, apart: Sequence[str]) -> Uv:
        """Make a new environment. Return what runs uv on it."""
        refusals = self._refusals[setting] = []
        links = self._links(setting)
        built = ["-r", str(self._write(links))] if links else []
        options = ["--no-project", "--relocatable", "--clear", "--python", str(setting.python)]
        result = self._uv(["venv", *options, str(self._made)])
        if not result.ok:
            raise ToolFailedError(
                f"uv makes no environment: {gating.in_short(result.output)}",
                next_step="Check uv and the Python that it uses.",
                output=result.output,
            )
        python = str(self._made / "bin" / "python")

        def run(words: Sequence[str]) -> CommandResult:
            return self._uv([*words, *_NEVER_BUILT, "--python", python], setting.until)

        def uv(words: Sequence[str]) -> CommandResult:
            free = [f"--exclude-newer-package={name}={_ANY_DAY}" for name in apart]
            words = [*words, *free]
            if words[:2] == ["pip", "install"]:
                words = [*words, *built]
                if self._are_resolved and not setting.until:
                    done = run([*words, "-c", str(self._write("\n".join(self._pins)))])
                    if done.ok:
                        return done
                    self._are_resolved = False  # what else is installed does not go with them
                chosen = self._chosen(words, setting) if self._pins else ()
                # uv says why a package isn't available only if it is to install it.
                words = [*words, *(["--dry-run"] if chosen is None else chosen)]
            done = run(words)
            if "--dry-run" in words and done.ok:
                done = done.model_copy(update={"exit_code": 1})
            if not done.ok:
                refusals.append(done.output)
            return done.model_copy(update={"output": gating.relative_log(done, self._scratch)})

        return uv

    def _chosen(self, words: Sequence[str], setting: Setting) -> Sequence[str] | None:
        """Resolve what a ``pip install`` is to install. Return its pins as an option: each of ours that is
        admitted stays, whatever was published since (ADR-0102). None if uv can't resolve it."""
        place = self._write("\n".join(self._pins))
        files = [word for word in words[2:] if word != "-r"]
        options = ["--no-upgrade", _NEVER_BUILT[0], "--python", str(setting.python)]
        if not self._uv(["pip", "compile", *files, *options, "-o", str(place)], setting.until).ok:
            return None
        lines = map(_written, place.read_text("utf-8").splitlines())
        place.write_text("\n".join(filter(None, lines)) + "\n", encoding="utf-8")
        return ["-c", str(place)]

    def _sources(self) -> Sequence[Source]:
        manifests = self._manifests
        if not manifests.locked:
            return manifests.sources
        place = self._scratch / "exported.txt"
        exported = self._uv(manifests.export(place))
        return pins_of(place.read_text("utf-8")) if exported.ok and place.exists() else ()

    def _write(self, lines: str) -> Path:
        place = self._scratch / f"fallback-tier-{next(self._numbers)}.txt"
        place.write_text(lines + "\n", encoding="utf-8")
        return place

    def _uv(self, arguments: Sequence[str], until: str = "") -> CommandResult:
        env = {**self._manifests.variables, "UV_PROJECT_ENVIRONMENT": str(self._made)}
        return run_uv(self._context, arguments, self._folder, until, env)


class _Headers(Distribution):
    """One of which the metadata is read once, without the description behind it: the standard library
    parses both anew for each name, version and requirement that it is asked for."""

    def __init__(self, found: Distribution) -> None:
        self._found = found

    def read_text(self, filename: str) -> str | None:
        text = self._found.read_text(filename)
        return text.partition("\n\n")[0] if text and filename == "METADATA" else text

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return self._found.locate_file(path)

    @cached_property
    def metadata(self) -> PackageMetadata:
        return super().metadata


def distributions_in(environment: Path) -> Iterator[Distribution]:
    """Yield the installed distributions; their metadata is read, nothing imported."""
    places = [str(path) for path in environment.glob("lib/python*/site-packages")]
    found = map(_Headers, distributions(path=places) if places else ())
    return (one for one in found if one.metadata["Name"])


def _modules_in(places: Iterable[Path]) -> Iterator[bytes]:
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = [it for it in folders if it not in _BRINGING]
            for name in files:
                path = Path(folder, name)
                if name.endswith(".py") and path.stat().st_size <= _MAX_MODULE:
                    yield path.read_bytes()


def _beside_lock(pins: Sequence[str], sources: Iterable[Source]) -> list[str]:
    """The pins, those of a lock's packages as the lock has them: it decides, whatever a manifest admits."""
    locked = {}
    for line in (it for source in sources if source.pinned for it in source.lines):
        if (asked := requirement_in(line)) is not None and not asked.url:
            locked[canonicalize_name(asked.name)] = f"{asked.name}{asked.specifier}"
    free = (pin for pin in pins if canonicalize_name(pin.partition("==")[0]) not in locked)
    return [*free, *locked.values()]


def _written(line: str) -> str:
    """A line that uv compiled, as a constraint; empty if it is not a requirement."""
    asked = requirement_in(line.partition(" --hash")[0].rstrip("\\ "))
    return "" if asked is None else bound(str(asked))


def _pins_in(environment: Path) -> list[str]:
    return [f"{one.metadata['Name']}=={one.version}" for one in distributions_in(environment)]
