"""A virtual environment of a project's dependencies, and its Python run in it.

The environment lies in the cache, read-only to what runs inside; ``making`` makes it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from importlib.metadata import Distribution
from pathlib import Path

from packaging.utils import canonicalize_name

from fallback_plugins import gating
from fallback_plugins.gating import in_folder
from fallback_plugins.installed import Installed, Level
from fallback_plugins.pypi import pythons
from fallback_plugins.pypi.install_plan import Manifests
from fallback_plugins.pypi.making import Setting, distributions_in, make
from fallback_plugins.pypi.metadata import (
    asked_python,
    has_dynamic_version,
    own_metadata,
    version_files,
)
from fallback_plugins.store import InstalledStore
from fallback_plugins.versions import this_python, version_of
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

#: Changed with how an environment is made, options included: one of an older version is not taken.
_FORMAT = 6

#: A runner that only says its version.
_START_TIMEOUT_S = 60.0

#: git reads its own files.
_GIT_TIMEOUT_S = 30.0

#: A project whose last commit is older than this was tested with other releases than today's. Where its
#: own code is at fault, those of its day are installed: with today's, tests fail for reasons that have
#: nothing to do with the flaw.
OF_ITS_DAY_AFTER = timedelta(days=180)

#: Folder of an environment with the project's own metadata: the project itself is not installed.
_OWN_METADATA = "own-metadata"


class Environment:
    """One project folder of one tree (patched, or the base commit's), and its environment."""

    def __init__(
        self, context: GateContext, repo: RepoContext, folder: str, runner: str | None = None
    ) -> None:
        self.context = context
        self.folder = folder
        #: The tree that it is of.
        self.repo = repo
        self._runner = runner
        self._manifests = Manifests(repo, folder, context.application.files, runner)
        self._store = InstalledStore.of(context)

    @property
    def sources(self) -> tuple[str, ...]:
        """What is installed from: the lock, else files and groups."""
        if self._manifests.locked:
            return (in_folder(self.folder, "uv.lock"),)
        return tuple(source.name for source in self._manifests.sources)

    @property
    def declares(self) -> bool:
        """Does any manifest declare something to install?"""
        return bool(self.sources)

    @cached_property
    def key(self) -> str:
        """All that decides what is installed: manifests, uv, the Python that it is for, and the machine."""
        settings = [(pythons.identity(one.python), one.until) for one in self._settings]
        base = "" if self._base is None else self._base.key
        by = (self._tag, settings, base, version_of("uv", self.context.clients), *this_python())
        return f"python-{gating.content_key(_FORMAT, *self._manifests.identity, *by)}"

    def contents(self) -> str:
        """What a run in it ran on: another digest is another run. Raises as ``install`` does."""
        return f"{self.key} {self._store.digest(self.place)}"

    @cached_property
    def place(self) -> Path:
        """Where the environment is. Raises as ``install`` does."""
        return self._store.entry(self.key, self._make)

    def install(self) -> Installed:
        """Make the environment, once for these manifests: as much of it as can be had.

        Raises ToolMissingError; ToolFailedError where no registry answers, or uv makes no environment.
        """
        return Installed.kept(self.place)

    def _make(self, made: Path) -> Installed:
        settings = self._settings if self._base is None else self._settings[:1]
        found = make(self.context, self._manifests, made, settings, self._starts, self._as_base)
        for path, text in own_metadata(self._manifests.own, self._tag).items():
            (made / _OWN_METADATA / path).parent.mkdir(parents=True, exist_ok=True)
            (made / _OWN_METADATA / path).write_bytes(text.encode())
        return found

    def installed(self, package: str) -> tuple[str, ...]:
        """Versions in the environment, if it was made; its metadata is read, nothing imported."""
        name = canonicalize_name(package)
        return tuple(found.version for called, found in self._distributions() if called == name)

    def distributions(self) -> Mapping[str, Distribution]:
        """All that is in it by canonical name, if it was made; as ``installed``."""
        return dict(self._distributions())

    def _distributions(self) -> Iterator[tuple[str, Distribution]]:
        made = self._store.find(self.key)
        for found in distributions_in(made) if made else ():
            yield canonicalize_name(found.metadata["Name"]), found

    def resolved(self, package: str) -> tuple[str, ...]:
        """Versions in the environment where all that is declared was resolved together, in the usual way,
        else none: what is installed in part, or for another Python, may be no version that users get."""
        made = self._store.find(self.key)
        found = None if made is None else Installed.kept(made)
        whole = found is not None and found.level is Level.EVERYTHING and not found.how
        return self.installed(package) if whole else ()

    def sandboxed(self, arguments: Sequence[str]) -> CommandResult:
        """Run the environment's Python in this folder."""
        self.write_versions()
        python = self.place / "bin" / "python"
        return self.context.sandbox.run(
            gating.command_in(self.folder, [str(python), *arguments]),
            worktree=self.repo.tree,
            timeout_s=self.context.timeout_s,
            env=self.variables(),
            readable=self.readable,
        )

    @property
    def readable(self) -> list[Path]:
        """What a sandbox must be able to read to run it. Raises as ``install`` does."""
        return [self.place, *pythons.readable(self.place)]

    def variables(self) -> dict[str, str]:
        """How Python finds the project itself, and others of the repository that it takes packages from:
        none is installed; flat, or below ``src``."""
        roots = [self.repo.root / place for place in self._manifests.places]
        places = [place for root in roots for place in (root, root / "src")]
        places.append(self.place / _OWN_METADATA)
        return {"PYTHONPATH": os.pathsep.join(map(str, places))}

    def write_versions(self) -> None:
        """Put the modules that a build would write into the tree, where nothing is in their place.

        A tree that a command is to run in: the repository itself is never written.
        """
        for path, text in version_files(self._manifests.own, self._tag).items():
            with suppress(OSError):
                self.repo.tree.add(in_folder(self.folder, path), text.encode())

    @cached_property
    def _tag(self) -> str:
        """The newest tag behind the base commit; empty where git tells none, or the project its version."""
        own = self._manifests.own
        if not version_files(own) and not has_dynamic_version(own):
            return ""
        return self._git("describe", "--tags", "--abbrev=0", self.context.repo.base_commit)

    @cached_property
    def _settings(self) -> Sequence[Setting]:
        """How to make it, in the order in which it is tried: with our Python first."""
        until = self._day
        suited = pythons.suited(asked_python(self._manifests.own))
        found = [Setting(python, until) for python in suited]
        return [*found, Setting(suited[0])] if until else found

    @cached_property
    def _base(self) -> "Environment | None":
        """The base commit's, where the patch changes what is declared."""
        if self.repo is self.context.repo:
            return None  # it is the base commit's
        base = Environment(self.context, self.context.repo, self.folder, self._runner)
        return None if base._manifests.identity == self._manifests.identity else base

    def _as_base(self) -> Sequence[Setting]:
        """As the base commit's was made, where that took more than our Python: a patched tree is installed
        so, or not at all, since what is compared must run on the same one."""
        how = () if self._base is None else self._base.install().how
        return [one for one in self._settings if how and one.how == how]

    def _starts(self, made: Path) -> bool:
        """Does pytest start in an environment in the making? Where it has none, nothing need start."""
        if not any(made.glob("lib/python*/site-packages/pytest/__init__.py")):
            return True
        asked = [str(made / "bin" / "python"), "-I", "-m", "pytest", "--version"]
        return self.context.sandbox.run(
            asked,
            worktree=self.repo.tree,
            timeout_s=_START_TIMEOUT_S,
            readable=[made, *pythons.readable(made)],
        ).ok

    @cached_property
    def _day(self) -> str:
        """The base commit's day, where releases of its day are to be installed; else empty."""
        affected = self.context.repo.affected
        if affected is None or not affected.is_own or self._manifests.locked:
            return ""
        if not self.declares and self._manifests.runner is None:
            return ""  # nothing is installed, of any day
        told = self._git("show", "-s", "--format=%cs", self.context.repo.base_commit)
        with suppress(ValueError, OverflowError):  # no date, or one at the end of time
            old = date.fromisoformat(told) + OF_ITS_DAY_AFTER < datetime.now(UTC).date()
            return told if old else ""
        return ""

    def _git(self, *words: str) -> str:
        """What git says of the repository; empty where it fails."""
        root = self.context.repo.root
        told = self.context.clients.run("git", words, cwd=root, timeout_s=_GIT_TIMEOUT_S)
        return told.output.strip() if told.ok else ""
