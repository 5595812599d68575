"""Problems of a changed manifest or lock: one sentence for each change that no fix may make.

The path was judged before. A manifest may change at the keys that its ecosystem names; no package may come
from a source that the base commit does not have; and an entry that has a hash keeps one. Files are read as
their client reads them, so an address written with escapes is that address. A plain address of a registry
counts by its scheme and host, so that another release of a package is not another source; all others (a
checkout, a path, an archive, another spelling of an address) count as they are written.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import PurePosixPath
from typing import Any

from fallback_tier.ecosystem_rules import EcosystemRules
from fallback_tier.files.inputs import parse_toml
from fallback_tier.lazy_patterns import lazy_pattern

#: The keys that lead to a value.
Place = tuple[str, ...]

_NOTHING = object()


def manifest_problems(
    path: str,
    keys: tuple[str, ...],
    before: str,
    after: str,
    rules: EcosystemRules | None = None,
    dates: Iterable[str] = (),
) -> Iterator[str]:
    """Yield problems of a changed manifest or lock.

    ``keys``: what may change in a manifest (``lies_in``), empty for a lock; ``dates``: keys that may change
    and hold a date; ``rules``: the ecosystem's. Never raises: a file that can't be parsed may not be
    changed.
    """
    try:
        old, new = (_read_document(path, text, rules) for text in (before, after))
    except UnreadableError as error:
        yield f"{path!r} can't be parsed: {error}."
        return
    if new is None:
        yield from _of_lines(path, before, after)
        return
    allowed = frozenset(tuple(key.split(".")) for key in keys)
    if not _is_lock(path):
        may_change = allowed.union(tuple(key.split(".")) for key in dates)
        for key_path in _changed_keys(old, new, may_change):
            if not any(lies_in(key_path, prefix) for prefix in may_change):
                yield f"{path!r}: {'.'.join(key_path) or 'the document'} may not be changed."
    yield from _new_sources(path, _sources_of(old, allowed), _sources_of(new, allowed))
    if _is_lock(path):
        yield from _lost_hashes(path, _unhashed(path, old), _unhashed(path, new))


def _of_lines(path: str, before: str, after: str) -> Iterator[str]:
    old, new = _sources_of_lines(before), _sources_of_lines(after)
    if any(line.startswith("-") for line in old ^ new):
        yield f"{path!r}: options of the client (lines that begin with `-`) may not be changed."
    yield from _new_sources(
        path, old, frozenset(source for source in new if not source.startswith("-"))
    )
    yield from _lost_hashes(path, _unhashed_lines(before), _unhashed_lines(after))


def _new_sources(path: str, before: frozenset[str], after: frozenset[str]) -> Iterator[str]:
    """Yield a problem per new source. The same host by https is not new: clients write it so if an old lock
    had http."""
    upgraded = {source.replace("http://", "https://", 1) for source in before}
    for source in sorted(after - before - upgraded):
        yield f"{path!r} may not fetch from {source!r}, which the base commit does not."


def _lost_hashes(
    path: str, before: tuple[frozenset[str], bool], after: tuple[frozenset[str], bool]
) -> Iterator[str]:
    """Yield a problem per entry that lost its hash. If no entry had a hash before, none needs one: the lock
    was made so."""
    if before[1]:
        for name in sorted(after[0] - before[0]):
            yield f"{path!r}: {name!r} has no hash to be known by, where others have."


def _changed_keys(
    before: Any, after: Any, allowed: Collection[Place], key_path: Place = ()
) -> Iterator[Place]:
    """Yield the keys at which the two differ. An added or removed object that may hold an allowed key is
    searched, so that only its other keys are yielded."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            inner = (*key_path, key)
            is_above = any(path[:-1][: len(inner)] == inner for path in allowed)
            filled = before.get(key) or after.get(key)
            absent = {} if is_above and filled else _NOTHING
            old, new = before.get(key, absent), after.get(key, absent)
            yield from _changed_keys(old, new, allowed, inner)
    elif repr(before) != repr(after):  # not `==`, which treats 1, 1.0 and true as equal
        yield key_path


