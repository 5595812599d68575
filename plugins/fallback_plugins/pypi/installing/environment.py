"""A virtual environment of a project's dependencies (ADR-0039), and its Python run in it.

It is made outside the sandbox over copies of the manifests and takes wheels only (``--no-build``): no
source distribution and no local project is built, so no target's code runs. If all that is missing is a
wheel, one is built in the sandbox (``building``). The environment is in the cache, read-only to what runs
inside.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache, partial
from importlib.metadata import Distribution, PackageMetadata, distributions
from itertools import chain, count
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.installing.building import Building, tried_as
from fallback_plugins.pypi.installing.declared import Source
from fallback_plugins.pypi.installing.install import (
    NOT_COMPILED,
    InstallLadder,
    InstallPlan,
    Uv,
    bound,
    run_uv,
)
from fallback_plugins.pypi.installing.plan import FLATTENED, Manifests, pins_of, release
from fallback_plugins.pypi.manifests import pythons
from fallback_plugins.pypi.manifests.metadata import (
    asked_python,
    has_dynamic_version,
    own_metadata,
    own_scripts,
    version_files,
)
from fallback_plugins.pypi.manifests.pythons import minor_of, ours
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.probes.observed import SHIMS, add_shims, add_to
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.gates import gating, services
from fallback_plugins.shared.gates.base_runs import keep, kept
from fallback_plugins.shared.gates.gating import in_folder, run_as_given
from fallback_plugins.shared.installation import (
    Installed,
    Level,
    interpreters,
    this_python,
    today,
    version_of,
)
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
    SharedResolutions,
)
from fallback_plugins.shared.store import InstalledStore, Wanted
from fallback_tier.advisory import is_affected
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.gate_ports import GateContext, SuiteTime
from fallback_tier.repo import RepoContext

#: Changed with how an environment is made, options included: one of an older version is not taken.
_FORMAT = 21

#: A runner that only says its version.
_START_TIMEOUT_S = 60.0

#: Folder of an environment with the project's own metadata: the project itself is not installed.
_OWN_METADATA = "own-metadata"

#: Stands in what a run prints for the environment's folder.
_ANY_PLACE = "/environment"

#: git reads its own files.
_GIT_TIMEOUT_S = 30.0

#: A project whose last commit is older than this was tested with other releases than today's. Where its
#: own code is at fault, those of its day are installed: with today's, tests fail for reasons that have
#: nothing to do with the flaw.
OF_ITS_DAY_AFTER = timedelta(days=180)

#: Where in the cache a fix's Python is kept, by fix and base commit, so that each gate and attempt runs on
#: the one that its runs were moved to, because its proof could not start on the first (ADR-0085).
_PYTHONS = "pythons"


@dataclass(eq=False)
class Environment:
    """One project folder of one tree (patched, or the base commit's), and its environment. ``runner``,
    ``only``: as for ``Manifests``."""

    context: GateContext
    #: The tree that it is of.
    repo: RepoContext
    folder: str
    runner: str | None = None
    only: str | None = None

    def __post_init__(self) -> None:
        changed = self.context.application.files
        self._manifests = Manifests(self.repo, self.folder, changed, self.runner, self.only)
        self._store = InstalledStore.of(self.context)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files and groups that are installed from, or the lock."""
        if self._manifests.locked:
            return (self._manifests.lock,)
        return tuple(source.name for source in self._manifests.sources)

    @property
    def declares(self) -> bool:
        """Whether any manifest declares something to install."""
        return bool(self.sources)

    def declaring(self, line: str) -> tuple[str, ...]:
        """Return the files and groups that have a line; none if uv.lock decides."""
        return tuple(one.name for one in self._manifests.sources if line in one.lines)

    def alone(self, source: str) -> "Environment":
        """Return the environment of a single file, or group, and nothing else that the project declares."""
        return replace(self, runner=None, only=source)

    @cached_property
    def wanted(self) -> Wanted:
        """All that decides what is installed except the resolution: manifests with their extras and groups,
        the Pythons, uv, the machine; of a patched tree also the base commit's, whose packages it keeps."""
        settings = [(pythons.identity(one.python), one.until) for one in self._settings]
        base = None if self._base is None else self._base.wanted
        what = gating.content_key(
            *self._manifests.identity, self._tag, settings, base and base.what
        )
        by = gating.content_key(_FORMAT, version_of("uv", self.context.clients), *this_python())
        fresh = gating.content_key(tried_as())
        return Wanted("python", what, by, self.context.resolutions, fresh, base, self._is_resolved)

    def contents(self) -> str:
        """Return a digest of what a run in it ran on: another digest is another run. Raises as ``install``
        does."""
        here = interpreters(self.context.clients)
        return f"{self.wanted.asked} {self._store.digest(self.place)} {here}"

    @cached_property
    def place(self) -> Path:
        """The environment's folder. Raises as ``install`` does."""
        return self._store.installed(self.wanted, self._make)

    @property
    def resolution(self) -> Resolution:
        """The fix's resolution of it. Raises as ``install`` does."""
        self.install()
        return self._store.resolved(self.wanted)

    def install(self) -> Installed:
        """Make the environment, once for these manifests: as much of it as is available. A patched tree's
        has the base commit's packages, except those that the patch moves (ADR-0102).

        Raises ToolMissingError; ToolFailedError if no registry answers, uv makes no environment, or what
        was resolved for this fix is not available any more.
        """
        return Installed.kept(self.place)

    def _make(self, made: Path, recorded: Resolution | None) -> tuple[Installed, Resolution]:
        base = None if self._base is None else self._base.install()
        settings, others = as_base(self._settings, base)
        pins = [line for lines in self._pins(recorded).values() for line in lines]
        with gating.scratch(self.context) as scratch:
            making = _Making(
                *(self.context, self._manifests, made, scratch, self._starts, pins),
                are_resolved=recorded is not None or bool(self._resolved_pins),
            )
            found = making.make(settings, others)
            resolution = self._resolved(made, found, by_lock=making.is_by_lock)
        add_to(made)
        add_shims(made)
        for own in (*self._manifests.beside, self._manifests.own):
            for path, text in own_metadata(own, self._tag).items():
                (made / _OWN_METADATA / path).parent.mkdir(parents=True, exist_ok=True)
                (made / _OWN_METADATA / path).write_bytes(text.encode())
        for name, text in own_scripts(self._manifests.own).items():
            with suppress(OSError):  # a dependency's, or Python itself; no name for a file
                with (made / "bin" / name).open("x", encoding="utf-8") as file:
                    file.write(text)
                (made / "bin" / name).chmod(0o755)
        return found, resolution

    def _pins(self, recorded: Resolution | None) -> dict[str, list[str]]:
        """Return lines by package: what was recorded for this tree, or resolved; of a patched tree what the
        base commit has, except affected releases, and what the patch moves in the resolution."""
        if recorded is None and self._base is None:
            return self._resolved_pins
        first, advisory = recorded or self.base.resolution, self.context.advisory
        held = {
            one.name: [f"{one.name}=={one.version}"]
            for one in first.packages
            if recorded or not is_affected(advisory, ECOSYSTEM, one.name, one.version)
        }
        return held if recorded else held | self._moved_pins

    @cached_property
    def _moved_pins(self) -> dict[str, list[str]]:
        """Lines by package that the patch changes in the recipe's resolution; of the base commit's, all."""
        before = {} if self._base is None else self._base._resolved_pins
        moved = self._resolved_pins.items()
        return {name: lines for name, lines in moved if lines != before.get(name)}

    def _is_resolved(self, resolution: Resolution) -> bool:
        """Return whether a resolution has the releases that the recipe's has. Before a recipe, as when a
        proof is checked, any has."""
        pins = self._moved_pins
        return all(
            f"{it.name}=={it.version}" in {line.partition(" ;")[0] for line in pins[it.name]}
            for it in resolution.packages
            if pins.get(it.name)
        )

    @cached_property
    def _resolved_pins(self) -> dict[str, list[str]]:
        """Lines by package of the recipe's resolution of these very manifests, which are not resolved
        again. A package on which its resolutions differ has none; nor has any, if a lock decides, or
        releases of an old day are installed."""
        if self._manifests.locked or self._day:
            return {}
        texts = {it: text for it, text in self._manifests.texts.items() if self.installs(it)}
        found: dict[str, list[str]] = {}
        for resolution in SharedResolutions.of(self.context.repo).among(texts):
            for name, packages in resolution.by_name.items():
                # Of several releases, uv says for which Pythons and platforms each is.
                lines = [
                    f"{name}=={it.version}" + (f" ; {it.environments}" if packages[1:] else "")
                    for it in packages
                    if it.environments or not packages[1:]
                ]
                found[name] = lines if found.get(name, lines) == lines else []
        return found

    def _resolved(self, made: Path, found: Installed, *, by_lock: bool) -> Resolution:
        """Return the resolution that the installed packages are."""
        releases = sorted(
            (canonicalize_name(it.metadata["Name"]), it.version) for it in distributions_in(made)
        )
        files = self.sources or (self.folder,)
        return Resolution(
            ecosystem=ECOSYSTEM,
            command=InstallCommand(client="uv", files=files, label=f"uv for {', '.join(files)}"),
            by=ResolvedBy.LOCK if by_lock else ResolvedBy.CLIENT,
            client=version_of("uv", self.context.clients),
            reason="" if found.absent is None else found.in_words,
            made_on=None if by_lock else date.fromisoformat(today()),
            packages=tuple(
                ResolvedPackage(key=f"{name} {version}", name=name, version=version)
                for name, version in releases
            ),
        )

    def installed(self, package: str) -> tuple[str, ...]:
        """Return the versions in it; metadata is read, nothing imported. Raises as ``install`` does."""
        name = canonicalize_name(package)
        return tuple(found.version for called, found in self._distributions if called == name)

    def distributions(self) -> Mapping[str, Distribution]:
        """Return all that is in it by canonical name; as ``installed``."""
        return dict(self._distributions)

    @cached_property
    def _distributions(self) -> tuple[tuple[str, Distribution], ...]:
        """Kept: every gate needs it, and to know one package's version, all metadata is read."""
        found = distributions_in(self.place)
        return tuple((canonicalize_name(it.metadata["Name"]), it) for it in found)

    def resolved(self, package: str) -> tuple[str, ...]:
        """Versions in the environment if all that is declared was resolved together, for a Python that the
        project runs with, and nothing was left out that the project's own client reads. Otherwise none:
        what is installed in part, or of another day, may not be the version that users get. What was built
        from its source for want of a wheel is read like everything else."""
        return self.installed(package) if self.is_whole else ()

    @property
    def is_whole(self) -> bool:
        """Whether all that is declared is installed, as the project's own client installs it."""
        if not self._is_made:
            return False
        found = self.install()
        if found.step == FLATTENED and self._manifests.flattening_drops:
            return False
        # On the first Python that suits the project, with releases of any day.
        is_usual = found.how == Setting(self.suited[0]).how
        return found.level is Level.EVERYTHING and is_usual

    @property
    def _is_made(self) -> bool:
        """Whether it was installed already."""
        return self._store.find_for(self.wanted) is not None

    def installs(self, path: str) -> bool:
        """As ``Manifests.installs``."""
        return self._manifests.installs(path)

    def unproved(self, package: str) -> tuple[str, ...]:
        """Return versions in an environment that ``resolved`` does not count, except those that were taken
        in place of a line that could not be installed."""
        if not self._is_made or self.resolved(package):
            return ()
        lines = (requirement_in(line) for line, _ in self.install().declined)
        replaced = {canonicalize_name(line.name) for line in lines if line is not None}
        return () if canonicalize_name(package) in replaced else self.installed(package)

    def sandboxed(self, arguments: Sequence[str], time: SuiteTime | None = None) -> CommandResult:
        """Run the environment's Python in this folder, its programs first on the path. Its output has
        relative paths, and the same ones in any tree. ``time``: of a suite of tests; None: a gate's own."""
        words = [str(self.place / "bin" / "python"), *arguments]
        result = self.run(words, folder=self.folder, suite_time=time)
        return result.model_copy(update={"argv": ("python", *arguments)})

    def shell(
        self,
        script: str,
        env: Mapping[str, str],
        servers: Sequence[str] = (),
        time: SuiteTime | None = None,
        *,
        shown: str,
    ) -> CommandResult:
        """Run a shell script in the root of the tree, with stand-ins of clients (``observed.add_shims``)
        and the environment's programs first on the path. What it prints is as ``sandboxed`` has it.
        ``shown``: what people know it by, while it runs.
        ``servers``: started before it, and stopped after it (``services``). ``time``: as ``sandboxed``."""
        lines = f'PATH="$1:$PATH"; export PATH\n{script}'
        words = ["sh", "-c", lines, "sh", str(self.place / SHIMS), shown]
        words = services.around(words, servers, env)
        return self.run(words, env, servers=servers, suite_time=time)

    def run(
        self,
        words: Sequence[str],
        env: Mapping[str, str] = MappingProxyType({}),
        *,
        folder: str = ".",
        timeout_s: float | None = None,
        servers: Sequence[str] = (),
        suite_time: SuiteTime | None = None,
    ) -> CommandResult:
        """Run a command in the tree, as ``gating.run_as_given`` does, with the environment's programs and
        variables. Its output has one placeholder for the environment's folder: each tree has another, and
        what is printed of a file in it is compared. Raises as ``install`` does."""
        self._write_versions()
        result = run_as_given(
            *(self.context, self.repo, words),
            programs=self.place / "bin",
            folder=folder,
            timeout_s=timeout_s,
            env={**self.variables(), **env},
            readable=[self.place, *pythons.readable(self.place)],
            servers=servers,
            suite_time=suite_time,
        )
        output = gating.placeless(result.output, self.place, _ANY_PLACE)
        return result.model_copy(update={"output": output})

    def variables(self) -> dict[str, str]:
        """Return how Python finds the project itself, and others of the repository that it takes packages
        from: none is installed; flat, or below ``src``. And the variables of an active environment."""
        roots = [self.repo.root / place for place in self._manifests.places]
        places = [place for root in roots for place in (root, root / "src")]
        places.append(self.place / _OWN_METADATA)
        return {
            "PYTHONPATH": os.pathsep.join(map(str, places)),
            "VIRTUAL_ENV": str(self.place),
        }

    def _write_versions(self) -> None:
        """Put the modules that a build would write into the tree, if nothing is in their place.

        A tree that a command is to run in: the repository itself is never written.
        """
        for path, text in version_files(self._manifests.own, self._tag).items():
            with suppress(OSError):
                self.repo.tree.add(in_folder(self.folder, path), text.encode())

    @cached_property
    def _tag(self) -> str:
        """The newest tag before the base commit; empty if git names none, or the project states its
        version."""
        own = self._manifests.own
        is_computed = version_files(own) or has_dynamic_version(own)
        return newest_tag(self.context) if is_computed else ""

    @cached_property
    def _settings(self) -> Sequence["Setting"]:
        """The settings to try, in order: with our Python first."""
        until, chosen = self._day, kept(_place_of_chosen(self.context))
        suited = [python for python in self.suited if python.name == chosen] or self.suited
        found = [Setting(python, until) for python in suited]
        if not until:
            return found
        return [*found, *(replace(one, but_for=True) for one in found), Setting(suited[0])]

    @cached_property
    def suited(self) -> tuple[Path, ...]:
        """The Pythons that the project may run with, ours first."""
        return pythons.suited_once(self.context.clients, asked_python(self._manifests.own))

    @property
    def base(self) -> "Environment":
        """The base commit's environment; itself, if it is of that tree."""
        return self if self.repo is self.context.repo else self._beside

    @cached_property
    def _beside(self) -> "Environment":
        return replace(self, repo=self.context.repo)

    def in_tree(self, tree: RepoContext, limits: GateContext | None = None) -> "Environment":
        """Return the same project's environment in another tree, whose files are read again, with the same
        base commit's."""
        found = replace(self, context=limits or self.context, repo=tree)
        found._beside = self.base
        return found

    @cached_property
    def _base(self) -> "Environment | None":
        """The base commit's environment, if the patch changes what is declared."""
        is_alike = self.base._manifests.identity == self._manifests.identity
        return None if is_alike else self.base

    def otherwise(self) -> str:
        """Return how this tree is installed, and how the base commit's, if that differs (``Installed``);
        otherwise empty. Raises as ``install`` does."""
        return "" if self._base is None else self.install().otherwise_than(self._base.install())

    def in_another_setting(self) -> str:
        """Return the same, if it runs on another Python, or on releases of another day."""
        if self._base is None or self.install().how == self._base.install().how:
            return ""
        return self.otherwise()

    def _starts(self, made: Path) -> bool:
        """Return whether pytest starts in an environment in the making. If it has none, nothing need start.

        What does not run on today's Python fails at once. What does not end in time is slow: a busy machine
        would choose other releases than an idle one.
        """
        if not any(made.glob("lib/python*/site-packages/pytest/__init__.py")):
            return True
        asked = [str(made / "bin" / "python"), "-I", "-m", "pytest", "--version"]
        readable = [made, *pythons.readable(made)]
        started = self.context.sandbox.run(
            asked, worktree=self.repo.tree, timeout_s=_START_TIMEOUT_S, readable=readable
        )
        return started.ok or started.timed_out

    @cached_property
    def _day(self) -> str:
        """The base commit's day, if releases of its day are to be installed; otherwise empty."""
        affected = self.context.repo.affected
        if affected is None or not affected.is_own or self._manifests.locked:
            return ""
        if not self.declares and self._manifests.runner is None:
            return ""  # nothing is installed, of any day
        return day_of_old(self.context)


def newest_tag(context: GateContext) -> str:
    """Return the newest tag before the base commit; empty if git names none."""
    repo = context.repo
    words = ("describe", "--tags", "--abbrev=0", repo.base_commit)
    return _git(context.clients, repo.root, *words)


def day_of_old(context: GateContext) -> str:
    """Return the day of the commit, if that is long ago; empty if it is not, or git names no day."""
    repo = context.repo
    with suppress(ValueError):
        words = ("show", "-s", "--format=%cs", repo.base_commit)
        day = date.fromisoformat(_git(context.clients, repo.root, *words))
        return str(day) if day < datetime.now(UTC).date() - OF_ITS_DAY_AFTER else ""
    return ""


@lru_cache
def _git(clients: ClientRunner, root: Path, *words: str) -> str:
    """Return git's output, read once per run: a tag that is set in between would make the two trees differ.
    Empty if git fails."""
    ran = clients.run("git", words, cwd=root, timeout_s=_GIT_TIMEOUT_S)
    return ran.output.strip() if ran.ok else ""


def choose_python(context: GateContext, python: Path | None) -> None:
    """Run this fix on this Python from now on; None: on any, ours first."""
    if python is None:
        _place_of_chosen(context).unlink(missing_ok=True)
    else:
        keep(_place_of_chosen(context), python.name)


def _place_of_chosen(context: GateContext) -> Path:
    return (
        context.cache / _PYTHONS / gating.content_key(context.repo.fix_id, context.repo.base_commit)
    )


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
    """The Python, and the day up to which releases are taken (``2022-05-27``; empty: all).

    ``but_for``: up to MAX_APART packages that the day lacks may be of any day.
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
        """Return whether an environment with this record was installed in this setting."""
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


class _Making:
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

        def there() -> list[str]:
            return [f"{it.metadata['Name']}=={it.version}" for it in distributions_in(made)]

        steps = tuple(manifests.everything(self._write))
        self._plan = InstallPlan(steps, self._sources, manifests.runner, manifests.strays, there)

    def make(self, settings: Sequence[Setting], others: Sequence[Setting]) -> Installed:
        """Install all of it in the first setting that has it, from wheels of a registry before any is
        built; in one of ``others`` only if none of ``settings`` has it; otherwise a part, in the first of
        them."""
        first = settings[0]
        for some in (settings, others) if self._plan.everything else ():
            if (found := next(self._complete(some, first), None)) is not None:
                return found
        if first.until:
            found = self._part(first)
            # A registry may tell no days, and what was right on that day may not run on today's Python.
            if found.level is not Level.METADATA and self._starts(self._made):
                return found
        return self._part(replace(first, until=""))

    def _complete(self, settings: Sequence[Setting], first: Setting) -> Iterator[Installed]:
        """Yield all of it from wheels, then as soon as what uv has no wheel of is built."""
        for setting in settings:
            yield from self._whole(setting, is_first=setting is first)
        for setting in settings:
            while self._has_more(setting):
                yield from self._whole(setting, is_first=False)

    def _part(self, setting: Setting) -> Installed:
        """Install what one setting makes available."""
        self._linked[setting] = self._links(setting)
        found = self._ladder(setting).run()
        while self._has_more(setting):
            found = self._ladder(setting).run()
        failed = self._building.failed(setting.python, setting.until)
        return self._told(replace(found, unbuilt=failed), setting)

    def _has_more(self, setting: Setting) -> bool:
        """Build what was refused for lack of a wheel. Return whether anything new was built."""
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
        """Return lines for modules that code imports at its start, and nothing provides, within the
        project's own bounds; none for a package that the advisory is about."""
        lines: dict[str, None] = {}
        for module in self._imported(minor):
            line = Requirement(_ONCE_THERE[module][0])
            name = canonicalize_name(line.name)
            line.specifier &= self._manifests.bounds_of(name)
            if name not in affected:
                lines[str(line)] = None
        return [*lines]

    def _imported(self, minor: int) -> list[str]:
        """Return modules of ``_ONCE_THERE`` that are gone from this Python, and imported by what is
        installed or by the project's own code."""
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
        """Return the result with all that is unusual in it."""
        built = self._building.built(setting.python, setting.until, self._plan.there())
        return replace(found, how=(*setting.how, *found.how), built=built)

    @property
    def is_by_lock(self) -> bool:
        """Whether uv.lock pins all that is installed."""
        pins = (pin.partition("==") for pin in self._plan.there())
        return self._manifests.locked and self._manifests.pinned.issuperset(
            release(name, version) for name, _, version in pins
        )

    def _whole(self, setting: Setting, *, is_first: bool) -> Iterator[Installed]:
        """Yield all of it, if it is available in a setting and starts."""
        try:
            found = self._but_for(setting) if setting.but_for else self._ladder(setting).whole()
        except ToolFailedError:
            if is_first:
                raise
            return  # a Python that does not work is treated as not installed
        if found is not None and (not setting.how or self._starts(self._made)):
            yield self._told(found, setting)

    def _but_for(self, setting: Setting) -> Installed | None:
        """Return all of it, from the day except for what uv reports that the day lacks."""
        apart = self._not_of_the_day(replace(setting, but_for=False))
        while apart is not None and len(apart) <= MAX_APART:
            found = self._ladder(setting, apart).whole()
            if found is not None:
                if apart and len(self._plan.there()) <= 2 * len(apart):
                    return None  # the greater part is of any day
                return replace(found, how=(_APART + ", ".join(apart),) if apart else ())
            more = self._not_of_the_day(setting)
            if not more or set(more) <= set(apart):
                break
            apart = tuple(dict.fromkeys((*apart, *more)))
        return None

    def _not_of_the_day(self, setting: Setting) -> tuple[str, ...] | None:
        """Return packages by uv's hints; none if the setting was not tried, None if there are no hints."""
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
        compiled = place.read_text("utf-8").splitlines()
        asked = (requirement_in(it.partition(" --hash")[0].rstrip("\\ ")) for it in compiled)
        lines = [bound(str(it)) for it in asked if it is not None]
        place.write_text("\n".join(lines) + "\n", encoding="utf-8")
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
    """Return the pins, those of a lock's packages as the lock has them: it decides, whatever a manifest
    admits."""
    locked = {}
    for line in (it for source in sources if source.pinned for it in source.lines):
        if (asked := requirement_in(line)) is not None and not asked.url:
            locked[canonicalize_name(asked.name)] = f"{asked.name}{asked.specifier}"
    free = (pin for pin in pins if canonicalize_name(pin.partition("==")[0]) not in locked)
    return [*free, *locked.values()]
