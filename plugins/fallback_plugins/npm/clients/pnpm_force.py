"""Wanted versions, as pnpm can be made to choose them: an exact version forced upon one dependent at a
time."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fallback_plugins.npm.client import Files, WantedVersions
from fallback_plugins.npm.manifests.manifest import SECTIONS, entries, parse_manifest
from fallback_plugins.npm.manifests.specs import admits, is_tag
from fallback_plugins.shared.tree import DependencyTree, Node

OVERRIDES = ("pnpm", "overrides")


@dataclass(frozen=True)
class Force:
    """One dependent (a manifest by its path, or a locked package) gets one package in one version.

    ``name`` is what the dependent calls it; another one than ``package`` is an alias.
    """

    dependent: str
    dependent_version: str
    name: str
    package: str
    version: str
    is_manifest: bool

    @property
    def _spec(self) -> str:
        alias = "" if self.name == self.package else f"npm:{self.package}@"
        return alias + self.version

    def upon(self, manifests: dict[str, str], root: str) -> None:
        """Write it into the scratch manifests: a project's own range, or an override in the root."""
        path = self.dependent if self.is_manifest else root
        manifest = dict(parse_manifest(path, manifests[path]))
        if self.is_manifest:
            for section in SECTIONS:
                if self.name in strings_at(manifest, section):
                    manifest[section] = {**manifest[section], self.name: self._spec}
        else:
            section, inner = OVERRIDES
            own = manifest.get(section)
            key = f"{self.dependent}@{self.dependent_version}>{self.name}"
            overrides = {**strings_at(manifest, *OVERRIDES), key: self._spec}
            manifest[section] = {**(own if isinstance(own, dict) else {}), inner: overrides}
        manifests[path] = json.dumps(manifest)

    def holds_in(self, tree: DependencyTree) -> bool:
        """Has the dependent, where it is still there, that version and no other?"""
        return all(
            tree.nodes[ask.to].version == self.version
            for node in self._dependents(tree)
            for ask in node.asks
            if ask.name == self.name and ask.to is not None
        )

    def _dependents(self, tree: DependencyTree) -> Iterator[Node]:
        if self.is_manifest:
            yield from (root for root in tree.roots if root.key == self.dependent)
        else:
            yield from (n for n in tree.of(self.dependent) if n.version == self.dependent_version)


def forces_of(
    files: Files, tree: DependencyTree, wanted_versions: WantedVersions
) -> tuple[Force, ...]:
    """One for each dependent of a wished package. A manifest whose range doesn't admit the version gets
    none; other dependents' ranges are not in the lock, so that only pnpm can tell."""
    found: dict[Force, None] = {}
    for (package, held), version in wanted_versions.items():
        for node in tree.of(package):
            dependents = tree.dependents(node.key) if node.version == held else ()
            for dependent, ask in dependents:
                is_root = tree.is_root(dependent)
                is_open = is_tag(ask.spec) or admits(ask.spec, version)
                if is_root and not (dependent.key in files.manifests and is_open):
                    continue
                who = (dependent.key, "") if is_root else (dependent.name, dependent.version)
                found[Force(*who, ask.name, package, version, is_manifest=is_root)] = None
    return tuple(found)


def addresses_of(manifests: Mapping[str, str]) -> Iterator[str]:
    """URLs that manifests ask for: pnpm fetches them even where they are locked."""
    places = (*((section,) for section in SECTIONS), OVERRIDES, ("resolutions",))
    for path, text in manifests.items():
        manifest = parse_manifest(path, text)
        for place in places:
            specs = strings_at(manifest, *place).values()
            yield from (spec for spec in specs if spec.startswith(("http:", "https:")))


def strings_at(manifest: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """The object at a place of a manifest, its plain entries."""
    value: Any = manifest
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return dict(entries(value))
