"""A virtual environment of a project's dependencies, and its Python run in it.

Everything that downloads runs outside the sandbox over copies of the manifests and takes wheels
only (``--no-build``): no source distribution and no local project is built there, so no target's
code runs. The environment lies in the cache, read-only to what runs inside.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import distributions
from itertools import count
from pathlib import Path

from packaging.utils import canonicalize_name

from fallback_plugins import gating
from fallback_plugins.gating import in_folder
from fallback_plugins.installed import Installed, Level
from fallback_plugins.pypi.declared import Source
from fallback_plugins.pypi.install_plan import Manifests, pins_of
from fallback_plugins.pypi.installing import Plan, install
from fallback_plugins.pypi.metadata import has_dynamic_version, own_metadata, version_files
from fallback_plugins.store import InstalledStore
from fallback_plugins.versions import this_python, version_of
from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

#: No source distribution and no local project is built; compiling would start the new environment's Python,
#: and every .pth file in it, out here.
_NEVER_BUILT = ("--no-build", "--no-compile-bytecode")

#: Changed with how an environment is made, options included: one of an older version is not taken.
_FORMAT = 5

#: git reads its own files.
_GIT_TIMEOUT_S = 30.0

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
        by = (self._tag, version_of("uv", self.context.clients), *this_python())
        return f"python-{gating.content_key(_FORMAT, *self._manifests.identity, *by)}"

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
        with gating.scratch(self.context) as scratch:
            found = self._installed_in(made, scratch)
        for path, text in own_metadata(self._manifests.own, self._tag).items():
            (made / _OWN_METADATA / path).parent.mkdir(parents=True, exist_ok=True)
            (made / _OWN_METADATA / path).write_bytes(text.encode())
        return found

    def _installed_in(self, made: Path, scratch: Path) -> Installed:
        """Climb the ladder in a new environment, from copies of the manifests."""
        manifests = self._manifests
        folder = manifests.copy_to(scratch)
        make = ["venv", "--no-project", "--relocatable", "--python", str(_interpreter())]
        result = self._uv([*make, str(made)], folder)
        if not result.ok:
            raise ToolFailedError(
                f"uv makes no environment: {gating.in_short(result.output)}",
                next_step="Check uv and the Python that it uses.",
                output=result.output,
            )
        python = str(made / "bin" / "python")
        numbers = count()

        def uv(words: Sequence[str]) -> CommandResult:
            done = self._uv([*words, *_NEVER_BUILT, "--python", python], folder, made)
            return done.model_copy(update={"output": gating.relative_log(done, scratch)})

        def write(lines: str) -> Path:
            place = scratch / f"fallback-tier-{next(numbers)}.txt"
            place.write_text(lines + "\n", encoding="utf-8")
            return place

        def sources() -> Sequence[Source]:
            if not manifests.locked:
                return manifests.sources
            place = scratch / "exported.txt"
            exported = self._uv(manifests.export(place), folder)
            return pins_of(place.read_text("utf-8")) if exported.ok and place.exists() else ()

        steps = tuple(manifests.everything(write))
        plan = Plan(steps, sources, manifests.runner, manifests.strays, lambda: _pins_in(made))
        return install(plan, uv, write)

    def installed(self, package: str) -> tuple[str, ...]:
        """Versions in the environment, if it was made; its metadata is read, nothing imported."""
        made = self._store.find(self.key)
        places = [str(path) for path in made.glob("lib/python*/site-packages")] if made else []
        name = canonicalize_name(package)
        return tuple(
            found.version
            for found in distributions(path=places)
            if places and canonicalize_name(found.metadata["Name"]) == name
        )

    def resolved(self, package: str) -> tuple[str, ...]:
        """Versions in the environment where all that is declared was resolved together, else none: what is
        installed in part may be another version than users get."""
        made = self._store.find(self.key)
        whole = made is not None and Installed.kept(made).level is Level.EVERYTHING
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
            readable=[self.place],
        )

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
        words = ["describe", "--tags", "--abbrev=0", self.context.repo.base_commit]
        root = self.context.repo.root
        told = self.context.clients.run("git", words, cwd=root, timeout_s=_GIT_TIMEOUT_S)
        return told.output.strip() if told.ok else ""

    def _uv(
        self, arguments: Sequence[str], folder: Path, environment: Path | None = None
    ) -> CommandResult:
        env = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        # uv takes no --no-compile-bytecode beside this variable: without it, there is nothing to say no to.
        env |= {"UV_COMPILE_BYTECODE": "", **self._manifests.variables}
        env["UV_PROJECT_ENVIRONMENT"] = "" if environment is None else str(environment)
        timeout_s = self.context.timeout_s
        return self.context.clients.run("uv", arguments, cwd=folder, timeout_s=timeout_s, env=env)


def _pins_in(environment: Path) -> list[str]:
    """What is installed there; its metadata is read, nothing imported."""
    places = [str(path) for path in environment.glob("lib/python*/site-packages")]
    found = distributions(path=places) if places else ()
    return [f"{one.metadata['Name']}=={one.version}" for one in found]


def _interpreter() -> Path:
    """The Python under ours: an environment made from a virtual environment would need that one."""
    return (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )
