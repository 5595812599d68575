"""A resolution keeps all that the ladder's tree knows, also as JSON."""

import pytest

from fallback_plugins.shared import resolution
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    SharedResolutions,
)
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


def test_resolutions_are_shared_by_their_texts_if_all_of_them_is_known() -> None:
    shared, texts = SharedResolutions(), {"a.txt": "left\n", "b.txt": "right\n"}
    command = InstallCommand(client="uv", files=("a.txt",), label="uv")
    made = Resolution(ecosystem="PyPI", command=command, by=ResolvedBy.CLIENT)
    shared.add(texts, made)
    shared.add({"c.txt": "c\n"}, made.doubted("a part is unknown", ""))
    shared.add({"d.txt": "d\n"}, made.model_copy(update={"by": ResolvedBy.PINS}))
    assert shared.among({**texts, "c.txt": "c\n", "d.txt": "d\n"}) == [made]
    assert shared.among({**texts, "b.txt": "other\n"}) == shared.among({"a.txt": "left\n"}) == []


def test_the_last_shared_resolutions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "MAX_SHARED", 2)
    shared = SharedResolutions()
    command = InstallCommand(client="uv", files=("a.txt",), label="uv")
    made = [
        Resolution(ecosystem="PyPI", command=command, by=ResolvedBy.CLIENT, client=str(number))
        for number in range(3)
    ]
    for number, one in enumerate(made):
        shared.add({f"{number}.txt": ""}, one)
    assert shared.among({f"{number}.txt": "" for number in range(3)}) == made[1:]
