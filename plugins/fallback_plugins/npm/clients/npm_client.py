"""npm as the ladder's client (``client.Client``), over package-lock.json and npm-shrinkwrap.json.

Newer clients respell and reorder what they don't change, and what a fix doesn't need isn't in its diff:
so a lock that npm wrote gets its former spelling wherever that means the same (``as_found``).
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fallback_plugins.npm.client import Files, OverridePlace, WantedVersions
from fallback_plugins.npm.clients.npm_run import DEFAULT_LOCK, NpmRunner
from fallback_plugins.npm.locks.addresses import Addresses
from fallback_plugins.npm.locks.lockfile import (
    deprecated,
    entries_of,
    lock_tree,
    lockfile_version,
    objects,
)
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    MEMBER_SECTIONS,
    entries,
    in_folder,
    parse_manifest,
    referred,
    with_value,
)
from fallback_plugins.npm.manifests.specs import admits, excludes, foreign, is_tag, split_alias
from fallback_plugins.shared.jsontext import BOM, rewritten
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.execution import ClientRunner

_OVERRIDES = "overrides"

#: (dependent's key, name) → the spec that the dependent really has.
_Specs = Mapping[tuple[str, str], str]

#: What an override of npm may hold beside other packages: the package itself.
_SELF = "."


@dataclass
class NpmClient:
    """The real npm. One object serves one resolution: it remembers that the registry was asked."""

    clients: ClientRunner
    name: str = field(default="npm", init=False)
    _npm: NpmRunner = field(init=False)

    def __post_init__(self) -> None:
        self._npm = NpmRunner(self.clients)

    def tree(self, files: Files) -> DependencyTree:
        """The lock as a resolved tree, keyed by npm's own paths."""
        source = files.lock or files.root_manifest
        return lock_tree(source, files.lock_text, files.manifests, files.root_manifest)

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:
        """The lock made to fit; wishes are granted by asking for exactly these versions.

        npm keeps a locked version that its dependents admit. So it is first told stricter things than the
        manifest says (exact versions at the root, overrides elsewhere), and the asks' own words are put
        back into the lock that it wrote. Where that lock doesn't stand by itself, npm fixes it under the
        true manifest.
        """
        if not wanted_versions or not files.lock_text:
            return self._after(["install"], files, files, {})
        tree = self.tree(files)
        stricter = _stricter(files, tree, wanted_versions)
        # npm puts a lower version beside what is there, not in its place.
        higher = [
            node.key
            for (package, held), wanted_version in wanted_versions.items()
            if compare_versions(ECOSYSTEM, wanted_version, held) < 0
            for node in tree.of(package)
            if node.version == held
        ]
        reported = stricter.files.with_lock(without(files.lock_text, higher))
        found = self._after(["install"], files, reported, stricter.specs)
        if _stands(tree, self.tree(found), stricter) and not self._overruled(
            files, wanted_versions
        ):
            return found
        return self._after(["install"], found, found, {})

    def _overruled(self, files: Files, wanted_versions: WantedVersions) -> bool:
        """Can an override of the true manifest take back what was wished for?"""
        return any(
            not admits(place.spec, version)
            for (package, _), version in wanted_versions.items()
            for place in self.overrides(files, package)
        )

    def update(self, files: Files, packages: Sequence[str]) -> Files:
        """The lock with every copy of these packages raised as far as its dependents' ranges allow."""
        return self._after(["update", *packages], files, files, {})

    def deprecated(self, files: Files) -> frozenset[tuple[str, str]] | None:
        """Return what the lock marks as deprecated, or None for version 1, which doesn't say it."""
        if not files.lock_text:
            return frozenset()
        said = lockfile_version(files.lock_text, files.lock or DEFAULT_LOCK) > 1
        return deprecated(files.lock_text) if said else None

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:
        """The root manifest's overrides of a package, at any depth."""
        manifest = parse_manifest(files.root_manifest, files.manifests[files.root_manifest])
        return tuple(_overrides(manifest, package))

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:
        """``overrides`` with ``{parent: {package: version}}`` added, or raised where it is."""
        path = files.root_manifest
        text = files.manifests[path]
        scope = parse_manifest(path, text).get(_OVERRIDES)
        keys: tuple[str, ...] = (_OVERRIDES, package)
        if parent is not None:
            keys = (_OVERRIDES, parent, package)
            held = scope.get(parent) if isinstance(scope, dict) else None
            if isinstance(held, str):
                # "parent": "1.0" forces the parent itself; beside other packages that is its ".".
                return self._scoped(files, parent, held, package, version)
        return files.with_manifest(path, with_value(path, text, keys, version))

    def _scoped(self, files: Files, parent: str, held: str, package: str, version: str) -> Files:
        path = files.root_manifest
        text, old = files.manifests[path], json.dumps(held)
        # A marker stands where the string was, so that the object is written in its place.
        marked = with_value(path, text, (_OVERRIDES, parent), "\0")
        new = f'{{ "{_SELF}": {old}, {json.dumps(package)}: {json.dumps(version)} }}'
        return files.with_manifest(path, marked.replace(json.dumps("\0"), new, 1))

    def _after(self, words: Sequence[str], files: Files, reported: Files, specs: _Specs) -> Files:
        new = self._npm.lock_after(words, reported)
        if files.lock_text:
            root = parse_manifest(files.root_manifest, files.manifests[files.root_manifest])
            new = as_found(files.lock_text, new, specs, root)
        lock = files.lock or in_folder(files.folder, DEFAULT_LOCK)
        return replace(files, lock=lock, lock_text=new)


