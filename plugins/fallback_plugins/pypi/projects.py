"""The projects of a Python repository, and the packages that each installs.

A project is the files that one client resolves together. What it installs is read from a lock in step with
its manifest, or resolved by its client. Locks that only their own client writes (pdm.lock, pylock.toml),
and empty ones, are read, never edited.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.commands import install_commands
from fallback_plugins.pypi.manifests.kinds import LOCKS, Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.pyproject import in_other_arrays, parse_toml, table_of, texts
from fallback_plugins.pypi.manifests.requirements import connected
from fallback_plugins.pypi.strategies.locked import LockedProject
from fallback_plugins.pypi.strategies.manifest_project import ManifestProject, ReadOnlyProject
from fallback_plugins.pypi.surveying.deciding import DecidedByLock, LockStep, asked_in_arrays
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Sources,
    check_says_something,
    constrained_by_commands,
    locked_by,
    locked_in_toml,
    nothing_in,
    unlisted_in_toml,
    unversioned_in_toml,
)
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import FREE, Terms, unsupported
from fallback_plugins.shared.inventory import FoundProject, installed, inventory_of, not_read
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix, left_behind
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    unlisted,
    unversioned,
)
from fallback_plugins.shared.tree import DependencyTree, Node, grouped
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.inventory import InstalledPackage, Inventory
from fallback_tier.outcome import Left, Outline, UnreadItem
from fallback_tier.repo import RepoContext

#: Manifests that are resolved by themselves.
_SINGLE = frozenset({Kind.PYPROJECT, Kind.PIPFILE, Kind.SETUP_CFG, Kind.SETUP_PY})

#: The files that setuptools reads in addition to pyproject.toml.
_SETUP = ("setup.cfg", "setup.py")


#: The kinds of locks that only their own client writes, with that client.
_WRITERS = {Kind.PDM_LOCK: "pdm", Kind.PYLOCK: "the client that made it"}


@dataclass(frozen=True)
class _ForeignLock(DecidedByLock):
    """A lock that is read and never edited, as a Project whose fix is always refused."""

    repo: RepoContext
    path: str

    @property
    def manifests(self) -> frozenset[str]:
        """Return the paths of the lock and of the manifests next to it that it may be made from; a
        pylock.toml may be made from any."""
        manifests = (PurePosixPath(self.path).with_name(name) for name in locked_by(self.path))
        return frozenset({self.path, *map(str, manifests)})

    @property
    def ages(self) -> Ages:
        """Return no rules, as this project brings nothing in."""
        return Ages(ECOSYSTEM)

    def outline(self, advisory: Advisory) -> Outline:
        """Return the affected packages of the lock. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        return Outline(left=tuple(self._left(advisory)))

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Return a fix that leaves all that is affected, or None if nothing is. Raises RecipeError,
        RepositoryError."""
        left = self.outline(advisory).left
        return ProjectFix(texts={}, moves=(), left=left) if left else None

    @property
    def resolution(self) -> Resolution:
        """Return what the lock holds, as ``LockedProject.resolution`` does."""
        step, doubt = self._step, self._step.doubt()
        nodes = [
            Node(f"{name} {version}", name, version)
            for name, versions in step.held.items()
            for version in versions
        ]
        client = _WRITERS.get(kind_of(self.path) or Kind.PYLOCK, "")
        command = InstallCommand(client=client, files=(self.path,), label=f"{client} ({self.path})")
        tree = DependencyTree(self.path, {node.key: node for node in nodes})
        missing = unlisted_in_toml(self.path, self.repo.read_text(self.path))
        unknown = (*unversioned(self.path, step.unversioned), *unlisted(self.path, missing))
        resolution = Resolution.of_tree(
            ECOSYSTEM, command, ResolvedBy.LOCK, tree, unresolved=unknown
        )
        return resolution.doubted(doubt.problem, doubt.next_step) if doubt else resolution

    @property
    def _step(self) -> LockStep:
        text = self.repo.read_text(self.path)
        check_says_something(self.path, text)
        locked_entries = locked_in_toml(self.path, text)
        versions = grouped(
            (str(canonicalize_name(name)), version) for name, version, _ in locked_entries
        )
        paths = sorted(filter(self.repo.has, self.manifests - {self.path}))
        texts = {path: self.repo.read_text(path) for path in paths}
        # Which extras and groups are locked is chosen when the lock is made.
        requests = asked_in_arrays(texts, whole=())
        return LockStep(
            self.path, "pdm lock", versions, requests, unversioned_in_toml(self.path, text)
        )

    def _left(self, advisory: Advisory) -> Iterator[Left]:
        client = _WRITERS[kind_of(self.path) or Kind.PYLOCK]
        versions_by_package = grouped(
            (package.name, package.version) for package in self.resolution.affected(advisory)
        )
        for package, versions in sorted(versions_by_package.items()):
            error = unsupported(
                f"{self.path} holds {package} {', '.join(versions)}, but only {client} writes it."
            )
            yield left_behind(
                advisory, ECOSYSTEM, package, versions, manifest=self.path, error=error
            )


#: A project: files that one client resolves together. ``LockedProject`` documents what the kinds have in
#: common.
PythonProject = ManifestProject | LockedProject | _ForeignLock


def projects(
    repo: RepoContext, clients: ClientRunner, terms: Terms = FREE
) -> tuple[PythonProject, ...]:
    """Return every project of the repository, by path; locks account for the manifests next to them.

    Raises nothing for a project that can't be read: its own methods do.
    """
    locked = _locked(repo, clients, terms)
    claimed = frozenset(path for project in locked for path in project.manifests)
    built = (path for project in locked for path in _read_by_a_build(repo, project.path))
    rest = _manifest_projects(repo, clients, terms, claimed.union(built))
    read = (ReadOnlyProject(repo, clients, (path,), terms) for path in _only_read(repo, claimed))
    return tuple(sorted((*locked, *rest, *read), key=lambda project: project.path))


def _only_read(repo: RepoContext, claimed: frozenset[str]) -> Iterator[str]:
    """Yield the files that are read and never edited: those with install commands of CI, of notebooks and
    of programs, and manifests of a lock that have environments of other tools."""
    for path, text in Sources.of(repo).searched.items():
        if path in claimed and kind_of(path) is Kind.PYPROJECT:
            with suppress(RecipeError):  # its own project reports it
                if next(in_other_arrays(parse_toml(path, text)), None) is not None:
                    yield path
        elif kind_in_set(path) in {Kind.CI, Kind.SCRIPT} and install_commands(path, text):
            yield path


def files_of(project: PythonProject, repo: RepoContext) -> tuple[str, ...]:
    """Return the files that decide what a project holds, its lock first."""
    paths = dict.fromkeys([project.path, *sorted(project.manifests)])
    return tuple(filter(repo.has, paths))


def _locked(repo: RepoContext, clients: ClientRunner, terms: Terms) -> tuple[PythonProject, ...]:
    lock_projects: list[PythonProject] = []
    for path in repo.tracked_files:
        kind = kind_of(path)
        if kind in _WRITERS or (kind in LOCKS and _says_nothing(repo, path)):
            lock_projects.append(_ForeignLock(repo, path))
        elif kind is Kind.UV_LOCK:
            from fallback_plugins.pypi.uv import UvProject

            lock_projects.append(UvProject(repo, clients, path, terms))
        elif kind is Kind.POETRY_LOCK:
            from fallback_plugins.pypi.poetry.project import PoetryProject

            lock_projects.append(PoetryProject(repo, clients, path, terms))
        elif kind is Kind.PIPFILE_LOCK:
            from fallback_plugins.pypi.pipenv import PipenvProject

            lock_projects.append(PipenvProject(repo, clients, path, terms))
    return tuple(lock_projects)


def _read_by_a_build(repo: RepoContext, lock: str) -> Iterator[str]:
    """Yield the paths of setup.cfg and setup.py if pyproject.toml leaves its dependencies to them
    (``dynamic``): then uv and pdm make a lock from their content."""
    manifest = posixpath.join(posixpath.dirname(lock), "pyproject.toml")
    if kind_of(lock) not in {Kind.UV_LOCK, Kind.PDM_LOCK} or not repo.has(manifest):
        return
    with suppress(RecipeError, RepositoryError):
        project = table_of(parse_toml(manifest, repo.read_text(manifest)), "project")
        if "dependencies" in texts(project.get("dynamic")):
            yield from (posixpath.join(posixpath.dirname(lock), name) for name in _SETUP)


def _manifest_projects(
    repo: RepoContext, clients: ClientRunner, terms: Terms, claimed: frozenset[str]
) -> tuple[PythonProject, ...]:
    """Return requirements files that belong together as one project, and every other manifest by itself."""
    unclaimed = [path for path in repo.tracked_files if path not in claimed]
    single = [(path,) for path in unclaimed if kind_of(path) in _SINGLE]
    sources = Sources.of(repo)
    lines = {path: text for path, text in sources.texts.items() if path not in claimed}
    # A file that can't be read gets a separate project, which reports why.
    single += [
        (path,) for path in unclaimed if kind_of(path) is Kind.REQUIREMENTS and path not in lines
    ]
    single += [(path,) for path in sources.literals]
    sets = connected(lines, constrained_by_commands(repo))
    return tuple(ManifestProject(repo, clients, files, terms) for files in (*sets, *single))


def _says_nothing(repo: RepoContext, path: str) -> bool:
    """Return whether a lock is empty; False if it can't be read."""
    with suppress(RecipeError, RepositoryError):
        return bool(nothing_in(path, repo.read_text(path)))
    return False


