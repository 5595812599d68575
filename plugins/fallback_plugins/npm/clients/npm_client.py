"""npm as the ladder's client (``client.Client``), over package-lock.json and npm-shrinkwrap.json.

Newer clients respell and reorder entries that they don't change. To keep those out of the diff,
``as_found`` restores the former spelling in the lock that npm wrote, wherever that means the same.
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

#: Key in an npm override for the package itself, next to keys for its dependencies.
_SELF = "."


@dataclass
class NpmClient:
    """The real npm. One object serves one resolution: it remembers that the registry was queried."""

    clients: ClientRunner
    name: str = field(default="npm", init=False)
    _npm: NpmRunner = field(init=False)

    def __post_init__(self) -> None:
        self._npm = NpmRunner(self.clients)

    def tree(self, files: Files) -> DependencyTree:
        """Return the lock as a resolved tree, keyed by npm's own paths."""
        source = files.lock or files.root_manifest
        return lock_tree(source, files.lock_text, files.manifests, files.root_manifest)

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:
        """Return the files with a lock that fits the manifests, and the wanted versions in it if possible.

        npm keeps a locked version that its dependents admit. So it first gets stricter requirements than
        the manifest's (exact versions at the root, overrides elsewhere), and the original ranges are
        restored in the lock that it wrote. If that lock isn't valid by itself, npm fixes it under the true
        manifest.
        """
        if not wanted_versions or not files.lock_text:
            return self._after(["install"], files, files, {})
        tree = self.tree(files)
        stricter = _stricter(files, tree, wanted_versions)
        # npm would add a lower version next to the higher one, not in its place.
        higher = [
            node.key
            for (package, current), wanted_version in wanted_versions.items()
            if compare_versions(ECOSYSTEM, wanted_version, current) < 0
            for node in tree.of(package)
            if node.version == current
        ]
        stricter_files = stricter.files.with_lock(without(files.lock_text, higher))
        resolved = self._after(["install"], files, stricter_files, stricter.specs)
        if _stands(tree, self.tree(resolved), stricter) and not self._overruled(
            files, wanted_versions
        ):
            return resolved
        return self._after(["install"], resolved, resolved, {})

    def _overruled(self, files: Files, wanted_versions: WantedVersions) -> bool:
        """Return whether an override of the true manifest can undo a wanted version."""
        return any(
            not admits(place.spec, version)
            for (package, _), version in wanted_versions.items()
            for place in self.overrides(files, package)
        )

    def update(self, files: Files, packages: Sequence[str]) -> Files:
        """Return the files with each copy of these packages as high as its dependents' ranges allow."""
        return self._after(["update", *packages], files, files, {})

    def deprecated(self, files: Files) -> frozenset[tuple[str, str]] | None:
        """Return what the lock marks as deprecated, or None for version 1, which doesn't record it."""
        if not files.lock_text:
            return frozenset()
        has_marks = lockfile_version(files.lock_text, files.lock or DEFAULT_LOCK) > 1
        return deprecated(files.lock_text) if has_marks else None

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:
        """Return the root manifest's overrides of a package, at any depth."""
        manifest = parse_manifest(files.root_manifest, files.manifests[files.root_manifest])
        return tuple(_overrides(manifest, package))

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:
        """Return the files, with ``{parent: {package: version}}`` in ``overrides`` added or raised."""
        path = files.root_manifest
        text = files.manifests[path]
        scope = parse_manifest(path, text).get(_OVERRIDES)
        keys: tuple[str, ...] = (_OVERRIDES, package)
        if parent is not None:
            keys = (_OVERRIDES, parent, package)
            parent_rule = scope.get(parent) if isinstance(scope, dict) else None
            if isinstance(parent_rule, str):
                # "parent": "1.0" forces the parent itself; next to other packages that is its ".".
                return self._scoped(files, parent, parent_rule, package, version)
        return files.with_manifest(path, with_value(path, text, keys, version))

    def _scoped(
        self, files: Files, parent: str, parent_rule: str, package: str, version: str
    ) -> Files:
        path = files.root_manifest
        text, old = files.manifests[path], json.dumps(parent_rule)
        # Replace the string by a marker first, so that the object is written in its place.
        marked = with_value(path, text, (_OVERRIDES, parent), "\0")
        new = f'{{ "{_SELF}": {old}, {json.dumps(package)}: {json.dumps(version)} }}'
        return files.with_manifest(path, marked.replace(json.dumps("\0"), new, 1))

    def _after(
        self, arguments: Sequence[str], files: Files, input_files: Files, specs: _Specs
    ) -> Files:
        new = self._npm.lock_after(arguments, input_files)
        if files.lock_text:
            root = parse_manifest(files.root_manifest, files.manifests[files.root_manifest])
            new = as_found(files.lock_text, new, specs, root)
        lock = files.lock or in_folder(files.folder, DEFAULT_LOCK)
        return replace(files, lock=lock, lock_text=new)


