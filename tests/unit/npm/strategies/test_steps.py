"""Each step of the npm ladder, with the real npm against a registry of the test's own."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, RefusalReason
from fallback_plugins.npm.clients.registry import NpmRegistry
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import NotApplicable, RecipeResult, Selected
from fallback_tier.repo import Settings
from tests.choice import a_choice
from tests.kinds import OfKind
from tests.registry import Universe
from tests.unit.npm.world import at, bad, manifest, project, versions, world
from tests.unit.shared.recipes import after

LEAF = bad("leaf", ("0", "1.2.0"), ("2.0.0", "2.1.0"))


def leaves() -> Universe:
    universe = Universe()
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0", "2.1.0"):
        universe.npm("leaf", version)
    return universe


def steps(result: RecipeResult) -> list[tuple[str, LadderStep, str | None]]:
    return [(move.package, move.step, move.after) for move in result.moves]


def test_an_in_range_copy_goes_to_the_lowest_safe_version_in_one_run(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="^1.0.0")})
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.verbs() == ["install"]
    assert steps(result) == [("leaf", LadderStep.LOCK_REFRESH, "1.2.0")]
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.0.0"}
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    assert [change.path for change in result.changes] == ["package-lock.json"]
    (path,) = result.cleared
    assert path.path == ("app 1.0.0", "mid 1.0.0", "leaf 1.0.0")
    assert path.outcome == "now leaf 1.2.0"
    # What npm was told besides is nowhere in what it wrote.
    packages = json.loads(after(result, "package-lock.json"))["packages"]
    assert packages["node_modules/mid"]["dependencies"] == {"leaf": "^1.0.0"}
    assert "overrides" not in packages[""]


@pytest.mark.parametrize(
    ("spec", "raised", "lock_version"),
    a_choice(
        [
            (spec, raised, lock_version)
            for spec, raised in (("^8.16.0", "^8.16.0"), ("~8.16.0", "~8.17.1"))
            for lock_version in (1, 2, 3)
        ],
        step=4,
    ),
)
def test_the_lowest_that_serves_is_taken_where_higher_ones_would_too(
    tmp_path: Path, spec: str, raised: str, lock_version: int
) -> None:
    universe = Universe()
    for version in ("8.16.0", "8.17.0", "8.17.1", "8.17.2", "8.18.0", "8.23.0"):
        universe.npm("ws", version)
    files = {"package.json": manifest(dependencies={"ws": spec})}
    was = manifest(dependencies={"ws": "8.16.0"})
    with world(universe, tmp_path) as here:
        result = here.fix(bad("ws", ("8.0.0", "8.17.1")), here.locked(files, was, lock_version))
        assert here.written(result).ok
        declared = json.loads((here.root / "package.json").read_text())["dependencies"]
        lock = json.loads((here.root / "package-lock.json").read_text())
    assert declared == {"ws": raised}
    held = [lock["packages"]["node_modules/ws"]] if lock_version > 1 else []
    held += [lock["dependencies"]["ws"]] if lock_version < 3 else []
    assert {entry["version"] for entry in held} == {"8.17.1"}


def test_every_branch_gets_its_own_fix(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"}).npm("m2", "1.0.0", {"leaf": "^2"})
    files = project(
        {"mid": "^1.0.0", "m2": "1.0.0"},
        {
            "leaf": at("1.1.0"),
            "mid": at("1.0.0", leaf="^1.0.0"),
            "m2": at("1.0.0", leaf="^2"),
            "m2/node_modules/leaf": at("2.0.0"),
        },
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    found = versions(result)
    assert (found["leaf"], found["m2/node_modules/leaf"]) == ("1.2.0", "2.1.0")


def test_a_declared_version_is_raised_with_its_operator_in_one_run(tmp_path: Path) -> None:
    files = project({"leaf": "~1.0.0"}, {"leaf": at("1.0.0")})
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.verbs() == ["install"]
    assert steps(result) == [("leaf", LadderStep.DIRECT_BUMP, "1.2.0")]
    assert [reported.step for reported in result.moves[0].declined] == [LadderStep.LOCK_REFRESH]
    assert after(result, "package.json") == files["package.json"].replace("~1.0.0", "~1.2.0")
    packages = json.loads(after(result, "package-lock.json"))["packages"]
    assert packages[""]["dependencies"] == {"leaf": "~1.2.0"}


def test_a_deprecated_fix_is_passed_over_where_another_serves(tmp_path: Path) -> None:
    universe = leaves().npm("leaf", "1.2.0", deprecated="broken")
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}))
    assert versions(result)["leaf"] == "1.3.0"


def test_a_fix_that_was_never_published_gives_way_to_the_next(tmp_path: Path) -> None:
    record = bad("leaf", ("0", "1.1.5"))
    with world(leaves(), tmp_path) as here:
        result = here.fix(record, project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}))
    assert versions(result)["leaf"] == "1.2.0"


def test_without_a_published_fix_that_is_the_reason(tmp_path: Path) -> None:
    """Without a lock: the ranges admit a fixed version, which the registry does not have."""
    universe = Universe().npm("leaf", "1.0.0").npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    files = {"package.json": manifest(dependencies={"mid": "^1.0.0"})}
    with world(universe, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(bad("leaf", ("0", "1.9.0")), files)
    assert (caught.value.kind, caught.value.reason) == (
        "never_published",
        RefusalReason.NO_FIXED_VERSION,
    )


def test_an_alias_is_raised_inside_its_spec(tmp_path: Path) -> None:
    files = project({"l": "npm:leaf@~1.0.0"}, {"l": {"name": "leaf", **at("1.0.0")}})
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert "npm:leaf@~1.2.0" in after(result, "package.json")
    assert versions(result) == {"l": "1.2.0"}


def test_an_override_that_forces_the_affected_version_is_what_is_raised(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    files = project(
        {"mid": "^1.0.0"},
        {"leaf": at("1.1.0"), "mid": at("1.0.0", leaf="^1.0.0")},
        overrides={"mid": {"leaf": "1.1.0"}, "other": "1.0.0"},
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    assert steps(result) == [("leaf", LadderStep.DIRECT_BUMP, "1.2.0")]
    new = json.loads(after(result, "package.json"))
    assert new["overrides"] == {"mid": {"leaf": "1.2.0"}, "other": "1.0.0"}
    assert "overrides.mid.leaf" in result.moves[0].declined[0].reason
    # npm would take the fixed version without it.
    assert any(
        "overrides.mid.leaf in package.json is no longer needed" in it for it in result.notes
    )


def test_an_override_that_is_needed_is_not_called_unneeded(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "1.0.0"})
    files = project(
        {"mid": "^1.0.0"},
        {"leaf": at("1.1.0"), "mid": at("1.0.0", leaf="1.0.0")},
        overrides={"leaf": "1.1.0"},
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    assert json.loads(after(result, "package.json"))["overrides"] == {"leaf": "1.2.0"}
    assert not result.notes


def pinned_parent() -> Universe:
    """``mid`` pins the leaf exactly; 1.1.0 lets go of it, 2.0.0 too."""
    return (
        leaves()
        .npm("mid", "1.0.0", {"leaf": "1.0.0"})
        .npm("mid", "1.0.1", {"leaf": "1.1.0"})
        .npm("mid", "1.1.0", {"leaf": "1.2.0"})
        .npm("mid", "2.0.0", {"leaf": "1.3.0"})
    )


def test_a_declared_parent_is_raised_to_the_lowest_version_that_clears(tmp_path: Path) -> None:
    files = project({"mid": "1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    with world(pinned_parent(), tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.after, move.raised) == (
        LadderStep.PARENT_BUMP,
        "1.2.0",
        ("mid 1.1.0",),
    )
    (blocker,) = move.declined[0].blockers
    assert (blocker.package, blocker.constraint) == ("mid 1.0.0", "leaf 1.0.0")
    assert blocker.file == "package.json"
    assert json.loads(after(result, "package.json"))["dependencies"] == {"mid": "1.1.0"}


def test_a_parent_that_moves_within_its_range_changes_the_lock_only(tmp_path: Path) -> None:
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    # A lower one would serve, and is deprecated.
    universe = pinned_parent().npm("mid", "1.0.5", {"leaf": "1.2.0"}, deprecated="broken")
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.LOCK_REFRESH, ("mid 1.1.0",))
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.1.0"}
    assert [change.path for change in result.changes] == ["package-lock.json"]


# A lock of version 2 has what 1 and 3 have (one is above); of version 3 are the other tests' locks.
@pytest.mark.parametrize("lock_version", a_choice((1, 3, 2), step=3))
def test_what_a_raised_parent_brings_is_the_lowest_that_serves(
    tmp_path: Path, lock_version: int
) -> None:
    """npm alone takes the highest that the parent's new ask admits."""
    universe = (
        leaves().npm("mid", "1.0.0", {"leaf": "~1.0.0"}).npm("mid", "1.1.0", {"leaf": "^1.1.0"})
    )
    files = {"package.json": manifest(dependencies={"mid": "^1.0.0"})}
    with world(universe, tmp_path) as here:
        locked = here.locked(files, manifest(dependencies={"mid": "1.0.0"}), lock_version)
        result = here.fix(LEAF, locked)
        assert here.written(result).ok
    (move,) = result.moves
    assert (move.before, move.after, move.raised) == (("1.0.0",), "1.2.0", ("mid 1.1.0",))
    # In the place of the old copy, and not beside a higher one that then goes.
    made = json.loads(after(result, "package-lock.json"))
    section, place = (
        ("packages", "node_modules/leaf") if lock_version > 1 else ("dependencies", "leaf")
    )
    assert made[section][place]["version"] == "1.2.0"


