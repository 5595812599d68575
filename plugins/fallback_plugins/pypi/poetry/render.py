"""One package's entry of a poetry.lock, for another version or new, as the lock's own Poetry writes it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.poetry_constraints import in_dependencies, in_extras, is_same
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.poetry.lock import (
    PoetryLock,
    applying,
    extras_in,
    in_plain_lines,
    marker_of,
)
from fallback_plugins.pypi.resolving.scratch_lock import Release
from fallback_plugins.pypi.resolving.wheel_metadata import Metadata
from fallback_plugins.shared.tree import grouped

_FILES = re.compile(r"^files = \[.*?^\][ \t]*$|^files = \[\][ \t]*$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^\[package\.(?P<name>[a-z]+)\][ \t]*\r?\n", re.MULTILINE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
#: The first format in which an entry says which groups need it.
_WITH_GROUPS = "2.1"

_FILES_KEY = re.compile(r'^"?(?P<name>[A-Za-z0-9][\w.-]*)"? = \[', re.MULTILINE)
_FILES_TABLE = "[metadata.files]\n"
_AND_EXTRA = re.compile(r"""( and )?extra == ["'][^"']+["']( and )?""")


def with_release(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str] = ()
) -> PoetryLock:
    """The lock with a package's entry for another version, or for more extras. Raises RecipeError."""
    return in_plain_lines(lock, lambda it: _with_release(it, release, metadata, extras))


def with_entry(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str] = ()
) -> PoetryLock:
    """The lock with one more package. Who needs it is left open (``needs``). Raises RecipeError."""
    bare = in_plain_lines(lock, lambda plain: _with_bare_entry(plain, release.name))
    return with_release(bare, release, metadata, extras)


def _with_bare_entry(lock: PoetryLock, name: str) -> PoetryLock:
    """An entry of no release, in the form of the lock's others."""
    category = any("category" in table for table in lock.packages)
    apart = _FILES_TABLE in lock.text
    lines = [
        "[[package]]",
        f'name = "{name}"',
        'version = "0"',
        'description = ""',
        *(['category = "main"'] if category else []),
        "optional = false",
        'python-versions = "*"',
        *(['groups = ["main"]'] if lock.format == _WITH_GROUPS else []),
        *([] if apart else ["files = []"]),
    ]
    lock = lock.with_new_block(name, "".join(f"{line}\n" for line in lines))
    return _with_bare_files(lock, name) if apart else lock


def _with_bare_files(lock: PoetryLock, name: str) -> PoetryLock:
    """Format 1.1: the files of all packages stand in one table, in the order of the names."""
    start = lock.text.index(_FILES_TABLE) + len(_FILES_TABLE)
    behind = [key.start() for key in _FILES_KEY.finditer(lock.text, start) if key["name"] > name]
    place = behind[0] if behind else len(lock.text)
    return PoetryLock(lock.path, f"{lock.text[:place]}{name} = []\n{lock.text[place:]}")


def _with_release(
    lock: PoetryLock, release: Release, metadata: Metadata, extras: Collection[str]
) -> PoetryLock:
    start, end = lock.block(release.name)
    block = lock.text[start:end]
    table = parse_toml(lock.path, block)["package"][0]
    head, sections = _split(block)
    moves = str(table["version"]) != release.version
    files = _files(release)
    if moves:
        head = _line(head, "version", release.version, str(table["version"]))
        head = _line(head, "description", metadata.summary, table.get("description"))
        old_python = str(table.get("python-versions", "*"))
        head = _python_versions(head, metadata.requires_python, old_python)
        head = _FILES.sub(lambda _: f"files = {files}", head, count=1)
    asked = applying(lock, release.name, metadata, extras)
    sections["dependencies"] = _dependencies(table.get("dependencies", {}), asked, sections)
    sections["extras"] = _extras(lock, table.get("extras", {}), metadata, sections)
    parts = [head.rstrip("\r\n") + "\n", *(text for text in sections.values() if text)]
    rest = block[len(block.rstrip("\r\n")) :]
    new = "\n".join(part.rstrip("\r\n") + "\n" for part in parts).rstrip("\n") + rest
    text = lock.text[:start] + new + lock.text[end:]
    if moves and "files" not in table:
        text = _in_metadata_files(text, table["name"], files)
    return PoetryLock(lock.path, text)


