"""Poetry projects that are fixed by exact edits of their lock.

Poetry itself is not run: it builds source distributions to learn their requirements. The lock keeps every
package's requirements, so a new version can be checked against those of its dependents, and its own against
the locked versions.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.markers import admits, can_hold, supported
from fallback_plugins.pypi.manifests.pyproject import (
    TableEntry,
    parse_toml,
    poetry_entries,
    requirement_arrays,
    requirement_strings,
    table_of,
)
from fallback_plugins.pypi.manifests.requirements import at_least, requirement_in
from fallback_plugins.pypi.poetry.lock import (
    PoetryLock,
    Root,
    applying,
    content_hash,
    dependencies_of,
    in_plain_lines,
    roots,
    settled,
    with_entry,
    with_release,
)
from fallback_plugins.pypi.resolving.registry import Metadata, PackageIndex, Release, Releases
from fallback_plugins.pypi.strategies import locked
from fallback_plugins.pypi.strategies.locked import (
    EditedProject,
    EditResolver,
    MayRaise,
    State,
    check_raises,
)
from fallback_plugins.pypi.surveying.deciding import LockStep, ManifestRequest
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix, blocked, refused_for
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import Advisory, compare_versions, is_affected
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.outcome import Blocker

#: Formats of Poetry versions that read only their own tables.
_BEFORE_PROJECT = frozenset({"1.0", "1.1", "2.0"})

#: Packages that one fix may move. With more it is not a minimal fix: the lock should be resolved again.
MAX_MOVED = 6

#: Packages that one fix may add. A framework that split itself up added nine (ansible).
MAX_NEW = 20

#: Releases of a new package that are tried to find one that supports every Python of the project.
_MAX_TRIED = 5


class _Planner:
    """The versions that one fix chooses, extended until no constraint of the lock is broken.

    ``project_roots``: the project's own requirements, if they are known. ``member_admits``: returns whether
    a package that is a folder of the repository admits a version of another in its requirements.
    """

    def __init__(
        self,
        lock: PoetryLock,
        index: PackageIndex,
        advisory: Advisory,
        project_roots: Sequence[Root],
        member_admits: Callable[[str, str, str], bool],
    ) -> None:
        self._member_admits = member_admits
        self._lock = lock
        self._index = index
        self._advisory = advisory
        self._asked = project_roots
        self._chosen: dict[str, str] = {}
        self._extras: dict[str, frozenset[str]] = {}
        self.releases: dict[str, tuple[Release, Metadata]] = {}

    @property
    def versions(self) -> dict[str, str]:
        """The new version of each package that is moved or added, in order."""
        return {name: release.version for name, (release, _) in self.releases.items()}

    def add(self, name: str, version: str) -> None:
        """Move a package to a version. Raises RecipeError if that is impossible."""
        release, metadata = self._release(name, version)
        if not self._is_supported(name, metadata):
            raise self._other_pythons(release, metadata)
        self.releases[name] = (release, metadata)

    def widen(self) -> bool:
        """Move or add one more package, if a constraint requires it. Return False if none does.

        Raises RecipeError.
        """
        for name, version in self.versions.items():
            for table, dependency in self._lock.dependents(name):
                parent, constraint = canonicalize_name(table["name"]), dependency.constraint
                if parent in self.releases or admits(constraint, version):
                    continue
                if not self._member_admits(parent, name, version):
                    self._raise_parent(parent, name, version, constraint)
                    return True
        for name, requirement in self._requirements():
            child = canonicalize_name(requirement.name)
            locked_version = self.versions.get(child) or self._lock.version_of(child)
            if locked_version is None:
                self._bring_in(name, child)
                return True
            if not locked.admits(str(requirement.specifier), locked_version):
                self._raise_child(name, child, str(requirement.specifier), locked_version)
                return True
            extras = self.extras(child).union(map(canonicalize_name, requirement.extras))
            if extras != self.extras(child):  # the package may stay at its version
                self._extras[child] = extras
                if child not in self.releases:
                    self.add(child, locked_version)
                return True
        return False

    def extras(self, name: str) -> frozenset[str]:
        """Return the extras of a package that anything requires."""
        if name not in self._extras:
            extras = {extra for root in self._asked if root.name == name for extra in root.extras}
            for _, dependency in self._lock.dependents(name):
                extras.update(map(canonicalize_name, dependency.extras))
            self._extras[name] = frozenset(extras)
        return self._extras[name]

    def _requirements(self) -> Iterator[tuple[str, Requirement]]:
        """Yield the requirements of the new releases, each with its package's name."""
        for name, (_, metadata) in list(self.releases.items()):
            for requirement in applying(self._lock, name, metadata, self.extras(name)):
                yield name, requirement

    def _release(self, name: str, version: str) -> tuple[Release, Metadata]:
        refusal = self._lock.refusal(name)
        if refusal:
            raise refusal
        moving = [other_name for other_name in self.releases if self._lock.of(other_name)]
        limit, what = (MAX_MOVED, "move") if self._lock.of(name) else (MAX_NEW, "come in")
        many = len(moving) if self._lock.of(name) else len(self.releases) - len(moving)
        if name not in self.releases and many >= limit:
            raise unsupported(
                f"More than {limit} packages of {self._lock.path} would have to {what} for"
                f" {next(iter(self.releases))}."
            )
        if is_affected(self._advisory, ECOSYSTEM, name, version):
            raise unsupported(
                f"{name} would have to {what[:4]} to {version}, which is itself affected."
            )
        return self._index.release(name, version, self._lock.lowest_python)

    def _is_supported(self, name: str, metadata: Metadata) -> bool:
        """Return whether a release supports every Python on which it is needed. Poetry locks no other."""
        try:
            supporting = SpecifierSet(metadata.requires_python)
        except InvalidSpecifier:
            return True
        markers = {""}
        if not self._lock.of(name):
            requirements = (
                requirement
                for _, requirement in self._requirements()
                if canonicalize_name(requirement.name) == name
            )
            markers = {
                str(requirement.marker) if requirement.marker else ""
                for requirement in requirements
            }
        return all(
            supporting.contains(python)
            for python in supported(self._lock.python)
            if any(can_hold(marker, python) for marker in markers)
        )

    def _other_pythons(self, release: Release, metadata: Metadata) -> RecipeError:
        return refused_for(
            Blocker(
                kind=BlockerKind.RUNTIME,
                package=f"{release.name} {release.version}",
                constraint=f"Python {metadata.requires_python}",
                required_by=f"the lock is for Python {self._lock.python}",
                file=posixpath.join(posixpath.dirname(self._lock.path), "pyproject.toml"),
            )
        )

    def _raise_parent(self, parent: str, name: str, version: str, constraint: str) -> None:
        locked_version = self._lock.version_of(parent)
        label = f"{parent} {locked_version or ''}".strip()
        refusal = blocked(name, version, parent=label, spec=constraint, where=self._lock.path)
        python, child = self._lock.lowest_python, f"{name}=={version}"
        parent_version = self._index.lowest_parent(parent, locked_version, child, python, refusal)
        if (
            locked_version is None
            or compare_versions(ECOSYSTEM, parent_version, locked_version) <= 0
        ):
            raise refusal
        self.add(parent, parent_version)

    def _raise_child(self, parent: str, child: str, specifier: str, locked_version: str) -> None:
        refusal = blocked(
            child, locked_version, parent=parent, spec=specifier, where=self._lock.path
        )
        if child in self.releases:
            raise refusal
        try:
            within = ",".join(filter(None, [specifier, f">{at_least(locked_version)}"]))
            release = self._index.lowest(child, within, self._lock.lowest_python)
        except RecipeError as error:
            raise refusal from error
        self.add(child, release.version)

    def _bring_in(self, parent: str, child: str) -> None:
        """Add a package that the lock does not have, at the highest possible version: clients choose new
        packages so. Raises RecipeError."""
        count = len(self._lock.of(child))
        if count:
            raise self._not_locked(parent, child, f"holds in {count} versions.")
        below: list[str] = []
        while True:
            version = self._choose(parent, child, below)
            release, metadata = self._release(child, version)
            if self._is_supported(child, metadata):
                self.releases[child] = (release, metadata)
                return
            below.append(f"{child}<{version}")
            if len(below) >= _MAX_TRIED:
                raise self._other_pythons(release, metadata)

    def _choose(self, parent: str, child: str, below: Sequence[str]) -> str:
        """Return uv's version of a new package, with locked versions kept or, if that fails, not
        lowered."""
        if child in self._chosen and not below:
            return self._chosen[child]
        moving = [
            _pinned(name, version, self.extras(name)) for name, version in self.versions.items()
        ]
        locked_versions = {
            canonicalize_name(table["name"]): str(table["version"])
            for table in self._lock.packages
            if len(self._lock.of(canonicalize_name(table["name"]))) == 1 and not table.get("source")
        }
        # uv may not build anything. Packages locked as source stay, with all that they require.
        unread = [name for name in self._lock.without_wheel if name not in self.releases]
        error: RecipeError | None = None
        python = self._lock.lowest_python
        for operator in ("==", ">="):
            pins = [
                f"{locked_name}{operator}{locked_version}"
                for locked_name, locked_version in locked_versions.items()
                if locked_name not in self.releases
            ]
            try:
                versions = self._index.joined(moving, [*pins, *below], python, without=unread)
            except RecipeError as refusal:
                error = error or refusal
                continue
            if child in versions:
                self._chosen |= versions
                return versions[child]
        clause = f"does not hold. {error.problem}" if error else "does not hold."
        raise self._not_locked(parent, child, clause)

    def _not_locked(self, parent: str, child: str, what: str) -> RecipeError:
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{parent} {self.versions[parent]} requires {child}, which {self._lock.path} {what}",
            next_step="Resolve it with Poetry (`poetry update`), which builds what it has to.",
        )


