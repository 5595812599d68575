"""The Projects of a Python repository: which files one client resolves together."""

from fallback_plugins.pypi.foreign_lock import FOREIGN, EmptyLock, ForeignLock, is_empty_lock
from fallback_plugins.pypi.manifest_project import ManifestProject
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.python_project import PythonProject
from fallback_plugins.pypi.requirements_files import connected
from fallback_plugins.pypi.survey import LOCKS
from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.repo import RepoContext

#: Manifests that are resolved by themselves.
_SINGLE = frozenset({Kind.PYPROJECT, Kind.PIPFILE, Kind.SETUP_CFG, Kind.SETUP_PY})


def projects(repo: RepoContext, clients: ClientRunner) -> tuple[PythonProject, ...]:
    """Every Project of the repository, by path; locks account for the manifests beside them.

    Nothing is parsed here, and nothing is raised: a project that can't be read says so itself.
    """
    locked = _locked(repo, clients)
    claimed = frozenset(path for project in locked for path in project.manifests)
    rest = _manifest_projects(repo, clients, claimed)
    return tuple(sorted((*locked, *rest), key=lambda project: project.path))


def files_of(project: PythonProject, repo: RepoContext) -> tuple[str, ...]:
    """The files that decide what a project holds, its lock first."""
    paths = dict.fromkeys([project.path, *sorted(project.manifests)])
    return tuple(filter(repo.has, paths))


def _locked(repo: RepoContext, clients: ClientRunner) -> tuple[PythonProject, ...]:
    found: list[PythonProject] = []
    for path in repo.tracked_files:
        kind = kind_of(path)
        if kind in LOCKS and is_empty_lock(repo, path):
            found.append(EmptyLock(repo, path))
        elif kind is Kind.UV_LOCK:
            from fallback_plugins.pypi.uv_project import UvProject

            found.append(UvProject(repo, clients, path))
        elif kind is Kind.POETRY_LOCK:
            from fallback_plugins.pypi.poetry_project import PoetryProject

            found.append(PoetryProject(repo, clients, path))
        elif kind is Kind.PIPFILE_LOCK:
            from fallback_plugins.pypi.pipenv_project import PipenvProject

            found.append(PipenvProject(repo, clients, path))
        elif kind in FOREIGN:
            found.append(ForeignLock(repo, path))
    return tuple(found)


def _manifest_projects(
    repo: RepoContext, clients: ClientRunner, claimed: frozenset[str]
) -> tuple[PythonProject, ...]:
    """Requirements files in their sets; every other manifest by itself."""
    free = [path for path in repo.tracked_files if path not in claimed]
    single = [(path,) for path in free if kind_of(path) in _SINGLE]
    lines: dict[str, str] = {}
    for path in (path for path in free if kind_of(path) is Kind.REQUIREMENTS):
        try:
            lines[path] = repo.read_text(path)
        except RepositoryError:
            # By itself: whoever reads it says why it can't be.
            single.append((path,))
    return tuple(ManifestProject(repo, clients, files) for files in (*connected(lines), *single))
