"""Where a manifest or lock file would have things fetched from, as comparable facts.

A plain address of a registry counts by its scheme and host, so that another release of a package is no
other source. Everything else (a checkout, a path, an archive given by hand, another spelling of an
address) counts as it stands.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

Place = tuple[str, ...]

#: An address with nothing in it that two readers could take for two hosts.
_PLAIN = re.compile(r"(?P<host>https?://[a-z0-9.\-]+(?::\d+)?)/[^\s\\]*", re.IGNORECASE)

#: A text that begins with a scheme or a host's short name, or goes on with one behind a package's name or
#: a user's.
_FETCHED = re.compile(
    r"^\s*(?:git|hg|svn|bzr)?\+?(?:https?|git|ssh|ftp|file|link|portal|patch|exec|github|gitlab|bitbucket"
    r"|gist|hg|svn|bzr|workspace|jsr):|@(?!npm:)[\w.+\-]+:|://|\\",
    re.IGNORECASE,
)

#: yarn's own patches of two or three packages come with yarn itself.
_BUILT_IN_PATCH = re.compile(r"[\w@/.\-]+@patch:.*(?:!|~)builtin<[\w/]+>(?:::[\w=&%.\-]*)?")

#: Keys whose value says where something comes from, in one format or another.
_SOURCE_KEYS = frozenset(
    {"resolved", "tarball", "registry", "url", "git", "hg", "svn", "bzr", "path", "directory", "editable",
     "virtual", "repo", "vcs", "link", "ref", "rev", "revision", "commit", "branch", "tag", "reference",
     "resolved_reference", "subdirectory", "verify_ssl"}
)  # fmt: skip

#: Whole tables that do.
_SOURCE_TABLES = frozenset({"source", "sources"})

#: Words for people, and what no client fetches by: addresses in them change with every release.
_FOR_PEOPLE = frozenset(
    {"funding", "deprecated", "license", "licenses", "description", "homepage", "author", "bugs",
     "repository", "engines", "bin"}
)  # fmt: skip

#: Tables from packages' names to what is asked of them: a package may be called ``url`` or ``source``.
_BY_NAME = frozenset(
    {"dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "requires", "default",
     "develop", "overrides", "resolutions", "packages", "snapshots", "specifiers"}
)  # fmt: skip

#: In these, names stand in names.
_NESTED = frozenset({"overrides", "resolutions"})

#: In such an entry that is a table: keys that say which release, and when.
_NO_SOURCE = frozenset(
    {"version", "extras", "markers", "python", "platform", "optional", "allow-prereleases", "sys_platform",
     "os_name", "platform_machine", "platform_system", "python_version", "python_full_version", "hashes"}
)  # fmt: skip

_ALIAS = re.compile(r"(?P<name>npm:@?[\w.\-/]+)@[^/:]*")

#: In a version, a range or a requirement none of these stands.
_NO_VERSION = re.compile(r"[:/\\@]")

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".egg")


def lies_in(place: Place, prefix: Place) -> bool:
    """Return whether a place is at or below a prefix, in which ``*`` is any key and ``!a!b`` any key but
    ``a`` and ``b``."""
    return len(place) >= len(prefix) and all(
        own in (key, "*") or (own.startswith("!") and key not in own.split("!"))
        for own, key in zip(prefix, place, strict=False)
    )


def sources_of(document: Any, dependencies: frozenset[Place]) -> frozenset[str]:
    """Every source that a manifest's data name. ``dependencies``: where it asks for packages.

    There any value that is no plain version counts, since a client takes ``owner/name`` for an address.
    """
    return frozenset(_walk(document, (), dependencies))


def sources_of_lines(text: str) -> frozenset[str]:
    """Every source of a requirements file, and every option of the client, by its logical line."""
    return frozenset(found for line in logical_lines(text) if (found := _of_line(line)) is not None)


def logical_lines(text: str) -> Iterator[str]:
    """As pip reads them: joined where a backslash ends one, without comments."""
    joined = ""
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            joined += line[:-1]
            continue
        joined += "" if is_comment else line
        if message := re.sub(r"(^|\s+)#.*$", "", joined).strip():
            yield message
        joined = ""
    if message := joined.strip():
        yield message


def _of_line(line: str) -> str | None:
    if line.startswith("-"):
        return line
    requirement, *rest = re.split(r"\s+(?=-)", line)
    options = [option for option in rest if not option.startswith("--hash")]
    name = requirement.partition(";")[0].strip()
    is_place = name.startswith(".") or "/" in name or "\\" in name or name.endswith(_ARCHIVES)
    return line if options or is_place or "@" in name else None


def _walk(data: Any, place: Place, dependencies: frozenset[Place]) -> Iterator[str]:
    within = [prefix for prefix in dependencies if lies_in(place, prefix)]
    asked = bool(within)
    if isinstance(data, dict):
        by_name = len(place) in map(len, within) or bool(
            {*place[-1:]} & _BY_NAME or {*place} & _NESTED
        )
        for key, value in data.items():
            if _FETCHED.search(key):
                yield _as_source(key)
            if not by_name and (found := _of_pair(key, value, asked=asked)) is not None:
                yield found
            elif by_name or key not in _FOR_PEOPLE:
                yield from _walk(value, (*place, key), dependencies)
    elif isinstance(data, list):
        for value in data:
            # Such a table has names of its own: uv.lock's dependency says its source as a package does.
            inside = (*place, "") if isinstance(value, dict) else place
            yield from _walk(value, inside, dependencies)
    elif isinstance(data, str):
        for text in data.splitlines():
            if asked and _NO_VERSION.search(text.partition(";")[0]):
                alias = _ALIAS.fullmatch(text)
                yield alias["name"] if alias else _as_source(text)
            elif _FETCHED.search(text):
                yield _as_source(text)


def _of_pair(key: str, value: Any, *, asked: bool) -> str | None:
    """What a key says by its own name; None where it says no source."""
    if isinstance(value, dict | list):
        is_table = key in _SOURCE_TABLES
        return f"{key} {json.dumps(value, sort_keys=True, default=str)}" if is_table else None
    if key in _SOURCE_KEYS:
        is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) is not None
        return _as_source(value) if is_plain else f"{key} {value}"
    return f"{key} {value}" if asked and key not in _NO_SOURCE else None


def _as_source(value: Any) -> str:
    if (plain := _PLAIN.fullmatch(str(value))) is not None:
        return plain["host"].lower()
    return "a patch of yarn's own" if _BUILT_IN_PATCH.fullmatch(str(value)) else str(value)


def is_lock(path: str) -> bool:
    """Is it a lock file, by its name: does it say what is fetched, and with which hash?"""
    name = PurePosixPath(path).name
    return name.endswith((".lock", "-lock.json", "-lock.yaml", "-shrinkwrap.json")) or (
        name.startswith("pylock") and name.endswith(".toml")
    )
