"""Declarations and overrides of package.json, raised as text; and the refusals if they can't be."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from posixpath import dirname, join

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.npm.client import Client, Files, OverridePlace
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    MANIFEST,
    PEER_SECTION,
    SECTIONS,
    Declared,
    every_declared,
    may_name,
    parse_manifest,
    with_value,
)
from fallback_plugins.npm.manifests.pnpm_workspace import (
    CATALOG,
    referred_entry,
    settings_path,
    with_scalar,
)
from fallback_plugins.npm.manifests.specs import admits, floor, foreign, raised
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import PROJECT, blocked
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: One declaration of a package: manifest, section and key.
PlaceKey = tuple[str, str, str]


def declarations(files: Files, package: str) -> tuple[tuple[str, Declared], ...]:
    """Return each declaration of a package with its file, peers last. Instead of those that refer to a
    catalog, return the catalog's entry, once."""
    places: dict[tuple[str, Declared], None] = {}
    for sections in (SECTIONS, (PEER_SECTION,)):
        for path, text in files.manifests.items():
            is_concerned = may_name(text, package) or CATALOG in text
            manifest = parse_manifest(path, text) if is_concerned else {}
            for place in every_declared(manifest, sections):
                at, entry = (path, place), referred_entry(files, place.key, place.spec)
                if entry is not None:
                    at = (settings_path(files), entry)
                    if place.section == PEER_SECTION and at not in places:
                        at = (path, Declared(PEER_SECTION, place.key, entry.spec))
                if at[1].is_of(package):
                    places[at] = None
    return tuple(places)


def declare(
    files: Files,
    package: str,
    keys: set[str],
    version: str,
    *,
    but_for: Collection[PlaceKey] = (),
) -> Files:
    """Raise each declaration of the package under these keys that does not admit the version.

    ``but_for``: declarations of other release lines. Raises RecipeError for a spec that can't be
    raised, or a peer declaration that doesn't admit the version.
    """
    for path, place in declarations(files, package):
        if (path, place.section, place.key) in but_for:
            continue
        if place.key in keys and not admits(place.spec, version):
            files = raise_place(files, path, package, place, version)
    return files


def of_other_lines(files: Files, tree: DependencyTree, node: Node) -> frozenset[PlaceKey]:
    """Return the declarations that another installed copy of the package answers, and this one can't."""
    other_versions = [copy.version for copy in tree.of(node.name) if copy.version != node.version]
    return frozenset(
        (path, place.section, place.key)
        for path, place in declarations(files, node.name)
        if not admits(place.spec, node.version)
        and any(admits(place.spec, version) for version in other_versions)
    )


def raise_place(files: Files, path: str, package: str, place: Declared, version: str) -> Files:
    """Raise one declaration to the version, unless it starts above it. Raises RecipeError."""
    start = floor(place.spec)
    if start is not None and compare_versions(ECOSYSTEM, start, version) > 0:
        return files
    if place.section == PEER_SECTION:
        raise _declares(
            f"{PEER_SECTION} of {path} requires {package} {place.spec!r}, which does not admit"
            f" {version}; what its users install is their decision.",
            *(path, package, place.spec),
        )
    what = foreign(place.spec)
    if what is not None:
        problem = f"{path} takes {package} from {what} ({place.spec!r})."
        raise _declares(problem, path, package, place.spec, BlockerKind.ADDRESS)
    new = raised(place.spec, version)
    if new is None:
        raise _declares(
            f"{path} requires {package} {place.spec!r}, a range that does not admit {version}"
            " and is not one version to raise.",
            *(path, package, place.spec),
        )
    return _with_value(files, path, (*place.section.split(".", 1), place.key), new)


def declared_in(tree: DependencyTree, node: Node) -> str:
    """Return the manifest of a root, or the one that declares a package; the lock if none declares it."""
    for root in tree.roots:
        if root is node or any(ask.name == node.name for ask in root.asks):
            is_path = PurePosixPath(root.key).name == MANIFEST
            return root.key if is_path else join(dirname(tree.source), root.key, MANIFEST)
    return tree.source


def blocked_by(
    tree: DependencyTree, node: Node, target: str, parent: Node, spec: str
) -> RecipeError:
    """Return the refusal of a dependent whose range excludes the target, with the declaring file."""
    label = PROJECT if tree.is_root(parent) else parent.label
    where = declared_in(tree, parent)
    return blocked(node.name, target, parent=label, spec=spec or "(no range stated)", where=where)


def no_fix(node: Node) -> RecipeError:
    """Return the refusal if no safe version above one is known."""
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"No safe version of {node.name} above {node.version} is known.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def holding(client: Client, files: Files, node: Node) -> list[OverridePlace]:
    """Return the overrides that may hold a copy at its version."""
    places = client.overrides(files, node.name)
    return [place for place in places if admits(place.spec, node.version)]


def forced(files: Files, place: OverridePlace) -> RecipeError:
    """Return the refusal of a version that an override excludes."""
    problem = f"{place.label(files)} forces {place.package} {place.spec}."
    return _declares(problem, place.file or files.root_manifest, place.package, place.spec)


def _declares(
    problem: str, path: str, package: str, spec: str, kind: BlockerKind = BlockerKind.CONFLICT
) -> RecipeError:
    """Return the refusal of a declaration that no recipe changes."""
    conflict = kind is BlockerKind.CONFLICT
    blocker = Blocker(
        kind=kind,
        package=PROJECT if conflict else package,
        constraint=f"{package} {spec}" if conflict else spec,
        required_by="" if conflict else PROJECT,
        file=path,
    )
    return unsupported(problem, f"Change the declaration of {package} in {path}.", blocker)


def raise_overrides(
    client: Client, files: Files, places: Iterable[OverridePlace], target: str
) -> Files:
    """Return the files with overrides of one package that admit the version. Raises RecipeError."""
    for place in places:
        current = {
            override.keys: override.spec for override in client.overrides(files, place.package)
        }
        if not admits(current.get(place.keys, place.spec), target):
            new = raised(place.spec, target) if floor(place.spec) is not None else target
            path = place.file or files.root_manifest
            files = _with_value(files, path, place.keys, new or target)
    return files


def _with_value(files: Files, path: str, keys: Sequence[str], value: str) -> Files:
    """Return the files with one value of a manifest or of pnpm's settings replaced. Raises RecipeError."""
    if path == settings_path(files):
        return files.with_manifest(path, with_scalar(files.text(path), keys, value))
    return files.with_manifest(path, with_value(path, files.manifests[path], keys, value))
