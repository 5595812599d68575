"""The judge's eyes: a tree is installed by the project's own client, read, and its application is asked.

Nothing here reads a lock: what counts is what a client makes of it. Runs in a copy, which goes afterwards.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import canonicalize_name

from tests.campaigns.eval_repos.cases import Case, Project
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.eval_repos.making import environment
from tests.campaigns.measuring.clones import git
from tests.campaigns.measuring.process import Done
from tests.campaigns.measuring.words import SAID_CHARS, cleaned
from tests.campaigns.recipes_bench.inventory import held, is_lock

#: (package, version): one copy that is installed.
Copy = tuple[str, str]

_YARN = (
    "install",
    "--frozen-lockfile",
    "--ignore-scripts",
    "--ignore-engines",
    "--non-interactive",
)


#: Manifests and locks that can be read.
_READ = frozenset({".json", ".lock", ".toml", ".txt", ".in"})

#: Folders whose manifests are not the project's own, or not kept.
_NOT_OURS = frozenset(
    {".git", ".venv", "node_modules", "test", "tests", "fixtures", "example", "examples"}
)


@dataclass(frozen=True)
class Looked:
    """``installs``: do the clients accept locks and manifests as they stand, and install them? ``works``:
    do the checks pass; None: nothing was installed that they could run on. ``held``: what is installed;
    where nothing is, what locks say, else manifests. ``pinned``: what any file of the repository pins,
    installed or not, and the installed packages that git keeps, by their manifest. ``said``: the first
    failure.
    """

    installs: bool
    works: bool | None
    held: frozenset[Copy] = frozenset()
    pinned: frozenset[tuple[str, Copy]] = frozenset()
    said: str = ""


def look(root: Path, case: Case, clients: Clients) -> Looked:
    """Every project of a case's tree, in a copy. Raises RuntimeError where a client can't be had."""
    found = []
    with TemporaryDirectory(prefix="look-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder).resolve() / root.name
        shutil.copytree(root, copy, symlinks=True)
        for project in case.project:
            found.append(_look(copy / project.place, project, clients))
    works = [one.works for one in found]
    return Looked(
        installs=all(one.installs for one in found),
        works=None if None in works else all(works),
        held=frozenset().union(*(one.held for one in found)),
        pinned=frozenset((*_pinned(root), *_kept(root))),
        said=next((one.said for one in found if one.said), ""),
    )


def _look(place: Path, project: Project, clients: Clients) -> Looked:
    done = install(place, project, clients)
    places = [(str(place), "REPO"), (str(clients.folder), "CLIENTS"), (str(Path.home()), "~")]
    if not done.ok:
        read = frozenset(_read(place))
        return Looked(installs=False, works=None, held=read, said=_end_of(done, places))
    node = project.client in {"npm", "yarn", "pnpm"}
    copies = frozenset(_node_copies(place) if node else _python_copies(place, clients))
    if not project.check:
        return Looked(installs=True, works=True, held=copies)
    folders = [place / ".venv" / "bin", place / "node_modules" / ".bin"]
    path = os.pathsep.join([*map(str, folders), clients.environ["PATH"]])
    command = shlex.split(project.check)
    program = shutil.which(command[0], path=path) or command[0]
    more = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    checked = clients.run([program, *command[1:]], place, more)
    message = "" if checked.ok else _end_of(checked, places)
    return Looked(installs=True, works=checked.ok, held=copies, said=message)


def _end_of(done: Done, places: list[tuple[str, str]]) -> str:
    """A client's last words are those that say why."""
    # Cut last: of half an address nothing tells that it has a host.
    return cleaned(done.said, places, len(done.said))[-SAID_CHARS:]


def install(place: Path, project: Project, clients: Clients) -> Done:
    """Install a project in its folder with its client. Return the first command that fails, or the last."""
    for command in _commands(place, project, clients):
        done = clients.run(command, place)
        if not done.ok:
            return done
    return done


