"""What a pyproject.toml says that would lead uv out of the repository, or have it tell what is ours."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from fallback_plugins.pypi.manifests.groups import table_of, tables, texts
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_tier.errors import RecipeError

#: uv puts variables of its environment into the addresses of requirements (measured).
_VARIABLE = re.compile(r"\$\{\w+\}")

_NOT_IN_VARIABLES = re.compile(r"[^A-Za-z0-9]")


def leading_out(path: str, text: str) -> Iterator[str]:
    """What leads uv out of the repository, a sentence each: it follows paths wherever they lead, clones
    what is named, and fills variables in. Raises RecipeError for text that is no TOML."""
    document = parse_toml(path, text)
    uv = table_of(document, "tool", "uv")
    workspace = table_of(uv, "workspace")
    for pattern in (*texts(workspace.get("members")), *texts(workspace.get("exclude"))):
        if _leads_out(path, pattern):
            yield f"{path} has workspace members outside the repository: {pattern!r}."
    for name, source in table_of(uv, "sources").items():
        for one in tables(source if isinstance(source, list) else [source]):
            yield from _of_source(path, name, one)
    described = (texts(it.get("requires-dist")) for it in tables(uv.get("dependency-metadata")))
    for line in chain((value for _, value in requirement_arrays(document)), *described):
        yield from _of_requirement(path, line)
    for url in _indexes(uv):
        if urlsplit(url).scheme not in {"http", "https"} and _leads_out(path, url):
            yield f"{path} has an index outside the repository: {url!r}."


def index_variables(manifests: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values uv would send to the indexes that the manifests name, emptied.

    A manifest says which address has a name; whoever set ``UV_INDEX_CORP_PASSWORD`` meant another.
    """
    found: dict[str, str] = {}
    for path, text in manifests.items():
        if not path.endswith(".toml"):
            continue
        try:
            uv = table_of(parse_toml(path, text), "tool", "uv")
        except RecipeError:
            continue
        for index in tables(uv.get("index")):
            name = _NOT_IN_VARIABLES.sub("_", str(index.get("name", ""))).upper()
            found |= {f"UV_INDEX_{name}_USERNAME": "", f"UV_INDEX_{name}_PASSWORD": ""}
    return found


def _of_source(path: str, name: str, source: Mapping[str, Any]) -> Iterator[str]:
    if "git" in source:
        yield f"{path} takes {name} from a git repository; no repository is cloned here."
    for place in texts([source.get("path"), source.get("url")]):
        if urlsplit(place).scheme not in {"http", "https"} and _leads_out(path, place):
            yield f"{path} takes {name} from {place!r}, outside the repository."


def _of_requirement(path: str, line: str) -> Iterator[str]:
    if _VARIABLE.search(line):
        yield f"{path} requires {line!r}, which names a variable of the environment."
        return
    asked = requirement_in(line)
    if asked is None and ("@" in line or "/" in line):
        yield f"{path} requires {line!r}, which can't be read as a requirement."
    url = asked.url if asked else None
    scheme = urlsplit(url or "").scheme
    if "+" in scheme:
        yield f"{path} requires {line!r}, from a checkout, and no checkout is made here."
    elif url and scheme not in {"http", "https"} and _leads_out(path, url):
        yield f"{path} requires {line!r}, outside the repository."


def _indexes(uv: Mapping[str, Any]) -> Iterator[str]:
    yield from texts([uv.get("index-url")])
    yield from texts(uv.get("extra-index-url"))
    yield from texts([index.get("url") for index in tables(uv.get("index"))])


def _leads_out(path: str, target: str) -> bool:
    """``file:`` addresses are whole paths of this machine."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return place.startswith(("/", "..", "~")) or bool(urlsplit(target).scheme)
