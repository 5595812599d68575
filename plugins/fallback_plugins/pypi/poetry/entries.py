"""Entries of a poetry.lock, as the lock's own Poetry writes them: of another version, or new, and who needs
each package, the project itself or others.

Poetry works out from the project down for which groups and under which conditions a package is needed, when
it writes a lock, and installs by it. After an edit it is worked out anew for what is new, and for what is
asked for by others than before; all else stays as written.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.markers import (
    ALWAYS,
    NEVER,
    Condition,
    both,
    either,
    in_dependencies,
    in_extras,
    is_same,
    same,
    without_extras,
    written,
)
from fallback_plugins.pypi.manifests.pyproject import (
    Keys,
    parse_toml,
    poetry_entries,
    requirement_arrays,
    table_of,
    value_at,
)
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_in, requirement_in
from fallback_plugins.pypi.poetry.lock import (
    PoetryLock,
    applying,
    dependencies_of,
    extras_in,
    in_plain_lines,
    marker_of,
)
from fallback_plugins.pypi.resolving.scratch_lock import Metadata, Release
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.tree import grouped

_SECTION = re.compile(r"\[\[package\]\]|\[package\.(?P<name>[a-z]+)\]")
_LINE = re.compile(r'"?([A-Za-z0-9][\w.-]*)"? = ')
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

#: The first format in which an entry says which groups need it.
_WITH_GROUPS = "2.1"
_FILES_KEY = re.compile(r'^"?(?P<name>[A-Za-z0-9][\w.-]*)"? = \[', re.MULTILINE)
_FILES_TABLE = "[metadata.files]\n"
_AND_EXTRA = re.compile(r"""( and )?extra == ["'][^"']+["']( and )?""")

#: Rounds after which what is needed no longer changes, unless conditions go round in a circle.
_MAX_ROUNDS = 50
_GROUPS_LINE = re.compile(r"^groups = .*\n", re.MULTILINE)
_MARKERS_LINE = re.compile(r"^markers = .*\n", re.MULTILINE)
MAIN = "main"
_DEV = "dev"


@dataclass(frozen=True)
class Root:
    """One request. ``always``: it is no option and has no condition. ``in_table``: of Poetry's own."""

    name: str
    group: str
    declaration: Declaration
    always: bool
    in_table: bool = True
    extras: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Need:
    """Why a package is there: its groups with the condition of each, and whether all that is optional.

    A lock before format 2.1 knows ``main`` and ``dev`` at most, and no conditions.
    """

    groups: Mapping[str, Condition]
    optional: bool

    def is_as(self, other: "Need", python: str) -> bool:
        """Does it say what another one says?"""
        return (
            self.optional == other.optional
            and self.groups.keys() == other.groups.keys()
            and all(same(self.groups[it], other.groups[it], python) for it in self.groups)
        )


def with_release(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str] = ()
) -> PoetryLock:
    """The lock with a package's entry for another version, or for more extras. Raises RecipeError."""
    return in_plain_lines(lock, lambda it: _with_release(it, release, metadata, extras))


def with_entry(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str] = ()
) -> PoetryLock:
    """The lock with one more package. Who needs it is left open (``settled``). Raises RecipeError."""
    bare = in_plain_lines(lock, lambda plain: _with_bare_entry(plain, release.name))
    return with_release(bare, release, metadata, extras)


def _with_bare_entry(lock: PoetryLock, name: str) -> PoetryLock:
    """An entry of no release, in the form of the lock's others."""
    category = any("category" in table for table in lock.packages)
    lines = [
        "[[package]]",
        f'name = "{name}"',
        'version = "0"',
        'description = ""',
        *(['category = "main"'] if category else []),
        "optional = false",
        'python-versions = "*"',
        *(['groups = ["main"]'] if lock.format == _WITH_GROUPS else []),
        *([] if _FILES_TABLE in lock.text else ["files = []"]),
    ]
    return lock.with_new_block(name, "".join(f"{line}\n" for line in lines))


