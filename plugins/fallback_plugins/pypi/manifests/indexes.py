"""Indexes and hosts that a repository names, in whichever syntax its client reads.

A package's archive has a known publisher only if it can come from no other registry than the one that is
queried. In doubt a project counts as having its own index.

uv is kept from hosts that only a repository names (ADR-0096). uv reads the files of the folder that it runs
in, and connects to the hosts that they name. So these files are read first: unless each index, and each
address of an archive, is on an allowed host, uv is not started. A package from a registry can't add an
address: uv takes addresses only from a project's own files.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fallback_plugins.pypi.manifests.install_options import SHORT_FLAGS
from fallback_plugins.pypi.manifests.kinds import LOCKS, Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.pyproject import (
    parse_toml,
    requirement_arrays,
    table_of,
    tables,
    texts,
)
from fallback_plugins.pypi.manifests.requirements import (
    VARIABLE,
    includes,
    index_lines,
    logical_lines,
    names_an_index,
    requirement_in,
)
from fallback_plugins.shared.scratch import scratch_folder
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner, CommandResult, allowing
from fallback_tier.hosts import HostRefusedError, Hosts, NamedHost, host_in
from fallback_tier.lazy_patterns import lazy_pattern

#: Files with a client's settings, in addition to the manifests that it reads.
_SETTINGS = (
    *("uv.toml", "pip.conf", "pip.ini", "pdm.toml", ".pdm.toml"),
    *("hatch.toml", "pixi.toml", "tox.toml"),
)

#: The public registry's two host names. In parts, so that no file here names a registry that could be
#: queried.
_PUBLIC = (".".join(("pypi", "org")), ".".join(("pypi", "python", "org")))

#: Keys of uv's settings, and of its ``pip`` table, that name a registry or a folder.
_OF_UV = ("index", "index-url", "extra-index-url", "find-links", "no-index")

#: For all files but requirements: keys in the settings of pip, pip-tools, pixi, tox and setuptools, and
#: variables and options of clients in commands. Not ``dependency_links``: pip 19.0 and later ignores them.
_IN_WORDS = lazy_pattern(
    r"(?<!emit[-_])(?:index[-_]?(?:url|server)|find[-_]links)|(?<![a-z0-9])no[-_]index"
    r"|\bUV_(?:DEFAULT_)?INDEX\b|PYPI[-_](?:URL|MIRROR)|\b(?:PIP|UV)_CONFIG_FILE"
    r"|--(?:(?:default|extra)-)?index\b(?!-)"
    # pip accepts shortened options.
    r"|(?<![\w-])-(?:i|-(?:in|ex|fi)[a-z-]{0,14})[\s,='\"]{0,9}(?:https?|file)://"
    # A command may continue after a backslash, and an array's on the next line.
    r"|\b(?:install|compile|sync|download|wheel)\b(?:.|(?<=[\\,\[])\n){0,200}?"
    rf"[\s'\"]-{SHORT_FLAGS}[if](?:\b|(?:https?|file)://)",
    re.IGNORECASE,
)
_COMMENT = lazy_pattern(r"^[ \t]*#.*", re.MULTILINE)
_LINE_END = lazy_pattern(r"\r\n?")

#: Longer files were not written by people, and take seconds to read.
_MAX_CHARS = 1_000_000

#: Clients' tables of registries in pyproject.toml.
_TABLES = (("poetry", "source"), ("pdm", "source"), ("rye", "sources"))

#: Placeholder for an address that can't be read.
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Indexes:
    """Indexes that files name. ``own``: a manifest or setting names a registry, or a folder of packages;
    ``locked``: addresses of the registries, other than the public one, that locks have packages from."""

    own: bool = False
    locked: tuple[str, ...] = ()

    def only(self, registry: str) -> bool:
        """Return whether the packages can come from no registry but the public one and this one."""
        return not self.own and {url.rstrip("/") for url in self.locked} <= {registry.rstrip("/")}


def settings_of(folders: Iterable[str]) -> list[str]:
    """Return the paths of client settings for projects in these folders: in the folders and above them."""
    paths: dict[str, None] = {}
    for folder in map(PurePosixPath, folders):
        for parent in (folder, *folder.parents):
            paths |= dict.fromkeys(str(parent / name) for name in _SETTINGS)
    return [*paths]


def indexes_named(files: Mapping[str, str], *, unread: bool = False) -> Indexes:
    """Return the indexes that manifests, locks and settings name. ``files``: texts by path. A file that
    can't be read may name anything; ``unread``: there are such files in addition."""
    has_own, locked = unread, dict[str, None]()
    for path, text in files.items():
        try:
            if kind_of(path) in LOCKS:
                locked |= dict.fromkeys([url for url in _locked(path, text) if not is_public(url)])
            else:
                has_own = has_own or _names_one(path, text)
        except (RecipeError, ValueError, RecursionError):
            has_own = True
    return Indexes(has_own, tuple(sorted(locked)))


