"""Which Python projects of a repository a patch touches, and which of their modules."""

from pathlib import PurePosixPath

from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.project_gates import ProjectGate
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

#: Folders at a project's root whose Python files are no part of what it is.
ASIDE = frozenset({"test", "tests", "testing", "doc", "docs", "example", "examples", "bench"})

#: Files that a tool runs; nobody imports them.
_RUN = frozenset({"setup.py", "conftest.py", "noxfile.py", "fabfile.py", "tasks.py", "__main__.py"})


class PyPIGate(ProjectGate):
    """A gate on each touched project of Python."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched_folders(context)


def touched_folders(context: GateContext) -> tuple[str, ...]:
    """Projects that the patch touched; a repository without any manifest is one project."""
    projects = {
        str(PurePosixPath(path).parent)
        for path in context.repo.tracked_files
        if kind_of(path) is not None and PurePosixPath(path).parent.name != "requirements"
    }
    return gating.project_folders(context, lambda folder: folder in projects or folder == ".")


def own_packages(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """Paths of the top-level packages of a project, flat or below ``src``."""
    found = []
    for root in (folder, in_folder(folder, "src")):
        for path in repo.tracked_files:
            pure = PurePosixPath(path)
            if pure.name == "__init__.py" and pure.parent.parent == PurePosixPath(root):
                found.append(str(pure.parent))
    return tuple(path for path in found if PurePosixPath(path).name not in {*ASIDE, "src"})


def modules(context: GateContext, folder: str) -> tuple[str, ...]:
    """Dotted names of the modules that the patch touched, then of the project's own packages.

    Those that the patch removed are left out: whoever still imports one is among the rest.
    """
    repo = gating.patched(context)
    found: dict[str, None] = {}
    own = (f"{package}/__init__.py" for package in own_packages(repo, folder))
    for path in (*context.application.files, *own):
        name = _module(repo, folder, path)
        if name is not None and repo.tree.find(path) is not None:
            found[name] = None
    return tuple(found)


def _module(repo: RepoContext, folder: str, path: str) -> str | None:
    """The name by which a file is imported from the project's root, or from ``src``; None for a script
    in a folder that is no package, for tests, and for what tools run."""
    pure = PurePosixPath(path)
    if not pure.is_relative_to(folder) or pure.suffix != ".py":
        return None
    if pure.name in _RUN or is_test(path, folder):
        return None
    parts = pure.relative_to(folder).with_suffix("").parts
    src = in_folder(folder, "src")
    if parts[0] == "src" and not repo.has(f"{src}/__init__.py"):
        folder, parts = src, parts[1:]
    packages = [in_folder(folder, "/".join(parts[:end])) for end in range(1, len(parts))]
    if not all(repo.tree.find(f"{package}/__init__.py") for package in packages):
        return None
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if not parts or parts[0] in ASIDE or not all(part.isidentifier() for part in parts):
        return None
    return ".".join(parts)