def _split(block: str) -> tuple[str, dict[str, str]]:
    """The entry's own keys, and its sections in the order in which Poetry writes them."""
    matches = list(_SECTION.finditer(block))
    starts = [*(match.start() for match in matches), len(block)]
    head, ends = block[: starts[0]], starts[1:]
    found = {
        match["name"]: block[match.start() : end] for match, end in zip(matches, ends, strict=True)
    }
    return head, {"dependencies": "", "extras": "", **found}


def _line(head: str, key: str, value: str, old: Any) -> str:
    if value == old:
        return head
    line = re.compile(rf"^{key} = .*$", re.MULTILINE)
    return line.sub(lambda _: f"{key} = {quoted(value)}", head, count=1)


def _python_versions(head: str, specifier: str, old: str) -> str:
    """A specifier that says the same stays as it is written: the index sorts its clauses otherwise."""
    try:
        same = SpecifierSet(specifier) == SpecifierSet("" if old == "*" else old)
    except InvalidSpecifier:
        same = False
    return head if same else _line(head, "python-versions", specifier or "*", old)


def _files(release: Release) -> str:
    lines = [
        f"    {{file = {quoted(file.name)}, hash = {quoted(file.hash)}}},\n"
        for file in sorted(release.files, key=lambda file: file.name)
    ]
    return "[\n" + "".join(lines) + "]" if lines else "[]"


def _in_metadata_files(text: str, name: str, files: str) -> str:
    """Format 1.1 keeps the files of all packages in one table at the end."""
    entry = re.compile(
        rf'^(?P<key>"?{re.escape(name)}"?) = \[(?:\]|.*?^\])[ \t]*$', re.MULTILINE | re.DOTALL
    )
    start = text.index("[metadata.files]")
    new = entry.sub(lambda match: f"{match['key']} = {files}", text[start:], count=1)
    return text[:start] + new


def _dependencies(
    old: Mapping[str, Any], asked: Sequence[Requirement], sections: Mapping[str, str]
) -> str:
    by_name = grouped((str(canonicalize_name(it.name)), it) for it in asked)
    if not by_name:
        return ""
    written: dict[str, tuple[str, Any]] = {
        canonicalize_name(name): (name, entry) for name, entry in old.items()
    }
    kept = _entries(sections["dependencies"])
    lines = []
    for name in sorted(by_name):
        key, entry = written.get(name, ("", None))
        spelled = by_name[name][0].name
        if key == spelled and _says(entry, by_name[name]):
            lines.append(kept[name])
        else:
            lines.append(_dependency(spelled, by_name[name]))
    return "[package.dependencies]\n" + "".join(lines)


def _entries(section: str) -> dict[str, str]:
    """The lines of each key of a section."""
    found: dict[str, str] = {}
    key = ""
    for line in section.splitlines(keepends=True)[1:]:
        match = re.match(r'"?([A-Za-z0-9][\w.-]*)"? = ', line)
        if match:
            key = canonicalize_name(match[1])
        if key and line.strip():
            found[key] = found.get(key, "") + line
    return found


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
    name = key if _BARE_KEY.fullmatch(key) else quoted(key)
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
    lock: PoetryLock, old: Mapping[str, Any], metadata: Metadata, sections: Mapping[str, str]
) -> str:
    names = {canonicalize_name(name): str(canonicalize_name(name)) for name in metadata.extras}
    names |= {canonicalize_name(name): name for name in old if canonicalize_name(name) in names}
    extras: dict[str, list[str]] = {name: [] for name in names.values()}
    for requirement in metadata.requirements:
        for extra in dict.fromkeys(map(canonicalize_name, extras_in(marker_of(requirement)))):
            if extra in names:
                item = _in_extra(requirement, marked=lock.keeps_markers_in_extras)
                extras[names[extra]].append(item)
    kept = _entries(sections["extras"])
    lines = []
    for name, items in _ordered(extras, old):
        if name in old and sorted(map(_plain, old[name])) == sorted(map(_plain, items)):
            lines.append(kept[canonicalize_name(name)])
            continue
        key = name if _BARE_KEY.fullmatch(name) else quoted(name)
        lines.append(f"{key} = [{', '.join(map(quoted, sorted(items)))}]\n")
    return "[package.extras]\n" + "".join(lines) if lines else ""


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
