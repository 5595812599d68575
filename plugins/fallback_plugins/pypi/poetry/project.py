"""A Poetry project brought out of an advisory's reach by exact edits of its lock.

Poetry itself is not run: it builds source distributions to learn what they need. The lock keeps every
package's requirements, so a new version can be held against all who ask for it and all it asks for.
"""

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.poetry_tables import TableEntry, poetry_entries
from fallback_plugins.pypi.manifests.pyproject import (
    parse_toml,
    requirement_arrays,
    requirement_strings,
)
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.poetry.content_hash import content_hash
from fallback_plugins.pypi.poetry.lock import PoetryLock, in_plain_lines
from fallback_plugins.pypi.poetry.needs import settled
from fallback_plugins.pypi.poetry.plan import Planner
from fallback_plugins.pypi.poetry.render import with_entry, with_release
from fallback_plugins.pypi.poetry.roots import Root, roots
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.resolving.wanted import has_own_index
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import State
from fallback_plugins.pypi.strategies.locked_project import (
    EditedProject,
    EditResolver,
    MayRaise,
    check_raises,
)
from fallback_plugins.pypi.surveying.out_of_step import Asked, LockStep
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError

#: Formats of a Poetry that looks at its own tables alone.
_BEFORE_PROJECT = frozenset({"1.1", "2.0"})


@dataclass
class PoetryProject(EditedProject):
    """poetry.lock with the pyproject.toml beside it, where there is one."""

    _CLIENT = "Poetry"
    _INSTALL = "poetry install"
    _HAS_TREE = True
    _ALL_THE_SAME = " Every locked package that asks for what was changed admits it."

    #: Texts of the projects that are fixed already, by path.
    patched: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """As ``ladder.Project`` says. A folder of the repository that the lock takes as a package is a
        project, too, and is fixed before."""
        if not patched.keys().isdisjoint(self.members.values()):
            return replace(self, patched=patched).resolve(advisory)
        return super().resolve(advisory)

    @cached_property
    def members(self) -> Mapping[str, str]:
        """The manifests of folders of the repository that the lock takes as packages, by package."""
        found: dict[str, str] = {}
        for table in self.lock.packages:
            source = table.get("source", {})
            if source.get("type") == "directory":
                place = posixpath.join(posixpath.dirname(self.path), str(source.get("url")))
                manifest = posixpath.normpath(posixpath.join(place, self._MANIFEST))
                if self.repo.has(manifest):
                    found[canonicalize_name(table["name"])] = manifest
        return found

    @property
    def installs_folders(self) -> bool:
        """Does the lock take folders of the repository as packages?"""
        with suppress(RecipeError, RepositoryError):  # said when the lock is read
            return bool(self.members)
        return False

    def member_admits(self, member: str, package: str, version: str) -> bool:
        """Does a folder of the repository require a package in words that admit the version?"""
        strings = self._member_asks(member, package, self.patched)
        return bool(strings) and all(it.declaration.admits(version) for it in strings)

    def member_raised(self, member: str, package: str) -> bool:
        """Did the folder's own project raise its requirement of the package?"""
        old, new = (self._member_asks(member, package, it) for it in (NO_TEXTS, self.patched))
        return [it.value for it in old] != [it.value for it in new]

    def _member_asks(
        self, member: str, package: str, patched: Mapping[str, str]
    ) -> tuple[TableEntry, ...]:
        path = self.members.get(member)
        if path is None:
            return ()
        return requirement_strings(path, patched.get(path) or self.repo.read_text(path), package)

    @cached_property
    def step(self) -> LockStep:
        """The lock beside what the manifest asks for; nothing, where its hash says that it is of it."""
        lock, asked = self.lock, self.asked(self.texts) or ()
        if asked:
            text = self.texts[self.manifest]
            if content_hash(self.manifest, text, text, lock.content_hash) is not None:
                asked = ()
        reads_project = lock.format not in _BEFORE_PROJECT
        found = (
            Asked(self.manifest, root.name, root.declaration)
            for root in asked
            if root.always and (root.in_table or reads_project)
        )
        # Before Poetry 2, all that is locked would be raised on the way.
        command = f"poetry lock{'' if reads_project else ' --no-update'}"
        return LockStep(self.path, command, lock.held, tuple(found))

    def tree_of(self, lock: PoetryLock, texts: Mapping[str, str]) -> DependencyTree:
        """A lock as a tree whose root is what the manifest asks for. Raises RecipeError."""
        if not texts:
            return lock.tree()
        document = parse_toml(self.manifest, texts[self.manifest])
        names = {entry.name: entry.value for entry in poetry_entries(document)}
        for _, line in requirement_arrays(document):
            if (requirement := requirement_in(line)) is not None:
                names.setdefault(requirement.name, str(requirement.specifier))
        asks = tuple(
            DependencyEdge(canonicalize_name(name), spec, lock.key_of(name))
            for name, spec in names.items()
        )
        return lock.tree(Node(self.manifest, self.manifest, "", asks))

    def asked(self, texts: Mapping[str, str]) -> tuple[Root, ...] | None:
        """What the project itself asks for; None: its manifest isn't there. Raises RecipeError."""
        return roots(self.manifest, texts[self.manifest]) if texts else None

    @cached_property
    def lock(self) -> PoetryLock:
        """The lock as it stands."""
        return PoetryLock(self.path, self.text)

    @cached_property
    def tree(self) -> DependencyTree:
        """The lock as a tree whose root is the project."""
        return self.tree_of(self.lock, self.texts)

    def _refusal(self, node: Node) -> RecipeError | None:
        return self.lock.refusal(node.name)

    def _resolver(self, releases: Releases) -> EditResolver["PoetryProject"]:
        return _Resolver(self, releases)


