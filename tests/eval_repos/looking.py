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

from tests.eval_repos.cases import Case, Project
from tests.eval_repos.clients import Clients
from tests.eval_repos.making import environment
from tests.measuring.process import Done
from tests.measuring.words import SAID_CHARS, cleaned

#: (package, version): one copy that is installed.
Copy = tuple[str, str]

_YARN = (
    "install",
    "--frozen-lockfile",
    "--ignore-scripts",
    "--ignore-engines",
    "--non-interactive",
)


@dataclass(frozen=True)
class Looked:
    """``installs``: do the clients accept locks and manifests as they stand, and install them? ``works``:
    do the checks pass; None: nothing was installed that they could run on. ``said``: the first failure.
    """

    installs: bool
    works: bool | None
    held: frozenset[Copy] = frozenset()
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
        said=next((one.said for one in found if one.said), ""),
    )


def _look(place: Path, project: Project, clients: Clients) -> Looked:
    done = _installed(place, project, clients)
    places = [(str(place), "REPO"), (str(clients.folder), "CLIENTS"), (str(Path.home()), "~")]
    if not done.ok:
        return Looked(installs=False, works=None, said=_end_of(done, places))
    node = project.client in {"npm", "yarn", "pnpm"}
    held = frozenset(_node_copies(place) if node else _python_copies(place, clients))
    if not project.check:
        return Looked(installs=True, works=True, held=held)
    folders = [place / ".venv" / "bin", place / "node_modules" / ".bin"]
    path = os.pathsep.join([*map(str, folders), clients.environ["PATH"]])
    command = shlex.split(project.check)
    program = shutil.which(command[0], path=path) or command[0]
    more = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    checked = clients.run([program, *command[1:]], place, more)
    said = "" if checked.ok else _end_of(checked, places)
    return Looked(installs=True, works=checked.ok, held=held, said=said)


def _end_of(done: Done, places: list[tuple[str, str]]) -> str:
    """A client's last words are those that say why."""
    return cleaned(done.said[-SAID_CHARS:], places)


def _installed(place: Path, project: Project, clients: Clients) -> Done:
    """The first command that fails, or the last."""
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
            yield [*had, "sync", "--quiet", "--frozen", "--python", project.python]
            yield [*had, "pip", "check", "--python", ".venv/bin/python"]
        case "poetry":
            environment(place, project.python, clients)
            yield [*had, "check", "--lock"]
            yield [*had, "install", "--no-root", "--no-ansi"]
        case "pipenv":
            environment(place, project.python, clients)
            yield [*had, "verify"]
            yield [*had, "sync"]
        case _:
            uv = clients.had("uv")
            python = environment(place, project.python, clients)
            files = [word for name in project.requirements for word in ("-r", name)]
            yield [*uv, "pip", "install", "--quiet", "--python", python, *files]
            yield [*uv, "pip", "check", "--python", python]


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
            told = json.loads(manifest.read_text(encoding="utf-8"))
            yield str(told.get("name", "")), str(told.get("version", ""))


def _python_copies(place: Path, clients: Clients) -> Iterator[Copy]:
    python = place / ".venv" / "bin" / "python"
    done = clients.must(
        [*clients.had("uv"), "pip", "list", "--format", "json", "--python", python], place
    )
    for one in json.loads(done.out):
        yield canonicalize_name(one["name"]), one["version"]