def test_a_grandparent_is_found_by_walking_up(tmp_path: Path) -> None:
    universe = pinned_parent().npm("top", "1.0.0", {"mid": "1.0.0"})
    universe.npm("top", "1.1.0", {"mid": "1.0.1"}).npm("top", "1.2.0", {"mid": "1.1.0"})
    files = project(
        {"top": "1.0.0"},
        {
            "leaf": at("1.0.0"),
            "mid": at("1.0.0", leaf="1.0.0"),
            "top": at("1.0.0", mid="1.0.0"),
        },
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    assert result.moves[0].raised == ("top 1.2.0",)


# A lock of version 2 has what 1 and 3 have.
@pytest.mark.parametrize("lock_version", a_choice((3, 1), step=2))
@pytest.mark.parametrize("declared", ["^1.0.0", "1.0.0"])
def test_what_a_widened_range_lets_move_moves_with_it(
    tmp_path: Path, declared: str, lock_version: int
) -> None:
    """The next framework's range admits the old helper too, so npm keeps it, and what it pins."""
    universe = pinned_parent().npm("frame", "1.0.0", {"leaf": "1.0.0", "mid": "1.0.0"})
    universe.npm("frame", "1.1.0", {"leaf": "~1.2.0", "mid": "^1.0.0"})
    files = {"package.json": manifest(dependencies={"frame": declared})}
    with world(universe, tmp_path) as here:
        was = manifest(dependencies={"frame": "1.0.0"})
        result = here.fix(LEAF, here.locked(files, was, lock_version))
        assert here.written(result).ok
        installed = json.loads((here.root / "package-lock.json").read_text())
    (move,) = result.moves
    refreshed = declared.startswith("^")
    assert move.step is (LadderStep.LOCK_REFRESH if refreshed else LadderStep.PARENT_BUMP)
    assert move.raised == ("frame 1.1.0", "mid 1.1.0")
    assert [change.path for change in result.changes] == (
        ["package-lock.json"] if refreshed else ["package-lock.json", "package.json"]
    )
    entries = installed["packages"] if lock_version > 1 else installed["dependencies"]
    held = {key.removeprefix("node_modules/"): it["version"] for key, it in entries.items() if key}
    assert held == {"frame": "1.1.0", "leaf": "1.2.0", "mid": "1.1.0"}


def test_an_override_that_holds_the_parent_is_raised(tmp_path: Path) -> None:
    universe = pinned_parent().npm("top", "1.0.0", {"mid": "^1.0.0"})
    files = project(
        {"top": "^1.0.0"},
        {
            "leaf": at("1.0.0"),
            "mid": at("1.0.0", leaf="1.0.0"),
            "top": at("1.0.0", mid="^1.0.0"),
        },
        overrides={"mid": "1.0.0"},
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    (move,) = result.moves
    assert (move.step, move.raised) == (LadderStep.PARENT_BUMP, ("mid 1.1.0",))
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.1.0", "top": "1.0.0"}
    assert json.loads(after(result, "package.json"))["overrides"] == {"mid": "1.1.0"}


def test_a_parent_that_can_move_does_and_the_other_alone_is_overridden(tmp_path: Path) -> None:
    universe = pinned_parent().npm("stuck", "1.0.0", {"leaf": "1.0.0"})
    files = project(
        {"mid": "^1.0.0", "stuck": "^1.0.0"},
        {
            "leaf": at("1.0.0"),
            "mid": at("1.0.0", leaf="1.0.0"),
            "stuck": at("1.0.0", leaf="1.0.0"),
        },
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.after, move.raised) == (LadderStep.OVERRIDE, "1.2.0", ("mid 1.1.0",))
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.1.0", "stuck": "1.0.0"}
    assert json.loads(after(result, "package.json"))["overrides"] == {"stuck": {"leaf": "1.2.0"}}


def test_a_declared_package_is_raised_and_the_copy_that_a_parent_pins_is_overridden(
    tmp_path: Path,
) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "1.0.0"})
    files = project(
        {"leaf": "1.0.0", "mid": "^1.0.0"},
        {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")},
    )
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    new = json.loads(after(result, "package.json"))
    assert new["dependencies"] == {"leaf": "1.2.0", "mid": "^1.0.0"}
    assert new["overrides"] == {"mid": {"leaf": "1.2.0"}}
    assert versions(result) == {"leaf": "1.2.0", "mid": "1.0.0"}


def test_where_no_parent_helps_a_scoped_override_does(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "1.0.0"})
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.after) == (LadderStep.OVERRIDE, "1.2.0")
    assert [reported.step for reported in move.declined] == [
        LadderStep.LOCK_REFRESH,
        LadderStep.DIRECT_BUMP,
        LadderStep.PARENT_BUMP,
    ]
    assert (
        move.declined[1].reason
        == "mid 1.0.0 requires leaf 1.0.0, not the project itself (package.json)."
    )
    assert json.loads(after(result, "package.json"))["overrides"] == {"mid": {"leaf": "1.2.0"}}
    assert versions(result)["leaf"] == "1.2.0"