def _with_release(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str]
) -> PoetryLock:
    start, end = lock.block(release.name)
    block = lock.text[start:end]
    table = parse_toml(lock.path, block)["package"][0]
    sections = _split(block)
    own, files = sections[""], _files(release)
    moves = str(table["version"]) != release.version
    if moves:
        old_python = str(table.get("python-versions", "*"))
        is_same = _is_same_python(metadata.requires_python, old_python)
        stated = {
            "version": release.version,
            "description": metadata.summary,
            "python-versions": old_python if is_same else metadata.requires_python or "*",
        }
        for key, value in stated.items():
            if key in own and value != table[key]:
                own[key] = f"{key} = {quoted(value)}\n"
        if "files" in own:
            own["files"] = f"files = {files}\n"
    asked = applying(lock, release.name, metadata, extras)
    needed = _dependencies(table.get("dependencies", {}), asked, sections["dependencies"])
    sections |= {"dependencies": needed}
    sections |= {"extras": _extras(lock, table.get("extras", {}), metadata, sections["extras"])}
    parts = (
        (f"[package.{name}]\n" if name else "[[package]]\n") + "".join(lines.values())
        for name, lines in sections.items()
        if lines
    )
    new = "\n".join(parts).rstrip("\n") + block[len(block.rstrip("\r\n")) :]
    text = lock.text[:start] + new + lock.text[end:]
    if moves and "files" not in own:
        text = _in_metadata_files(text, table["name"], files)
    return PoetryLock(lock.path, text)


def _split(block: str) -> dict[str, dict[str, str]]:
    """An entry's lines by section (empty: its own) and key, the sections as Poetry orders them."""
    found: dict[str, dict[str, str]] = {"": {}, "dependencies": {}, "extras": {}}
    section = key = ""
    for line in filter(str.strip, block.splitlines(keepends=True)):
        if (header := _SECTION.match(line)) is not None:
            section = header["name"] or ""
            continue
        if (named := _LINE.match(line)) is not None:
            key = canonicalize_name(named[1])
        lines = found.setdefault(section, {})
        lines[key] = lines.get(key, "") + line
    return found


def _is_same_python(specifier: str, written: str) -> bool:
    """Such a one stays as it is written: the index sorts its clauses otherwise."""
    try:
        return SpecifierSet(specifier) == SpecifierSet("" if written == "*" else written)
    except InvalidSpecifier:
        return False


def _files(release: Release) -> str:
    lines = [
        f"    {{file = {quoted(file.name)}, hash = {quoted(file.hash)}}},\n"
        for file in sorted(release.files, key=lambda file: file.name)
    ]
    return "[\n" + "".join(lines) + "]" if lines else "[]"


def _in_metadata_files(text: str, name: str, files: str) -> str:
    """Formats 1.0 and 1.1 keep all packages' files in one table at the end, in the order of the names.
    ``files``: those of this package; empty: it has none any more."""
    entry = rf'^(?P<key>"?{re.escape(name)}"?) = \[(?:\]|.*?^\])[ \t]*(?:\n|\Z)'
    start = text.index(_FILES_TABLE) + len(_FILES_TABLE)
    found = re.compile(entry, re.MULTILINE | re.DOTALL).search(text, start)
    behind = (key.start() for key in _FILES_KEY.finditer(text, start) if key["name"] > name)
    begin, end = found.span() if found else (next(behind, len(text)),) * 2
    line = f"{found['key'] if found else name} = {files}\n" if files else ""
    return text[:begin] + line + text[end:]


def _dependencies(
    old: Mapping[str, Any], asked: Sequence[Requirement], kept: Mapping[str, str]
) -> dict[str, str]:
    by_name = grouped((str(canonicalize_name(it.name)), it) for it in asked)
    written = {str(canonicalize_name(name)): (name, entry) for name, entry in old.items()}
    lines = {}
    for name in sorted(by_name):
        key, entry = written.get(name, ("", None))
        spelled = by_name[name][0].name
        stays = key == spelled and _says(entry, by_name[name])
        lines[name] = kept[name] if stays else _dependency(spelled, by_name[name])
    return lines