@dataclass(frozen=True)
class _Stricter:
    """Files with stricter requirements, for npm only. ``specs``: the ranges as written, to be restored."""

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
                continue  # it is raised too: only the registry knows what its new version requires
            of_root = dependent.key == ""
            specs[dependent.key, ask.name] = ask.spec
            tagged = is_tag(split_alias(ask.spec)[1])
            if target is None or not (tagged or admits(ask.spec, target)):
                if of_root:
                    pins[ask.name] = node.version  # a rule may not change what the root requires
                continue
            if of_root:
                pins[ask.name] = target
            elif not tagged:
                alias, spec = split_alias(ask.spec)
                rules[f"{ask.name}@{spec}"] = f"{alias}{target}"
    manifest = dict(parse_manifest(files.root_manifest, files.manifests[files.root_manifest]))
    _pin(manifest, pins, specs)
    manifest = _forcing(manifest, wanted_versions)
    if rules:
        existing = manifest.get(_OVERRIDES)
        # "*" matches every requirement: narrower rules come first, as the first match counts.
        ordered = dict(sorted(rules.items(), key=lambda rule: rule[0].endswith(("@*", "@"))))
        manifest[_OVERRIDES] = _merged(existing if isinstance(existing, dict) else {}, ordered)
    _keep_tagged(manifest, tree, specs, wanted_versions)
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    wanted = frozenset((package, version) for (package, _), version in wanted_versions.items())
    return _Stricter(files.with_manifest(files.root_manifest, text), specs, wanted)


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
    """Return the manifest, whose overrides force a wanted version if they admit only that one."""
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
    """Add overrides that keep what a tag ("latest") requires at its version, or at the wanted one: npm
    would follow the tag again."""
    existing = manifest.get(_OVERRIDES)
    rules = dict(existing) if isinstance(existing, dict) else {}
    for dependent in tree.nodes.values():
        for ask in dependent.asks:
            if ask.to is None or not is_tag(ask.spec) or ask.to not in tree.nodes:
                continue
            rule, node = rules.get(dependent.name, {}), tree.nodes[ask.to]
            if isinstance(rule, dict) and ask.name not in rule:
                version = wanted_versions.get((node.name, node.version), node.version)
                rules[dependent.name] = {**rule, ask.name: version}
                specs[dependent.key, ask.name] = ask.spec
    if rules:
        manifest[_OVERRIDES] = rules


def _merged(existing: Mapping[str, Any], rules: Mapping[str, str]) -> dict[str, Any]:
    """Return the overrides, our rules first; an existing rule with the same key keeps its children."""
    merged: dict[str, Any] = {}
    for key, value in rules.items():
        existing_rule = existing.get(key)
        merged[key] = {**existing_rule, _SELF: value} if isinstance(existing_rule, dict) else value
    return merged | {key: value for key, value in existing.items() if key not in rules}


def _stands(before: DependencyTree, after: DependencyTree, stricter: _Stricter) -> bool:
    """Return whether the lock is valid without the stricter requirements: the dependents of each wanted
    version admit it, and their own ranges are known."""
    version_by_key = {node.key: node.version for node in before.nodes.values()}
    for node in after.nodes.values():
        if (node.name, node.version) not in stricter.wanted:
            continue
        for dependent, ask in after.dependents(node.key):
            if not ask.peer and excludes(ask.spec, node.version):
                return False
            raised = (
                dependent.key in version_by_key
                and version_by_key[dependent.key] != dependent.version
            )
            if (
                _is_rule(ask, node)
                and (raised or dependent.key not in version_by_key)
                and dependent.key
            ):
                return False  # a new dependent, whose own range only the registry knows
    return True


def _is_rule(ask: DependencyEdge, node: Node) -> bool:
    return split_alias(ask.spec)[1] == node.version


def _with(scope: Mapping[str, Any], keys: Sequence[str], value: str) -> dict[str, Any]:
    """Return a copy with another value at these keys, in the same order."""
    first, *rest = keys
    return {**scope, first: _with(scope[first], rest, value) if rest else value}


def _overrides(manifest: Mapping[str, Any], package: str) -> Iterator[OverridePlace]:
    for keys, value in _texts_below(manifest.get(_OVERRIDES), (_OVERRIDES,)):
        key = keys[-2] if keys[-1] == _SELF else keys[-1]
        name = key[: key.find("@", 1)] if key.find("@", 1) > 0 else key
        spec = referred(manifest, value)
        # An alias installs another package under the name that is required.
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

#: Flags for what an entry is installed; an entry without any is always installed.
_FLAGS = ("dev", "optional", "devOptional", "peer")

#: A field that only newer clients copy from a package into its entry: it decides nothing.
_DESCRIBING = "license"