def is_public(url: str) -> bool:
    """Return whether this is the public registry's address, not a similar one."""
    try:
        parts = urlsplit(url)
        is_plain = parts.port is None and parts.username is None
    except ValueError:
        return False
    is_registry = parts.scheme == "https" and parts.hostname in _PUBLIC and is_plain
    return is_registry and parts.path.rstrip("/") == "/simple"


def _names_one(path: str, text: str) -> bool:
    name = PurePosixPath(path).name
    if len(text) > _MAX_CHARS:
        return True
    if kind_of(path) is Kind.REQUIREMENTS or (name.endswith((".txt", ".in"))):
        return names_an_index(text)
    if _IN_WORDS.search(_COMMENT.sub("", _LINE_END.sub("\n", text))):
        return True
    if kind_of(path) is not Kind.PIPFILE and not name.endswith(".toml"):
        return names_an_index(text)
    return _in_toml(name, parse_toml(path, text))


def has_own_index(path: str, text: str) -> bool:
    """Return whether a manifest's own keys or lines say that its packages come from elsewhere than the
    public registry. If so, no other registry is queried for them."""
    kind = kind_in_set(path)
    if kind is Kind.REQUIREMENTS:
        public = [*map(is_public, index_lines(text))]
        return names_an_index(text) and not (public and all(public) and "--no-index" not in text)
    if kind not in {Kind.PIPFILE, Kind.PYPROJECT}:
        return False
    with suppress(RecipeError):
        document = parse_toml(path, text)
        sources = table_of(document, "tool", "uv", "sources")
        return bool(sources) or _in_toml(PurePosixPath(path).name, document)
    return False


def _in_toml(name: str, document: Mapping[str, Any]) -> bool:
    if name == "Pipfile":
        return any(_is_another(source) for source in _listed(document.get("source")))
    if name in {"pdm.toml", ".pdm.toml"}:
        return bool(document)
    uv = document if name == "uv.toml" else table_of(document, "tool", "uv")
    is_named = any(table.get(key) for table in (uv, table_of(uv, "pip")) for key in _OF_UV)
    return is_named or any(
        _is_another(source)
        for client, key in _TABLES
        for source in _listed(table_of(document, "tool", client).get(key))
    )


def _listed(value: object) -> list[Any]:
    """Return an array's items; for another value, a list of it."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_another(source: object) -> bool:
    if not isinstance(source, dict):
        return True
    if "url" not in source:  # Poetry's own name for the public registry
        return str(source.get("name", "")).lower() != "pypi"
    return not is_public(str(source["url"]))


def _locked(path: str, text: str) -> Iterator[str]:
    """Yield the registries that a lock names. Raises RecipeError, ValueError, RecursionError if it can't be
    read."""
    if kind_of(path) is Kind.PIPFILE_LOCK:
        document = json.loads(text)
        meta = table_of(document if isinstance(document, dict) else {}, "_meta")
        yield from (str(source.get("url", _UNKNOWN)) for source in tables(meta.get("sources")))
        return
    document = parse_toml(path, text)
    for package in (*tables(document.get("package")), *tables(document.get("packages"))):
        source = table_of(package, "source")
        yield from texts([source.get("registry"), package.get("index")])
        if source.get("type") == "legacy":
            yield str(source.get("url", _UNKNOWN))


#: Commands that contact no host.
_ASKS_NOBODY = frozenset({"venv", "export", "cache", "python", "--version"})

#: Prefixes of the names of folders that contain only what a client may read.
_SCRATCH = ("fallback-tier-", "scratch-")

#: Options that name a file of requirements.
_FILES = frozenset({"-r", "-c", "--requirements", "--requirement", "--constraint", "--override"})

#: The beginning of an address in a text, in any form that a reader of addresses may accept.
_BEGIN = lazy_pattern(
    r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9.-]*\+)?(?:https?|ssh|git|ftps?|s3|gs)\s*:",
    re.IGNORECASE,
)
_SCHEME = lazy_pattern(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]+:|[/\\]{2})|.*?(?:\$\{|[\t\r\n])", re.DOTALL)

#: Keys of settings and locks whose whole value is an address or path, in any form.
_PLACES = ("index-url", "extra-index-url", "find-links", "index", "registry", "url", "git")

#: Files of a project that uv reads.
_PROJECTS = ("pyproject.toml", "uv.toml", "uv.lock")


def wall(hosts: Hosts, cwd: Path, args: Sequence[str], _report: Path) -> Mapping[str, str]:
    """Implement ``ecosystem_rules.Wall``."""
    if not args or args[0] in _ASKS_NOBODY or "--offline" in args:
        return {}
    root = next((folder for folder in (cwd, *cwd.parents) if folder.name.startswith(_SCRATCH)), cwd)
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
    """Run uv as ``ClientRunner.run`` does. A host that only a uv.lock names for an archive is allowed if
    the entry's own registry names it too: one release of each such host is looked up there."""
    result = clients.run("uv", arguments, cwd=cwd, timeout_s=timeout_s, env=env)
    confirmed = []
    for host in result.refused_hosts:
        release, registry = next(_held_at(host, cwd / "uv.lock"), ("", ""))
        if not release:
            continue
        with scratch_folder("uv") as folder:
            text = asking_for(release, ">=3.8", registry)
            (folder / "pyproject.toml").write_text(text, encoding="utf-8")
            # The settings are in this generated manifest, so uv must read it.
            lookup_env = {**env, "UV_NO_CONFIG": ""}
            clients.run(
                "uv", ["lock", "--no-build"], cwd=folder, timeout_s=timeout_s, env=lookup_env
            )
            if any(True for _ in _held_at(host, folder / "uv.lock")):
                confirmed.append(host)
    if not confirmed:
        return result
    return allowing(clients, confirmed).run("uv", arguments, cwd=cwd, timeout_s=timeout_s, env=env)