@dataclass
class PoetryProject(EditedProject):
    """A poetry.lock with the pyproject.toml in its folder, if there is one."""

    _CLIENT = "Poetry"
    _INSTALL = "poetry install"
    _HAS_TREE = True
    _ALL_THE_SAME = " Every locked package that requires what was changed admits it."

    #: Texts of the projects that are already fixed, by path.
    patched: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Implement ``ladder.Project``. A folder of the repository that the lock takes as a package is also
        a project, and is fixed first."""
        if not patched.keys().isdisjoint(self.members.values()):
            return replace(self, patched=patched).resolve(advisory)
        return super().resolve(advisory)

    @cached_property
    def members(self) -> Mapping[str, str]:
        """Manifests of the repository's folders that the lock takes as packages, by package."""
        manifests: dict[str, str] = {}
        for table in self.lock.packages:
            source = table.get("source", {})
            if source.get("type") == "directory":
                folder = posixpath.join(posixpath.dirname(self.path), str(source.get("url")))
                manifest = posixpath.normpath(posixpath.join(folder, self._MANIFEST))
                if self.repo.has(manifest):
                    manifests[canonicalize_name(table["name"])] = manifest
        return manifests

    @property
    def installs_folders(self) -> bool:
        """Whether the lock takes folders of the repository as packages. Implements ``DecidedByLock``."""
        with suppress(RecipeError, RepositoryError):  # reported when the lock is read
            return bool(self.members)
        return False

    def member_admits(self, member: str, package: str, version: str) -> bool:
        """Return whether a folder of the repository requires a package, and admits the version."""
        strings = self._member_asks(member, package, self.patched)
        return bool(strings) and all(string.declaration.admits(version) for string in strings)

    def member_raised(self, member: str, package: str) -> bool:
        """Return whether the folder's own project raised its requirement of the package."""
        old, new = (
            self._member_asks(member, package, patched) for patched in (NO_TEXTS, self.patched)
        )
        return [string.value for string in old] != [string.value for string in new]

    def _member_asks(
        self, member: str, package: str, patched: Mapping[str, str]
    ) -> tuple[TableEntry, ...]:
        path = self.members.get(member)
        if path is None:
            return ()
        return requirement_strings(path, patched.get(path) or self.repo.read_text(path), package)

    @cached_property
    def step(self) -> LockStep:
        """The lock with the manifest's requirements; no requirements, if its hash matches the manifest."""
        lock, project_roots = self.lock, self.asked(self.texts) or ()
        if project_roots:
            text = self.texts[self.manifest]
            if content_hash(self.manifest, text, text, lock.content_hash) is not None:
                project_roots = ()
        reads_project = lock.format not in _BEFORE_PROJECT
        requests = (
            ManifestRequest(self.manifest, root.name, root.declaration)
            for root in project_roots
            if root.always and (root.in_table or reads_project)
        )
        # Before Poetry 2, the command would also raise all locked packages.
        command = f"poetry lock{'' if reads_project else ' --no-update'}"
        return LockStep(self.path, command, lock.held, tuple(requests))

    def tree_of(self, lock: PoetryLock, texts: Mapping[str, str]) -> DependencyTree:
        """Return a lock as a tree whose root has the manifest's requirements. Raises RecipeError."""
        if not texts:
            return lock.tree()
        document = parse_toml(self.manifest, texts[self.manifest])
        names = {entry.name: entry.value for entry in poetry_entries(document)}
        for _, line in requirement_arrays(document):
            if (requirement := requirement_in(line)) is not None:
                names.setdefault(requirement.name, str(requirement.specifier))
        edges = tuple(
            DependencyEdge(canonicalize_name(name), spec, lock.key_of(name))
            for name, spec in names.items()
        )
        return lock.tree(Node(self.manifest, self.manifest, "", edges))

    @property
    def _conditional(self) -> frozenset[str]:
        """Packages that a Poetry lock may lack: a requirement with a marker that no Python of the project
        meets, unless another package requires it without one; and the project itself."""
        document = parse_toml(self.manifest, self.texts[self.manifest]) if self.texts else {}
        own_names = (
            table_of(document, *keys).get("name") for keys in (("project",), ("tool", "poetry"))
        )
        dependencies = [
            dependency for table in self.lock.packages for dependency in dependencies_of(table)
        ]
        always = {dependency.name for dependency in dependencies if not dependency.marker}
        names = {dependency.name for dependency in dependencies if dependency.marker} - always
        return frozenset(
            names | {canonicalize_name(name) for name in own_names if isinstance(name, str)}
        )

    def asked(self, texts: Mapping[str, str]) -> tuple[Root, ...] | None:
        """Return the project's own requirements; None if it has no manifest. Raises RecipeError."""
        return tuple(roots(self.manifest, texts[self.manifest])) if texts else None

    @cached_property
    def lock(self) -> PoetryLock:
        """The lock as it is."""
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
        project_roots = self._project.asked(texts)
        admits = self._project.member_admits
        planner = _Planner(lock, self._index, self._advisory, project_roots or (), admits)
        planner.add(package, self._target(state, package))
        while True:
            check_raises(texts, planner.versions, may_raise)
            if not planner.widen():
                break
        self._check_source(lock, texts, [name for name in planner.versions if not lock.of(name)])
        for name, version in planner.versions.items():
            texts = {**texts, **locked.raised(texts, name, version)}
            edit = with_release if lock.of(name) else with_entry
            lock = edit(lock, *planner.releases[name], planner.extras(name))
            for member in filter(lock.of, self._project.members):
                if admits(member, name, version):
                    is_raised = self._project.member_raised(member, name)
                    lock = lock.with_constraint(member, name, version, is_raised=is_raised)
        old = PoetryLock(path, state.files[path])
        lock = in_plain_lines(lock, lambda plain: settled(old, plain, project_roots))
        if texts != self._manifests(state):
            lock = self._hashed(lock, self._manifests(state), texts)
        return State({**texts, path: lock.text}, self._project.tree_of(lock, texts))

    def _target(self, state: State, package: str) -> str:
        refusal = self._project.lock.refusal(package)
        if refusal:
            raise refusal
        return super()._target(state, package)

    def _check_source(self, lock: PoetryLock, texts: Mapping[str, str], new: Sequence[str]) -> None:
        """Check that no new package would come from an index that the project names: that is not queried.

        Raises RecipeError.
        """
        names = [path for path, text in texts.items() if has_own_index(path, text)]
        if not texts and any(
            table.get("source", {}).get("type") == "legacy" for table in lock.packages
        ):
            names = [lock.path]
        if new and names:
            raise unsupported(
                f"{names[0]} names an index of its own, which is not asked, and {', '.join(new)} would have"
                f" to come into {lock.path}."
            )

    def _hashed(
        self, lock: PoetryLock, before: Mapping[str, str], after: Mapping[str, str]
    ) -> PoetryLock:
        """Return the lock with the content-hash of the new manifest. Raises RecipeError."""
        path = self._project.manifest
        new = content_hash(path, before[path], after[path], lock.content_hash)
        if new is None:
            raise unsupported(
                f"The content-hash of {lock.path} is not that of {path}, so {path} can't be changed with"
                " it: the lock is out of date, or another Poetry made it.",
                "Run `poetry lock`, commit it, then run this again.",
            )
        return lock.with_content_hash(new)


def _pinned(name: str, version: str, extras: Iterable[str]) -> str:
    wanted = ",".join(sorted(extras))
    return f"{name}[{wanted}]=={version}" if wanted else f"{name}=={version}"