@dataclass(frozen=True)
class _Stricter:
    """Files for npm in place of the manifest; ``specs``: the written ranges, to be restored."""

    files: Files
    specs: Mapping[tuple[str, str], str]
    wanted: frozenset[tuple[str, str]]


def _stricter(files: Files, tree: DependencyTree, wanted_versions: WantedVersions) -> _Stricter:
    rules: dict[str, str] = {}
    pins: dict[str, str] = {}
    specs: dict[tuple[str, str], str] = {}
    packages = {package for package, _ in wanted_versions}
    for node in (node for package in packages for node in tree.of(package)):
        target = wanted_versions.get((node.name, node.version))
        for dependent, ask in tree.dependents(node.key):
            if (
                wanted_versions.get((dependent.name, dependent.version), dependent.version)
                != dependent.version
            ):
                continue  # it goes too: only the registry knows what its new version asks for
            own = dependent.key == ""
            specs[dependent.key, ask.name] = ask.spec
            tagged = is_tag(split_alias(ask.spec)[1])
            if target is None or not (tagged or admits(ask.spec, target)):
                if own:
                    pins[ask.name] = node.version  # a rule may not touch what the root asks for
                continue
            if own:
                pins[ask.name] = target
            elif not tagged:
                alias, spec = split_alias(ask.spec)
                rules[f"{ask.name}@{spec}"] = f"{alias}{target}"
    manifest = dict(parse_manifest(files.root_manifest, files.manifests[files.root_manifest]))
    _pin(manifest, pins, specs)
    manifest = _forcing(manifest, wanted_versions)
    if rules:
        given = manifest.get(_OVERRIDES)
        # "*" meets every ask: the narrower rules come first, for the first that meets one counts.
        ordered = dict(sorted(rules.items(), key=lambda rule: rule[0].endswith(("@*", "@"))))
        manifest[_OVERRIDES] = _merged(given if isinstance(given, dict) else {}, ordered)
    _keep_tagged(manifest, tree, specs, wanted_versions)
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    granted = frozenset((package, version) for (package, _), version in wanted_versions.items())
    return _Stricter(files.with_manifest(files.root_manifest, text), specs, granted)


def _pin(
    manifest: dict[str, Any], pins: Mapping[str, str], specs: dict[tuple[str, str], str]
) -> None:
    for section in MEMBER_SECTIONS:
        entries = manifest.get(section)
        if not isinstance(entries, dict):
            continue
        for name, spec in entries.items():
            if name in pins and isinstance(spec, str) and not foreign(spec):
                specs["", name] = spec
                entries[name] = split_alias(spec)[0] + pins[name]


