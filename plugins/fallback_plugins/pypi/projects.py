"""The Projects of a Python repository: which files one client resolves together.

Locks that only their own client writes (pdm.lock, pylock.toml), and empty ones, are read, never edited.
"""

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of, tables, texts
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements_files import connected
from fallback_plugins.pypi.strategies.manifest_project import ManifestProject
from fallback_plugins.pypi.strategies.python_project import PythonProject
from fallback_plugins.pypi.surveying.out_of_step import DecidedByLock, LockStep, asked_in_arrays
from fallback_plugins.pypi.surveying.pins import pinned_versions
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    LOCKS,
    Sources,
    constrained_by_commands,
    empty_lock,
    locked_by,
    mentioned,
)
from fallback_plugins.shared.bumping import FREE, Terms, unsupported
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix, left_behind
from fallback_plugins.shared.resolution import InstallCommand, Resolution, ResolvedBy
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Outline
from fallback_tier.repo import RepoContext

#: Manifests that are resolved by themselves.
_SINGLE = frozenset({Kind.PYPROJECT, Kind.PIPFILE, Kind.SETUP_CFG, Kind.SETUP_PY})

#: What setuptools reads beside pyproject.toml.
_SETUP = ("setup.cfg", "setup.py")

#: Who writes each kind.
_WRITERS = {Kind.PDM_LOCK: "pdm", Kind.PYLOCK: "the client that made it"}
FOREIGN = frozenset(_WRITERS)


