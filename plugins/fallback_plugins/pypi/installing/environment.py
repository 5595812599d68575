"""Virtual environment of a project's dependencies (ADR-0039), and commands run with its Python.

It is made outside the sandbox from copies of the manifests, with wheels only (``--no-build``): no source
distribution and no local project is built, so no target's code runs. If only a wheel is missing, one is
built in the sandbox (``building``). The environment is in the cache; commands that run in it can only read
it.
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
    NO_FAILURES,
    NOT_COMPILED,
    Failure,
    InstallLadder,
    InstallPlan,
    Uv,
    bound,
    is_final,
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

#: To be raised when the making of environments changes, options included: older environments are not
#: reused.
_FORMAT = 23

#: For a test runner that only prints its version.
_START_TIMEOUT_S = 60.0

#: Folder of an environment with the project's own metadata: the project itself is not installed.
_OWN_METADATA = "own-metadata"

#: Placeholder for the environment's folder in a run's output.
_ANY_PLACE = "/environment"

#: For git, which only reads the repository's own files.
_GIT_TIMEOUT_S = 30.0

#: A project whose last commit is older than this was tested with older releases than today's. If its own
#: code is vulnerable, releases of the commit's day are installed: with today's, tests fail for reasons
#: unrelated to the vulnerability.
OF_ITS_DAY_AFTER = timedelta(days=180)

#: Folder in the cache for a fix's chosen Python, by fix and base commit, so that each gate and attempt uses
#: the one to which its runs were moved when its proof could not start on the first (ADR-0085).
_PYTHONS = "pythons"


@dataclass(eq=False)
class Environment:
    """One project folder of one tree (patched, or the base commit's), and its environment. ``runner``,
    ``only``: as for ``Manifests``."""

    context: GateContext
    #: The tree that it belongs to.
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
        """The files and groups that packages are installed from, or the lock."""
        if self._manifests.locked:
            return (self._manifests.lock,)
        return tuple(source.name for source in self._manifests.sources)

    @property
    def declares(self) -> bool:
        """Whether any manifest declares something to install."""
        return bool(self.sources)

    def declaring(self, line: str) -> tuple[str, ...]:
        """Return the files and groups that have a line; none if uv.lock decides."""
        return tuple(source.name for source in self._manifests.sources if line in source.lines)

    def alone(self, source: str) -> "Environment":
        """Return the environment of a single file, or group, and nothing else that the project declares."""
        return replace(self, runner=None, only=source)

    @cached_property
    def wanted(self) -> Wanted:
        """All that decides what is installed except the resolution: manifests with their extras and groups,
        the Pythons, uv, the machine; of a patched tree also the base commit's, whose packages it keeps."""
        settings = [(pythons.identity(setting.python), setting.until) for setting in self._settings]
        base = None if self._base is None else self._base.wanted
        what = gating.content_key(
            *self._manifests.identity, self._tag, settings, base and base.what
        )
        by = gating.content_key(_FORMAT, version_of("uv", self.context.clients), *this_python())
        fresh = gating.content_key(tried_as())
        return Wanted("python", what, by, self.context.resolutions, fresh, base, self._is_resolved)

    def contents(self) -> str:
        """Return a digest of what a run in it depends on: a run's result holds for this digest only. Raises
        as ``install`` does."""
        interpreter_paths = interpreters(self.context.clients)
        return f"{self.wanted.asked} {self._store.digest(self.place)} {interpreter_paths}"

    @cached_property
    def place(self) -> Path:
        """The environment's folder. Raises as ``install`` does."""
        return self._store.installed(self.wanted, self._make)

    @property
    def resolution(self) -> Resolution:
        """The fix's resolution of this environment. Raises as ``install`` does."""
        self.install()
        return self._store.resolved(self.wanted)

    def install(self) -> Installed:
        """Make the environment, once for these manifests, with as many packages as are available. A patched
        tree gets the base commit's packages, except those that the patch moves (ADR-0102).

        Raises ToolMissingError; ToolFailedError if no registry answers, uv makes no environment, or what
        was resolved for this fix is not available any more.
        """
        return Installed.kept(self.place)

    def _make(self, environment: Path, recorded: Resolution | None) -> tuple[Installed, Resolution]:
        base = None if self._base is None else self._base.install()
        settings, further = as_base(self._settings, base)
        pins = [line for lines in self._pins(recorded).values() for line in lines]
        with gating.scratch(self.context) as scratch:
            making = _Making(
                *(self.context, self._manifests, environment, scratch, self._starts, pins),
                are_resolved=recorded is not None or bool(self._resolved_pins),
                failed=self._failed_before(base, settings),
                built=() if base is None else base.built,
            )
            installed = making.make(settings, further)
            resolution = self._resolved(environment, installed, by_lock=making.is_by_lock)
        add_to(environment)
        add_shims(environment)
        for manifests in (*self._manifests.beside, self._manifests.own):
            for path, text in own_metadata(manifests, self._tag).items():
                (environment / _OWN_METADATA / path).parent.mkdir(parents=True, exist_ok=True)
                (environment / _OWN_METADATA / path).write_bytes(text.encode())
        for name, text in own_scripts(self._manifests.own).items():
            # The file may exist (a dependency's, Python itself), or the name be invalid.
            with suppress(OSError):
                with (environment / "bin" / name).open("x", encoding="utf-8") as file:
                    file.write(text)
                (environment / "bin" / name).chmod(0o755)
        return installed, resolution

    def _failed_before(
        self, base: Installed | None, settings: Sequence["Setting"]
    ) -> Mapping[str, Failure]:
        """Return the lines that could not be installed of the base commit, and are the same in this tree:
        without those whose reason, as far as it was kept, names a package of a line that the patch changes.
        They are not tried again, as each would fail again after many resolutions."""
        if base is None or self._base is None or not settings[0].is_of(base.how):
            return NO_FAILURES
        ours, theirs = self._manifests, self._base._manifests
        lines = set(ours.lines ^ theirs.lines)
        for path in ours.texts.keys() | theirs.texts.keys():  # constraints, too
            texts = (tree.texts.get(path, "") for tree in (ours, theirs))
            before, after = ({*text.splitlines()} for text in texts)
            lines |= before ^ after
        changed = {
            canonicalize_name(match["name"]) for line in lines if (match := _FIRST_NAME.match(line))
        }
        pinned = {line for source in ours.sources if source.pinned for line in source.lines}
        failures = {
            line: Failure.of(why)
            for line, why in base.declined
            if line in theirs.lines and line not in pinned
        }
        return {
            line: failure
            for line, failure in failures.items()
            if is_final(failure.why) and failure.named.isdisjoint(changed)
        }

    def _pins(self, recorded: Resolution | None) -> dict[str, list[str]]:
        """Return lines by package: what was recorded for this tree, or resolved; of a patched tree what the
        base commit has, except affected releases, and what the patch moves in the resolution."""
        if recorded is None and self._base is None:
            return self._resolved_pins
        first, advisory = recorded or self.base.resolution, self.context.advisory
        recorded_pins = {
            package.name: [f"{package.name}=={package.version}"]
            for package in first.packages
            if recorded or not is_affected(advisory, ECOSYSTEM, package.name, package.version)
        }
        return recorded_pins if recorded else recorded_pins | self._moved_pins

    @cached_property
    def _moved_pins(self) -> dict[str, list[str]]:
        """Lines by package that the patch changes in the recipe's resolution; for the base commit, all
        lines."""
        before = {} if self._base is None else self._base._resolved_pins
        moved = self._resolved_pins.items()
        return {name: lines for name, lines in moved if lines != before.get(name)}

    def _is_resolved(self, resolution: Resolution) -> bool:
        """Return whether a resolution has the releases that the recipe's has. Before a recipe, as when a
        proof is checked, any has."""
        pins = self._moved_pins
        return all(
            f"{package.name}=={package.version}"
            in {line.partition(" ;")[0] for line in pins[package.name]}
            for package in resolution.packages
            if pins.get(package.name)
        )

    @cached_property
    def _resolved_pins(self) -> dict[str, list[str]]:
        """Lines by package of the recipe's resolution of these same manifests, which are not resolved
        again. Empty for a package on which the recipe's resolutions differ; empty as a whole if a lock
        decides, or if releases of an old day are installed."""
        if self._manifests.locked or self._day:
            return {}
        texts = {path: text for path, text in self._manifests.texts.items() if self.installs(path)}
        lines_by_package: dict[str, list[str]] = {}
        for resolution in SharedResolutions.of(self.context.repo).among(texts):
            for name, packages in resolution.by_name.items():
                # If there are several releases, uv states the Pythons and platforms of each.
                lines = [
                    f"{name}=={package.version}"
                    + (f" ; {package.environments}" if packages[1:] else "")
                    for package in packages
                    if package.environments or not packages[1:]
                ]
                lines_by_package[name] = lines if lines_by_package.get(name, lines) == lines else []
        return lines_by_package

    def _resolved(self, environment: Path, installed: Installed, *, by_lock: bool) -> Resolution:
        """Return the resolution that the installed packages amount to."""
        releases = sorted(
            (canonicalize_name(distribution.metadata["Name"]), distribution.version)
            for distribution in distributions_in(environment)
        )
        files = self.sources or (self.folder,)
        return Resolution(
            ecosystem=ECOSYSTEM,
            command=InstallCommand(client="uv", files=files, label=f"uv for {', '.join(files)}"),
            by=ResolvedBy.LOCK if by_lock else ResolvedBy.CLIENT,
            client=version_of("uv", self.context.clients),
            reason="" if installed.absent is None else installed.in_words,
            made_on=None if by_lock else date.fromisoformat(today()),
            packages=tuple(
                ResolvedPackage(key=f"{name} {version}", name=name, version=version)
                for name, version in releases
            ),
        )

    def installed(self, package: str) -> tuple[str, ...]:
        """Return the versions in it; metadata is read, nothing imported. Raises as ``install`` does."""
        name = canonicalize_name(package)
        return tuple(
            distribution.version
            for canonical, distribution in self._distributions
            if canonical == name
        )

    def distributions(self) -> Mapping[str, Distribution]:
        """Return all installed distributions by canonical name. Raises as ``install`` does."""
        return dict(self._distributions)

    @cached_property
    def _distributions(self) -> tuple[tuple[str, Distribution], ...]:
        """Cached: every gate needs it, and all metadata is read to know one package's version."""
        installed = distributions_in(self.place)
        return tuple(
            (canonicalize_name(distribution.metadata["Name"]), distribution)
            for distribution in installed
        )

    def resolved(self, package: str) -> tuple[str, ...]:
        """Return the installed versions, if all that is declared was resolved together, for a Python that
        the project supports, and nothing was left out that the project's own client reads. Otherwise return
        none: a partial installation, or one of another day, may not have the version that users get. What
        was built from source for lack of a wheel counts too."""
        return self.installed(package) if self.is_whole else ()

    @property
    def is_whole(self) -> bool:
        """Whether all that is declared is installed, as the project's own client installs it."""
        if not self._is_made:
            return False
        installed = self.install()
        if installed.step == FLATTENED and self._manifests.flattening_drops:
            return False
        # On the first supported Python, with releases of any day.
        is_usual = installed.how == Setting(self.suited[0]).how
        return installed.level is Level.EVERYTHING and is_usual

    @property
    def _is_made(self) -> bool:
        """Whether it is already installed."""
        return self._store.find_for(self.wanted) is not None

    def installs(self, path: str) -> bool:
        """Return whether a file is part of what is installed, as ``Manifests.installs`` does."""
        return self._manifests.installs(path)

    def unproved(self, package: str) -> tuple[str, ...]:
        """Return versions in an environment that ``resolved`` does not count, except those that replace a
        line that could not be installed."""
        if not self._is_made or self.resolved(package):
            return ()
        requirements = (requirement_in(line) for line, _ in self.install().declined)
        replaced = {
            canonicalize_name(requirement.name)
            for requirement in requirements
            if requirement is not None
        }
        return () if canonicalize_name(package) in replaced else self.installed(package)

    def sandboxed(self, arguments: Sequence[str], time: SuiteTime | None = None) -> CommandResult:
        """Run the environment's Python in this folder, its programs first on the path. The output has
        relative paths, equal in every tree. ``time``: for a test suite; None: the gate's own time limit."""
        argv = [str(self.place / "bin" / "python"), *arguments]
        result = self.run(argv, folder=self.folder, suite_time=time)
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
        """Run a shell script in the root of the tree, with client shims (``observed.add_shims``) and the
        environment's programs first on the path. The output is as for ``sandboxed``. ``shown``: the name
        shown to people while it runs. ``servers``: started before the script, and stopped after it
        (``services``). ``time``: as for ``sandboxed``."""
        lines = f'PATH="$1:$PATH"; export PATH\n{script}'
        argv = ["sh", "-c", lines, "sh", str(self.place / SHIMS), shown]
        argv = services.around(argv, servers, env)
        return self.run(argv, env, servers=servers, suite_time=time)

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] = MappingProxyType({}),
        *,
        folder: str = ".",
        timeout_s: float | None = None,
        servers: Sequence[str] = (),
        suite_time: SuiteTime | None = None,
    ) -> CommandResult:
        """Run a command in the tree, as ``gating.run_as_given`` does, with the environment's programs and
        variables. The output has a placeholder for the environment's folder, so that the outputs of two
        trees can be compared. Raises as ``install`` does."""
        self._write_versions()
        result = run_as_given(
            *(self.context, self.repo, argv),
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
        """Return the variables of an active environment, and those by which Python finds the project itself
        and the repository's other projects that it uses: none is installed. Their packages may be flat, or
        below ``src``."""
        roots = [self.repo.root / place for place in self._manifests.places]
        places = [place for root in roots for place in (root, root / "src")]
        places.append(self.place / _OWN_METADATA)
        return {
            "PYTHONPATH": os.pathsep.join(map(str, places)),
            "VIRTUAL_ENV": str(self.place),
        }

    def _write_versions(self) -> None:
        """Write the modules that a build would write into the tree, unless a file exists there.

        The tree is the one that a command runs in: the repository itself is never written.
        """
        for path, text in version_files(self._manifests.own, self._tag).items():
            with suppress(OSError):
                self.repo.tree.add(in_folder(self.folder, path), text.encode())

    @cached_property
    def _tag(self) -> str:
        """The newest tag before the base commit; empty if git names none, or the project states its
        version."""
        manifests = self._manifests.own
        is_computed = version_files(manifests) or has_dynamic_version(manifests)
        return newest_tag(self.context) if is_computed else ""

    @cached_property
    def _settings(self) -> Sequence["Setting"]:
        """The settings to try, in order: the tool's own Python first."""
        until, chosen = self._day, kept(_place_of_chosen(self.context))
        suited = [python for python in self.suited if python.name == chosen] or self.suited
        settings = [Setting(python, until) for python in suited]
        if not until:
            return settings
        return [
            *settings,
            *(replace(setting, but_for=True) for setting in settings),
            Setting(suited[0]),
        ]

    @cached_property
    def suited(self) -> tuple[Path, ...]:
        """The Pythons that the project supports, the tool's own first."""
        return pythons.suited_once(self.context.clients, asked_python(self._manifests.own))

    @property
    def base(self) -> "Environment":
        """The base commit's environment; itself, if it belongs to the base commit."""
        return self if self.repo is self.context.repo else self._beside

    @cached_property
    def _beside(self) -> "Environment":
        return replace(self, repo=self.context.repo)

    def in_tree(self, tree: RepoContext, limits: GateContext | None = None) -> "Environment":
        """Return the same project's environment in another tree, whose files are read again, with the same
        base commit."""
        environment = replace(self, context=limits or self.context, repo=tree)
        environment._beside = self.base
        return environment

    @cached_property
    def _base(self) -> "Environment | None":
        """The base commit's environment, if the patch changes what is declared."""
        is_alike = self.base._manifests.identity == self._manifests.identity
        return None if is_alike else self.base

    def otherwise(self) -> str:
        """Return how this tree and the base commit's are installed (``Installed``), if that differs;
        otherwise empty. Raises as ``install`` does."""
        return "" if self._base is None else self.install().otherwise_than(self._base.install())

    def in_another_setting(self) -> str:
        """Return the same as ``otherwise``, but only if the two trees use different Pythons, or releases of
        different days."""
        if self._base is None or self.install().how == self._base.install().how:
            return ""
        return self.otherwise()

    def _starts(self, environment: Path) -> bool:
        """Return whether pytest starts in a new environment, or is not installed in it.

        What does not run on today's Python fails at once. A timeout only means a slow machine, and counts
        as started: otherwise a busy machine would choose other releases than an idle one.
        """
        if not any(environment.glob("lib/python*/site-packages/pytest/__init__.py")):
            return True
        argv = [str(environment / "bin" / "python"), "-I", "-m", "pytest", "--version"]
        readable = [environment, *pythons.readable(environment)]
        started = self.context.sandbox.run(
            argv, worktree=self.repo.tree, timeout_s=_START_TIMEOUT_S, readable=readable
        )
        return started.ok or started.timed_out

    @cached_property
    def _day(self) -> str:
        """The base commit's day, if releases of its day are to be installed; otherwise empty."""
        affected = self.context.repo.affected
        if affected is None or not affected.is_own or self._manifests.locked:
            return ""
        if not self.declares and self._manifests.runner is None:
            return ""  # nothing is installed
        return day_of_old(self.context)


def newest_tag(context: GateContext) -> str:
    """Return the newest tag before the base commit; empty if git names none."""
    repo = context.repo
    arguments = ("describe", "--tags", "--abbrev=0", repo.base_commit)
    return _git(context.clients, repo.root, *arguments)


def day_of_old(context: GateContext) -> str:
    """Return the commit's date if it is older than OF_ITS_DAY_AFTER; otherwise, or if git fails, empty."""
    repo = context.repo
    with suppress(ValueError):
        arguments = ("show", "-s", "--format=%cs", repo.base_commit)
        day = date.fromisoformat(_git(context.clients, repo.root, *arguments))
        return str(day) if day < datetime.now(UTC).date() - OF_ITS_DAY_AFTER else ""
    return ""


@lru_cache
def _git(clients: ClientRunner, root: Path, *arguments: str) -> str:
    """Return git's output, read once per process: a tag that is set in between would make the two trees
    differ. Empty if git fails."""
    result = clients.run("git", arguments, cwd=root, timeout_s=_GIT_TIMEOUT_S)
    return result.output.strip() if result.ok else ""


def choose_python(context: GateContext, python: Path | None) -> None:
    """Run this fix on this Python from now on; None: on any, the tool's own first."""
    if python is None:
        _place_of_chosen(context).unlink(missing_ok=True)
    else:
        keep(_place_of_chosen(context), python.name)


def _place_of_chosen(context: GateContext) -> Path:
    return (
        context.cache / _PYTHONS / gating.content_key(context.repo.fix_id, context.repo.base_commit)
    )


#: No source distribution and no local project is built outside the sandbox.
_NEVER_BUILT = ("--no-build", NOT_COMPILED)

#: Before this minor version of Python, a new environment had setuptools in it. Releases of that time import
#: its ``pkg_resources`` without declaring it.
_WITHOUT_SETUPTOOLS = 12

#: The last releases that have ``pkg_resources`` (removed in 82, deprecated with a warning in 81).
_SETUPTOOLS = "setuptools<81"

#: Modules that packages import without declaring them, since every environment or every Python had them:
#: the package that provides each now, and the first minor version of Python without the module.
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

#: An import of one of them that runs when its module is imported: it is at the beginning of a line.
_IMPORTS = re.compile(
    rb"^(?:(?:import|from)[ \t]+|__import__\(['\"])(" + "|".join(_ONCE_THERE).encode() + rb")\b",
    re.MULTILINE,
)

#: Folders of an environment that provide these modules, or are installed with them.
_BRINGING = frozenset({"setuptools", "pkg_resources", "_distutils_hack", "pip", "wheel"})

#: Larger modules (bytes) are not searched: a module with an import at its start is smaller.
_MAX_MODULE = 500_000

#: Packages that may be from another day than the rest: a helper that had no wheel yet, or one that the
#: project released together with itself. With more of them, the environment is not of that day.
MAX_APART = 3

#: uv's hints for a failed resolution: packages without a suitable release before the day, or without a
#: wheel.
_NOT_OF_THE_DAY = re.compile(
    r"\bhint: (?:`([\w.-]+)` was filtered by `exclude-newer`|Wheels are required for `([\w.-]+)`)"
)

_APART = "but for "

#: The name at the start of a line of requirements, also as an item of a list.
_FIRST_NAME = re.compile(r"[\s\"'\[]*(?P<name>[A-Za-z0-9][\w.-]*)")

#: A day after every release; uv refuses dates that do not exist.
_ANY_DAY = "9999-01-01T00:00:00Z"


@dataclass(frozen=True)
class Setting:
    """Python, and the day up to which releases are used (``2022-05-27``; empty: all).

    ``but_for``: up to MAX_APART packages without a release by that day may be of any day.
    """

    python: Path
    until: str = ""
    but_for: bool = False

    @property
    def how(self) -> tuple[str, ...]:
        """What is unusual in it, for the audit trail."""
        python_note = () if self.python == ours() else (f"on Python 3.{minor_of(self.python)}",)
        return (*python_note, *([f"from releases up to {self.until}"] if self.until else []))

    def is_of(self, how: Sequence[str]) -> bool:
        """Return whether an environment with this ``how`` was installed in this setting."""
        usual = tuple(note for note in how if not note.startswith(_APART))
        return self.how == usual and self.but_for == (len(usual) < len(how))


def as_base(
    settings: Sequence[Setting], base: Installed | None
) -> tuple[Sequence[Setting], Sequence[Setting]]:
    """Return the settings for a patched tree whose base commit was installed as ``base``, and further
    settings, to try if those can't install everything.

    Two trees are compared on the same Python. What is no longer available on the tool's own Python is the
    patch's failure. If the base commit was complete on another Python only, and the patched tree is not, a
    further setting shows that the two can't be compared (ADR-0077). ``base`` is None for the base commit
    itself: it gets all settings.
    """
    if base is None:
        return settings, ()
    alike = [setting for setting in settings if setting.is_of(base.how)] or settings[:1]
    is_complete_elsewhere = base.level is Level.EVERYTHING and base.how
    return alike, [
        setting for setting in settings if is_complete_elsewhere and setting not in alike
    ]


class _Making:
    """One environment being made, from copies of the manifests in ``scratch``.

    ``environment``: its folder. ``starts``: returns whether the test runner in it starts; called for
    unusual settings only, since old releases may not run on today's Python. ``pins``: releases that are
    used if the manifests admit them: the base commit's, or an earlier installation's of the same manifests.
    ``are_resolved``: the pins include uv's resolution of these manifests, so they are compatible.
    ``failed``: lines that failed in a similar environment, in the first setting; ``built``: what was built
    for it.

    All that makes environments raises ToolMissingError; ToolFailedError if no registry answers, or uv makes
    no environment.
    """

    def __init__(
        self,
        context: GateContext,
        manifests: Manifests,
        environment: Path,
        scratch: Path,
        starts: Callable[[Path], bool],
        pins: Sequence[str] = (),
        *,
        are_resolved: bool = False,
        failed: Mapping[str, Failure] = NO_FAILURES,
        built: Sequence[str] = (),
    ) -> None:
        self._context = context
        self._manifests = manifests
        self._made = environment
        self._scratch = scratch
        self._starts = starts
        self._pins = _beside_lock(pins, manifests.sources) if pins else ()
        self._are_resolved = are_resolved
        self._failed = failed
        self._built = built
        self._folder = manifests.copy_to(scratch)
        self._numbers = count()
        #: uv's output of each setting's failed resolutions.
        self._refusals: dict[Setting, list[str]] = {}
        self._building = Building(context, lambda: manifests.indexes)
        #: The links to built wheels that each setting's last try could use.
        self._linked: dict[Setting, str] = {}

        def there() -> list[str]:
            return [
                f"{distribution.metadata['Name']}=={distribution.version}"
                for distribution in distributions_in(environment)
            ]

        steps = tuple(manifests.everything(self._write))
        self._plan = InstallPlan(steps, self._sources, manifests.runner, manifests.strays, there)

    def make(self, settings: Sequence[Setting], further: Sequence[Setting]) -> Installed:
        """Install everything in the first setting that has it, from a registry's wheels before any is
        built; in one of ``further`` only if none of ``settings`` has it; otherwise a part, in the first
        of ``settings``."""
        first = settings[0]
        for candidates in (settings, further) if self._plan.everything else ():
            if (installed := next(self._complete(candidates, first), None)) is not None:
                return installed
        if first.until:
            installed = self._part(first, self._failed)
            # A registry may give no dates, and releases of that day may not run on today's Python.
            if installed.level is not Level.METADATA and self._starts(self._made):
                return installed
        return self._part(replace(first, until=""), NO_FAILURES if first.until else self._failed)

    def _complete(self, settings: Sequence[Setting], first: Setting) -> Iterator[Installed]:
        """Yield complete installations: from wheels, then each time a wheel that uv lacks was built."""
        for setting in settings:
            yield from self._whole(setting, is_first=setting is first)
        for setting in settings:
            while self._has_more(setting):
                yield from self._whole(setting, is_first=False)

    def _part(self, setting: Setting, known: Mapping[str, Failure]) -> Installed:
        """Install what is available in one setting. ``known``: lines that failed in a similar
        environment."""
        self._building.build_again(setting.python, setting.until, self._built)
        self._linked[setting] = self._links(setting)
        built = self._building.names(setting.python, setting.until)
        while True:
            ladder = self._ladder(setting)
            ladder.plan = replace(ladder.plan, failed=known)
            installed = ladder.run()
            if not self._has_more(setting):
                break
            names = self._building.names(setting.python, setting.until)
            known, built = ladder.failures(names - built), names
        failed = self._building.failed(setting.python, setting.until)
        return self._told(replace(installed, unbuilt=failed), setting)

    def _has_more(self, setting: Setting) -> bool:
        """Build what failed for lack of a wheel. Return whether anything new was built."""
        refusals = self._refusals.get(setting, ())
        self._building.build(setting.python, setting.until, refusals)
        before, self._linked[setting] = self._linked.get(setting, ""), self._links(setting)
        return self._linked[setting] != before

    def _ladder(self, setting: Setting, apart: Sequence[str] = ()) -> InstallLadder:
        """Return the ladder of a new environment. For releases of a day, it has what every environment of
        that day had. ``apart``: packages that may be of any day."""
        minor = minor_of(setting.python)
        preinstalled = [_SETUPTOOLS] if setting.until and minor < _WITHOUT_SETUPTOOLS else []
        affected = {
            canonicalize_name(package) for package in self._context.advisory.packages(ECOSYSTEM)
        }
        extra_lines = [
            line
            for line in (*preinstalled, *self._manifests.for_tests)
            if canonicalize_name(Requirement(line).name) not in affected
        ]
        missing = partial(self._missing, minor, affected)
        plan = replace(self._plan, beside=tuple(extra_lines), missing=missing)
        return InstallLadder(plan, self._start(setting, apart), self._write)

    def _missing(self, minor: int, affected: Collection[str]) -> Sequence[str]:
        """Return lines for modules that code imports when it starts and that nothing provides, within the
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
        """Return modules of ``_ONCE_THERE`` that this Python no longer has, and that installed packages or
        the project's own code import."""
        gone = {name for name, (_, since) in _ONCE_THERE.items() if minor >= since}
        imported: dict[str, None] = {}
        packages = [*self._made.glob("lib/python*/site-packages")]
        if any((folder / "pkg_resources").is_dir() for folder in packages):
            gone -= {"pkg_resources", "distutils"}
        for content in chain(_modules_in(packages), self._manifests.own_code()):
            imported |= dict.fromkeys(name.decode() for name in _IMPORTS.findall(content))
        return [module for module in imported if module in gone]

    def _links(self, setting: Setting) -> str:
        return self._building.links(setting.python, setting.until)

    def _told(self, installed: Installed, setting: Setting) -> Installed:
        """Return the result with all that is unusual in it added."""
        built = self._building.built(setting.python, setting.until, self._plan.there())
        return replace(installed, how=(*setting.how, *installed.how), built=built)

    @property
    def is_by_lock(self) -> bool:
        """Whether uv.lock pins all that is installed."""
        pins = (pin.partition("==") for pin in self._plan.there())
        return self._manifests.locked and self._manifests.pinned.issuperset(
            release(name, version) for name, _, version in pins
        )

    def _whole(self, setting: Setting, *, is_first: bool) -> Iterator[Installed]:
        """Yield a complete installation, if one is available in this setting and starts."""
        try:
            installed = self._but_for(setting) if setting.but_for else self._ladder(setting).whole()
        except ToolFailedError:
            if is_first:
                raise
            return  # a Python that fails is treated as not installed
        if installed is not None and (not setting.how or self._starts(self._made)):
            yield self._told(installed, setting)

    def _but_for(self, setting: Setting) -> Installed | None:
        """Return everything, from the day except for the packages that uv reports as missing that day."""
        apart = self._not_of_the_day(replace(setting, but_for=False))
        while apart is not None and len(apart) <= MAX_APART:
            installed = self._ladder(setting, apart).whole()
            if installed is not None:
                if apart and len(self._plan.there()) <= 2 * len(apart):
                    return None  # most packages are of any day
                return replace(installed, how=(_APART + ", ".join(apart),) if apart else ())
            further = self._not_of_the_day(setting)
            if not further or set(further) <= set(apart):
                break
            apart = tuple(dict.fromkeys((*apart, *further)))
        return None

    def _not_of_the_day(self, setting: Setting) -> tuple[str, ...] | None:
        """Return packages by uv's hints; none if the setting was not tried, None if there are no hints."""
        if setting not in self._refusals:
            return ()
        hints = _NOT_OF_THE_DAY.findall("\n".join(self._refusals[setting]))
        return (
            tuple(dict.fromkeys(filtered or without_wheel for filtered, without_wheel in hints))
            or None
        )

    def _start(self, setting: Setting, apart: Sequence[str]) -> Uv:
        """Make a new environment. Return a function that runs uv on it."""
        refusals = self._refusals[setting] = []
        links = self._links(setting)
        links_option = ["-r", str(self._write(links))] if links else []
        options = ["--no-project", "--relocatable", "--clear", "--python", str(setting.python)]
        result = self._uv(["venv", *options, str(self._made)])
        if not result.ok:
            raise ToolFailedError(
                f"uv makes no environment: {gating.in_short(result.output)}",
                next_step="Check uv and the Python that it uses.",
                output=result.output,
            )
        python = str(self._made / "bin" / "python")

        def run(arguments: Sequence[str]) -> CommandResult:
            return self._uv([*arguments, *_NEVER_BUILT, "--python", python], setting.until)

        def uv(arguments: Sequence[str]) -> CommandResult:
            day_options = [f"--exclude-newer-package={name}={_ANY_DAY}" for name in apart]
            arguments = [*arguments, *day_options]
            if arguments[:2] == ["pip", "install"]:
                arguments = [*arguments, *links_option]
                if self._are_resolved and not setting.until:
                    result = run([*arguments, "-c", str(self._write("\n".join(self._pins)))])
                    if result.ok:
                        return result
                    # The other installed packages are incompatible with the pins.
                    self._are_resolved = False
                pin_options = self._chosen(arguments, setting) if self._pins else ()
                # uv gives the reason for an unavailable package only if it is to install it.
                arguments = [*arguments, *(["--dry-run"] if pin_options is None else pin_options)]
            result = run(arguments)
            if "--dry-run" in arguments and result.ok:
                result = result.model_copy(update={"exit_code": 1})
            if not result.ok:
                refusals.append(result.output)
            return result.model_copy(update={"output": gating.relative_log(result, self._scratch)})

        return uv

    def _chosen(self, arguments: Sequence[str], setting: Setting) -> Sequence[str] | None:
        """Resolve what a ``pip install`` would install. Return the result as a constraint option: each of
        the pins that is admitted stays, whatever was published since (ADR-0102). None if uv can't resolve
        it."""
        constraints_file = self._write("\n".join(self._pins))
        files = [argument for argument in arguments[2:] if argument != "-r"]
        options = ["--no-upgrade", _NEVER_BUILT[0], "--python", str(setting.python)]
        if not self._uv(
            ["pip", "compile", *files, *options, "-o", str(constraints_file)], setting.until
        ).ok:
            return None
        compiled = constraints_file.read_text("utf-8").splitlines()
        requirements = (
            requirement_in(line.partition(" --hash")[0].rstrip("\\ ")) for line in compiled
        )
        lines = [bound(str(requirement)) for requirement in requirements if requirement is not None]
        constraints_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return ["-c", str(constraints_file)]

    def _sources(self) -> Sequence[Source]:
        manifests = self._manifests
        if not manifests.locked:
            return manifests.sources
        path = self._scratch / "exported.txt"
        exported = self._uv(manifests.export(path))
        return pins_of(path.read_text("utf-8")) if exported.ok and path.exists() else ()

    def _write(self, lines: str) -> Path:
        path = self._scratch / f"fallback-tier-{next(self._numbers)}.txt"
        path.write_text(lines + "\n", encoding="utf-8")
        return path

    def _uv(self, arguments: Sequence[str], until: str = "") -> CommandResult:
        env = {**self._manifests.variables, "UV_PROJECT_ENVIRONMENT": str(self._made)}
        return run_uv(self._context, arguments, self._folder, until, env)


class _Headers(Distribution):
    """Distribution whose metadata is parsed once, without the description after the headers: the standard
    library parses both again for each name, version and requirement."""

    def __init__(self, distribution: Distribution) -> None:
        self._found = distribution

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
    installed = map(_Headers, distributions(path=places) if places else ())
    return (distribution for distribution in installed if distribution.metadata["Name"])


def _modules_in(packages_folders: Iterable[Path]) -> Iterator[bytes]:
    for packages_folder in packages_folders:
        for folder, folders, files in os.walk(packages_folder):
            folders[:] = [name for name in folders if name not in _BRINGING]
            for name in files:
                path = Path(folder, name)
                if name.endswith(".py") and path.stat().st_size <= _MAX_MODULE:
                    yield path.read_bytes()


def _beside_lock(pins: Sequence[str], sources: Iterable[Source]) -> list[str]:
    """Return the pins, with the packages of a lock pinned as in the lock: it decides, whatever a manifest
    admits."""
    locked = {}
    for line in (line for source in sources if source.pinned for line in source.lines):
        if (requirement := requirement_in(line)) is not None and not requirement.url:
            locked[canonicalize_name(requirement.name)] = (
                f"{requirement.name}{requirement.specifier}"
            )
    free = (pin for pin in pins if canonicalize_name(pin.partition("==")[0]) not in locked)
    return [*free, *locked.values()]