#: Yarn 2 and later write YAML to a file of the same name; each of their locks has this key.
_BERRY = lazy_pattern(r"^__metadata:\s*$", re.MULTILINE)

#: One line of a yarn classic lock: two or four spaces, a name, a value; or a name and a colon.
_YARN_PAIR = lazy_pattern(r'(?P<name>"(?:[^"\\]|\\.)*"|[^\s":]+) (?P<value>".*"|[^\s"]+)')

#: The largest depth of an entry in a yarn classic lock, in spaces.
_YARN_INDENTS = (2, 4)


#: The depth to which nested tables are read. A lock of npm's first format nests two per package; real ones
#: have up to about fifty. Parsers accept more (Python 3.13 some thousands), but the functions here recurse.
MAX_DEPTH = 100


class UnreadableError(ValueError):
    """A manifest that can't be parsed. The message is a clause."""


#: Exceptions of the parsers; INI's raises AttributeError for a value below a key that has none.
_UNREADABLE = (ValueError, RecursionError, IniError, AttributeError)


def _read_document(path: str, text: str, rules: EcosystemRules | None = None) -> Any:
    """Return the data of a manifest, or None for lines of requirements. ``rules`` reads formats that only
    its ecosystem has. Raises UnreadableError."""
    try:
        document = None if rules is None else rules.document(path, text)
    except ValueError as error:
        raise UnreadableError(" ".join(str(error).split())) from error
    if document is not None:
        return document
    name = PurePosixPath(path).name
    if name.endswith((".txt", ".in")):
        return None
    load = _LOADERS.get(name) or _by_ending(name)
    if load is None:
        raise UnreadableError("nothing here reads such a file")
    try:
        data = load(text.removeprefix("\ufeff"))
    except _UNREADABLE as error:
        raise UnreadableError(" ".join(str(error).split())) from error
    if _nests_deeper_than(MAX_DEPTH, data):
        raise UnreadableError(f"it nests deeper than {MAX_DEPTH} levels")
    return data


def _nests_deeper_than(max_depth: int, data: Any) -> bool:
    """Return whether data nests deeper than ``max_depth`` levels. Iterative: no depth is too much."""
    level = [data]
    for _ in range(max_depth + 1):
        tables = [
            value.values() if isinstance(value, dict) else value
            for value in level
            if isinstance(value, dict | list)
        ]
        level = [inner for table in tables for inner in table]
    return bool(level)


def _by_ending(name: str) -> Callable[[str], Any] | None:
    loaders: dict[str, Callable[[str], Any]] = {".json": json.loads, ".toml": parse_toml}
    return next((load for ending, load in loaders.items() if name.endswith(ending)), None)


def _ini(text: str) -> Any:
    """Return sections as tables, ``[a.b]`` as a table in ``a``."""
    parser = ConfigParser(interpolation=None, allow_no_value=True)
    parser.read_string(text)
    document: dict[str, Any] = {}
    for section, pairs in parser.items():
        table = document
        for part in section.split("."):
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UnreadableError(f"{part!r} is a key and a section")
        if clash := table.keys() & pairs.keys():
            raise UnreadableError(f"{min(clash)!r} is a key and a section")
        table |= dict(pairs)
    return document


