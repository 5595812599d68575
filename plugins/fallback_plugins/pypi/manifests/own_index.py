"""Where a project says its packages come from, in whatever words its own client reads.

Whose archive has a package's name is known only where nothing but the one registry that is asked can have
it. In doubt a project has an index of its own.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fallback_plugins.pypi.manifests.groups import table_of, tables, texts
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements_files import index_lines, names_an_index
from fallback_tier.errors import RecipeError

#: Files that set up a client, beside the manifests that it reads.
_SETTINGS = (
    *("uv.toml", "pip.conf", "pip.ini", "pdm.toml", ".pdm.toml"),
    *("hatch.toml", "pixi.toml", "tox.toml"),
)

#: The public registry, by its two host names. In parts: no file here names a registry that could be asked.
_PUBLIC = (".".join(("pypi", "org")), ".".join(("pypi", "python", "org")))

#: Keys of uv's settings, and of its ``pip`` table, that name a registry or a folder.
_OF_UV = ("index", "index-url", "extra-index-url", "find-links", "no-index")

#: In files of any kind but requirements: keys of pip's settings, pip-tools', pixi's, tox's and setuptools',
#: variables and options of clients that somebody runs. Not ``dependency_links``: pip 19.0 ignores them.
_IN_WORDS = re.compile(
    r"(?<!emit[-_])(?:index[-_]?(?:url|server)|find[-_]links)|(?<![a-z0-9])no[-_]index"
    r"|\bUV_(?:DEFAULT_)?INDEX\b|PYPI[-_](?:URL|MIRROR)|\b(?:PIP|UV)_CONFIG_FILE"
    r"|--(?:(?:default|extra)-)?index\b(?!-)"
    # pip lets an option be shortened.
    r"|(?<![\w-])-(?:i|-(?:in|ex|fi)[a-z-]{0,14})[\s,='\"]{0,9}(?:https?|file)://"
    # A command may go on behind a backslash, and an array's on the next line.
    r"|\b(?:install|compile|sync|download|wheel)\b(?:.|(?<=[\\,\[])\n){0,200}?[\s'\"]-[if](?:\b|(?:https?|file)://)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"^[ \t]*#.*", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?")

#: No manifest or setting that anybody wrote is longer; what is takes seconds to read.
_MAX_CHARS = 1_000_000

#: Where clients have tables of registries in pyproject.toml.
_TABLES = (("poetry", "source"), ("pdm", "source"), ("rye", "sources"))

_LOCKS = frozenset({Kind.UV_LOCK, Kind.POETRY_LOCK, Kind.PDM_LOCK, Kind.PYLOCK, Kind.PIPFILE_LOCK})

#: Stands for the address of what can't be read.
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Indexes:
    """``own``: a manifest or setting names a registry, or a folder of packages; ``locked``: addresses of
    the registries, other than the public one, that locks have their packages from."""

    own: bool = False
    locked: tuple[str, ...] = ()

    def only(self, registry: str) -> bool:
        """Can nothing but the public registry, and this one, have the packages?"""
        return not self.own and {_plain(one) for one in self.locked} <= {_plain(registry)}


def settings_of(folders: Iterable[str]) -> list[str]:
    """Where settings of these folders' projects can lie: in them, and above."""
    found: dict[str, None] = {}
    for folder in map(PurePosixPath, folders):
        for place in (folder, *folder.parents):
            found |= dict.fromkeys(str(place / name) for name in _SETTINGS)
    return [*found]


def indexes_named(files: Mapping[str, str], *, unread: bool = False) -> Indexes:
    """What manifests, locks and settings name, by path. What can't be read may name anything; ``unread``:
    there are such files besides."""
    own, locked = unread, dict[str, None]()
    for path, text in files.items():
        try:
            if kind_of(path) in _LOCKS:
                found = [url for url in _locked(path, text) if not is_public(url)]
                locked |= dict.fromkeys(found)
            else:
                own = own or _names_one(path, text)
        except (RecipeError, ValueError, RecursionError):
            own = True
    return Indexes(own, tuple(sorted(locked)))


def is_public(url: str) -> bool:
    """Is it the public registry's address, and nobody's with a similar one?"""
    try:
        parts = urlsplit(url)
        is_plain = parts.port is None and parts.username is None
    except ValueError:
        return False
    is_it = parts.scheme == "https" and parts.hostname in _PUBLIC and is_plain
    return is_it and parts.path.rstrip("/") == "/simple"


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
    public registry. If so, no other registry is asked about them."""
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
    named = any(one.get(key) for one in (uv, table_of(uv, "pip")) for key in _OF_UV)
    return named or any(
        _is_another(source)
        for client, key in _TABLES
        for source in _listed(table_of(document, "tool", client).get(key))
    )


def _listed(value: object) -> list[Any]:
    """An array of tables, or what stands in its place."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_another(source: object) -> bool:
    if not isinstance(source, dict):
        return True
    if "url" not in source:  # Poetry's own name for the public registry
        return str(source.get("name", "")).lower() != "pypi"
    return not is_public(str(source["url"]))


def _locked(path: str, text: str) -> Iterator[str]:
    """Registries that a lock names. Raises RecipeError, ValueError, RecursionError where it can't be."""
    if kind_of(path) is Kind.PIPFILE_LOCK:
        document = json.loads(text)
        meta = table_of(document if isinstance(document, dict) else {}, "_meta")
        yield from (str(one.get("url", _UNKNOWN)) for one in tables(meta.get("sources")))
        return
    document = parse_toml(path, text)
    for package in (*tables(document.get("package")), *tables(document.get("packages"))):
        source = table_of(package, "source")
        yield from texts([source.get("registry"), package.get("index")])
        if source.get("type") == "legacy":
            yield str(source.get("url", _UNKNOWN))


def _plain(url: str) -> str:
    return url.rstrip("/")