def test_a_parent_that_changes_much_yields_to_a_small_override(tmp_path: Path) -> None:
    """The only parent that lets go of the leaf is another major version: its users' code would break."""
    universe = (
        leaves().npm("mid", "1.0.0", {"leaf": "1.0.0"}).npm("mid", "2.0.0", {"leaf": "1.2.0"})
    )
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, files)
    (move,) = result.moves
    assert (move.step, move.after) == (LadderStep.OVERRIDE, "1.2.0")
    assert versions(result)["mid"] == "1.0.0"
    reported = move.declined[-1]
    assert reported.step is LadderStep.PARENT_BUMP
    assert reported.reason == (
        "2 installed packages change, 1 that the project requires makes a major step;"
        " the override or constraint changes less: 1 installed packages change."
    )


@pytest.mark.parametrize("prefer", [LadderStep.PARENT_BUMP, LadderStep.OVERRIDE])
def test_a_person_may_choose_between_the_two(tmp_path: Path, prefer: LadderStep) -> None:
    universe = (
        leaves().npm("mid", "1.0.0", {"leaf": "1.0.0"}).npm("mid", "2.0.0", {"leaf": "1.2.0"})
    )
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    with world(universe, tmp_path) as here:
        here.settings = Settings(prefer=prefer)
        result = here.fix(LEAF, files)
    assert [move.step for move in result.moves] == [prefer]
    assert f"A person preferred the {prefer.label}." in result.notes