def asking_for(release: str, python: str, registry: str = "") -> str:
    """Return a manifest that requires one release (``left==1``) and nothing that this requires, so that no
    build is needed. ``registry``: the only one that is queried."""
    name = re.split(r"[^A-Za-z0-9._-]", release, maxsplit=1)[0]
    index = f"[[tool.uv.index]]\nurl = {json.dumps(registry)}\ndefault = true\n" if registry else ""
    return (
        '[project]\nname = "fallback-tier-scratch"\nversion = "0"\n'
        f"requires-python = {json.dumps(python)}\ndependencies = {json.dumps([release])}\n{index}"
        f"[[tool.uv.dependency-metadata]]\nname = {json.dumps(name)}\nrequires-dist = []\n"
    )


def _held_at(host: str, lock: Path) -> Iterator[tuple[str, str]]:
    """Yield the releases (``name==version``) whose archives are on a host according to a lock, each with
    its registry."""
    try:
        packages = tables(parse_toml(lock.name, lock.read_text("utf-8")).get("package"))
    except (OSError, ValueError, RecipeError):
        return
    for package in packages:
        registry = table_of(package, "source").get("registry")
        archives = (*tables(package.get("wheels")), table_of(package, "sdist"))
        archive_hosts = {host_in(str(archive.get("url", ""))) for archive in archives}
        if isinstance(registry, str) and host in archive_hosts:
            yield f"{package.get('name')}=={package.get('version')}", registry


