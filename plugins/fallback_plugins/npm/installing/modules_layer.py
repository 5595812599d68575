"""What a client installed as one layer: ``node_modules`` of the root and of members, at their own places.

It lies below everything else of a tree, so that a tracked file is never covered. Nobody writes to it: where
layers are mounted it is one of them, and a plain tree gets a copy.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fallback_plugins.npm.manifests.manifest import INSTALLED_SECTIONS, entries, parse_manifest
from fallback_tier.errors import RecipeError
from fallback_tier.files.tree import FileTree

MODULES = "node_modules"

#: Folder of a store's entry that is the layer.
_LAYER = "tree"

#: A package's own folder.
_PACKAGE = re.compile(rf"/{MODULES}/(?P<name>(?:@[^/]+/)?[^/@]+)$")

#: Specs by which a folder of the repository itself is asked for.
_LOCAL = ("file:", "link:", "portal:")


def gather(project: Path, manifests: Mapping[str, str], entry: Path) -> None:
    """Move what a client installed in a copy of the project into an entry of the store."""
    layer = entry / _LAYER
    layer.mkdir(parents=True)
    _link_own_folders(project, manifests)
    for home in {PurePosixPath(path).parent for path in manifests}:
        folder = project / home / MODULES
        if not folder.is_dir():
            continue
        _make_relative(folder, project)
        place = layer / home / MODULES
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)


def layered(tree: FileTree, entry: Path) -> FileTree:
    """The tree with what was installed. A plain one gets its own copy, once."""
    layer = entry / _LAYER
    if not layer.is_dir():  # nothing could be installed
        return tree
    if tree.upper is not None:
        return tree.over(layer)
    for folder in _module_folders(layer):
        place = folder.relative_to(layer)
        parent = tree.find(str(place.parent))
        if parent is not None and parent.is_dir() and not os.path.lexists(parent / MODULES):
            shutil.copytree(folder, parent / MODULES, symlinks=True)
    return tree


@dataclass(frozen=True)
class Package:
    """One that was installed. ``asks``: names of those that it asks for."""

    name: str
    version: str
    asks: frozenset[str]


def packages_in(entry: Path) -> Iterator[Package]:
    """What was installed in an entry of the store, whatever client did it; links are not followed."""
    for folder, _, files in os.walk(entry / _LAYER):
        found = _PACKAGE.search(folder)
        path = Path(folder, "package.json")
        if found is None or path.name not in files or path.is_symlink():
            continue
        facts: Mapping[str, Any] = {}
        with suppress(RecipeError, UnicodeDecodeError):  # as it has no version, so it is compared
            facts = parse_manifest(path.name, path.read_text(encoding="utf-8"))
        asks = (name for section in INSTALLED_SECTIONS for name, _ in entries(facts.get(section)))
        yield Package(found["name"], str(facts.get("version", "")), frozenset(asks))


def _module_folders(top: Path) -> Iterator[Path]:
    """The outermost ones."""
    for folder, names, _ in os.walk(top):
        if MODULES in names:
            yield Path(folder, MODULES)
        names[:] = [name for name in names if name != MODULES]


def _link_own_folders(project: Path, manifests: Mapping[str, str]) -> None:
    """A folder of the repository that a manifest asks for is a link to it: some clients copy, and there was
    only its package.json to copy."""
    for path, text in manifests.items():
        home = PurePosixPath(path).parent
        for name, target in _local(text):
            wanted = os.path.normpath(project / home / target)
            found = (folder / MODULES / name for folder in (project / home, project))
            place = next((one for one in found if one.is_dir() and not one.is_symlink()), None)
            if (
                place is not None
                and f"{os.path.relpath(wanted, project)}/package.json" in manifests
            ):
                shutil.rmtree(place)
                place.symlink_to(os.path.relpath(wanted, place.parent))


def _local(text: str) -> Iterator[tuple[str, str]]:
    try:
        facts = parse_manifest("package.json", text)
    except RecipeError:  # a fixture's
        return
    for section in INSTALLED_SECTIONS:
        for name, spec in entries(facts.get(section)):
            if spec.startswith(_LOCAL):
                yield name, spec.partition(":")[2]


def _make_relative(folder: Path, project: Path) -> None:
    """Links that name the copy of the project by its whole path would lead nowhere in a tree."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            place = Path(parent, name)
            if not place.is_symlink():
                continue
            target = place.readlink()
            if target.is_absolute() and target.is_relative_to(project):
                place.unlink()
                place.symlink_to(os.path.relpath(target, parent))