def test_a_major_step_that_is_taken_is_called_one(tmp_path: Path) -> None:
    universe = (
        Universe().npm("mid", "1.0.0", {"leaf": "1.0.0"}).npm("mid", "2.0.0", {"leaf": "2.0.0"})
    )
    universe.npm("leaf", "1.0.0").npm("leaf", "2.0.0")
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="1.0.0")})
    with world(universe, tmp_path) as here:
        result = here.fix(bad("leaf", ("0", "2.0.0")), files)
    assert [move.step for move in result.moves] == [LadderStep.PARENT_BUMP]
    assert "mid goes from 1.0.0 to 2.0.0, a major step: look at what it changed." in result.notes


def test_where_the_package_itself_cannot_be_forced_what_brings_it_in_is(tmp_path: Path) -> None:
    """Every safe leaf is another major version, but inner 1.1.0, compatible with 1.0.0, asks for one."""
    universe = Universe().npm("leaf", "1.0.0").npm("leaf", "2.0.0")
    universe.npm("inner", "1.0.0", {"leaf": "^1.0.0"}).npm("inner", "1.1.0", {"leaf": "^2.0.0"})
    universe.npm("mid", "1.0.0", {"inner": "1.0.0"})
    installed = {
        "leaf": at("1.0.0"),
        "inner": at("1.0.0", leaf="^1.0.0"),
        "mid": at("1.0.0", inner="1.0.0"),
    }
    with world(universe, tmp_path) as here:
        result = here.fix(bad("leaf", ("0", "2.0.0")), project({"mid": "^1.0.0"}, installed))
    (move,) = result.moves
    assert (move.step, move.after, move.raised) == (LadderStep.OVERRIDE, "2.0.0", ("inner 1.1.0",))
    assert json.loads(after(result, "package.json"))["overrides"] == {"mid": {"inner": "1.1.0"}}


