"""A lock that npm wrote, brought back to the shape in which it was found, wherever that says the same.

Newer clients respell and reorder what they don't change. What a fix doesn't need isn't in its diff.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fallback_plugins.npm.locks.addresses import Addresses
from fallback_plugins.npm.locks.lockfile import entries_of, objects
from fallback_plugins.npm.manifests.manifest import MEMBER_SECTIONS, entries
from fallback_plugins.shared.jsontext import BOM, rewritten

_MODULES = "node_modules/"
_COMMIT = re.compile(r"#(?:semver:)?([0-9a-f]{40})$")

#: What an entry is installed for; without one, always.
_FLAGS = ("dev", "optional", "devOptional", "peer")

#: What only newer clients copy from a package into its entry: it decides nothing.
_DESCRIBING = "license"

#: (dependent's key, name) → the spec that the dependent really has.
Specs = Mapping[tuple[str, str], str]


def as_found(old: str, new: str, specs: Specs, manifest: Mapping[str, Any]) -> str:
    """``new`` with the asks' own words put back, and what npm only respelled. ``manifest``: the root's, of
    which each section has its own words."""
    lock, before = json.loads(new), json.loads(old.removeprefix(BOM))
    for key, entry in objects(lock.get("packages")):
        for section in MEMBER_SECTIONS:
            if _MODULES in key:
                _put_back(entry.get(section), key, specs)
            elif not key:
                own = {("", name): spec for name, spec in entries(manifest.get(section))}
                _put_back(entry.get(section), key, own)
    if "packages" not in lock or "dependencies" in lock:
        for key, entry in entries_of(lock):
            _put_back(entry.get("requires"), key, specs)
        _respell(before.get("dependencies"), lock)
    _put_back_addresses(before, lock)
    _put_back_descriptions(before, lock)
    return rewritten(old, lock)


def without(text: str, keys: Collection[str]) -> str:
    """A lock for npm to complete: without the copies at these places, and what lies below them."""
    if not keys:
        return text
    lock = json.loads(text.removeprefix(BOM))
    below = tuple(f"{key}/" for key in keys)
    for key in [it for it, _ in objects(lock.get("packages")) if f"{it}/".startswith(below)]:
        del lock["packages"][key]
    for key in keys:
        owner, *names = lock, *key.removeprefix(_MODULES).split(f"/{_MODULES}")
        for name in names[:-1]:
            owner = _object(_object(owner.get("dependencies")).get(name))
        _object(owner.get("dependencies")).pop(names[-1], None)
    return rewritten(text, lock)


def _put_back_addresses(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """What is new gets its tarballs from where the others get theirs."""
    known = {(key, entry["resolved"]) for key, entry in _resolved(old)}
    addresses = Addresses.of((_name(key), resolved) for key, resolved in known)
    for key, entry in _resolved(new):
        if (key, entry["resolved"]) not in known:
            entry["resolved"] = addresses.like_the_others(_name(key), entry["resolved"])


def _put_back_descriptions(old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """The project's own version, of which a lock is often behind; and no entry tells more of its package
    than the entries did that were there."""
    before, after = dict(objects(old.get("packages"))), dict(objects(new.get("packages")))
    for found, own in ((old, new), (before.get("", {}), after.get("", {}))):
        if "version" in found and "version" in own:
            own["version"] = found["version"]
    if before and not any(_DESCRIBING in entry for key, entry in before.items() if key):
        for key, entry in after.items():
            if key:
                entry.pop(_DESCRIBING, None)


def _resolved(lock: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries that say where their tarball is, by npm's path: those of the flat object and of the tree."""
    for key, entry in entries_of(lock):
        if isinstance(entry.get("resolved"), str) and not entry.get("link"):
            yield key, entry


def _object(value: Any) -> dict[str, Any]:
    """Where a lock has null, or anything else, in an object's place, npm finds nothing there."""
    return value if isinstance(value, dict) else {}


def _name(key: str) -> str:
    return key.rpartition(_MODULES)[2]


def _put_back(asked: Any, key: str, specs: Specs) -> None:
    for name in asked if isinstance(asked, dict) else ():
        if (key, name) in specs:
            asked[name] = specs[key, name]


def _respell(old: Any, parent: dict[str, Any]) -> None:
    """Recursively: git addresses of one commit, flags, empty ``requires``."""
    new = parent.get("dependencies")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for name, entry in new.items():
        found = old.get(name)
        if not isinstance(found, dict):
            continue
        if _commit(found) is not None and _commit(found) == _commit(entry):
            for field in ("version", "from", "resolved", "integrity"):
                _as_in(found, entry, field)
        _put_back_flags(found, entry)
        if entry.get("requires") == {} and "requires" not in found:
            del entry["requires"]
        _respell(found.get("dependencies"), entry)


def _put_back_flags(found: Mapping[str, Any], entry: dict[str, Any]) -> None:
    """Newer clients mark more entries as optional. What an entry was installed for stays, where the
    mark is no broader than before: an unmarked entry is always installed."""
    if found.get("version") != entry.get("version"):
        return
    if found.get("dev") and entry.get("dev"):
        narrower: tuple[str, ...] = ("optional", "peer")
    elif not entry.get("dev") and not any(found.get(flag) for flag in _FLAGS):
        narrower = _FLAGS
    else:
        return
    for flag in narrower:
        if flag not in found:
            entry.pop(flag, None)


def _as_in(found: Mapping[str, Any], entry: dict[str, Any], field: str) -> None:
    if field in found:
        entry[field] = found[field]
    else:
        entry.pop(field, None)


def _commit(entry: Mapping[str, Any]) -> str | None:
    """The commit that a git dependency is locked to."""
    version = entry.get("version")
    match = _COMMIT.search(version) if isinstance(version, str) else None
    return match.group(1) if match else None
