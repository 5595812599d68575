"""A case's repository at its base: texts of ours with a lock that a real client made, or a public one.

Old locks hold old versions. A client is first given a manifest that asks for just those (``seed``) or told
a date (``at``), then the real manifest: it keeps what it has where that is still in range, as on the day
when somebody added a dependency and did not look at the rest.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import tomlkit

from tests.campaigns.eval_repos.cases import Case, Project
from tests.campaigns.eval_repos.clients import Clients
from tests.campaigns.measuring.clones import clone, commit, git

#: What stands for a registry in a text of ours.
_INDEX, _NPM_REGISTRY = "{index}", "{npm}"

#: A note in uv's lock that it was made with a date: a project that was locked on that day has none.
_UV_DATE = re.compile(r'\[options\]\nexclude-newer = "[^"]*"\n\n')

_NPM = ("--package-lock-only", "--ignore-scripts")
_YARN = ("install", "--ignore-scripts", "--ignore-engines", "--non-interactive", "--silent")
_PNPM = ("install", "--lockfile-only", "--ignore-scripts")


def make(case: Case, folder: Path, clients: Clients, clones: Path | None = None) -> Path:
    """The repository, committed, in ``folder``. Raises RuntimeError with a client's or git's words."""
    if case.repo:
        root, _ = clone(case.repo, case.commit, folder, clones)
    else:
        root = folder / "app"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
    texts = {**case.source_texts(), **case.files}
    for path, text in texts.items():
        _write(root / path, _placed(text, clients), crlf=path in case.crlf)
    for project in case.project:
        if project.locks and not (case.repo and not project.seed and not project.at):
            _lock(project, root / project.place, clients)
    for path, old, new in case.patch:
        _patch(root / path, old, _placed(new, clients))
    for path, target in case.links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    git(root, "add", "-A")
    if git(root, "status", "--porcelain"):
        commit(root, "base")
    return root


def _placed(text: str, clients: Clients) -> str:
    """With the registries of this machine's clients, which no file of ours names."""
    had = clients.registries
    return text.replace(_INDEX, had.pypi).replace(_NPM_REGISTRY, had.npm)


def _write(place: Path, text: str, *, crlf: bool) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes((text.replace("\n", "\r\n") if crlf else text).encode())


def _patch(place: Path, old: str, new: str) -> None:
    text = place.read_bytes().decode()
    if text.count(old) != 1:
        raise RuntimeError(f"{place.name}: what is to be patched is there {text.count(old)} times")
    place.write_bytes(text.replace(old, new).encode())


def _lock(project: Project, place: Path, clients: Clients) -> None:
    match project.client:
        case "npm" | "yarn" | "pnpm":
            _node(project, place, clients)
        case "uv":
            _uv(project, place, clients)
        case "poetry":
            _poetry(project, place, clients)
        case "pipenv":
            _pipenv(project, place, clients)
        case "pip-tools":
            _pip_compile(project, place, clients)


def _node(project: Project, place: Path, clients: Clients) -> None:
    """The seeds as direct dependencies (npm), resolutions (yarn) or overrides (pnpm), then without."""
    manifest = place / "package.json"
    text = manifest.read_bytes()
    command = {"npm": ("install", *_NPM), "yarn": _YARN, "pnpm": _PNPM}[project.client]
    if project.seed:
        manifest.write_text(json.dumps(_seeded(json.loads(text), project)), encoding="utf-8")
        clients.must([*clients.had(project.by), *command], place)
        manifest.write_bytes(text)
        if project.client == "yarn":
            _as_asked(place / "yarn.lock", json.loads(text), project)
    clients.must([*clients.had(project.by), *command], place)
    manifest.write_bytes(text)
    shutil.rmtree(place / "node_modules", ignore_errors=True)


def _seeded(document: dict[str, Any], project: Project) -> dict[str, Any]:
    match project.client:
        case "npm":
            for section in ("devDependencies", "optionalDependencies", "peerDependencies"):
                for name in project.seed.keys() & (document.get(section) or {}).keys():
                    del document[section][name]
            document["dependencies"] = {**(document.get("dependencies") or {}), **project.seed}
        case "yarn":
            own = document.get("dependencies") or {}
            own |= {name: it for name, it in project.seed.items() if name in own}
            document["resolutions"] = project.seed
        case _:
            document["pnpm"] = {"overrides": project.seed}
    return document


def _as_asked(lock: Path, document: dict[str, Any], project: Project) -> None:
    """yarn's lock says what was asked for: of what the project asks for itself, its own range again."""
    text = lock.read_text(encoding="utf-8")
    for name, version in project.seed.items():
        if asked := (document.get("dependencies") or {}).get(name):
            text = text.replace(f"\n{name}@{version}:\n", f"\n{name}@{asked}:\n")
    lock.write_text(text, encoding="utf-8")


