"""One npm project of one tree: what it declares, installing it, running its commands.

Whatever downloads runs outside the sandbox, over copies of texts, with every script off. What was installed
is kept, and lies below the tree as a layer that nobody writes to; what runs in the tree runs inside.
"""

import platform
import sys
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.provision import ClientStore
from fallback_plugins.npm.clients.scopes import scoped
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.installing import install
from fallback_plugins.npm.installing.commands import BERRY, Commands
from fallback_plugins.npm.installing.inputs import Inputs
from fallback_plugins.npm.installing.modules_layer import Package, layered, packages_in
from fallback_plugins.npm.manifests.layout import MANIFEST, in_folder
from fallback_plugins.npm.manifests.manifest import entries, parse_manifest
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.installed import Installed, Level
from fallback_plugins.shared.store import InstalledStore
from fallback_plugins.shared.versions import interpreters, today, version_of
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

#: What `npm init` writes: no test, and a failure.
_PLACEHOLDER = "no test specified"

#: Changed with how a project is installed: what an older version installed is not taken.
_FORMAT = 5


class Installation:
    """One project folder of one tree (patched, or the base commit's). What is installed is looked at once:
    each command of a target's has an object of its own."""

    def __init__(self, context: GateContext, repo: RepoContext, folder: str) -> None:
        self.context = context
        self._repo = repo
        self.folder = folder
        self.manifest = in_folder(folder, MANIFEST)
        self._store = InstalledStore.of(context)
        self._place: Path | None = None
        self._facts = parse_manifest(self.manifest, repo.read_text(self.manifest))

    @cached_property
    def inputs(self) -> Inputs:
        """What it is installed from: a workspace's member with its workspace. Raises RepositoryError."""
        return Inputs.of(self._repo, self.folder)

    @property
    def has_tests(self) -> bool:
        """Is there a test script, and not just the one that `npm init` writes?"""
        script = self._script("test")
        return bool(script) and _PLACEHOLDER not in script

    @property
    def has_build(self) -> bool:
        """Is there a build script?"""
        return bool(self._script("build"))

    def _script(self, name: str) -> str:
        return dict(entries(self._facts.get("scripts"))).get(name, "").strip()

    def install(self) -> Installed:
        """Install it, once for these manifests: as much of it as can be had.

        Raises RecipeError, RepositoryError (a manifest can't be read), ToolMissingError; ToolFailedError
        where no registry answers.
        """
        if not self.inputs.declares:
            return Installed(Level.EVERYTHING)
        return Installed.kept(self._entry())

    def contents(self) -> str:
        """What a run in it ran on: another digest is another run. Raises as ``install`` does."""
        here = interpreters(self.context.clients)
        if not self.inputs.declares:
            return f"{self.key} {here}"
        return f"{self.key} {self._store.digest(self._entry())} {here}"

    def hold(self) -> bool:
        """Is it installed? Then it stays so while this object lives: of another day it is made again first.
        Raises as ``install`` does."""
        return self._store.has(self.key) and bool(self._entry())

    def packages(self) -> Iterator[Package]:
        """What is installed already, by itself and in each other."""
        place = self._found()
        return iter(()) if place is None else iter(_packages(place, self._store.digest(place)))

    def copies(self, package: str) -> tuple[Package, ...] | None:
        """Return what is installed as a package, or in a folder of its name.

        None: no installed file shows what users get. Nothing is installed, or only without the lock that
        the project has. Raises as ``found``, OSError.
        """
        found = self.found()
        if found is None or found.level is Level.METADATA:
            return None
        if self.inputs.lock_name and not found.by_lock:
            return None
        return tuple(it for it in self.packages() if package in (it.own_name, it.name))

    def found(self) -> Installed | None:
        """What is installed already; None: nobody has tried."""
        place = self._found()
        return None if place is None else Installed.kept(place)

    @property
    def tree(self) -> FileTree:
        """The tree with what was installed for this project."""
        place = self._found() if self.inputs.declares else None
        return self._repo.tree if place is None else layered(self._repo.tree, place)

    def build(self) -> CommandResult:
        """Run the build script; the output's paths are relative."""
        result = self.context.sandbox.run(
            gating.command_in(self.folder, ["npm", "run", "build"]),
            worktree=self.tree,
            timeout_s=self.context.timeout_s,
        )
        return result.model_copy(update={"output": gating.relative_log(result, self._repo.root)})

    def _entry(self) -> Path:
        # What no lock pins is of the day: of another it is installed again.
        self._place = self._place or self._store.entry(self.key, self._make, tried=today())
        return self._place

    def _found(self) -> Path | None:
        self._place = self._place or self._store.find(self.key)
        return self._place

    def _make(self, entry: Path) -> Installed:
        context = self.context
        clients, store = scoped(self.inputs.files, context.clients), ClientStore(context.clients)
        commands = Commands(clients, store, context.cache, context.timeout_s)
        return install.install(context, commands, self.inputs, entry)

    @cached_property
    def key(self) -> str:
        """All that decides what is installed: texts, clients, node, and the machine."""
        clients = [client.label for client in (YARN, *BERRY.values(), *PNPM.values())]
        asked = [version_of(tool, self.context.clients) for tool in ("npm", "node")]
        here = [*asked, sys.platform, platform.machine()]
        return f"npm-{gating.content_key(_FORMAT, *self.inputs.identity, clients, *here)}"


@lru_cache(maxsize=8)
def _packages(entry: Path, digest: str) -> tuple[Package, ...]:  # noqa: ARG001 (of the entry's bytes)
    """A tree is walked once, however many packages an advisory names."""
    return tuple(packages_in(entry))