@pytest.mark.parametrize("lock_version", [1, 3])
def test_a_copy_in_anothers_archive_is_named(tmp_path: Path, lock_version: int) -> None:
    """No client chooses its version: what has to be raised is the package that bundles it."""
    files = project({"program": "^1.0.0"}, {"program": at("1.0.0", leaf="^1.0.0")})
    lock = json.loads(files["package-lock.json"])
    inner = {"version": "1.0.0", "inBundle": True}
    lock["packages"]["node_modules/program/node_modules/leaf"] = inner
    if lock_version == 1:
        leaf = {"version": "1.0.0", "bundled": True}
        lock["dependencies"] = {"program": {"version": "1.0.0", "dependencies": {"leaf": leaf}}}
        del lock["packages"]
    lock["lockfileVersion"] = lock_version
    files["package-lock.json"] = json.dumps(lock, indent=2) + "\n"
    with world(leaves(), tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    assert "leaf 1.0.0 is bundled in program 1.0.0, and no higher release" in caught.value.problem
    assert "registry is reachable" not in str(caught.value)


def test_what_demands_the_old_version_as_its_peer_moves_along(tmp_path: Path) -> None:
    universe = leaves().npm("plugin", "1.0.0", peerDependencies={"leaf": "~1.0.0"})
    universe.npm("plugin", "1.5.0", peerDependencies={"leaf": "~1.1.0"})
    for version in ("2.0.0", "2.1.0", "3.0.0"):
        universe.npm("plugin", version, peerDependencies={"leaf": "^1.2.0"})
    universe.npm("plugin", "2.2.0", peerDependencies={"leaf": "^2.0.0"})
    installed = {
        "leaf": at("1.0.0"),
        "plugin": {"version": "1.0.0", "peerDependencies": {"leaf": "~1.0.0"}},
    }
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, project({"leaf": "^1.0.0", "plugin": "^1.0.0"}, installed))
    (move,) = result.moves
    assert (move.step, move.after, move.raised) == (
        LadderStep.DIRECT_BUMP,
        "1.2.0",
        ("plugin 2.1.0",),
    )
    assert versions(result) == {"leaf": "1.2.0", "plugin": "2.1.0"}
    assert "plugin goes from 1.0.0 to 2.1.0, a major step: look at what it changed." in result.notes


def test_within_its_major_a_peer_moves_to_the_lowest_that_fits(tmp_path: Path) -> None:
    universe = leaves().npm("plugin", "1.0.0", peerDependencies={"leaf": "~1.0.0"})
    for version in ("1.5.0", "1.6.0"):
        universe.npm("plugin", version, peerDependencies={"leaf": "^1.2.0"})
    installed = {
        "leaf": at("1.0.0"),
        "plugin": {"version": "1.0.0", "peerDependencies": {"leaf": "~1.0.0"}},
    }
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, project({"leaf": "^1.0.0", "plugin": "^1.0.0"}, installed))
    assert versions(result) == {"leaf": "1.2.0", "plugin": "1.5.0"}