@dataclass(frozen=True)
class ForeignLock(DecidedByLock):
    """One such lock, as a Project that can only be refused."""

    repo: RepoContext
    path: str

    @property
    def manifests(self) -> frozenset[str]:
        """The lock, and the manifests beside it that it speaks for; a pylock.toml is an export of any."""
        beside = (PurePosixPath(self.path).with_name(name) for name in locked_by(self.path))
        return frozenset({self.path, *map(str, beside)})

    def outline(self, advisory: Advisory) -> Outline:
        """What of it is affected. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        return Outline(left=tuple(self._left(advisory)))

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Refuses what is affected; None: nothing is. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        left = tuple(self._left(advisory))
        return ProjectFix(texts={}, moves=(), left=left) if left else None

    @property
    def resolution(self) -> Resolution:
        """As ``PythonProject`` says."""
        step, doubt = self._step, self._step.doubt()
        held = [Node(f"{name} {it}", name, it) for name, found in step.held.items() for it in found]
        client = _WRITERS.get(kind_of(self.path) or Kind.PYLOCK, "")
        command = InstallCommand(client=client, files=(self.path,), label=f"{client} ({self.path})")
        tree = DependencyTree(self.path, {node.key: node for node in held})
        found = Resolution.of_tree(ECOSYSTEM, command, ResolvedBy.LOCK, tree)
        return found.doubted(doubt.problem, doubt.next_step) if doubt else found

    @property
    def _step(self) -> LockStep:
        text = self.repo.read_text(self.path)
        if not text.strip():
            raise empty_lock(self.path)
        document = parse_toml(self.path, text)
        held: dict[str, list[str]] = {}
        for table in tables(document.get("package")):
            name, version = str(table.get("name", "")), str(table.get("version", ""))
            held.setdefault(canonicalize_name(name), []).append(version)
        beside = sorted(filter(self.repo.has, self.manifests - {self.path}))
        texts = {path: self.repo.read_text(path) for path in beside}
        # Which extras and groups are locked is chosen when it is.
        asked = asked_in_arrays(texts, whole=())
        return LockStep(self.path, "pdm lock", held, asked)

    def _left(self, advisory: Advisory) -> Iterator[Left]:
        text = self.repo.read_text(self.path)
        parse_toml(self.path, text)  # what is no lock does not say that nothing is held
        kind = kind_of(self.path)
        for package in sorted(mentioned(text, frozenset(advisory.packages(ECOSYSTEM)))):
            held = [
                version
                for version in pinned_versions(self.path, text, package)
                if is_affected(advisory, ECOSYSTEM, package, version)
            ]
            if held and kind in _WRITERS:
                who, versions = _WRITERS[kind], ", ".join(held)
                error = unsupported(
                    f"{self.path} holds {package} {versions}, but only {who} writes it."
                )
                place = self.path
                yield left_behind(advisory, ECOSYSTEM, package, held, manifest=place, error=error)


def projects(
    repo: RepoContext, clients: ClientRunner, terms: Terms = FREE
) -> tuple[PythonProject, ...]:
    """Every Project of the repository, by path; locks account for the manifests beside them.

    Nothing is raised here: a project that can't be read says so itself.
    """
    locked = _locked(repo, clients, terms)
    claimed = frozenset(path for project in locked for path in project.manifests)
    built = (path for project in locked for path in _read_by_a_build(repo, project.path))
    rest = _manifest_projects(repo, clients, terms, claimed.union(built))
    return tuple(sorted((*locked, *rest), key=lambda project: project.path))


def files_of(project: PythonProject, repo: RepoContext) -> tuple[str, ...]:
    """The files that decide what a project holds, its lock first."""
    paths = dict.fromkeys([project.path, *sorted(project.manifests)])
    return tuple(filter(repo.has, paths))


def _locked(repo: RepoContext, clients: ClientRunner, terms: Terms) -> tuple[PythonProject, ...]:
    found: list[PythonProject] = []
    for path in repo.tracked_files:
        kind = kind_of(path)
        if kind in FOREIGN or (kind in LOCKS and is_empty_lock(repo, path)):
            found.append(ForeignLock(repo, path))
        elif kind is Kind.UV_LOCK:
            from fallback_plugins.pypi.uv.project import UvProject

            found.append(UvProject(repo, clients, path, terms))
        elif kind is Kind.POETRY_LOCK:
            from fallback_plugins.pypi.poetry.project import PoetryProject

            found.append(PoetryProject(repo, clients, path, terms))
        elif kind is Kind.PIPFILE_LOCK:
            from fallback_plugins.pypi.pipenv.project import PipenvProject

            found.append(PipenvProject(repo, clients, path, terms))
    return tuple(found)


def _read_by_a_build(repo: RepoContext, lock: str) -> Iterator[str]:
    """setup.cfg and setup.py, where pyproject.toml leaves its dependencies to them (``dynamic``): a lock
    of uv or pdm is made from what they say then."""
    manifest = posixpath.join(posixpath.dirname(lock), "pyproject.toml")
    if kind_of(lock) not in {Kind.UV_LOCK, Kind.PDM_LOCK} or not repo.has(manifest):
        return
    with suppress(RecipeError, RepositoryError):
        own = table_of(parse_toml(manifest, repo.read_text(manifest)), "project")
        if "dependencies" in texts(own.get("dynamic")):
            yield from (posixpath.join(posixpath.dirname(lock), name) for name in _SETUP)


def _manifest_projects(
    repo: RepoContext, clients: ClientRunner, terms: Terms, claimed: frozenset[str]
) -> tuple[PythonProject, ...]:
    """Requirements files in their sets; every other manifest by itself."""
    free = [path for path in repo.tracked_files if path not in claimed]
    single = [(path,) for path in free if kind_of(path) in _SINGLE]
    found = Sources.of(repo)
    lines = {path: text for path, text in found.texts.items() if path not in claimed}
    # One that can't be read by itself: its project says why it can't be.
    single += [(it,) for it in free if kind_of(it) is Kind.REQUIREMENTS and it not in lines]
    single += [(path,) for path in found.literals]
    sets = connected(lines, constrained_by_commands(repo))
    return tuple(ManifestProject(repo, clients, files, terms) for files in (*sets, *single))


def is_empty_lock(repo: RepoContext, path: str) -> bool:
    """Is there nothing in it? A lock that can't be read is not known to be empty."""
    try:
        return not repo.read_text(path).strip()
    except RepositoryError:
        return False
