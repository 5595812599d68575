"""A package.json without a lock: declared versions, raised as text. Their own requirements are unknown."""

from collections.abc import Iterator
from itertools import chain
from pathlib import PurePosixPath
from posixpath import normpath

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.addresses import origin_of
from fallback_plugins.npm.manifests.declaring import declarations, no_fix, raise_place
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    PEER_SECTION,
    Declared,
    every_declared,
    may_name,
    parse_manifest,
)
from fallback_plugins.npm.manifests.specs import admits, floor, foreign
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import ProjectFix, Tried, left_behind
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import Advisory, fixed_versions, is_affected
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import ClearedPath, Left, Move, StepDeclined

#: Represents what will be published later: affected, if an advisory leaves its range open.
ABOVE_ALL = "999999.0.0"


def raise_pins(
    files: Files,
    advisory: Advisory,
    targets: Targets,
    installed: DependencyTree | None = None,
) -> ProjectFix | None:
    """Raise each declaration that starts from an affected version. Return None if there is none.

    ``installed``: a lock's tree. Then only declarations are raised that it does not answer, and that admit
    affected releases alone.
    """
    texts: dict[str, str] = {}
    moves: list[Move] = []
    left: list[Left] = []
    cleared: list[ClearedPath] = []
    for path, package, place, problem in _concerned(files, advisory):
        if installed is not None and _is_answered(installed, place):
            continue
        admits_safe = _admits_safe(advisory, targets, package, place.spec)
        if installed is not None and admits_safe:
            continue
        node = Node(path, package, floor(place.spec) or place.spec)
        try:
            if problem is not None:
                raise problem
            version = _target(targets, node)
            files = _raised(files, path, package, place, version)
        except RecipeError as error:
            tried = Tried()
            tried.no(LadderStep.DIRECT_BUMP, error)
            left.append(unfixed(advisory, path, node, error, tried))
            continue
        texts[path] = files.text(path)
        raised_move = move(path, node, LadderStep.DIRECT_BUMP, version)
        moves.append(raised_move.model_copy(update={"range_admits": admits_safe}))
        cleared.append(_cleared(advisory, path, files, node, version))
    if not moves and not left:
        return None
    return ProjectFix(
        texts=texts,
        moves=tuple(dict.fromkeys(moves)),
        left=tuple(dict.fromkeys(left)),
        cleared=tuple(dict.fromkeys(cleared)),
        notes=tuple(targets.notes),
    )


def _raised(files: Files, path: str, package: str, place: Declared, version: str) -> Files:
    """Raise one declaration. Raises RecipeError, also if a peer range of the same manifest excludes it."""
    for where, peer in declarations(files, package):
        if (
            where == path
            and peer.section == PEER_SECTION
            and peer.key == place.key
            and not admits(peer.spec, version)
        ):
            raise_place(files, path, package, peer, version)
    return raise_place(files, path, package, place, version)


def pinned(files: Files, advisory: Advisory) -> bool:
    """Return whether a manifest declares an affected version, or one that can't be shown to be safe."""
    return next(_concerned(files, advisory), None) is not None


def _concerned(
    files: Files, advisory: Advisory
) -> Iterator[tuple[str, str, Declared, RecipeError | None]]:
    """Yield (manifest, package, declaration, problem) for each declaration that starts from an affected
    version, or has a problem."""
    for package in advisory.packages(ECOSYSTEM):
        for path, place in (*declarations(files, package), *_by_address(files, package)):
            start = floor(place.spec)
            problem = _problem(files, advisory, path, package, place)
            if problem is not None or (start is not None and _is_bad(advisory, package, start)):
                yield path, package, place, problem


def only_affected(files: Files, advisory: Advisory, installed: DependencyTree) -> bool:
    """Return whether a declaration that no installed package answers admits only affected releases."""
    targets = Targets(advisory, None)
    return any(
        not _admits_safe(advisory, targets, package, place.spec)
        and not _is_answered(installed, place)
        for _, package, place, _ in _concerned(files, advisory)
    )


