"""Resolutions: what install commands install, as the project's own client says (ADR-0099).

A resolution is the source of truth on versions. What no resolution covers is unknown, not absent.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from pydantic import Field

from fallback_audit.frozen import Frozen
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node, grouped
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import StateFolderError
from fallback_tier.files import whole
from fallback_tier.files.folders import users_folder
from fallback_tier.outcome import Blocker
from fallback_tier.repo import RepoContext

#: Resolutions of all clients in one folder of a cache, the last used; one has 100 to 500 kB.
MAX_RESOLUTIONS = 300

#: Resolutions of one base commit and its patches that a process shares; one has up to some MB.
MAX_SHARED = 64

#: Clause on an affected version in a file that no fix changes; a gate searches results for it.
STILL_INSTALLED = ", which is affected, and no fix changes that file"


class ResolvedBy(StrEnum):
    """Where a resolution comes from."""

    #: A lock that is in step with its manifests, parsed.
    LOCK = "lock"
    #: The project's client resolved the manifests.
    CLIENT = "client"
    #: The client can't resolve the manifests together, but they pin every package: the pins are it.
    PINS = "pins"


class InstallCommand(Frozen):
    """One command that installs packages: a client, and the root files with everything that they include.

    ``files``: paths in the repository, the file that names the command first. ``label``: the command as a
    person would type it, for example ``pip install -r requirements.txt``.
    """

    client: str
    files: tuple[str, ...] = Field(min_length=1)
    label: str


class Declaration(Frozen):
    """A line of a manifest that requires a package. ``line`` counts from 1; ``environments``: the marker or
    section that limits it; empty: all environments."""

    name: str
    text: str
    file: str
    line: int = Field(ge=1)
    environments: str = ""


class Requirement(Frozen):
    """A package's requirement of another. ``to``: key of the package that answers; None: not installed."""

    name: str
    constraint: str
    to: str | None
    optional: bool = False
    peer: bool = False


class ResolvedPackage(Frozen):
    """One package of a resolution.

    ``key`` is unique in the resolution and the client's own (npm: ``node_modules/a``; Python: ``a 1.0``).
    ``origin``: registry address, git URL or path; ``digest``: as the lock states it; both empty if unknown.
    ``environments``: the marker or platform that limits it; empty: all.
    """

    key: str
    name: str
    version: str
    origin: str = ""
    digest: str = ""
    environments: str = ""
    bundled: bool = False
    requires: tuple[Requirement, ...] = ()

    def _node(self) -> Node:
        asks = tuple(
            DependencyEdge(
                requirement.name,
                requirement.constraint,
                requirement.to,
                requirement.optional,
                requirement.peer,
            )
            for requirement in self.requires
        )
        return Node(self.key, self.name, self.version, asks, self.bundled)


class Unresolved(Frozen):
    """A part of a resolution that is unknown. ``subject``: a package, file or address; ``reason`` and
    ``next_step``: sentences. ``names``: packages that it names; empty: it may be any. ``blockers``: why the
    client did not resolve it, if it said so."""

    subject: str
    reason: str
    next_step: str
    names: frozenset[str] = frozenset()
    blockers: tuple[Blocker, ...] = ()


def unversioned(lock: str, names: Iterable[str]) -> tuple[Unresolved, ...]:
    """Return what is unknown of packages that a lock lists without a version."""
    return tuple(
        Unresolved(
            subject=name,
            reason=f"{lock} lists {name} without a version: which version is installed is unknown.",
            next_step="Remove the entry, let the lock's own client resolve it again, and commit the lock.",
            names=frozenset({name}),
        )
        for name in sorted(names)
    )


def unlisted(lock: str, names: Iterable[str]) -> tuple[Unresolved, ...]:
    """Return what is unknown of packages that a locked one requires, and that the lock does not list."""
    return tuple(
        Unresolved(
            subject=name,
            reason=f"A package of {lock} requires {name}, which {lock} does not list: what is installed is "
            "unknown.",
            next_step="Let the lock's own client resolve it again, and commit the lock.",
            names=frozenset({name}),
        )
        for name in sorted(names)
    )


