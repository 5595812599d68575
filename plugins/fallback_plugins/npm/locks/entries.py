"""Entries of any client's lock, as its text has them: contradictions between them, and whether there are
any.

A lock states a version, and the archive that a client fetches: nothing makes the two agree.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from fallback_plugins.npm.locks.addresses import is_registrys, origin_of
from fallback_plugins.npm.locks.lockfile import (
    MODULES,
    address_of,
    entries_of,
    objects,
    parse_lock,
    stated_identity,
    tail_of,
)
from fallback_plugins.npm.locks.pnpm_lock import parse_pnpm_lock, parse_yaml
from fallback_plugins.npm.locks.yarn_lock import is_berry, parse_yarn_lock, real_name, split_pattern
from fallback_plugins.npm.manifests.manifest import LOCKS, PNPM_LOCK, YARN_LOCK, mapping
from fallback_plugins.npm.manifests.manifest import entries as strings
from fallback_plugins.npm.manifests.specs import plain_version
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError

#: What repairs a lock that contradicts itself.
_REPAIR = "Remove the entry, let the project's own client resolve it again, and commit the lock."


class LockEntry(NamedTuple):
    """One package of a lock, as the text has it.

    ``key``: the lock's own. ``is_named``: the name is stated, not only taken from the key. ``is_half``:
    only one of a lock's two parts has it. ``bundles``: names of packages that are in its archive and that
    the lock does not list. ``inside``: (name, version) of those that it lists below such an entry.
    ``digest``: of its archive; empty if none is stated.
    """

    key: str
    name: str
    version: str
    address: str
    is_named: bool = False
    is_npms: bool = False
    is_half: bool = False
    digest: str = ""
    bundles: frozenset[str] = frozenset()
    inside: frozenset[tuple[str, str]] = frozenset()

    def contradicts(self, packages: Collection[str]) -> bool:
        """Return whether its archive is another package or version than the entry states, and it may be one
        of these packages."""
        if self.version and is_registrys(self.address, self.name, self.version):
            return False
        origin = origin_of(self.address)
        if not self.version:
            return bool(self.address) and (
                self.name in packages or any(map(origin.may_be, packages))
            )
        is_other = origin.version is not None and _differ(origin.version, self.version)
        if origin.name is not None:
            # npm installs an alias that does not state its name; the archive's is the package then.
            is_alias = self.is_npms and not self.is_named and self.name not in packages
            is_asked = self.name in packages or origin.name in packages
            return is_asked and (is_other or (origin.name != self.name and not is_alias))
        if self.name in packages:
            return is_other and origin.may_be(self.name)
        return not self.is_named and any(map(origin.may_be, packages))


def contradiction(lock: str, text: str, packages: Collection[str]) -> RecipeError | None:
    """Return the refusal of a lock that contradicts itself on one of these packages, or None. Raises
    RecipeError if the lock can't be read."""
    first_by_key: dict[str, LockEntry] = {}
    packages = frozenset(packages)  # a bundle of advisories names hundreds
    for entry in lock_entries(lock, text):
        if not (entry.version or entry.address) and entry.name in packages:
            return _unknown(lock, entry, "")
        if entry.contradicts(packages):
            label = origin_of(entry.address).label or "another package"
            return _unknown(lock, entry, f", and its archive is that of {label} ({entry.address})")
        # A lock of version 2 has each entry twice, for newer and for older clients.
        first = first_by_key.setdefault(entry.key, entry)
        if entry.name not in packages and first.name not in packages:
            continue
        if entry.name != first.name or _differ(entry.version, first.version):
            return _unknown(lock, entry, f", and {first.name} {first.version} at the same place")
        if entry.is_half:
            return _unknown(lock, entry, " in one of its two parts alone")
    if PurePosixPath(lock).name == PNPM_LOCK:
        for name, ref in parse_pnpm_lock(text).unlisted():
            if name in packages:
                statement = f"{lock} answers a request by {name} {ref}, and does not list it"
                return unknown(
                    lock, f"{statement}: what is installed is unknown.", next_step=_REPAIR
                )
    return None


def _unknown(lock: str, entry: LockEntry, problem: str) -> RecipeError:
    statement = f"{lock} lists {entry.name} {entry.version or 'without a version'} ({entry.key!r})"
    which = "which of them" if problem else "which version"
    problem = f"{statement}{problem}: {which} is installed is unknown."
    return unknown(lock, problem, next_step=_REPAIR)


def unlisted_bundles(lock: str, text: str) -> Iterator[LockEntry]:
    """Yield the entries whose archives hold packages that the lock does not list. Raises RecipeError."""
    if "bundle" in text:
        entries = [*lock_entries(lock, text)]
        for entry in entries:
            if entry.bundles:
                below = (
                    candidate for candidate in entries if candidate.key.startswith(f"{entry.key}/")
                )
                yield entry._replace(
                    inside=frozenset((inner.name, inner.version) for inner in below)
                )


def unlisted_names(lock: str, text: str, tree: DependencyTree) -> frozenset[str]:
    """Return the names that a lock's packages require, and that neither it nor their archives list. Raises
    RecipeError."""
    if PurePosixPath(lock).name == PNPM_LOCK:
        return frozenset(name for name, _ in parse_pnpm_lock(text).unlisted())
    return tree.unlisted.difference(*(entry.bundles for entry in unlisted_bundles(lock, text)))


