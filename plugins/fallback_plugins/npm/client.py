"""Protocol of the package clients (npm, yarn, pnpm) that the npm ladder uses.

A client works on texts: its lock is resolved in a scratch folder, never in the repository, without
any scripts and without the repository's own client configuration (it can name programs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fallback_plugins.shared.tree import DependencyTree

#: (package, version) → the exact version that its copies are to get.
WantedVersions = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Files:
    """One project's texts by path in the repository.

    ``manifests``: the package.json of the root and of every workspace member. ``lock`` None: no lock.
    """

    folder: str
    manifests: Mapping[str, str]
    lock: str | None = None
    lock_text: str = ""
    #: Further files that decide what resolves: pnpm-workspace.yaml, the harmless lines of .npmrc, and the
    #: package.json of folders that manifests without a lock name as packages.
    settings: Mapping[str, str] | None = None
    #: Package archives of the repository that the manifests or the lock name, by path below ``folder``.
    archives: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def root_manifest(self) -> str:
        """Return the path of the root's package.json."""
        return "package.json" if self.folder == "." else f"{self.folder}/package.json"

    @property
    def folders(self) -> dict[str, str]:
        """Return the manifests of folders that are packages without being members, by path."""
        texts = (self.settings or {}).items()
        return {path: text for path, text in texts if path.endswith("/package.json")}

    def text(self, path: str) -> str:
        """Return a manifest's text, or that of a settings file."""
        return self.manifests.get(path) or (self.settings or {})[path]

    def with_manifest(self, path: str, text: str) -> "Files":
        """Return the same project with the text of one manifest, or of a settings file, replaced."""
        if path in (self.settings or {}):
            return replace(self, settings={**(self.settings or {}), path: text})
        return replace(self, manifests={**self.manifests, path: text})

    def with_manifests(self, texts: Mapping[str, str]) -> "Files":
        """Return the same project with several such texts replaced."""
        files = self
        for path, text in texts.items():
            files = files.with_manifest(path, text)
        return files

    def with_lock(self, text: str) -> "Files":
        """Return the same project with another lock text."""
        return replace(self, lock_text=text)

    @property
    def texts(self) -> dict[str, str]:
        """Return the texts of the manifests and the lock by path."""
        return {**self.manifests, **({self.lock: self.lock_text} if self.lock else {})}


@dataclass(frozen=True)
class OverridePlace:
    """An override: ``keys`` lead to it, ``spec`` is what it forces (the declaration that a ``$reference``
    means, or a catalog's entry). ``file``: its path; empty: the root's package.json."""

    keys: tuple[str, ...]
    package: str
    spec: str
    file: str = ""

    def label(self, files: Files) -> str:
        """Return the place as messages name it."""
        return f"{'.'.join(self.keys)} in {self.file or files.root_manifest}"


class Client(Protocol):
    """One client over its own kind of lock. Every method raises RecipeError, ToolError."""

    @property
    def name(self) -> str:
        """Return the name in messages: ``npm``, ``yarn``, ``pnpm``."""
        ...

    def tree(self, files: Files) -> DependencyTree:
        """Return the lock as a resolved tree. ``Node.key`` is the lock's own; no client runs."""
        ...

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:
        """Return the files with a lock that fits the manifests, changed as little as the client can.

        ``wanted_versions``: each copy of a package at that version gets the wanted one, if the ranges of
        all its dependents admit it; otherwise it stays (look at the tree). Manifests stay as they are.
        """
        ...

    def update(self, files: Files, packages: Sequence[str]) -> Files:
        """Return the files with each copy of these packages as high as its dependents' ranges allow."""
        ...

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:
        """Return the overrides (resolutions) that the project has for a package."""
        ...

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:
        """Return the files with an override: ``package`` below ``parent`` becomes ``version``. Only its
        text is edited; nothing is resolved."""
        ...
