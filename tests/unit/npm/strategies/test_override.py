"""A model's override, with the real npm: that step alone, and for what the project doesn't ask for."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import RecipeResult
from fallback_tier.repo import Settings
from tests.kinds import OfKind
from tests.registry import Universe
from tests.unit.npm.world import World, at, bad, manifest, project, versions, world
from tests.unit.shared.recipes import after

LEAF = bad("leaf", ("0", "1.2.0"), ("2.0.0", "2.1.0"))


def universe() -> Universe:
    found = Universe()
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0", "2.1.0"):
        found.npm("leaf", version)
    return (
        found.npm("loose", "1.0.0", {"leaf": "^1.0.0"})
        .npm("exact", "1.0.0", {"leaf": "1.0.0"})
        .npm("exact", "2.0.0", {"leaf": "1.3.0"})
        .npm("second", "1.0.0", {"leaf": "^2.0.0"})
    )


def locked(parent: str = "exact", spec: str = "1.0.0", **sections: Any) -> dict[str, str]:
    installed = {"leaf": at("1.0.0"), parent: at("1.0.0", leaf=spec)}
    return project({parent: "^1.0.0"}, installed, **sections)


def forced(here: World, files: dict[str, str], version: str = "1.2.0") -> RecipeResult:
    return here.plugin.apply(here.plugin.override("leaf", version), LEAF, here.repo(files))


@pytest.mark.parametrize(("parent", "spec"), [("exact", "1.0.0"), ("loose", "^1.0.0")])
def test_the_step_is_resolved_whatever_the_cheaper_ones_could_do(
    tmp_path: Path, parent: str, spec: str
) -> None:
    with world(universe(), tmp_path) as here:
        result = forced(here, locked(parent, spec))
        assert here.verbs() == ["install"]
    (move,) = result.moves
    assert (move.package, move.step, move.before, move.after) == (
        "leaf",
        LadderStep.OVERRIDE,
        ("1.0.0",),
        "1.2.0",
    )
    assert versions(result) == {"leaf": "1.2.0", parent: "1.0.0"}
    new = json.loads(after(result, "package.json"))
    assert new["overrides"] == {parent: {"leaf": "1.2.0"}}
    assert new["dependencies"] == {parent: "^1.0.0"}


def test_a_project_without_a_lock_gets_no_lock(tmp_path: Path) -> None:
    files = {"package.json": manifest(dependencies={"exact": "1.0.0"})}
    with world(universe(), tmp_path) as here:
        result = forced(here, files)
        assert [change.path for change in result.changes] == ["package.json"]
        here.settings = Settings(offline=True)
        with pytest.raises(RecipeError, check=OfKind("no_lock")):
            forced(here, files)
    assert json.loads(after(result, "package.json"))["overrides"] == {"exact": {"leaf": "1.2.0"}}


def test_an_override_that_is_there_is_raised(tmp_path: Path) -> None:
    files = locked("loose", "^1.0.0", overrides={"leaf": "1.0.0", "other": "1"})
    with world(universe(), tmp_path) as here:
        result = forced(here, files)
    assert result.moves[0].step is LadderStep.OVERRIDE
    new = json.loads(after(result, "package.json"))
    assert new["overrides"] == {"leaf": "1.2.0", "other": "1"}


def test_a_direct_dependency_is_raised_not_overridden(tmp_path: Path) -> None:
    files = project({"leaf": "~1.0.0"}, {"leaf": at("1.0.0")})
    loose = {"package.json": manifest(dependencies={"leaf": "1.0.0"})}
    with world(universe(), tmp_path) as here:
        for each in (files, loose):
            with pytest.raises(
                RecipeError, check=OfKind("direct_dependency"), match="leaf"
            ) as caught:
                forced(here, each)
            assert caught.value.next_step == "Use dependency_bump."
        assert here.verbs() == []


@pytest.mark.parametrize(
    ("files", "version", "kind"),
    [
        (locked(), "1.1.0", "affected"),
        (locked(), "^1.2.0", "not_a_version"),
        (locked(), "2.1.0", "another_major"),
        (locked(), "1.9.9", "not_published"),  # never published
        (project({"exact": "1"}, {"leaf": at("1.1.0"), "exact": at("1.0.0", leaf="1.1.0")}),
         "1.0.0", "affected"),
        ({"package-lock.json": locked()["package-lock.json"]}, "1.2.0", "manifest_missing"),
        (project({"loose": "^1.0.0"}, {"leaf": at("1.3.0"), "loose": at("1.0.0", leaf="^1.0.0")}),
         "1.2.0", "not_affected"),
        ({"README.md": "x"}, "1.2.0", "no_project"),
    ],
)  # fmt: skip
def test_what_can_not_be_overridden(
    tmp_path: Path, files: dict[str, str], version: str, kind: str
) -> None:
    with (
        world(universe(), tmp_path) as here,
        pytest.raises(RecipeError, check=OfKind(kind)) as caught,
    ):
        forced(here, files, version)
    assert caught.value.next_step


def test_a_copy_that_the_version_does_not_serve_stops_it(tmp_path: Path) -> None:
    """One version for two majors is forced on nobody: a partial fix is no fix."""
    installed = {
        "leaf": at("1.0.0"),
        "exact": at("1.0.0", leaf="1.0.0"),
        "second": at("1.0.0", leaf="^2.0.0"),
        "second/node_modules/leaf": at("2.0.0"),
    }
    files = project({"exact": "1.0.0", "second": "1.0.0"}, installed)
    with world(universe(), tmp_path) as here:
        with pytest.raises(RecipeError, match=r"leaf 2\.0\.0; 1\.2\.0 ") as caught:
            forced(here, files)
        assert here.verbs() == []
        assert caught.value.reason is RefusalReason.BLOCKED_BY_CONSTRAINT


def test_a_bump_that_a_parent_blocks_tells_a_model_of_the_override(tmp_path: Path) -> None:
    blocks = pytest.raises(RecipeError, match=r"exact 1\.0\.0 .* leaf 1\.0\.0")
    with world(universe(), tmp_path) as here, blocks as caught:
        here.plugin.apply(here.plugin.bump("leaf", "1.2.0"), LEAF, here.repo(locked()))
    assert caught.value.next_step.startswith("Use override where only others bring it in")