def _named(root: Path, cwd: Path, args: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield each file that uv would read in the folder, with each address in it."""
    above = [folder / name for folder in cwd.parents for name in ("pyproject.toml", "uv.toml")]
    names = ("pyproject.toml", "uv.toml") if args[0] == "pip" else _PROJECTS
    below = [path for name in names for path in root.rglob(name)]
    above = [path for path in above if path.is_relative_to(root) and path.is_file()]
    for path in dict.fromkeys((*below, *above)):
        yield from ((path, address) for address in _in_document(path))
    waiting = [cwd / value for option, value in pairwise(args) if option in _FILES]
    # The project's own files, with those that they include.
    if not all(path.name.startswith(_SCRATCH) for path in waiting):
        for path in (*root.rglob("*.txt"), *root.rglob("*.in")):
            yield from (
                (path, address) for address in _indexes_in(path.read_text("utf-8", "replace"))
            )
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
        yield from ((path, address) for address in _indexes_in(text))
        for line in logical_lines(text):
            begin = _BEGIN.search(line)
            if begin is not None and not any(True for _ in index_lines(line)):
                yield path, line[begin.start() :].split()[0]
        waiting += [Path(included) for included, _ in includes(str(path), text)]


def _indexes_in(text: str) -> Iterator[str]:
    """Yield the addresses of a requirements file's own indexes and folders."""
    return _addresses([*index_lines(text)], "index-url")


def _in_document(path: Path) -> Iterator[str]:
    """Yield the addresses in a TOML file. Raises HostRefusedError for a file that this parser can't read:
    uv may read it, and it may name a host."""
    try:
        document = parse_toml(path.name, path.read_text("utf-8", "replace"))
    except (OSError, RecipeError) as error:
        why = error.problem if isinstance(error, RecipeError) else str(error)
        raise HostRefusedError((), f"uv was not started: {why}") from error
    if path.name in {"uv.lock", "uv.toml"} or path.name.startswith("pylock"):
        return _addresses(document)
    project = table_of(document, "project")
    requirements = [project.get("dependencies"), project.get("optional-dependencies")]
    requirements += [
        document.get("dependency-groups"),
        table_of(document, "build-system").get("requires"),
    ]
    return _addresses([*requirements, table_of(document, "tool", "uv")])


def _addresses(value: Any, key: str = "") -> Iterator[str]:
    """Yield the address in each text of a value, at any depth, up to the text's end, since readers leave
    out whitespace within it. ``key``: the value's own key; addresses for publishing are left out."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _addresses(item, name) if name != "publish-url" else ()
    elif isinstance(value, list):
        for item in value:
            yield from _addresses(item, key)
    elif isinstance(value, str):
        requirement = requirement_in(value) if "@" in value else None
        begin = _BEGIN.search(value)
        if key in _PLACES and _SCHEME.match(value):
            address = value
        elif requirement is not None and requirement.url:
            address = requirement.url
        else:
            address = "" if begin is None else value[begin.start() :].strip()
        if address and not address.startswith("file:"):
            yield address


_NOT_IN_VARIABLES = lazy_pattern(r"[^A-Za-z0-9]")


def leading_out(path: str, text: str) -> Iterator[str]:
    """Yield a sentence on each thing that leads uv out of the repository: it follows paths wherever they
    lead, clones what is named, and expands variables. Raises RecipeError for text that is not TOML."""
    document = parse_toml(path, text)
    uv = table_of(document, "tool", "uv")
    workspace = table_of(uv, "workspace")
    for pattern in (*texts(workspace.get("members")), *texts(workspace.get("exclude"))):
        if _leads_out(path, pattern):
            yield f"{path} has workspace members outside the repository: {pattern!r}."
    for name, source in table_of(uv, "sources").items():
        for table in tables(source if isinstance(source, list) else [source]):
            if "git" in table:
                yield f"{path} takes {name} from a git repository; no repository is cloned here."
            for target in texts([table.get("path"), table.get("url")]):
                if urlsplit(target).scheme not in {"http", "https"} and _leads_out(path, target):
                    yield f"{path} takes {name} from {target!r}, outside the repository."
    described = (
        texts(table.get("requires-dist")) for table in tables(uv.get("dependency-metadata"))
    )
    for line in chain((value for _, value in requirement_arrays(document)), *described):
        yield from _of_requirement(path, line)
    urls = texts([uv.get("index-url")]) + texts(uv.get("extra-index-url"))
    for url in urls + texts([index.get("url") for index in tables(uv.get("index"))]):
        if urlsplit(url).scheme not in {"http", "https"} and _leads_out(path, url):
            yield f"{path} has an index outside the repository: {url!r}."


def index_variables(manifests: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values uv would send to the indexes that the manifests name, emptied.

    The manifest decides which address has a name; ``UV_INDEX_CORP_PASSWORD`` was set for another address.
    """
    variables: dict[str, str] = {}
    for path, text in manifests.items():
        if not path.endswith(".toml"):
            continue
        try:
            uv = table_of(parse_toml(path, text), "tool", "uv")
        except RecipeError:
            continue
        for index in tables(uv.get("index")):
            name = _NOT_IN_VARIABLES.sub("_", str(index.get("name", ""))).upper()
            variables |= {f"UV_INDEX_{name}_USERNAME": "", f"UV_INDEX_{name}_PASSWORD": ""}
    return variables


def _of_requirement(path: str, line: str) -> Iterator[str]:
    if VARIABLE.search(line):
        yield f"{path} requires {line!r}, which names a variable of the environment."
        return
    requirement = requirement_in(line)
    if requirement is None and ("@" in line or "/" in line):
        yield f"{path} requires {line!r}, which can't be read as a requirement."
    url = requirement.url if requirement else None
    scheme = urlsplit(url or "").scheme
    if "+" in scheme:
        yield f"{path} requires {line!r}, from a checkout, and no checkout is made here."
    elif url and scheme not in {"http", "https"} and _leads_out(path, url):
        yield f"{path} requires {line!r}, outside the repository."


def _leads_out(path: str, target: str) -> bool:
    """Return whether a target is outside the repository. So is an address: ``file:`` has an absolute
    path."""
    path_in_repo = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path_in_repo.startswith(("/", "..", "~")) or bool(urlsplit(target).scheme)