def _commands(place: Path, project: Project, clients: Clients) -> Iterator[list[str | Path]]:
    had = clients.had(project.by)
    match project.client:
        case "npm":
            locked = any(
                (place / name).exists() for name in ("package-lock.json", "npm-shrinkwrap.json")
            )
            yield [
                *had,
                *(("ci",) if locked else ("install", "--no-package-lock")),
                "--ignore-scripts",
            ]
        case "yarn":
            yield [*had, *_YARN]
        case "pnpm":
            yield [*had, "install", "--frozen-lockfile", "--ignore-scripts"]
        case "uv":
            yield [*had, "lock", "--check", "--python", project.python]
            yield [*had, "sync", "--quiet", "--frozen", "--all-extras", "--python", project.python]
            yield [*had, "pip", "check", "--python", ".venv/bin/python"]
        case "poetry":
            environment(place, project.python, clients)
            yield [*had, "check", "--lock"]
            groups = [word for name in project.groups for word in ("--with", name)]
            yield [*had, "install", "--no-root", "--no-ansi", *groups]
        case "pipenv":
            environment(place, project.python, clients, "--seed")
            yield [*had, "verify"]
            yield [*had, "sync"]
        case _:
            uv = clients.had("uv")
            python = environment(place, project.python, clients)
            files = [word for name in project.requirements for word in ("-r", name)]
            yield [*uv, "pip", "install", "--quiet", "--python", python, *files]
            yield [*uv, "pip", "check", "--python", python]


def _pinned(root: Path) -> Iterator[tuple[str, Copy]]:
    """Path, and a version that it says is to be installed; what tests and examples hold is theirs."""
    for place in sorted(root.rglob("*")):
        path = place.relative_to(root)
        if not place.is_file() or place.is_symlink() or not _NOT_OURS.isdisjoint(path.parts):
            continue
        yield from ((path.as_posix(), one) for one in _of_file(place, pins_only=True))


def _kept(root: Path) -> Iterator[tuple[str, Copy]]:
    """Yield the manifest's path, and the package, of each package of a node_modules that git keeps: a
    checkout runs it without an install."""
    for path in git(root, "ls-files", "-z", "--", "*package.json").decode().split("\0"):
        if is_installed_package(path) and (root / path).is_file():
            reported = json.loads((root / path).read_text(encoding="utf-8"))
            yield path, (str(reported.get("name", "")), str(reported.get("version", "")))


def is_installed_package(path: str) -> bool:
    """Return whether a path is the manifest of a package in a project's node_modules."""
    *folders, name, file = path.split("/") if "/" in path else ("", path)
    while folders and folders[-1].startswith("@"):
        folders.pop()
    ours = _NOT_OURS.isdisjoint({*folders} - {"node_modules"})
    return file == "package.json" and bool(name) and folders[-1:] == ["node_modules"] and ours


def _read(place: Path) -> Iterator[Copy]:
    """What the project's locks hold, or its manifests where it has none; a file that can't be read holds
    nothing."""
    files = [file for file in place.iterdir() if file.is_file()]
    locks = [file for file in files if is_lock(file.name)]
    for file in locks or files:
        yield from _of_file(file)


def _of_file(file: Path, *, pins_only: bool = False) -> Iterator[Copy]:
    if file.suffix not in _READ:
        return
    try:
        found = held(file.name, file.read_bytes().decode())
    except ValueError:
        return
    yield from (
        (it.name, it.version) for it in found if it.version and (it.pinned or not pins_only)
    )


def _node_copies(place: Path) -> Iterator[Copy]:
    """Every package in every node_modules, however deep; links are what they point at, found there."""
    for folder, names, _ in os.walk(place):
        if Path(folder).name == "node_modules":
            for name in names:
                yield from _packages(Path(folder) / name)


def _packages(place: Path) -> Iterator[Copy]:
    for folder in place.iterdir() if place.name.startswith("@") else [place]:
        manifest = folder / "package.json"
        if manifest.is_file() and not folder.is_symlink():
            reported = json.loads(manifest.read_text(encoding="utf-8"))
            yield str(reported.get("name", "")), str(reported.get("version", ""))


def _python_copies(place: Path, clients: Clients) -> Iterator[Copy]:
    python = place / ".venv" / "bin" / "python"
    done = clients.must(
        [*clients.had("uv"), "pip", "list", "--format", "json", "--python", python], place
    )
    for one in json.loads(done.out):
        yield canonicalize_name(one["name"]), one["version"]