def maybe_optional(lock: str, text: str) -> frozenset[str]:
    """Return the names of packages that an npm lock of version 1 does not list, and that its packages
    require. Optional ones, which npm may leave out, are among them."""
    if PurePosixPath(lock).name not in LOCKS:
        return frozenset()
    document = parse_lock(text, lock)
    if document.get("lockfileVersion") != 1:
        return frozenset()
    listed = [*entries_of(document)]
    required = {name for _, entry in listed for name, _ in strings(entry.get("requires"))}
    return frozenset(required - {tail_of(key) for key, _ in listed})


def lock_entries(lock: str, text: str) -> Iterator[LockEntry]:
    """Yield the packages of a lock of npm, yarn classic or pnpm, as often as it lists each; not those in
    the repository. Raises RecipeError."""
    name = PurePosixPath(lock).name
    if name in LOCKS:
        yield from _npms(lock, text)
    elif name == YARN_LOCK and not is_berry(text):
        for block in parse_yarn_lock(text).blocks:
            if block.from_folder:
                continue
            for key in block.patterns:
                package, is_named = real_name(key), split_pattern(key)[0] != real_name(key)
                digest = block.fields.get("integrity", "")
                yield LockEntry(
                    key, package, block.version, block.resolved, is_named, digest=digest
                )
    elif name == PNPM_LOCK:
        parsed = parse_pnpm_lock(text)
        for key, node in parsed.nodes.items():
            facts = parsed.facts.get(key.partition("(")[0]) or parsed.facts.get(key) or {}
            resolution = mapping(facts.get("resolution"))
            yield LockEntry(
                key,
                node.name,
                node.version,
                str(resolution.get("tarball", "")),
                is_named="name" in facts,
                digest=str(resolution.get("integrity", "")),
                bundles=frozenset(_bundled(facts)),
            )


def _npms(lock: str, text: str) -> Iterator[LockEntry]:
    facts = parse_lock(text, lock)
    listed = [*entries_of(facts)]
    keys = Counter(key for key, _ in listed)
    has_both = bool(objects(facts.get("packages"))) and bool(objects(facts.get("dependencies")))
    for key, entry in listed:
        address = address_of(entry)
        if MODULES not in key or entry.get("link") or address.startswith("file:"):
            continue
        name, version = stated_identity(entry)
        yield LockEntry(
            key,
            name or tail_of(key),
            version or "",
            address,
            is_named=bool(name),
            is_npms=True,
            is_half=has_both and keys[key] == 1,
            digest=str(entry.get("integrity", "")),
            bundles=frozenset(
                inner for inner in _bundled(entry) if f"{key}/{MODULES}{inner}" not in keys
            ),
        )


def _bundled(entry: Mapping[str, Any]) -> Sequence[str]:
    bundled = entry.get("bundleDependencies") or entry.get("bundledDependencies")
    if not bundled:
        return ()  # as for nearly all
    listed = entry.get("dependencies") if bundled is True else bundled
    if not isinstance(listed, list | dict):
        return ()
    return [name for name in listed if isinstance(name, str)]


def _differ(version: str, other: str) -> bool:
    """Return whether two versions differ; false if the second is an address (lock version 1)."""
    return "/" not in other and plain_version(version) != plain_version(other)


#: Keys that clients write in every lock, also of a project without dependencies. A lock that lacks them,
#: and holds nothing, was cut off or written by hand: it does not show that nothing is installed.
_VERSION = "lockfileVersion"
_OF_BUN = (_VERSION, "workspaces", "packages")
_YARN_HEADER = re.compile(r"^# yarn lockfile v1\s*$", re.MULTILINE)


def nothing_in(path: str, text: str) -> str:
    """Return why nothing is in a lock; empty: something is. Raises RecipeError if it can't be read."""
    if not text.strip():
        return "is empty"
    key = _lacking(path, text)
    return f"lacks {key!r}, which its client always writes" if key else ""


def _lacking(path: str, text: str) -> str:
    name = PurePosixPath(path).name
    if name in LOCKS:
        lock = parse_lock(text, path)
        if lock.get("packages") or lock.get("dependencies"):
            return ""
        # If nothing is installed, npm 6 writes only its version; npm 4 writes none: unknown.
        holds = lock.keys() & {"packages", "dependencies"} or lock.get(_VERSION) == 1
        return _VERSION if _VERSION not in lock else "" if holds else "packages"
    if name == PNPM_LOCK:
        return _lacking_of_pnpm(parse_yaml(text))
    if name == YARN_LOCK and is_berry(text):
        # The project itself is an entry.
        return "" if "@workspace:" in text or len(parse_yaml(text)) > 1 else "@workspace:"
    if name == YARN_LOCK:
        blocks = any(not line.startswith("#") for line in map(str.strip, text.splitlines()) if line)
        return "" if blocks or _YARN_HEADER.search(text) else "# yarn lockfile v1"
    if name == "bun.lock":
        return next((key for key in _OF_BUN if f'"{key}"' not in text), "")
    return ""


def _lacking_of_pnpm(lock: Mapping[str, Any]) -> str:
    if _VERSION not in lock:
        return _VERSION
    if str(lock[_VERSION]).startswith(("5.", "6.")):
        return ""
    if not isinstance(lock.get("importers"), dict) or not lock["importers"]:
        return "importers"
    return "snapshots" if lock.get("packages") and not lock.get("snapshots") else ""