def _admits_safe(advisory: Advisory, targets: Targets, package: str, spec: str) -> bool:
    """Return whether a range admits a release that is not affected: its floor, one that the advisory names,
    a published one, or one above all."""
    stated = (floor(spec), *fixed_versions(advisory, ECOSYSTEM, package), ABOVE_ALL)
    published = (release.version for name in (package,) for release in targets.releases(name))
    return any(
        version is not None and admits(spec, version) and not _is_bad(advisory, package, version)
        for version in chain(stated, published)
    )


def _is_answered(installed: DependencyTree, place: Declared) -> bool:
    """Return whether a package is installed under the name of a declaration, or its source is not a range:
    such a source is judged elsewhere."""
    return foreign(place.spec) is not None or any(
        ask.name == place.key and ask.to is not None
        for root in installed.roots
        for ask in root.asks
    )


def _is_bad(advisory: Advisory, package: str, version: str) -> bool:
    return is_affected(advisory, ECOSYSTEM, package, version)


def _by_address(files: Files, package: str) -> Iterator[tuple[str, Declared]]:
    """Yield declarations of a package under another name, by the archive that they fetch."""
    for path, text in files.manifests.items():
        for place in every_declared(parse_manifest(path, text) if may_name(text, package) else {}):
            is_address = place.key != package and "://" in place.spec
            if is_address and origin_of(place.spec).may_be(package):
                yield path, place


def _problem(
    files: Files, advisory: Advisory, path: str, package: str, place: Declared
) -> RecipeError | None:
    """Return why a declaration can't be judged or raised; None if it can, or if it does not matter."""
    start, what = floor(place.spec), foreign(place.spec)
    if what is not None:
        version = origin_of(place.spec).version if origin_of(place.spec).may_be(package) else None
        version = version or _version_of_folder(files, path, place.spec)
        if version is not None and not _is_bad(advisory, package, version):
            return None
        return unsupported(f"{path} takes {package} from {what} ({place.spec!r}).")
    bad = start is not None and _is_bad(advisory, package, start)
    if place.section == PEER_SECTION:
        if not bad:
            return None
        return unsupported(
            f"{path} declares {package} in {PEER_SECTION} only; what its users install is not"
            " raised by a recipe."
        )
    if start is not None:
        return None
    if admits_affected(advisory, ECOSYSTEM, package, lambda version: admits(place.spec, version)):
        return unsupported(
            f"{path} requires {package} {place.spec!r}, a range whose upper end is affected."
        )
    return None


def _version_of_folder(files: Files, path: str, spec: str) -> str | None:
    """Return the version of a folder that a manifest takes as a package; None if it is unknown."""
    folder = spec.partition(":")[2] if ":" in spec else spec
    manifest = normpath(PurePosixPath(path).parent / folder / "package.json")
    if manifest not in files.folders:
        return None
    version = parse_manifest(manifest, files.folders[manifest]).get("version")
    return version if isinstance(version, str) and is_orderable(ECOSYSTEM, version) else None


def _target(targets: Targets, node: Node) -> str:
    lowest = targets.lowest(node, lambda _version: True)
    checked = targets.checked(node.name, lowest) if lowest is not None else None
    if checked is None:
        raise no_fix(node)
    return checked


def move(
    path: str, node: Node, step: LadderStep, after: str, declined: tuple[StepDeclined, ...] = ()
) -> Move:
    """Return the move of one version by one step."""
    return Move(
        package=node.name,
        manifest=path,
        step=step,
        before=(node.version,),
        after=after,
        declined=declined,
    )


def _cleared(advisory: Advisory, path: str, files: Files, node: Node, version: str) -> ClearedPath:
    name = parse_manifest(path, files.manifests.get(path, "{}")).get("name")
    return ClearedPath(
        manifest=path,
        advisory_ids=advisory.ids_affecting(ECOSYSTEM, node.name, node.version),
        path=(str(name or "the project"), node.label),
        outcome=f"now {node.name} {version}",
    )


def unfixed(advisory: Advisory, path: str, node: Node, error: RecipeError, tried: Tried) -> Left:
    """Return one version that stays, and why."""
    return left_behind(
        advisory,
        ECOSYSTEM,
        package=node.name,
        versions=(node.version,),
        manifest=path,
        error=error,
        tried=tried,
    )