def inventory(repo: RepoContext, clients: ClientRunner) -> Inventory:
    """Return the packages of all projects. A project, or a part of one, that can't be read or resolved is
    in ``unread``."""
    return inventory_of(_found(repo, clients))


def _found(
    repo: RepoContext, clients: ClientRunner
) -> Iterator[InstalledPackage | UnreadItem | FoundProject]:
    for project in projects(repo, clients):
        is_outside = not repo.selects(files_of(project, repo))
        yield FoundProject(project.path, is_outside)
        if is_outside:
            continue
        try:
            resolution = project.resolution
            development = _development(repo, project.manifests)
        except (RecipeError, RepositoryError, ToolError) as error:
            yield not_read(project.path, error)
            continue
        for part in resolution.unresolved:
            yield UnreadItem(path=project.path, reason=part.reason, next_step=part.next_step)

        def development_of(_root: Node, names: Collection[str] = development) -> Collection[str]:
            return names

        yield from installed(resolution.tree, ECOSYSTEM, project.path, development_of)


def _development(repo: RepoContext, manifests: Collection[str]) -> frozenset[str]:
    """Return the names that the pyproject.toml files declare for development alone. Other manifests
    (requirements files) don't say what they are for. Raises RecipeError, RepositoryError."""
    development, needed = set[str](), set[str]()
    for path in manifests:
        if posixpath.basename(path) != "pyproject.toml" or not repo.has(path):
            continue
        document = parse_toml(path, repo.read_text(path))
        project, poetry = table_of(document, "project"), table_of(document, "tool", "poetry")
        optional = table_of(project, "optional-dependencies")
        needed |= _named(texts(project.get("dependencies")))
        needed |= {name for array in optional.values() for name in _named(texts(array))}
        needed |= {canonicalize_name(name) for name in table_of(poetry, "dependencies")}
        groups = table_of(document, "dependency-groups")
        development |= {name for array in groups.values() for name in _named(texts(array))}
        development |= _named(texts(table_of(document, "tool", "uv").get("dev-dependencies")))
        development |= {canonicalize_name(name) for name in table_of(poetry, "dev-dependencies")}
        for group in table_of(poetry, "group"):
            dependencies = table_of(poetry, "group", group, "dependencies")
            development |= {canonicalize_name(name) for name in dependencies}
    return frozenset(development - needed)


def _named(requirements: Collection[str]) -> set[str]:
    names = set[str]()
    for text in requirements:
        with suppress(InvalidRequirement):  # its own project reports it
            names.add(canonicalize_name(Requirement(text).name))
    return names
