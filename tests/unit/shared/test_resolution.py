"""A resolution keeps all that the ladder's tree knows, also as JSON."""

from fallback_plugins.shared.resolution import InstallCommand, Resolution, ResolvedBy
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from tests.unit.shared.recipes import advisory

ROOT = Node("", "app", "1.0", (DependencyEdge("left", "^1", "node_modules/left"),))
LEFT = Node("node_modules/left", "left", "1.0.0", (DependencyEdge("right", "~2", None, peer=True),))
TREE = DependencyTree("package-lock.json", {LEFT.key: LEFT}, (ROOT,))
COMMAND = InstallCommand(client="npm", files=("package-lock.json",), label="npm ci")


def test_resolution_survives_json_and_gives_its_tree_back() -> None:
    resolution = Resolution.of_tree("npm", COMMAND, ResolvedBy.LOCK, TREE)
    again = Resolution.model_validate_json(resolution.model_dump_json())
    assert again == resolution
    assert again.tree == TREE
    assert again.dependents(LEFT.key) == (("app 1.0", "^1"),)


def test_affected_packages_are_those_in_the_advisorys_range() -> None:
    resolution = Resolution.of_tree("npm", COMMAND, ResolvedBy.LOCK, TREE)
    assert [one.key for one in resolution.affected(advisory("npm", "left", [("0", "2.0.0")]))] == [
        LEFT.key
    ]
    assert not list(resolution.affected(advisory("npm", "left", [("0", "1.0.0")])))