def _yaml(text: str) -> Any:
    """Return the document with scalars as text. Aliases are refused: one line could mean gigabytes."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise UnreadableError("it has YAML aliases")
        return yaml.load(text, Loader=loader)  # noqa: S506 (makes only text, lists and dicts)
    except yaml.YAMLError as error:
        raise UnreadableError(str(error)) from error


def _yarn(text: str) -> Any:
    if _BERRY.search(text):
        return _yaml(text)
    document: dict[str, Any] = {}
    entry = inner = document
    for line in text.splitlines():
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0 and content.endswith(":"):
            entry = inner = document.setdefault(
                ", ".join(_unquoted(key.strip()) for key in content[:-1].split(",")), {}
            )
        elif indent == _YARN_INDENTS[0] and content.endswith(":") and entry is not document:
            inner = entry.setdefault(content[:-1], {})
        elif (
            indent in _YARN_INDENTS
            and entry is not document
            and (pair := _YARN_PAIR.fullmatch(content))
        ):
            table = entry if indent == _YARN_INDENTS[0] else inner
            table[_unquoted(pair["name"])] = _unquoted(pair["value"])
        else:
            raise UnreadableError(f"{content[:80]!r} is no line of a yarn lock")
    return document


def _unquoted(word: str) -> str:
    return str(json.loads(word)) if word.startswith('"') else word


_LOADERS: dict[str, Callable[[str], Any]] = {
    "Pipfile": parse_toml,
    "Pipfile.lock": json.loads,
    "uv.lock": parse_toml,
    "poetry.lock": parse_toml,
    "pdm.lock": parse_toml,
    "setup.cfg": _ini,
    "pnpm-lock.yaml": _yaml,
    "pnpm-workspace.yaml": _yaml,
    "yarn.lock": _yarn,
}


# Which artifacts of a lock or requirements file are named without a hash.

#: A digest as npm, pip, uv, Poetry, pdm and yarn classic write it. They skip digests of unknown kinds.
_DIGEST = lazy_pattern(r"sha(?:1|224|256|384|512)[-:=]\S{16,}")

#: In a key of a lock: what follows a package's name (``left@^1``, ``/@scope/left/1.0.0``).
_BEHIND_NAME = lazy_pattern(r"(?<=[^/])@.*|/\d.*")

#: The key of Pipfile.lock that holds no packages.
_META = "_meta"


def _unhashed(path: str, document: Any) -> tuple[frozenset[str], bool]:
    """Return the names of entries without a hash, and whether any entry has one. By name, so that another
    release of a package needs no hash either."""
    name = PurePosixPath(path).name
    entries = list(_entries(name, document))
    return frozenset(name for name, has_hash in entries if not has_hash), any(
        has_hash for _, has_hash in entries
    )


def _unhashed_lines(text: str) -> tuple[frozenset[str], bool]:
    entries = [
        (re.split(r"[\s;=<>~!]", line)[0], "--hash=" in line)
        for line in _logical_lines(text)
        if not line.startswith("-")
    ]
    return frozenset(name for name, has_hash in entries if not has_hash), any(
        has_hash for _, has_hash in entries
    )


def _entries(name: str, document: Any) -> Iterator[tuple[str, bool]]:
    if not isinstance(document, dict):
        return
    if name == "Pipfile.lock":
        for category, table in document.items():
            if category != _META and isinstance(table, dict):
                for package, entry in table.items():
                    if isinstance(entry, dict) and isinstance(entry.get("version"), str):
                        hashes = entry.get("hashes")
                        has_hash = (
                            isinstance(hashes, list)
                            and bool(hashes)
                            and all(map(_is_digest, hashes))
                        )
                        yield package, has_hash
    elif name == "pnpm-lock.yaml":
        for key, entry in _tables(document.get("packages")):
            resolution = entry.get("resolution")
            if isinstance(resolution, dict) and not {"type", "directory"} & resolution.keys():
                yield _BEHIND_NAME.sub("", key), _is_digest(resolution.get("integrity"))
    elif name == "yarn.lock":
        yield from _of_yarn(document)
    elif name.endswith(".json"):
        yield from _of_npm(document.get("packages"), document.get("dependencies"))
    else:
        yield from _of_toml(document, "")


def _of_npm(packages: Any, dependencies: Any) -> Iterator[tuple[str, bool]]:
    """Yield the entries of lock versions 2 and 3 (by folder), and of 1 (by name, nested)."""
    for key, entry in _tables(packages):
        if "node_modules/" in key and not (entry.get("link") or entry.get("inBundle")):
            yield _named(key.rpartition("node_modules/")[2], entry)
    for key, entry in _tables(dependencies):
        if not entry.get("bundled") and not str(entry.get("version", "")).startswith("file:"):
            yield _named(key, entry)
        yield from _of_npm(None, entry.get("dependencies"))


def _named(name: str, entry: dict[str, Any]) -> tuple[str, bool]:
    return name, _is_digest(entry.get("integrity"))


def _of_yarn(document: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    for key, entry in _tables(document):
        name = _BEHIND_NAME.sub("", key.partition(", ")[0])
        if "resolved" in entry:  # classic
            yield name, _is_digest(entry.get("integrity"))
        elif "@npm:" in str(entry.get("resolution")) and "conditions" not in entry:
            yield name, bool(entry.get("checksum"))
        elif key != "__metadata" and "resolution" not in entry and "version" in entry:
            yield name, False


def _of_toml(data: Any, owner: str) -> Iterator[tuple[str, bool]]:
    """Yield (name, has a hash). A table with a file or an address needs a hash; an empty list of files
    counts as none."""
    if isinstance(data, list):
        for value in data:
            yield from _of_toml(value, owner)
    if not isinstance(data, dict):
        return
    if isinstance(data.get("name"), str):
        owner = data["name"]
    if data.get("files") == []:
        yield owner, False
    if isinstance(address := data.get("url", data.get("file")), str) and "type" not in data:
        hashes = data.get("hashes")
        has_hash = any(map(_is_digest, [data.get("hash"), data.get("checksum")])) or (
            isinstance(hashes, dict) and any(name.startswith("sha") for name in hashes)
        )
        yield owner or address, has_hash
    for key, value in data.items():
        if key != "dependencies":  # by names, one of which may be ``url``
            yield from _of_toml(value, owner)


def _tables(data: Any) -> list[tuple[str, dict[str, Any]]]:
    items = data.items() if isinstance(data, dict) else ()
    return [(key, value) for key, value in items if isinstance(value, dict)]


def _is_digest(value: Any) -> bool:
    """Return whether every word of the value is a digest of a known kind."""
    words = value.split() if isinstance(value, str) else []
    return bool(words) and all(_DIGEST.match(word) for word in words)


#: An address in which no two parsers could see different hosts.
_PLAIN = lazy_pattern(r"(?P<host>https?://[a-z0-9.\-]+(?::\d+)?)/[^\s\\]*", re.IGNORECASE)

#: A text that begins with a scheme or a host's short name, or that has one after a package's or user's
#: name.
_FETCHED = lazy_pattern(
    r"^\s*(?:git|hg|svn|bzr)?\+?(?:https?|git|ssh|ftp|file|link|portal|patch|exec|github|gitlab|bitbucket"
    r"|gist|hg|svn|bzr|workspace|jsr):|@(?!npm:)[\w.+\-]+:|://|\\",
    re.IGNORECASE,
)

#: yarn includes patches of two or three packages itself.
_BUILT_IN_PATCH = lazy_pattern(r"[\w@/.\-]+@patch:.*(?:!|~)builtin<[\w/]+>(?:::[\w=&%.\-]*)?")

#: Keys whose value is a source, in one of the formats.
_SOURCE_KEYS = frozenset(
    {"resolved", "tarball", "registry", "url", "git", "hg", "svn", "bzr", "path", "directory", "editable",
     "virtual", "repo", "vcs", "link", "ref", "rev", "revision", "commit", "branch", "tag", "reference",
     "resolved_reference", "subdirectory", "verify_ssl"}
)  # fmt: skip

#: Tables that hold sources.
_SOURCE_TABLES = frozenset({"source", "sources"})

#: Texts for people, and what no client fetches by: addresses in them change with every release.
_FOR_PEOPLE = frozenset(
    {"funding", "deprecated", "license", "licenses", "description", "homepage", "author", "bugs",
     "repository", "engines", "bin"}
)  # fmt: skip

#: Tables whose keys are package names: a package may be called ``url`` or ``source``.
_BY_NAME = frozenset(
    {"dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "requires", "default",
     "develop", "overrides", "resolutions", "packages", "snapshots", "specifiers"}
)  # fmt: skip

#: Tables in which names are nested in names.
_NESTED = frozenset({"overrides", "resolutions"})

#: Keys of a dependency's table that say which release, and when.
_NO_SOURCE = frozenset(
    {"version", "extras", "markers", "python", "platform", "optional", "allow-prereleases", "sys_platform",
     "os_name", "platform_machine", "platform_system", "python_version", "python_full_version", "hashes"}
)  # fmt: skip

_ALIAS = lazy_pattern(r"(?P<name>npm:@?[\w.\-/]+)@[^/:]*")

#: A version, a range or a requirement contains none of these.
_NO_VERSION = lazy_pattern(r"[:/\\@]")

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".egg")


def lies_in(place: Place, prefix: Place) -> bool:
    """Return whether a key path is at or below a prefix, in which ``*`` is any key and ``!a!b`` any key but
    ``a`` and ``b``."""
    return len(place) >= len(prefix) and all(
        part in (key, "*") or (part.startswith("!") and key not in part.split("!"))
        for part, key in zip(prefix, place, strict=False)
    )


def _sources_of(document: Any, dependencies: frozenset[Place]) -> frozenset[str]:
    """Return every source that a manifest names. ``dependencies``: where it requires packages; any value
    there that is not a plain version is a source, because clients take ``owner/name`` for an address."""
    return frozenset(_walk(document, (), dependencies))


def _sources_of_lines(text: str) -> frozenset[str]:
    """Return the sources of a requirements file, and the options of the client, as logical lines."""
    return frozenset(
        source for line in _logical_lines(text) if (source := _of_line(line)) is not None
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines as pip reads them: joined at a backslash, without comments."""
    joined = ""
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            joined += line[:-1]
            continue
        joined += "" if is_comment else line
        if content := re.sub(r"(^|\s+)#.*$", "", joined).strip():
            yield content
        joined = ""
    if content := joined.strip():
        yield content


