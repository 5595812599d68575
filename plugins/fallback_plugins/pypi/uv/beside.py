"""What a uv project declares beside a parent, and has to follow where the parent is raised."""

from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from fallback_plugins.pypi.manifests.pyproject import replace_requirement
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import highest_of
from fallback_plugins.shared.tree import DependencyTree


def with_room(
    manifests: Mapping[str, str], tree: DependencyTree, but_for: Iterable[str]
) -> Mapping[str, str]:
    """The manifests where everything that they ask for may be higher than it is: for a scratch folder.

    ``but_for``: what is raised already. What can't be edited as text stays.
    """
    freed = dict(manifests)
    kept = set(but_for)
    for path, name, string in lock_edit.asked_for(manifests):
        held = highest_of(tree, name)
        if name in kept or held is None or string.declaration.refusal is not None:
            continue
        try:
            asked = Requirement(string.value)
        except InvalidRequirement:
            continue
        asked.specifier = SpecifierSet(f">={held}")
        freed[path] = replace_requirement(path, freed[path], string.keys, str(asked))
    return freed


def followers(manifests: Mapping[str, str], after: DependencyTree) -> dict[str, str]:
    """What a tree has in versions that the manifests do not admit, by name."""
    found = {}
    for _, name, _ in lock_edit.asked_for(manifests):
        version = highest_of(after, name)
        if version is not None and lock_edit.not_admitting(manifests, name, version):
            found[name] = version
    return found
