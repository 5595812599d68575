"""What requires another as its peer moves along within its own range, by the real npm."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_tier.errors import RecipeError
from tests.registry import Universe
from tests.unit.npm.world import Packages, at, bad, project, versions, world

LEAF = bad("leaf", ("0", "1.2.0"))

#: A plugin whose release 1.1.0 admits what 1.0.0 excludes.
PLUGIN = {"1.0.0": "~1.0.0", "1.1.0": "^1.2.0", "1.2.0": "^1.2.0", "2.0.0": "^1.2.0"}


def universe(**peers: Mapping[str, str]) -> Universe:
    """Leaf, and packages of which each version requires it as its peer: name → version → range."""
    made = Universe()
    for version in ("1.0.0", "1.2.0", "1.3.0"):
        made.npm("leaf", version)
    for name, ranges in peers.items():
        for version, spec in ranges.items():
            made.npm(name, version, peerDependencies={"leaf": spec})
    return made


def peer(version: str, **peers: str) -> dict[str, Any]:
    return {"version": version, "peerDependencies": peers}


def test_within_its_range_it_moves_in_the_lock_alone(tmp_path: Path) -> None:
    installed = {"leaf": at("1.0.0"), "plugin": peer("1.0.0", leaf="~1.0.0")}
    files = project({"leaf": "^1.0.0", "plugin": "^1.0.0"}, installed)
    with world(universe(plugin=PLUGIN), tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.written(result).ok
        assert here.verbs().count("install") == 1
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("plugin 1.1.0",))
    assert [change.path for change in result.changes] == ["package-lock.json"]
    assert versions(result) == {"leaf": "1.2.0", "plugin": "1.1.0"}
    assert result.notes == (
        "plugin 1.0.0 requires leaf ~1.0.0 as its peer, which does not admit 1.2.0: it goes to 1.1.0.",
    )


def test_a_higher_safe_version_serves_if_the_peers_admit_only_that(tmp_path: Path) -> None:
    ranges = {"1.0.0": "~1.0.0", "1.1.0": "^1.3.0"}
    installed = {"leaf": at("1.0.0"), "plugin": peer("1.0.0", leaf="~1.0.0")}
    with world(universe(plugin=ranges), tmp_path) as here:
        result = here.fix(LEAF, project({"leaf": "^1.0.0", "plugin": "^1.0.0"}, installed))
    assert versions(result) == {"leaf": "1.3.0", "plugin": "1.1.0"}


def test_a_peer_that_nothing_else_requires_moves_with_its_only_dependent(tmp_path: Path) -> None:
    made = universe(plugin={"1.0.0": "~1.0.0", "1.1.0": ">=1.0.0", "1.2.0": "^1.3.0"})
    installed: Packages = {
        "leaf": {**at("1.0.0"), "peer": True},
        "plugin": peer("1.0.0", leaf="~1.0.0"),
    }
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, project({"plugin": "^1.0.0"}, installed))
        assert here.written(result).ok
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("plugin 1.1.0",))
    assert versions(result) == {"leaf": "1.2.0", "plugin": "1.1.0"}


def test_a_peer_alone_that_no_release_of_its_dependent_admits_names_that(tmp_path: Path) -> None:
    installed: Packages = {
        "leaf": {**at("1.0.0"), "peer": True},
        "plugin": peer("1.0.0", leaf="~1.0.0"),
    }
    made = universe(plugin={"1.0.0": "~1.0.0", "1.1.0": "~1.0.0"})
    with world(made, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(bad("leaf", ("0", "1.3.0")), project({"plugin": "^1.0.0"}, installed))
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    parent = next(it for it in caught.value.declined if it.step is LadderStep.PARENT_BUMP)
    assert [(it.package, it.constraint) for it in parent.blockers] == [
        ("plugin 1.0.0", "leaf ~1.0.0")
    ]


# --- a parent bump ----------------------------------------------------------------------------------


def tools(**plugins: Mapping[str, str]) -> Universe:
    """tool 1.0 pins the affected leaf, 1.1 does not; plugins require tool as their peer."""
    made = universe().npm("tool", "1.0.0", {"leaf": "~1.0.0"})
    made.npm("tool", "1.1.0", {"leaf": "^1.2"})
    for name, ranges in plugins.items():
        for version, spec in ranges.items():
            made.npm(name, version, peerDependencies={"tool": spec})
    return made


TOOL: Packages = {
    "leaf": at("1.0.0"),
    "tool": at("1.0.0", leaf="~1.0.0"),
    "plugin": peer("1.0.0", tool="~1.0.0"),
}


def test_with_a_parent_that_is_raised_too(tmp_path: Path) -> None:
    made = tools(plugin={"1.0.0": "~1.0.0", "1.1.0": "^1.0.0", "1.2.0": "~1.1.0"})
    files = project({"tool": "~1.0.0", "plugin": "^1.0.0"}, TOOL)
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.PARENT_BUMP, ("tool 1.1.0", "plugin 1.1.0"))
    assert versions(result) == {"leaf": "1.2.0", "tool": "1.1.0", "plugin": "1.1.0"}
    changed = {change.path: change.after or "" for change in result.changes}
    assert '"tool": "~1.1.0"' in changed["package.json"]
    assert '"plugin": "^1.0.0"' in changed["package.json"]
    assert result.notes == (
        "plugin 1.0.0 requires tool ~1.0.0 as its peer, which does not admit 1.1.0: it goes to 1.1.0.",
    )


def test_past_its_range_it_is_what_blocks_a_parent_bump(tmp_path: Path) -> None:
    made = tools(plugin={"1.0.0": "~1.0.0", "2.0.0": "^1.1.0"})
    files = project({"tool": "~1.0.0", "plugin": "^1.0.0"}, TOOL)
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, files)
    # The override serves; of the parent bump, the plugin and its range are named.
    (move,) = result.moves
    assert move.step is LadderStep.OVERRIDE
    parent = next(it for it in move.declined if it.step is LadderStep.PARENT_BUMP)
    assert ("plugin 1.0.0", "tool ~1.0.0", "package.json") in {
        (it.package, it.constraint, it.file) for it in parent.blockers
    }


def test_the_next_release_is_tried_if_the_client_refuses_one(tmp_path: Path) -> None:
    made = tools(plugin={"1.0.0": "~1.0.0"}).npm("tool", "1.2.0", {"leaf": "^1.2"})
    made.npm("plugin", "1.1.0", {"absent": "^9.0.0"}, peerDependencies={"tool": "^1.1.0"})
    made.npm("plugin", "1.2.0", peerDependencies={"tool": "^1.1.0"})
    files = project({"tool": "~1.0.0", "plugin": "^1.0.0"}, TOOL)
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, files)
    assert versions(result)["plugin"] == "1.2.0"


# --- what holds the peer's dependent ----------------------------------------------------------------


def suites(made: Universe) -> Universe:
    """suite pins adapter; adapter 1.1.0 admits the safe leaf, suite 1.1.0 that adapter."""
    made.npm("suite", "1.0.0", {"adapter": "~1.0.0"}).npm("suite", "1.1.0", {"adapter": "~1.1.0"})
    return made


def test_what_pins_the_dependent_moves_within_its_range_as_well(tmp_path: Path) -> None:
    made = suites(universe(adapter={"1.0.0": "~1.0.0", "1.1.0": "^1.2.0"}))
    installed = {
        "leaf": at("1.0.0"),
        "suite": at("1.0.0", adapter="~1.0.0"),
        "adapter": peer("1.0.0", leaf="~1.0.0"),
    }
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, project({"leaf": "^1.0.0", "suite": "^1.0.0"}, installed))
        assert here.written(result).ok
    assert [change.path for change in result.changes] == ["package-lock.json"]
    assert versions(result) == {"leaf": "1.2.0", "suite": "1.1.0", "adapter": "1.1.0"}


def test_what_requires_the_dependent_as_a_peer_follows(tmp_path: Path) -> None:
    made = universe(plugin=PLUGIN)
    made.npm("extra", "1.0.0", peerDependencies={"plugin": "1.0.0"})
    made.npm("extra", "1.0.1", peerDependencies={"plugin": "1.1.0"})
    installed = {
        "leaf": at("1.0.0"),
        "plugin": peer("1.0.0", leaf="~1.0.0"),
        "extra": peer("1.0.0", plugin="1.0.0"),
    }
    dependencies = {"leaf": "^1.0.0", "plugin": "^1.0.0", "extra": "^1.0.0"}
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, project(dependencies, installed))
    assert versions(result) == {"leaf": "1.2.0", "plugin": "1.1.0", "extra": "1.0.1"}
    (move,) = result.moves
    assert move.raised == ("plugin 1.1.0", "extra 1.0.1")


def test_a_release_whose_other_peers_are_not_there_is_passed_over(tmp_path: Path) -> None:
    made = universe(plugin={"1.0.0": "~1.0.0"}).npm("frame", "1.0.0").npm("frame", "2.0.0")
    made.npm("plugin", "1.1.0", peerDependencies={"leaf": "^1.2.0", "frame": "^2.0.0"})
    made.npm("plugin", "1.2.0", peerDependencies={"leaf": "^1.2.0", "frame": "^1.0.0"})
    installed = {
        "leaf": at("1.0.0"),
        "frame": at("1.0.0"),
        "plugin": peer("1.0.0", leaf="~1.0.0"),
    }
    dependencies = {"leaf": "^1.0.0", "frame": "^1.0.0", "plugin": "^1.0.0"}
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, project(dependencies, installed))
    assert versions(result) == {"leaf": "1.2.0", "frame": "1.0.0", "plugin": "1.2.0"}


def test_a_parent_within_its_range_is_explained(tmp_path: Path) -> None:
    made = (
        universe().npm("mid", "1.0.0", {"leaf": "~1.0.0"}).npm("mid", "1.1.0", {"leaf": "~1.2.0"})
    )
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="~1.0.0")})
    with world(made, tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("mid 1.1.0",))
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.1.0"}
    why = "mid 1.0.0 requires leaf ~1.0.0, which does not admit 1.2.0: it goes to 1.1.0."
    assert why in result.notes