class _Resolver(EditResolver[PoetryProject]):
    """The steps of one resolution."""

    def _moved(self, state: State, package: str, may_raise: MayRaise) -> State:
        path, texts = self._path, self._manifests(state)
        lock = PoetryLock(path, state.files[path])
        asked = self._project.asked(texts)
        admits = self._project.member_admits
        planner = Planner(lock, self._index, self._advisory, asked or (), admits)
        planner.add(package, self._target(state, package))
        while True:
            check_raises(texts, planner.versions, may_raise)
            if not planner.widen():
                break
        self._check_source(lock, texts, [it for it in planner.versions if not lock.of(it)])
        for name, version in planner.versions.items():
            texts = {**texts, **lock_edit.raised(texts, name, version)}
            edit = with_release if lock.of(name) else with_entry
            lock = edit(lock, *planner.releases[name], planner.extras(name))
            for member in filter(lock.of, self._project.members):
                if admits(member, name, version):
                    is_raised = self._project.member_raised(member, name)
                    lock = lock.with_constraint(member, name, version, is_raised=is_raised)
        old = PoetryLock(path, state.files[path])
        lock = in_plain_lines(lock, lambda plain: settled(old, plain, asked))
        if texts != self._manifests(state):
            lock = self._hashed(lock, self._manifests(state), texts)
        return State({**texts, path: lock.text}, self._project.tree_of(lock, texts))

    def _target(self, state: State, package: str) -> str:
        refusal = self._project.lock.refusal(package)
        if refusal:
            raise refusal
        return super()._target(state, package)

    def _check_source(self, lock: PoetryLock, texts: Mapping[str, str], new: Sequence[str]) -> None:
        """What is new would come from the project's own index, if it has one: that is not asked.

        Raises RecipeError.
        """
        names = [path for path, text in texts.items() if has_own_index(path, text)]
        if not texts and any(it.get("source", {}).get("type") == "legacy" for it in lock.packages):
            names = [lock.path]
        if new and names:
            raise unsupported(
                f"{names[0]} names an index of its own, which is not asked, and {', '.join(new)} would have"
                f" to come into {lock.path}."
            )

    def _hashed(
        self, lock: PoetryLock, before: Mapping[str, str], after: Mapping[str, str]
    ) -> PoetryLock:
        """The lock with the content-hash of the new manifest. Raises RecipeError."""
        path = self._project.manifest
        new = content_hash(path, before[path], after[path], lock.content_hash)
        if new is None:
            raise unsupported(
                f"The content-hash of {lock.path} is not that of {path} as it stands: the lock is out of"
                " date, or its Poetry hashes otherwise."
            )
        return lock.with_content_hash(new)