def _uv(project: Project, place: Path, clients: Clients) -> None:
    manifest, lock = place / "pyproject.toml", place / "uv.lock"
    text = manifest.read_bytes()
    command = [*clients.had("uv"), "lock", "--python", project.python]
    if project.seed:
        document = tomlkit.parse(text.decode())
        tool = document.setdefault("tool", {}).setdefault("uv", {})
        tool["constraint-dependencies"] = [f"{name}=={it}" for name, it in project.seed.items()]
        manifest.write_text(tomlkit.dumps(document), encoding="utf-8")
    clients.must([*command, *(["--exclude-newer", project.at] if project.at else [])], place)
    lock.write_text(_UV_DATE.sub("", lock.read_text(encoding="utf-8")), encoding="utf-8")
    manifest.write_bytes(text)
    clients.must(command, place)


def _poetry(project: Project, place: Path, clients: Clients) -> None:
    manifest = place / "pyproject.toml"
    text = manifest.read_bytes()
    poetry = clients.had(project.by)
    keep = ["--no-update"] if project.version.startswith("1.") else []
    if project.seed:
        document: Any = tomlkit.parse(text.decode())
        if "project" in document:
            asked = [
                re.split(r"[ <>=!~;\[(]", one)[0] for one in document["project"]["dependencies"]
            ]
            for name, version in project.seed.items():
                if name in asked:
                    del document["project"]["dependencies"][asked.index(name)]
                    asked.remove(name)
                document["project"]["dependencies"].append(f"{name}=={version}")
        else:
            document["tool"]["poetry"]["dependencies"].update(project.seed)
        manifest.write_text(tomlkit.dumps(document), encoding="utf-8")
        clients.must([*poetry, "lock"], place)
        manifest.write_bytes(text)
        clients.must([*poetry, "lock", *keep], place)
    else:
        clients.must([*poetry, "lock"], place)


def _pipenv(project: Project, place: Path, clients: Clients) -> None:
    manifest = place / "Pipfile"
    text = manifest.read_bytes()
    pipenv = clients.had(project.by)
    environment(place, project.python, clients, "--seed")
    if project.seed:
        document: Any = tomlkit.parse(text.decode())
        document["packages"].update({name: f"=={it}" for name, it in project.seed.items()})
        manifest.write_text(tomlkit.dumps(document), encoding="utf-8")
        clients.must([*pipenv, "lock"], place)
        manifest.write_bytes(text)
        clients.must([*pipenv, "lock", "--keep-outdated"], place)
    else:
        clients.must([*pipenv, "lock"], place)
    shutil.rmtree(place / ".venv", ignore_errors=True)


def _pip_compile(project: Project, place: Path, clients: Clients) -> None:
    """What uv finds at the date is there before, and pip-compile keeps it."""
    for name in project.requirements:
        source, target = name.removesuffix(".txt") + ".in", name
        compiled = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", source]
        at = ["--exclude-newer", project.at] if project.at else []
        uv = [*clients.had("uv"), *compiled, *at, "--python-version", project.python, "-o", target]
        clients.must(uv, place)
        pins = (place / target).read_text(encoding="utf-8")
        for package, version in project.seed.items():
            pins = re.sub(rf"(?m)^{re.escape(package)}==\S+", f"{package}=={version}", pins)
        (place / target).write_text(pins, encoding="utf-8")
        options = ["--quiet", "--no-emit-index-url", "--strip-extras", "--allow-unsafe"]
        if "--generate-hashes" in (place / source).read_text(encoding="utf-8").partition("\n")[0]:
            options.append("--generate-hashes")
        clients.must([*clients.had(project.by), *options, source, "-o", target], place)


def environment(place: Path, python: str, clients: Clients, *options: str) -> Path:
    """A fresh virtual environment in the project's folder; returns its interpreter."""
    uv = clients.had("uv")
    clients.must([*uv, "venv", "--quiet", "--clear", "--python", python, *options, ".venv"], place)
    return place / ".venv" / "bin" / "python"


def changed_lines(root: Path) -> tuple[dict[str, str], int]:
    """Path → its text before ("" where it is new), and lines added and removed, as git counts them."""
    git(root, "add", "-A", "--intent-to-add")
    message = git(root, "diff", "--numstat", "--no-renames", "-z", "HEAD").decode()
    before: dict[str, str] = {}
    lines = 0
    for line in filter(None, message.split("\0")):
        added, removed, path = line.split("\t", 2)
        lines += sum(int(count) for count in (added, removed) if count.isdigit())
        shown = subprocess.run(["git", "show", f"HEAD:{path}"], cwd=root, capture_output=True)
        before[path] = shown.stdout.decode("utf-8", "replace") if shown.returncode == 0 else ""
    return before, lines