def _says(entry: Any, requirements: Sequence[Requirement]) -> bool:
    """Does an entry say what the requirements say?"""
    entries = entry if isinstance(entry, list) else [entry]
    if len(entries) != len(requirements):
        return False
    for one, requirement in zip(entries, requirements, strict=True):
        table = {"version": one} if isinstance(one, str) else one
        marker = table.get("markers", "")
        if not is_same(str(table.get("version", "*")), requirement.specifier):
            return False
        if set(table.get("extras", ())) != requirement.extras:
            return False
        if marker != marker_of(requirement) and not _is_same_marker(marker, requirement.marker):
            return False
    return True


def _is_same_marker(written: str, marker: Marker | None) -> bool:
    return bool(written) and marker is not None and Marker(written) == marker


def _dependency(key: str, requirements: Sequence[Requirement]) -> str:
    values = [_value(requirement) for requirement in requirements]
    name = _key(key)
    if len(values) == 1:
        return f"{name} = {values[0]}\n"
    tables = [value if value.startswith("{") else f"{{version = {value}}}" for value in values]
    return f"{name} = [\n" + "".join(f"    {table},\n" for table in tables) + "]\n"


def _value(requirement: Requirement) -> str:
    version = quoted(in_dependencies(requirement.specifier))
    marker = marker_of(requirement)
    parts = [f"version = {version}"]
    if requirement.extras:
        parts.append(f"extras = [{', '.join(map(quoted, sorted(requirement.extras)))}]")
    if extras_in(marker):
        parts.append("optional = true")
    if marker:
        parts.append(f"markers = {quoted(marker)}")
    return version if len(parts) == 1 else "{" + ", ".join(parts) + "}"


def _extras(
    lock: PoetryLock, old: Mapping[str, Any], metadata: Metadata, kept: Mapping[str, str]
) -> dict[str, str]:
    names = {canonicalize_name(name): str(canonicalize_name(name)) for name in metadata.extras}
    names |= {canonicalize_name(name): name for name in old if canonicalize_name(name) in names}
    extras: dict[str, list[str]] = {name: [] for name in names.values()}
    for requirement in metadata.requirements:
        for extra in dict.fromkeys(map(canonicalize_name, extras_in(marker_of(requirement)))):
            if extra in names:
                item = _in_extra(requirement, marked=lock.keeps_markers_in_extras)
                extras[names[extra]].append(item)
    lines = {}
    for name, items in _ordered(extras, old):
        if name in old and sorted(map(_plain, old[name])) == sorted(map(_plain, items)):
            lines[name] = kept[canonicalize_name(name)]
        else:
            lines[name] = f"{_key(name)} = [{', '.join(map(quoted, sorted(items)))}]\n"
    return lines


