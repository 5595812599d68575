"""Keeps uv from hosts that only a repository names (ADR-0096).

uv reads the files of the folder that it runs in, and asks the hosts that they name. What it would read is
read here first: each index, and each address of an archive, is of an allowed host, or uv is not started. A
package from a registry can't add an address: uv takes those from a project's own files only.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from fallback_plugins.pypi.manifests.groups import table_of, tables
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements import logical_lines, requirement_in
from fallback_plugins.pypi.manifests.requirements_files import includes, index_lines
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult, allowing
from fallback_tier.hosts import HostRefusedError, Hosts, NamedHost, host_in

#: Commands that ask nobody.
_ASKS_NOBODY = frozenset({"venv", "export", "cache", "python", "--version"})

#: How folders begin that hold what a client may read, and nothing else.
_SCRATCH = ("fallback-tier-", "scratch-")

#: Options that name a file of requirements.
_FILES = frozenset({"-r", "-c", "--requirements", "--requirement", "--constraint", "--override"})

#: Where an address begins in a text, in whatever way a reader of addresses may take it for one.
_BEGIN = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9.-]*\+)?(?:https?|ssh|git|ftps?|s3|gs)\s*:",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]+:|[/\\]{2})|.*?(?:\$\{|[\t\r\n])", re.DOTALL)

#: Keys of settings and locks that hold a place and nothing else, in whatever way it is written.
_PLACES = ("index-url", "extra-index-url", "find-links", "index", "registry", "url", "git")

#: What uv reads of a project.
_PROJECTS = ("pyproject.toml", "uv.toml", "uv.lock")


def wall(hosts: Hosts, cwd: Path, args: Sequence[str], _report: Path) -> Mapping[str, str]:
    """As ``ecosystem_rules.Wall``."""
    if not args or args[0] in _ASKS_NOBODY or "--offline" in args:
        return {}
    root = next((it for it in (cwd, *cwd.parents) if it.name.startswith(_SCRATCH)), cwd)
    refused = []
    for path, address in _named(root, cwd, args):
        if not hosts.admits(address):
            file = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            refused.append(NamedHost(host_in(address), file))
    if refused:
        raise HostRefusedError(refused)
    return {}


def run_uv(
    clients: ClientRunner,
    arguments: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str],
) -> CommandResult:
    """As ``ClientRunner.run``. A host that a uv.lock names for an archive may be asked if the entry's own
    registry names it too: that is asked about one release of each such host."""
    result = clients.run("uv", arguments, cwd=cwd, timeout_s=timeout_s, env=env)
    confirmed = [
        host
        for host in result.refused_hosts
        if _is_confirmed(host, cwd / "uv.lock", clients, timeout_s, env)
    ]
    if not confirmed:
        return result
    return allowing(clients, confirmed).run("uv", arguments, cwd=cwd, timeout_s=timeout_s, env=env)


def _is_confirmed(
    host: str, lock: Path, clients: ClientRunner, timeout_s: float, env: Mapping[str, str]
) -> bool:
    for release, registry in _held_at(host, lock):
        with scratch_folder("uv") as folder:
            text = asking_for(release, ">=3.8", registry)
            (folder / "pyproject.toml").write_text(text, encoding="utf-8")
            # The settings are in the manifest, which is ours: it has to be read.
            asking = {**env, "UV_NO_CONFIG": ""}
            clients.run("uv", ["lock", "--no-build"], cwd=folder, timeout_s=timeout_s, env=asking)
            return any(True for _ in _held_at(host, folder / "uv.lock"))
    return False


def asking_for(release: str, python: str, registry: str = "") -> str:
    """A project that asks for one release (``left==1``) and nothing that this requires, so that nothing is
    left for a build to tell. ``registry``: the only one that is asked."""
    name = re.split(r"[^A-Za-z0-9._-]", release, maxsplit=1)[0]
    index = f"[[tool.uv.index]]\nurl = {json.dumps(registry)}\ndefault = true\n" if registry else ""
    return (
        '[project]\nname = "fallback-tier-scratch"\nversion = "0"\n'
        f"requires-python = {json.dumps(python)}\ndependencies = {json.dumps([release])}\n{index}"
        f"[[tool.uv.dependency-metadata]]\nname = {json.dumps(name)}\nrequires-dist = []\n"
    )


def _held_at(host: str, lock: Path) -> Iterator[tuple[str, str]]:
    """Releases (``name==version``) of which a lock says that their archives are at a host, and the registry
    of each."""
    try:
        packages = tables(parse_toml(lock.name, lock.read_text("utf-8")).get("package"))
    except (OSError, ValueError, RecipeError):
        return
    for package in packages:
        registry = table_of(package, "source").get("registry")
        archives = (*tables(package.get("wheels")), table_of(package, "sdist"))
        at = {host_in(str(archive.get("url", ""))) for archive in archives}
        if isinstance(registry, str) and host in at:
            yield f"{package.get('name')}=={package.get('version')}", registry


def _named(root: Path, cwd: Path, args: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield each file that uv would read there, with each address in it."""
    above = [folder / name for folder in cwd.parents for name in ("pyproject.toml", "uv.toml")]
    names = ("pyproject.toml", "uv.toml") if args[0] == "pip" else _PROJECTS
    below = [path for name in names for path in root.rglob(name)]
    above = [path for path in above if path.is_relative_to(root) and path.is_file()]
    for path in dict.fromkeys((*below, *above)):
        yield from ((path, address) for address in _in_document(path))
    waiting = [cwd / value for word, value in pairwise(args) if word in _FILES]
    if not all(path.name.startswith(_SCRATCH) for path in waiting):  # the project's own, and theirs
        for path in (*root.rglob("*.txt"), *root.rglob("*.in")):
            indexes = index_lines(path.read_text("utf-8", "replace"))
            yield from ((path, address) for address in _addresses([*indexes], _PLACES[0]))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        if path.suffix == ".toml":
            yield from ((path, address) for address in _in_document(path))
            continue
        text = path.read_text("utf-8", "replace")
        yield from ((path, address) for address in _of_requirements(text))
        waiting += [Path(included) for included, _ in includes(str(path), text)]


