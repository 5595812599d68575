"""Who needs each package of a poetry.lock: for which groups, under which conditions, or as an option only.

Poetry works this out from the project down when it writes a lock, and installs by it. After an edit it is
worked out anew for what is new, and for what is asked for by others than before; all else stays as written.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.markers import (
    ALWAYS,
    NEVER,
    Condition,
    both,
    either,
    same,
    without_extras,
    written,
)
from fallback_plugins.pypi.manifests.requirements import Declaration
from fallback_plugins.pypi.poetry.lock import PoetryLock, dependencies_of
from fallback_plugins.pypi.poetry.render import quoted
from fallback_plugins.pypi.poetry.roots import MAIN, Root
from fallback_plugins.shared.bumping import unsupported

#: Rounds after which what is needed no longer changes, unless conditions go round in a circle.
_MAX_ROUNDS = 50

_GROUPS_LINE = re.compile(r"^groups = .*\n", re.MULTILINE)
_MARKERS_LINE = re.compile(r"^markers = .*\n", re.MULTILINE)


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
                marker = _plain(without_extras(dependency.marker))
                found[dependency.name].add((canonicalize_name(table["name"]), marker))
    return {name: frozenset(asks) for name, asks in found.items()}


def _plain(marker: str) -> str:
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


def _key(group: str) -> str:
    return group if re.fullmatch(r"[A-Za-z0-9_-]+", group) else quoted(group)


def _without(lock: PoetryLock, name: str) -> PoetryLock:
    """Without a package's entry, and its files where those stand apart."""
    while lock.of(name):
        table = lock.of(name)[0]
        lock = lock.with_block(name, "")
        if "files" not in table:
            entry = re.compile(
                rf'^"?{re.escape(table["name"])}"? = \[(?:\]|.*?^\])[ \t]*\n',
                re.MULTILINE | re.DOTALL,
            )
            start = lock.text.index("[metadata.files]")
            text = lock.text[:start] + entry.sub("", lock.text[start:], count=1)
            lock = PoetryLock(lock.path, text)
    return lock
