"""The Projects of a Python repository: which files one client resolves together."""

import posixpath
from collections.abc import Iterator
from contextlib import suppress

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.literals import install_commands
from fallback_plugins.pypi.manifests.pyproject import in_other_arrays, parse_toml
from fallback_plugins.pypi.manifests.requirements_files import connected
from fallback_plugins.pypi.strategies.manifest_project import ManifestProject, ReadOnlyProject
from fallback_plugins.pypi.strategies.python_project import PythonProject
from fallback_plugins.pypi.surveying.foreign_lock import (
    FOREIGN,
    ForeignLock,
    says_nothing,
)
from fallback_plugins.pypi.surveying.survey import LOCKS, Sources, constrained_by_commands
from fallback_plugins.shared.bumping import FREE, Terms
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: Manifests that are resolved by themselves.
_SINGLE = frozenset({Kind.PYPROJECT, Kind.PIPFILE, Kind.SETUP_CFG, Kind.SETUP_PY})

#: What setuptools reads beside pyproject.toml.
_SETUP = ("setup.cfg", "setup.py")


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
    read = (ReadOnlyProject(repo, clients, (it,), terms) for it in _only_read(repo, claimed))
    return tuple(sorted((*locked, *rest, *read), key=lambda project: project.path))


def _only_read(repo: RepoContext, claimed: frozenset[str]) -> Iterator[str]:
    """Files with install commands of CI, of notebooks and of programs, and manifests beside a lock with
    environments of other tools."""
    for path, text in Sources.of(repo).searched.items():
        if path in claimed and kind_of(path) is Kind.PYPROJECT:
            with suppress(RecipeError):  # its own project says so
                if next(in_other_arrays(parse_toml(path, text)), None) is not None:
                    yield path
        elif kind_in_set(path) in {Kind.CI, Kind.SCRIPT} and install_commands(path, text):
            yield path


def files_of(project: PythonProject, repo: RepoContext) -> tuple[str, ...]:
    """The files that decide what a project holds, its lock first."""
    paths = dict.fromkeys([project.path, *sorted(project.manifests)])
    return tuple(filter(repo.has, paths))


def _locked(repo: RepoContext, clients: ClientRunner, terms: Terms) -> tuple[PythonProject, ...]:
    found: list[PythonProject] = []
    for path in repo.tracked_files:
        kind = kind_of(path)
        if kind in FOREIGN or (kind in LOCKS and says_nothing(repo, path)):
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
