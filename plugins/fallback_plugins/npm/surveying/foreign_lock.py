"""What yarn's and pnpm's locks say is installed, for the gates: read, never resolved."""

from pathlib import PurePosixPath

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.layout import PNPM_LOCK, YARN_LOCK
from fallback_plugins.npm.manifests.manifest import PEER_SECTION, declared, parse_manifest
from fallback_plugins.npm.manifests.specs import admits, foreign, is_tag
from fallback_plugins.npm.refusals import unsupported
from fallback_plugins.shared.tree import DependencyTree

#: Locks of other clients that can be read.
_BUN_LOCK = "bun.lock"
READABLE = frozenset({YARN_LOCK, PNPM_LOCK, _BUN_LOCK})


def foreign_versions(files: Files, package: str) -> dict[str, str]:
    """The lock's own key → version. Raises RecipeError: it can't be read, or doesn't answer what the
    manifests ask for, so that its client would resolve the package anew."""
    tree = _tree(files)
    asks = {(root.key, ask.name): ask for root in tree.roots for ask in root.asks if not ask.peer}
    for path, text in files.manifests.items():
        for place in declared(parse_manifest(path, text), package):
            ask = asks.get((path, place.key))
            held = tree.nodes.get(ask.to) if ask is not None and ask.to is not None else None
            if place.section != PEER_SECTION and (
                held is None or not _answers(files, place.spec, held.version)
            ):
                raise unsupported(
                    f"{files.lock} does not answer {place.key} {place.spec} of {path}",
                    "Bring the lock up to date with its own client.",
                )
    return {node.key: node.version for node in tree.of(package)}


def _tree(files: Files) -> DependencyTree:
    if _name(files) == PNPM_LOCK:
        from fallback_plugins.npm.locks.pnpm_lock import pnpm_tree

        return pnpm_tree(files)
    from fallback_plugins.npm.locks.yarn_berry import berry_tree, bun_tree
    from fallback_plugins.npm.locks.yarn_lock import is_berry, parse_yarn_lock

    if _name(files) == _BUN_LOCK:
        return bun_tree(files)
    if is_berry(files.lock_text):
        return berry_tree(files)
    from fallback_plugins.npm.clients.yarn_project import yarn_tree

    return yarn_tree(files, parse_yarn_lock(files.lock_text))


def _answers(files: Files, spec: str, version: str) -> bool:
    """yarn's lock is keyed by the ask itself; pnpm's names what answered an older one, too."""
    if _name(files) == YARN_LOCK or foreign(spec) or is_tag(spec):
        return True
    return admits(spec, version)


def _name(files: Files) -> str:
    return PurePosixPath(files.lock or "").name