def _of_line(line: str) -> str | None:
    if line.startswith("-"):
        return line
    requirement, *rest = re.split(r"\s+(?=-)", line)
    options = [option for option in rest if not option.startswith("--hash")]
    name = requirement.partition(";")[0].strip()
    is_path = name.startswith(".") or "/" in name or "\\" in name or name.endswith(_ARCHIVES)
    return line if options or is_path or "@" in name else None


def _walk(data: Any, key_path: Place, dependencies: frozenset[Place]) -> Iterator[str]:
    prefixes = [prefix for prefix in dependencies if lies_in(key_path, prefix)]
    is_requirement = bool(prefixes)
    if isinstance(data, dict):
        by_name = len(key_path) in map(len, prefixes) or bool(
            {*key_path[-1:]} & _BY_NAME or {*key_path} & _NESTED
        )
        for key, value in data.items():
            if _FETCHED.search(key):
                yield _as_source(key)
            if not by_name and (source := _of_pair(key, value, asked=is_requirement)) is not None:
                yield source
            elif by_name or key not in _FOR_PEOPLE:
                yield from _walk(value, (*key_path, key), dependencies)
    elif isinstance(data, list):
        for value in data:
            # Such a table has keys, not package names: uv.lock's dependency names its source as a package
            # does.
            inner = (*key_path, "") if isinstance(value, dict) else key_path
            yield from _walk(value, inner, dependencies)
    elif isinstance(data, str):
        for text in data.splitlines():
            if is_requirement and _NO_VERSION.search(text.partition(";")[0]):
                alias = _ALIAS.fullmatch(text)
                yield alias["name"] if alias else _as_source(text)
            elif _FETCHED.search(text):
                yield _as_source(text)


def _of_pair(key: str, value: Any, *, asked: bool) -> str | None:
    """Return the source that a key names, or None if it names none."""
    if isinstance(value, dict | list):
        is_table = key in _SOURCE_TABLES
        return f"{key} {json.dumps(value, sort_keys=True, default=str)}" if is_table else None
    if key in _SOURCE_KEYS:
        is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) is not None
        return _as_source(value) if is_plain else f"{key} {value}"
    return f"{key} {value}" if asked and key not in _NO_SOURCE else None


def _as_source(value: Any) -> str:
    if (match := _PLAIN.fullmatch(str(value))) is not None:
        return match["host"].lower()
    return "a patch of yarn's own" if _BUILT_IN_PATCH.fullmatch(str(value)) else str(value)


def _is_lock(path: str) -> bool:
    """Return whether the file is a lock by its name: it says what is fetched, and with which hash."""
    name = PurePosixPath(path).name
    return name.endswith((".lock", "-lock.json", "-lock.yaml", "-shrinkwrap.json")) or (
        name.startswith("pylock") and name.endswith(".toml")
    )