def _in_document(path: Path) -> Iterator[str]:
    """Raises HostRefusedError for what is not TOML to us: to uv it may be, and name a host."""
    try:
        document = parse_toml(path.name, path.read_text("utf-8", "replace"))
    except (OSError, RecipeError) as error:
        why = error.problem if isinstance(error, RecipeError) else str(error)
        raise HostRefusedError((), f"uv was not started: {why}") from error
    if path.name in {"uv.lock", "uv.toml"} or path.name.startswith("pylock"):
        return _addresses(document)
    project = table_of(document, "project")
    asked = [project.get("dependencies"), project.get("optional-dependencies")]
    asked += [document.get("dependency-groups"), table_of(document, "build-system").get("requires")]
    return _addresses([*asked, table_of(document, "tool", "uv")])


def _of_requirements(text: str) -> Iterator[str]:
    yield from _addresses([*index_lines(text)], _PLACES[0])
    for line in logical_lines(text):
        begin = _BEGIN.search(line)
        if begin is not None and not any(True for _ in index_lines(line)):
            yield line[begin.start() :].split()[0]


def _addresses(value: Any, key: str = "") -> Iterator[str]:
    """The address in each text of a value, at any depth: to its end, since readers leave out what is
    between. ``key``: the value's own; nothing is published here."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _addresses(one, name) if name != "publish-url" else ()
    elif isinstance(value, list):
        for one in value:
            yield from _addresses(one, key)
    elif isinstance(value, str):
        asked = requirement_in(value) if "@" in value else None
        begin = _BEGIN.search(value)
        if key in _PLACES and _SCHEME.match(value):
            address = value
        elif asked is not None and asked.url:
            address = asked.url
        else:
            address = "" if begin is None else value[begin.start() :].strip()
        if address and not address.startswith("file:"):
            yield address
