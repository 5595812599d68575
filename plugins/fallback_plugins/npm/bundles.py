"""Copies that lie in the archive of another package: only another version of that brings another one.

Such a version isn't looked for: to lock one, npm fetches its archive by address, and fetching by address is
switched off, since a stranger's manifest could name any.
"""

from fallback_plugins.npm.declaring import unsupported
from fallback_plugins.tree import Node, Tree

_INSTALLED = "/node_modules/"


def bundler_of(tree: Tree, node: Node) -> Node:
    """Whose archive a bundled copy lies in: the nearest package around it that lies in none itself."""
    key = node.key
    while _INSTALLED in key:
        key = key.rpartition(_INSTALLED)[0]
        around = tree.nodes.get(key)
        if around is not None and not around.bundled:
            return around
    return node


def refuse_bundled(tree: Tree, node: Node) -> None:
    """Raises RecipeError for a copy whose version is not to be chosen."""
    if node.bundled:
        bundler = bundler_of(tree, node)
        raise unsupported(
            f"{node.label} is bundled in {bundler.label}: only another version of {bundler.name} brings"
            " another, and which one does, only its archive tells."
        )
