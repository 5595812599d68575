"""A client's installation as one layer: ``node_modules`` of the root and of members, at their own paths.

The layer is below everything else of a tree, so that a tracked file is never covered. It is never written
to: if layers are mounted, it is one of them, and a plain tree gets a copy.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fallback_plugins.npm.manifests.manifest import (
    INSTALLED_SECTIONS,
    MANIFEST,
    entries,
    parse_manifest,
)
from fallback_plugins.npm.manifests.specs import LOCAL
from fallback_tier.errors import RecipeError
from fallback_tier.files.tree import FileTree
from fallback_tier.limits import MAX_FILE_BYTES

MODULES = "node_modules"

#: Folder of a store's entry that is the layer.
_LAYER = "tree"

#: A package's own folder.
_PACKAGE = re.compile(rf"/{MODULES}/(?P<name>(?:@[^/]+/)?[^/@]+)$")

#: Replaces a version, with digits of a digest: so many that no two manifests are alike by chance.
_UNTOLD = "version not told, manifest"
_DIGITS = 12

#: Folders of a published package whose modules nothing that is installed loads.
_SAMPLES = frozenset(
    {"test", "tests", "__tests__", "testdata", "spec", "specs"}
    | {"fixture", "fixtures", "__fixtures__"}
    | {"bench", "benchmark", "benchmarks", "example", "examples", "demo", "demos", "doc", "docs"}
)


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
        target = layer / home / MODULES
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)


def layered(tree: FileTree, entry: Path) -> FileTree:
    """Return the tree with what was installed. A plain one gets its own copy, once."""
    layer = entry / _LAYER
    if not layer.is_dir():  # nothing could be installed
        return tree
    if tree.upper is not None:
        return tree.over(layer)
    for folder in _module_folders(layer):
        path = folder.relative_to(layer)
        parent = tree.find(str(path.parent))
        if parent is not None and parent.is_dir() and not os.path.lexists(parent / MODULES):
            shutil.copytree(folder, parent / MODULES, symlinks=True)
    return tree


@dataclass(frozen=True)
class Package:
    """An installed package. ``place``: its folder in the repository; ``name``: the folder's name, by which
    others require it; ``own_name``: the name in its manifest, another one for an alias. ``asks``: names
    that it requires."""

    place: str
    name: str
    own_name: str
    version: str
    asks: frozenset[str]

    @property
    def is_sample(self) -> bool:
        """Return whether it is among the tests, examples or documents of another package."""
        inner = f"/{self.place}".split(f"/{MODULES}/")[1:-1]
        below = (part.lower().split("/")[2 if part.startswith("@") else 1 :] for part in inner)
        return any(not _SAMPLES.isdisjoint(folders) for folders in below)


def packages_in(entry: Path) -> Iterator[Package]:
    """Yield what a client installed in an entry of the store, in one walk; links are not followed.

    Of a manifest at most MAX_FILE_BYTES are read. If it does not state its version, the version is a digest
    of these bytes: two trees have the same one only if they have the same file. Raises OSError.
    """
    top = entry / _LAYER
    waiting = [str(top)] if top.is_dir() else []
    while waiting:
        folder = waiting.pop()
        manifest = None
        with os.scandir(folder) as children:
            for child in sorted(children, key=lambda child: child.name, reverse=True):
                if child.is_dir(follow_symlinks=False):
                    waiting.append(child.path)
                elif child.name == MANIFEST and child.is_file(follow_symlinks=False):
                    manifest = Path(child.path)
        if manifest is not None and (match := _PACKAGE.search(folder)) is not None:
            yield _package(folder.removeprefix(f"{top}/"), match["name"], manifest)


def _package(place: str, name: str, manifest: Path) -> Package:
    with manifest.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    facts: Mapping[str, Any] = {}
    if len(content) <= MAX_FILE_BYTES:
        with suppress(RecipeError, UnicodeDecodeError):
            facts = parse_manifest(manifest.name, content.decode())
    asks = (
        dependency
        for section in INSTALLED_SECTIONS
        for dependency, _ in entries(facts.get(section))
    )
    own_name, version = facts.get("name"), facts.get("version")
    if not (isinstance(own_name, str) and own_name):
        own_name = name
    if not isinstance(version, str):
        version = f"{_UNTOLD} {hashlib.sha256(content).hexdigest()[:_DIGITS]}"
    return Package(_text(place), _text(name), own_name, version, frozenset(asks))


def _text(path: str) -> str:
    """Return a name on the disk as valid Unicode."""
    return os.fsencode(path).decode("utf-8", "replace")


def _module_folders(top: Path) -> Iterator[Path]:
    """Yield the outermost ``node_modules`` folders."""
    for folder, names, _ in os.walk(top):
        if MODULES in names:
            yield Path(folder, MODULES)
        names[:] = [name for name in names if name != MODULES]


def _link_own_folders(project: Path, manifests: Mapping[str, str]) -> None:
    """Replace copies of the repository's own folders by links: a client had only their package.json."""
    for path, text in manifests.items():
        home = PurePosixPath(path).parent
        for name, target in _local(text):
            wanted = os.path.normpath(project / home / target)
            candidates = (folder / MODULES / name for folder in (project / home, project))
            copy = next(
                (
                    candidate
                    for candidate in candidates
                    if candidate.is_dir() and not candidate.is_symlink()
                ),
                None,
            )
            if copy is not None and f"{os.path.relpath(wanted, project)}/package.json" in manifests:
                shutil.rmtree(copy)
                copy.symlink_to(os.path.relpath(wanted, copy.parent))


def _local(text: str) -> Iterator[tuple[str, str]]:
    try:
        facts = parse_manifest("package.json", text)
    except RecipeError:  # a fixture's manifest
        return
    for section in INSTALLED_SECTIONS:
        for name, spec in entries(facts.get(section)):
            if spec.startswith(LOCAL):
                yield name, spec.partition(":")[2]


def _make_relative(folder: Path, project: Path) -> None:
    """Make links relative that name the copy of the project by its absolute path."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if not path.is_symlink():
                continue
            target = path.readlink()
            if target.is_absolute() and target.is_relative_to(project):
                path.unlink()
                path.symlink_to(os.path.relpath(target, parent))