def as_found(old: str, new: str, specs: _Specs, manifest: Mapping[str, Any]) -> str:
    """Return the lock ``new`` with the dependents' own ranges restored, and the spelling of what npm only
    respelled. ``manifest``: the root's, whose sections have their own ranges."""
    lock, before = json.loads(new), json.loads(old.removeprefix(BOM))
    for key, entry in objects(lock.get("packages")):
        for section in MEMBER_SECTIONS:
            if _MODULES in key:
                _put_back(entry.get(section), key, specs)
            elif not key:
                root_specs = {("", name): spec for name, spec in entries(manifest.get(section))}
                _put_back(entry.get(section), key, root_specs)
    if "packages" not in lock or "dependencies" in lock:
        for key, entry in entries_of(lock):
            _put_back(entry.get("requires"), key, specs)
        _respell(before.get("dependencies"), lock)
    _put_back_addresses(before, lock)
    _put_back_descriptions(before, lock)
    return rewritten(old, lock)


def without(text: str, keys: Collection[str]) -> str:
    """Return a lock for npm to complete: without the copies at these paths, and those below them."""
    if not keys:
        return text
    lock = json.loads(text.removeprefix(BOM))
    below = tuple(f"{key}/" for key in keys)
    for key in [path for path, _ in objects(lock.get("packages")) if f"{path}/".startswith(below)]:
        del lock["packages"][key]
    for key in keys:
        owner, *names = lock, *key.removeprefix(_MODULES).split(f"/{_MODULES}")
        for name in names[:-1]:
            owner = _object(_object(owner.get("dependencies")).get(name))
        _object(owner.get("dependencies")).pop(names[-1], None)
    return rewritten(text, lock)


def _put_back_addresses(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Give new entries tarball addresses like those of the other entries."""
    old_addresses = {(key, entry["resolved"]) for key, entry in _resolved(old)}
    addresses = Addresses.of((_name(key), resolved) for key, resolved in old_addresses)
    for key, entry in _resolved(new):
        if (key, entry["resolved"]) not in old_addresses:
            entry["resolved"] = addresses.like_the_others(_name(key), entry["resolved"])


def _put_back_descriptions(old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Restore the project's own version, which is often outdated in a lock; and remove descriptions of
    packages, if no former entry has one."""
    before, after = dict(objects(old.get("packages"))), dict(objects(new.get("packages")))
    for source, target in ((old, new), (before.get("", {}), after.get("", {}))):
        if "version" in source and "version" in target:
            target["version"] = source["version"]
    if before and not any(_DESCRIBING in entry for key, entry in before.items() if key):
        for key, entry in after.items():
            if key:
                entry.pop(_DESCRIBING, None)


def _resolved(lock: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield entries that have a tarball address, by npm's path: of the flat object and of the tree."""
    for key, entry in entries_of(lock):
        if isinstance(entry.get("resolved"), str) and not entry.get("link"):
            yield key, entry


def _object(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one instead of anything else, as npm reads it."""
    return value if isinstance(value, dict) else {}


def _name(key: str) -> str:
    return key.rpartition(_MODULES)[2]


def _put_back(ranges: Any, key: str, specs: _Specs) -> None:
    for name in ranges if isinstance(ranges, dict) else ():
        if (key, name) in specs:
            ranges[name] = specs[key, name]


def _respell(old: Any, parent: dict[str, Any]) -> None:
    """Restore, recursively, git addresses of the same commit and flags; remove new empty ``requires``."""
    new = parent.get("dependencies")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for name, entry in new.items():
        former = old.get(name)
        if not isinstance(former, dict):
            continue
        if _commit(former) is not None and _commit(former) == _commit(entry):
            for field in ("version", "from", "resolved", "integrity"):
                _as_in(former, entry, field)
        _put_back_flags(former, entry)
        if entry.get("requires") == {} and "requires" not in former:
            del entry["requires"]
        _respell(former.get("dependencies"), entry)


def _put_back_flags(former: Mapping[str, Any], entry: dict[str, Any]) -> None:
    """Remove the marks that newer clients add to entries of the same version, unless the entry is then
    installed in fewer cases: an unmarked entry is always installed."""
    if former.get("version") != entry.get("version"):
        return
    if former.get("dev") and entry.get("dev"):
        narrower: tuple[str, ...] = ("optional", "peer")
    elif not entry.get("dev") and not any(former.get(flag) for flag in _FLAGS):
        narrower = _FLAGS
    else:
        return
    for flag in narrower:
        if flag not in former:
            entry.pop(flag, None)


def _as_in(former: Mapping[str, Any], entry: dict[str, Any], field: str) -> None:
    if field in former:
        entry[field] = former[field]
    else:
        entry.pop(field, None)


def _commit(entry: Mapping[str, Any]) -> str | None:
    """Return the commit that a git dependency is locked to, or None."""
    version = entry.get("version")
    match = _COMMIT.search(version) if isinstance(version, str) else None
    return match.group(1) if match else None
