"""The Python projects that a patch touches, their modules, and how each is installed in both trees.

What fails in another setting, or with more than the base commit has, is a person's question (ADR-0077).
Requirements files that contradict each other are installed in part, and so are pins without a wheel. Where
the patch moves a line that could not be had before either, the line as it is now is another one that can't.
"""

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.project_gates import ProjectGate
from fallback_plugins.shared.installed import Installed
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Folders at a project's root whose Python files are no part of what it is.
ASIDE = frozenset({"test", "tests", "testing", "doc", "docs", "example", "examples", "bench"})

#: Files that a tool runs; nobody imports them.
_RUN = frozenset({"setup.py", "conftest.py", "noxfile.py", "fabfile.py", "tasks.py", "__main__.py"})

#: Packages that a verdict's one sentence names.
_NAMED = 3

#: uv's words for a release that is there, and can't be installed here without building it.
_NO_WHEEL = ("has no usable wheels", "has no wheels with a matching")


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


def beside_base(project: Environment, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """Return what ``judge`` says of a patched project. If the base commit is installed in another setting,
    a failure is undecided, and so is a pass whose failing tests had less there. Raises as ``judge`` and
    ``Environment.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    otherwise = project.otherwise()
    if verdict.status is not GateStatus.FAILED:
        lacked = lacked_at_base(project, project.base)
        if lacked:
            otherwise = otherwise or f"that lacks {gating.some_of(lacked, _NAMED)}"
    return gating.beside_another_setting(verdict, otherwise)


def lacks_by_the_patch(ours: Environment, base: Environment) -> bool:
    """Less can be had, other than by a moved line that could not be had at the base commit either.

    Such a line is held against the base commit's again: by the file that it stands in, installed by itself,
    so that no other file contradicts it. Raises as ``Environment.install`` does.
    """
    here, there = ours.install(), base.install()
    if here.level is not there.level:
        return here.lacks_beside(there)
    before = {_package(line) for line, _ in there.declined}
    files: dict[str, None] = {}
    for line in _new(here, there):
        where = ours.declaring(line)
        if not where or _package(line) not in before:
            return True
        files |= dict.fromkeys(where)
    return any(_lacks(ours.alone(file).install(), base.alone(file).install()) for file in files)


def lacked_at_base(ours: Environment, base: Environment) -> list[str]:
    """Packages that could not be had at the base commit, and can be with the patch: as they are asked for,
    or at all. Raises as ``Environment.install`` does."""
    here, there = ({_package(line) for line, _ in tree.install().declined} for tree in (ours, base))
    come = ours.distributions().keys() - base.distributions().keys()
    return sorted(there - (here - come))


def _lacks(here: Installed, there: Installed) -> bool:
    if here.level is not there.level:
        return here.lacks_beside(there)
    return bool(_new(here, there))


def _new(here: Installed, there: Installed) -> list[str]:
    """Lines that can't be had here alone; none of a package without a wheel in either tree."""
    lines = {line for line, _ in there.declined}
    without = {_package(line) for line, why in there.declined if _is_without_wheel(line, why)}
    return [
        line
        for line, why in here.declined
        if line not in lines and not (_package(line) in without and _is_without_wheel(line, why))
    ]


def _is_without_wheel(line: str, why: str) -> bool:
    asked = requirement_in(line)
    if asked is None:
        return False
    release = re.escape(f"{asked.name}{asked.specifier}")  # no end of a longer name
    return re.search(rf"(?<![\w.-]){release} (?:{'|'.join(_NO_WHEEL)})", one_line(why)) is not None


def _package(line: str) -> str:
    """The package that a line asks for; of what is no requirement (a step's name) the whole."""
    asked = requirement_in(line)
    return line if asked is None else canonicalize_name(asked.name)