def _forcing(manifest: dict[str, Any], wanted_versions: WantedVersions) -> dict[str, Any]:
    """The overrides that admit one wished version force exactly that."""
    for package in {package: None for package, _ in wanted_versions}:
        wanted = {version for (name, _), version in wanted_versions.items() if name == package}
        for place in tuple(_overrides(manifest, package)):
            fitting = [version for version in wanted if admits(place.spec, version)]
            if len(fitting) == 1:
                manifest = _with(manifest, place.keys, split_alias(place.spec)[0] + fitting[0])
    return manifest


def _keep_tagged(
    manifest: dict[str, Any],
    tree: DependencyTree,
    specs: dict[tuple[str, str], str],
    wanted_versions: WantedVersions,
) -> None:
    """Hold what is required by a tag ("latest") at its version, or at the wanted one: npm would follow the
    tag again."""
    given = manifest.get(_OVERRIDES)
    rules = dict(given) if isinstance(given, dict) else {}
    for dependent in tree.nodes.values():
        for ask in dependent.asks:
            if ask.to is None or not is_tag(ask.spec) or ask.to not in tree.nodes:
                continue
            held, node = rules.get(dependent.name, {}), tree.nodes[ask.to]
            if isinstance(held, dict) and ask.name not in held:
                version = wanted_versions.get((node.name, node.version), node.version)
                rules[dependent.name] = {**held, ask.name: version}
                specs[dependent.key, ask.name] = ask.spec
    if rules:
        manifest[_OVERRIDES] = rules


def _merged(given: Mapping[str, Any], rules: Mapping[str, str]) -> dict[str, Any]:
    """Ours first; a rule of the same key that has children keeps them."""
    merged: dict[str, Any] = {}
    for key, value in rules.items():
        held = given.get(key)
        merged[key] = {**held, _SELF: value} if isinstance(held, dict) else value
    return merged | {key: value for key, value in given.items() if key not in rules}


def _stands(before: DependencyTree, after: DependencyTree, stricter: _Stricter) -> bool:
    """Does the lock hold without what npm was told besides? No ask of a wished version is let down."""
    known = {node.key: node.version for node in before.nodes.values()}
    for node in after.nodes.values():
        if (node.name, node.version) not in stricter.wanted:
            continue
        for dependent, ask in after.dependents(node.key):
            if not ask.peer and excludes(ask.spec, node.version):
                return False
            raised = dependent.key in known and known[dependent.key] != dependent.version
            if _is_rule(ask, node) and (raised or dependent.key not in known) and dependent.key:
                return False  # a new dependent whose own words only the registry knows
    return True


def _is_rule(ask: DependencyEdge, node: Node) -> bool:
    return split_alias(ask.spec)[1] == node.version


def _with(scope: Mapping[str, Any], keys: Sequence[str], value: str) -> dict[str, Any]:
    """A copy with another value where the keys lead, everything in its place."""
    first, *rest = keys
    return {**scope, first: _with(scope[first], rest, value) if rest else value}


def _overrides(manifest: Mapping[str, Any], package: str) -> Iterator[OverridePlace]:
    for keys, value in _texts_below(manifest.get(_OVERRIDES), (_OVERRIDES,)):
        key = keys[-2] if keys[-1] == _SELF else keys[-1]
        name = key[: key.find("@", 1)] if key.find("@", 1) > 0 else key
        spec = referred(manifest, value)
        # An alias puts another package in the place of the one that it is asked for as.
        alias = split_alias(spec)[0]
        if (alias or f"npm:{name}@") == f"npm:{package}@" and len(keys) > 1 + (keys[-1] == _SELF):
            yield OverridePlace(keys, package, spec)


def _texts_below(scope: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in scope.items() if isinstance(scope, dict) else ():
        if isinstance(value, str):
            yield (*keys, key), value
        else:
            yield from _texts_below(value, (*keys, key))


_MODULES = "node_modules/"
_COMMIT = re.compile(r"#(?:semver:)?([0-9a-f]{40})$")

#: What an entry is installed for; without one, always.
_FLAGS = ("dev", "optional", "devOptional", "peer")

#: What only newer clients copy from a package into its entry: it decides nothing.
_DESCRIBING = "license"


def as_found(old: str, new: str, specs: _Specs, manifest: Mapping[str, Any]) -> str:
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


def _put_back(asked: Any, key: str, specs: _Specs) -> None:
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