class Resolution(Frozen):
    """What one install command installs.

    ``client``: name and version of the program that resolved it; ``reason``: why the client could not
    resolve it (``PINS`` only); ``unresolved``: subtrees that are unknown; ``made_on``: the day of a
    resolution by a client, None for a lock. ``lock``: text of the lock that the client wrote while it
    resolved, at ``lock_path``; both empty if it wrote none.
    """

    ecosystem: str
    command: InstallCommand
    by: ResolvedBy
    client: str = ""
    reason: str = ""
    made_on: date | None = None
    lock: str = ""
    lock_path: str = ""
    packages: tuple[ResolvedPackage, ...] = ()
    roots: tuple[ResolvedPackage, ...] = ()
    declarations: tuple[Declaration, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, tuple[ResolvedPackage, ...]]:
        """Packages by canonical name."""
        return grouped((package.name, package) for package in self.packages)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the packages, whichever day they were resolved on."""
        releases = sorted((package.key, package.name, package.version) for package in self.packages)
        return sha256(repr(releases).encode()).hexdigest()

    @cached_property
    def tree(self) -> DependencyTree:
        """The same packages as the ladder searches them."""
        nodes = {package.key: package._node() for package in self.packages}
        return DependencyTree(
            self.command.files[0], nodes, tuple(root._node() for root in self.roots)
        )

    def dependents(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the labels of the packages and roots that require the one at ``key``, each with its
        constraint."""
        return tuple((node.label, edge.spec) for node, edge in self.tree.dependents(key))

    def affected(self, advisory: Advisory) -> Iterator[ResolvedPackage]:
        """Yield the packages that the advisory (or bundle) covers."""
        for name in advisory.packages(self.ecosystem):
            for package in self.by_name.get(name, ()):
                if is_affected(advisory, self.ecosystem, name, package.version):
                    yield package

    def doubted(self, reason: str, next_step: str) -> "Resolution":
        """Return a copy that lists as unknown, for this reason, what else is installed."""
        more = Unresolved(subject=self.command.files[0], reason=reason, next_step=next_step)
        return self.model_copy(update={"unresolved": (*self.unresolved, more)})

    @classmethod
    def of_tree(
        cls,
        ecosystem: str,
        command: InstallCommand,
        by: ResolvedBy,
        tree: DependencyTree,
        *,
        client: str = "",
        made_on: date | None = None,
        declarations: tuple[Declaration, ...] = (),
        unresolved: tuple[Unresolved, ...] = (),
    ) -> "Resolution":
        """Return the resolution that a tree describes, without origins and digests."""
        return cls(
            ecosystem=ecosystem,
            command=command,
            by=by,
            client=client,
            made_on=made_on,
            packages=tuple(_package(node) for node in tree.nodes.values()),
            roots=tuple(_package(root) for root in tree.roots),
            declarations=declarations,
            unresolved=unresolved,
        )


def _package(node: Node) -> ResolvedPackage:
    requires = tuple(
        Requirement(
            name=edge.name, constraint=edge.spec, to=edge.to, optional=edge.optional, peer=edge.peer
        )
        for edge in node.asks
    )
    return ResolvedPackage(
        key=node.key,
        name=node.name,
        version=node.version,
        bundled=node.bundled,
        requires=requires,
    )


class SharedResolutions:
    """Resolutions of a base commit and its patches in this process, by the texts that were resolved, so
    that gates install what a recipe resolved (ADR-0112)."""

    def __init__(self) -> None:
        self._by_texts: dict[frozenset[tuple[str, str]], Resolution] = {}

    @classmethod
    def of(cls, repo: RepoContext) -> "SharedResolutions":
        """Return the shared resolutions of a base commit."""
        return repo.once(cls, cls)

    def add(self, texts: Mapping[str, str], resolution: Resolution) -> None:
        """Share the resolution of these texts by path, if it is a client's and all of it is known."""
        if resolution.by is not ResolvedBy.CLIENT or resolution.unresolved:
            return
        while len(self._by_texts) >= MAX_SHARED:
            self._by_texts.pop(next(iter(self._by_texts)))
        self._by_texts[frozenset(texts.items())] = resolution

    def among(self, texts: Mapping[str, str]) -> list[Resolution]:
        """Return the resolutions whose files are all among these texts, unchanged."""
        items = texts.items()
        return [resolution for files, resolution in self._by_texts.items() if files <= items]


@dataclass(frozen=True)
class KeptResolution:
    """A client's result for its inputs, in the user's cache. ``inputs``: all that decides it (for JSON)."""

    inputs: object

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the inputs."""
        return sha256(json.dumps(self.inputs).encode()).hexdigest()

    @property
    def text(self) -> str:
        """The stored text; empty if there is none that can be read."""
        with suppress(OSError, StateFolderError, ValueError):
            return (whole.kept(self._place) or b"").decode("utf-8")
        return ""

    @property
    def made_on(self) -> date:
        """The day on which it was stored; today, if it is not."""
        with suppress(OSError, StateFolderError):
            return datetime.fromtimestamp(self._place.stat().st_mtime, UTC).date()
        return datetime.now(UTC).date()

    def keep(self, text: str) -> None:
        """Store a text, and the MAX_RESOLUTIONS last used of all; one that can't be written is not
        stored."""
        with suppress(OSError, StateFolderError):
            path = self._place
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            whole.keep(path, text.encode(), MAX_RESOLUTIONS)

    @property
    def _place(self) -> Path:
        return users_folder("cache") / "resolutions" / f"{self.digest}.json"