def test_an_override_never_crosses_a_major(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    record = bad("leaf", ("0", "2.1.0"))
    files = project({"mid": "^1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="^1.0.0")})
    with world(universe, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(record, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    overriding = next(it for it in caught.value.declined if it.step is LadderStep.OVERRIDE)
    (blocker,) = overriding.blockers
    assert (blocker.package, blocker.constraint) == ("mid 1.0.0", "leaf ^1.0.0")


def test_a_peer_that_a_bump_breaks_is_named(tmp_path: Path) -> None:
    universe = leaves().npm("plugin", "1.0.0", peerDependencies={"leaf": "~1.0.0"})
    dependencies = {"leaf": "1.0.0", "plugin": "1.0.0"}
    files = project(
        dependencies,
        {
            "leaf": at("1.0.0"),
            "plugin": {"version": "1.0.0", "peerDependencies": {"leaf": "~1.0.0"}},
        },
    )
    with world(universe, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    bump = next(it for it in caught.value.declined if it.step is LadderStep.DIRECT_BUMP)
    assert ("plugin 1.0.0", "leaf ~1.0.0") in {(it.package, it.constraint) for it in bump.blockers}


def test_what_npm_blames_is_named_and_its_advice_is_not_followed(tmp_path: Path) -> None:
    universe = leaves().npm("plugin", "1.0.0", peerDependencies={"leaf": "~1.0.0"})
    files = project({"leaf": "1.0.0"}, {"leaf": at("1.0.0")})
    files["package.json"] = manifest(dependencies={"leaf": "1.0.0", "plugin": "1.0.0"})
    with world(universe, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT
    bump = next(it for it in caught.value.declined if it.step is LadderStep.DIRECT_BUMP)
    (blocker,) = bump.blockers
    assert (blocker.kind, blocker.file) == (BlockerKind.CONFLICT, "package.json")
    assert (blocker.package, blocker.constraint) == ("plugin 1.0.0", "leaf ~1.0.0")
    assert "--force" not in bump.reason


def test_a_parent_that_brings_in_another_affected_package_is_no_fix(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    universe.npm("mid", "1.1.0", {"worse": "1.0.0"}).npm("worse", "1.0.0")
    both = bundle([bad("leaf", ("0", "2.1.0")), bad("worse", ("0", None))])
    files = project({"mid": "1.0.0"}, {"leaf": at("1.0.0"), "mid": at("1.0.0", leaf="^1.0.0")})
    with world(universe, tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(both, files)
    assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT


def test_a_workspace_members_declaration_is_raised_with_the_roots_lock(tmp_path: Path) -> None:
    member = manifest(dependencies={"leaf": "~1.0.0"}).replace('"app"', '"member"')
    packages = {
        "": {"name": "app", "version": "1.0.0", "workspaces": ["packages/*"]},
        "node_modules/leaf": {"version": "1.0.0"},
        "node_modules/member": {"resolved": "packages/a", "link": True},
        "packages/a": {
            "name": "member",
            "version": "1.0.0",
            "dependencies": {"leaf": "~1.0.0"},
        },
    }
    files = {
        "package.json": manifest(workspaces=["packages/*"]),
        "packages/a/package.json": member,
        "package-lock.json": json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2),
    }
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert [change.path for change in result.changes] == [
        "package-lock.json",
        "packages/a/package.json",
    ]
    assert after(result, "packages/a/package.json") == member.replace("~1.0.0", "~1.2.0")
    assert versions(result)["leaf"] == "1.2.0"


def test_a_lock_alone_is_refreshed_within_its_own_ranges(tmp_path: Path) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    del files["package.json"]
    with world(leaves(), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert steps(result) == [("leaf", LadderStep.LOCK_EDIT, "1.2.0")]
    assert [change.path for change in result.changes] == ["package-lock.json"]


def test_a_lock_alone_whose_range_excludes_the_fix_lacks_its_manifest(tmp_path: Path) -> None:
    files = project({"leaf": "~1.0.0"}, {"leaf": at("1.0.0")})
    del files["package.json"]
    with world(leaves(), tmp_path) as here, pytest.raises(RecipeError) as caught:
        here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.MANIFEST_MISSING


def test_without_a_lock_what_is_pulled_in_is_found_by_resolving(tmp_path: Path) -> None:
    files = {"package.json": manifest(dependencies={"mid": "1.0.0"})}
    with world(pinned_parent(), tmp_path) as here:
        assert isinstance(here.select(LEAF, files), Selected)
        result = here.fix(LEAF, files)
    assert [change.path for change in result.changes] == ["package.json"]
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    assert result.moves[0].raised == ("mid 1.1.0",)
    assert not (tmp_path / "repo/package-lock.json").exists()


def test_without_a_lock_a_safe_tree_is_not_affected(tmp_path: Path) -> None:
    universe = leaves().npm("mid", "1.0.0", {"leaf": "^1.0.0"})
    files = {"package.json": manifest(dependencies={"mid": "1.0.0"})}
    with world(universe, tmp_path) as here:
        with pytest.raises(RecipeError) as caught:
            here.fix(LEAF, files)
        assert caught.value.reason is RefusalReason.NOT_AFFECTED
        here.settings = Settings(offline=True)
        reported = here.select(LEAF, files)
    assert isinstance(reported, NotApplicable)
    assert reported.reason is RefusalReason.NOT_AFFECTED


def test_a_bundle_is_planned_together_and_keeps_what_it_cannot_fix(tmp_path: Path) -> None:
    universe = pinned_parent().npm("stuck", "1.0.0")
    files = project(
        {"mid": "1.0.0", "stuck": "^1.0.0"},
        {
            "leaf": at("1.0.0"),
            "mid": at("1.0.0", leaf="1.0.0"),
            "stuck": at("1.0.0"),
        },
    )
    stuck = bad("stuck", ("0", None)).model_copy(update={"id": "OSV-TEST-2"})
    with world(universe, tmp_path) as here:
        result = here.fix(bundle([LEAF, stuck]), files)
    assert [move.package for move in result.moves] == ["leaf"]
    (left,) = result.left
    assert (left.package, left.reason) == ("stuck", RefusalReason.NO_FIXED_VERSION)
    assert left.advisory_ids == ("OSV-TEST-2",)


def test_a_models_choice_is_followed_exactly(tmp_path: Path) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    with world(leaves(), tmp_path) as here:
        result = here.plugin.apply(here.plugin.bump("leaf", "1.3.0"), LEAF, here.repo(files))
        assert here.verbs() == ["install"]
    assert versions(result)["leaf"] == "1.3.0"


@pytest.mark.parametrize(
    ("version", "kind"),
    [("1.1.0", "affected"), ("latest", "not_a_version"), ("0.9.0", "affected")],
)
def test_a_models_choice_is_checked(tmp_path: Path, version: str, kind: str) -> None:
    files = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    with world(leaves(), tmp_path) as here, pytest.raises(RecipeError, check=OfKind(kind)):
        here.plugin.apply(here.plugin.bump("leaf", version), LEAF, here.repo(files))


def questions(calls: list[tuple[str, ...]]) -> list[str]:
    return [call[2] for call in calls if call[1] == "view"]


def test_the_parents_that_hold_a_copy_back_are_looked_up_together(tmp_path: Path) -> None:
    universe, names = leaves(), ["one", "two", "three"]
    installed = {"leaf": at("1.0.0")}
    for name in names:
        universe.npm(name, "1.0.0", {"leaf": "~1.0.0"}).npm(name, "1.1.0", {"leaf": "^1.2.0"})
        installed[name] = at("1.0.0", leaf="~1.0.0")
    files = project(dict.fromkeys(names, "^1.0.0"), installed)
    with world(universe, tmp_path) as here:
        result = here.fix(bad("leaf", ("0", "1.2.0")), files)
        asked = questions(here.clients.calls)
    assert versions(result) == {"leaf": "1.2.0", **dict.fromkeys(names, "1.1.0")}
    assert asked.count(".@>=0.0.0") == 1
    assert not {f"{name}@>=0.0.0" for name in names}.intersection(asked)


def test_releases_whose_ranges_the_lock_lacks_are_looked_up_together(tmp_path: Path) -> None:
    """pnpm's lock has none."""
    edges = {name: DependencyEdge("leaf", "", "leaf") for name in ("one", "two", "three")}
    nodes = {name: Node(name, name, "1.0.0", (edge,)) for name, edge in edges.items()}
    nodes["leaf"] = Node("leaf", "leaf", "1.0.0")
    root = Node("package.json", "app", "1.0.0", (DependencyEdge("leaf", "", "leaf"),))
    universe = leaves()
    for number, name in enumerate(edges):
        universe.npm(name, "1.0.0", {"leaf": f"^1.{number}.0"})
    with world(universe, tmp_path) as here:
        targets = Targets(LEAF, NpmRegistry(here.clients))
        found = targets.dependents(DependencyTree("pnpm-lock.yaml", nodes, (root,)), "leaf")
        assert questions(here.clients.calls) == [".@>=0.0.0"]
    assert [ask.spec for _, ask in found] == ["", "^1.0.0", "^1.1.0", "^1.2.0"]
