"""What a client installed as one layer: ``node_modules`` of the root and of members, at their own places.

It lies below everything else of a tree, so that a tracked file is never covered. Nobody writes to it: where
layers are mounted it is one of them, and a plain tree gets a copy.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from fallback_plugins.npm.manifests.manifest import INSTALLED_SECTIONS, entries, parse_manifest
from fallback_tier.errors import RecipeError
from fallback_tier.files.tree import FileTree
from fallback_tier.limits import MAX_FILE_BYTES

MODULES = "node_modules"

#: Folder of a store's entry that is the layer.
_LAYER = "tree"

#: A package's own folder.
_PACKAGE = re.compile(rf"/{MODULES}/(?P<name>(?:@[^/]+/)?[^/@]+)$")

#: What is said where a version would stand, and digits of the digest behind it: so many that no two
#: manifests of a project are alike by chance.
_UNTOLD = "version not told, manifest"
_DIGITS = 12

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
    """What was installed in an entry of the store, whatever client did it; links are not followed.

    Where a manifest of at most MAX_FILE_BYTES does not tell the version, a digest of so much of it stands
    for one: two trees have the same there only where they have the same file. Raises OSError.
    """
    for folder, _, files in os.walk(entry / _LAYER):
        found = _PACKAGE.search(folder)
        path = Path(folder, "package.json")
        if found is None or path.name not in files or not S_ISREG(path.lstat().st_mode):
            continue
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        facts: Mapping[str, Any] = {}
        if len(content) <= MAX_FILE_BYTES:
            with suppress(RecipeError, UnicodeDecodeError):
                facts = parse_manifest(path.name, content.decode())
        asks = (name for section in INSTALLED_SECTIONS for name, _ in entries(facts.get(section)))
        version = facts.get("version")
        if not isinstance(version, str):  # it is told apart by what is there
            version = f"{_UNTOLD} {hashlib.sha256(content).hexdigest()[:_DIGITS]}"
        yield Package(found["name"], version, frozenset(asks))


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