def _ordered(
    extras: Mapping[str, list[str]], old: Mapping[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    """Sorted, as Poetry does since 1.2; in the order found where that is another."""
    filled = {name: items for name, items in extras.items() if items}
    names = sorted(filled)
    if list(old) != sorted(old):
        names = [name for name in old if name in filled] + [
            name for name in names if name not in old
        ]
    return ((name, filled[name]) for name in names)


def _in_extra(requirement: Requirement, *, marked: bool) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    specifier = in_extras(requirement.specifier)
    marker = _AND_EXTRA.sub("", marker_of(requirement)).strip() if marked else ""
    if marker.startswith("(") and marker.endswith(")") and marker.count("(") == 1:
        marker = marker[1:-1]
    return (
        requirement.name
        + extras
        + (f" ({specifier})" if specifier else "")
        + (f" ; {marker}" if marker else "")
    )


def _plain(item: str) -> str:
    """An extra's item without what only the writing differs in."""
    name, _, rest = item.partition(" ")
    return f"{canonicalize_name(name.partition('[')[0])}{name.partition('[')[2]} {rest}"


def quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_UNNEEDED = Need({}, optional=True)


def settled(before: PoetryLock, after: PoetryLock, asked: Sequence[Root] | None) -> PoetryLock:
    """An edited lock with each package's need as Poetry would write it, and without what nobody needs any
    more. ``asked``: what the project asks for; None: unknown, so that nothing is taken away.

    Raises RecipeError.
    """
    if asked is not None:
        for name in _left_over(before, after, asked):
            after = _without(after, name)
    old, new = _asks(before), _asks(after)
    changed = {name for name in new if new[name] != old.get(name) and len(after.of(name)) == 1}
    needs = {name: _read(after.of(name)[0]) for name in _names(after)}
    found = _worked_out(before, after, changed, needs, asked)
    for name, need in found.items():
        held = _read(before.of(name)[0]) if before.of(name) else None
        if not need.groups and held is None:
            raise unsupported(f"{after.path} would hold {name} for no Python of the project.")
        if need.groups and (held is None or not need.is_as(held, after.python)):
            after = _with_need(after, name, need)
    return after


def _worked_out(
    before: PoetryLock,
    after: PoetryLock,
    changed: set[str],
    needs: Mapping[str, Need],
    asked: Sequence[Root] | None,
) -> dict[str, Need]:
    """The new need of what is asked for otherwise, and of what that asks for."""
    needs = {name: _UNNEEDED if not before.of(name) else need for name, need in needs.items()}
    found: dict[str, Need] = {}
    waiting = list(changed)
    for _ in range(_MAX_ROUNDS * max(len(changed), 1)):
        if not waiting:
            break
        name = waiting.pop(0)
        held = _read(before.of(name)[0]) if before.of(name) else None
        need = _need_of(after, name, needs, held, asked)
        known = found.get(name, held or _UNNEEDED)
        found[name] = need
        if not need.is_as(known, after.python):
            needs[name] = need
            below = {it.name for it in dependencies_of(after.of(name)[0])}
            waiting += [it for it in sorted(below) if len(after.of(it)) == 1 and it not in waiting]
    return found


def _need_of(
    lock: PoetryLock,
    name: str,
    needs: Mapping[str, Need],
    held: Need | None,
    asked: Sequence[Root] | None,
) -> Need:
    groups: dict[str, Condition] = {}
    optional = True
    for table, dependency in lock.dependents(name):
        parent = canonicalize_name(table["name"])
        # Of a package in several versions each has a need of its own, which stays as it is written.
        asking = needs[parent] if len(lock.of(parent)) == 1 else _read(table)
        optional = optional and asking.optional
        for group, condition in asking.groups.items():
            more = both(condition, without_extras(dependency.marker), lock.python)
            groups[group] = either([*groups.get(group, NEVER), *more], lock.python)
    for root in _own(name, held, asked):
        # What a condition of the project's own says in a lock is kept as it stands there.
        kept = held.groups.get(root.group, NEVER) if held else NEVER
        condition = ALWAYS if root.always else kept
        groups[root.group] = either([*groups.get(root.group, NEVER), *condition], lock.python)
        optional = optional and (held.optional if held else not root.always)
    return Need({group: it for group, it in groups.items() if it}, optional)


def _own(name: str, held: Need | None, asked: Sequence[Root] | None) -> Iterator[Root]:
    """The project's requests of a package. Where they are unknown, all that the lock says may be one."""
    if asked is not None:
        yield from (root for root in asked if root.name == name)
    elif held is not None:
        yield from (Root(name, group, Declaration(()), always=False) for group in held.groups)


def _asks(lock: PoetryLock) -> dict[str, frozenset[tuple[str, str]]]:
    """By package, who asks for it and when."""
    found: dict[str, set[tuple[str, str]]] = {name: set() for name in _names(lock)}
    for table in lock.packages:
        for dependency in dependencies_of(table):
            if dependency.name in found:
                marker = _plain_marker(without_extras(dependency.marker))
                found[dependency.name].add((canonicalize_name(table["name"]), marker))
    return {name: frozenset(asks) for name, asks in found.items()}


def _plain_marker(marker: str) -> str:
    try:
        return str(Marker(marker)) if marker else ""
    except InvalidMarker:
        return marker


def _left_over(before: PoetryLock, after: PoetryLock, asked: Sequence[Root]) -> list[str]:
    """What was needed before the edit, and is not any more."""
    was, now = _reached(before, asked), _reached(after, asked)
    return [name for name in _names(after) if name in was and name not in now]


def _reached(lock: PoetryLock, asked: Sequence[Root]) -> set[str]:
    found: set[str] = set()
    waiting = [root.name for root in asked]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [it.name for table in lock.of(name) for it in dependencies_of(table)]
    return found


def _names(lock: PoetryLock) -> Collection[str]:
    return dict.fromkeys(canonicalize_name(table["name"]) for table in lock.packages)


def _read(table: Mapping[str, Any]) -> Need:
    markers = table.get("markers", "")
    groups = table.get("groups", [table.get("category", MAIN)])
    return Need(
        {
            canonicalize_name(group): (
                markers.get(group, "") if isinstance(markers, dict) else markers,
            )
            for group in groups
        },
        bool(table.get("optional", False)),
    )


def _with_need(lock: PoetryLock, name: str, need: Need) -> PoetryLock:
    start, end = lock.block(name)
    block = lock.text[start:end]
    category = "main" if MAIN in need.groups else "dev"
    block = re.sub(r'^category = ".*"$', f'category = "{category}"', block, flags=re.MULTILINE)
    value = str(need.optional).lower()
    block = re.sub(r"^optional = \w+$", f"optional = {value}", block, flags=re.MULTILINE)
    if "groups" in lock.of(name)[0]:
        block = _MARKERS_LINE.sub("", block, count=1)
        block = _GROUPS_LINE.sub(lambda _: _groups(need), block, count=1)
    return lock.with_block(name, block)


def _groups(need: Need) -> str:
    """``groups`` and ``markers`` of format 2.1, ``main`` first."""
    names = sorted(need.groups, key=lambda group: (group != MAIN, group))
    lines = f"groups = [{', '.join(map(quoted, names))}]\n"
    texts = {group: written(need.groups[group]) for group in names}
    if len(set(texts.values())) == 1:
        marker = texts[names[0]]
        return lines + (f"markers = {quoted(marker)}\n" if marker else "")
    parts = [f"{_key(group)} = {quoted(text)}" for group, text in texts.items() if text]
    return f"{lines}markers = {{{', '.join(parts)}}}\n"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else quoted(name)


def _without(lock: PoetryLock, name: str) -> PoetryLock:
    """Without a package's entry, and its files where those stand apart."""
    while lock.of(name):
        table = lock.of(name)[0]
        lock = lock.with_block(name, "")
        if "files" not in table:
            lock = PoetryLock(lock.path, _in_metadata_files(lock.text, table["name"], ""))
    return lock


def roots(path: str, text: str) -> tuple[Root, ...]:
    """What a pyproject.toml asks of Poetry. Raises RecipeError for text that is no TOML."""
    document = parse_toml(path, text)
    return (*_from_tables(document), *_from_arrays(document))


def _from_tables(document: Mapping[str, Any]) -> Iterator[Root]:
    for entry in poetry_entries(document):
        keys = entry.keys
        table = value_at(document, keys[:-1] if keys[-1] == "version" else keys)
        optional = isinstance(table, dict) and table.get("optional") is True
        yield Root(
            canonicalize_name(entry.name),
            _group_of(keys),
            entry.declaration,
            not optional and not entry.declaration.marker,
            extras=frozenset(map(canonicalize_name, entry.extras)),
        )


def _group_of(keys: Keys) -> str:
    if keys[2] == "group":
        return canonicalize_name(str(keys[3]))
    return _DEV if keys[2] == "dev-dependencies" else MAIN


def _from_arrays(document: Mapping[str, Any]) -> Iterator[Root]:
    own = canonicalize_name(str(table_of(document, "project").get("name", "")))
    for keys, line in requirement_arrays(document):
        if keys[0] == "tool":
            continue
        requirement = requirement_in(line)
        if requirement is None or canonicalize_name(requirement.name) == own:
            continue
        in_group = keys[0] == "dependency-groups"
        yield Root(
            canonicalize_name(requirement.name),
            canonicalize_name(str(keys[1])) if in_group else MAIN,
            declaration_in(line, requirement.name) or Declaration(()),
            requirement.marker is None and keys[1] != "optional-dependencies",
            in_table=False,
            extras=frozenset(map(canonicalize_name, requirement.extras)),
        )
