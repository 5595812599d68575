"""A package.json among tests that npm can't resolve is named and left, and the project is fixed; any other
stops the fix, for half of one is none."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import bundle
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Selected
from tests.choice import a_choice
from tests.registry import Universe
from tests.unit.npm.world import at, bad, manifest, project, versions, world

LEAF = bad("leaf", ("0", "1.2.0"))

UNRESOLVABLE = {
    "a name that the registry lacks": manifest(dependencies={"no-such-package": "1.0.0"}),
    "a version that was never published": manifest(dependencies={"leaf": "9.9.9"}),
    "a version that is none": manifest(dependencies={"leaf": "no such tag"}),
    "another host": manifest(dependencies={"x": "http://127.0.0.1:9/x.tgz"}),
    "a folder outside": manifest(dependencies={"x": "file:" + "../" * 15 + "etc"}),
    "a list of names": json.dumps({"dependencies": ["leaf"]}),
    "a number": json.dumps({"dependencies": {"leaf": 7}}),
}


def universe() -> Universe:
    return Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0")


@pytest.mark.parametrize("fault", a_choice(UNRESOLVABLE, step=3))
def test_a_fixture_is_named_and_left(tmp_path: Path, fault: str) -> None:
    path = "test/fixtures/odd/package.json"
    files = {**project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}), path: UNRESOLVABLE[fault]}
    with world(universe(), tmp_path) as here:
        result = here.fix(LEAF, files)
        assert here.written(result).ok
    assert versions(result)["leaf"] == "1.2.0"
    assert [change.path for change in result.changes] == ["package-lock.json"]
    (note,) = result.notes
    assert note.startswith("Left as it is, and not judged: ")
    assert path in note
    assert "unknown" in note


@pytest.mark.parametrize("folder", [".", "packages/tool"])
def test_a_project_that_can_not_be_resolved_is_no_fixture(tmp_path: Path, folder: str) -> None:
    odd = UNRESOLVABLE["a name that the registry lacks"]
    good = project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")})
    files = {f"test/app/{path}": text for path, text in good.items()}
    files |= {"package.json" if folder == "." else f"{folder}/package.json": odd}
    name = "no-such-package"
    with world(universe(), tmp_path) as here, pytest.raises(RecipeError, match=name) as caught:
        here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.UNKNOWN


def test_with_nothing_else_affected_it_is_unknown_not_clean(tmp_path: Path) -> None:
    files = {"test/package.json": UNRESOLVABLE["another host"]}
    with world(universe(), tmp_path) as here:
        assert isinstance(here.select(LEAF, files), Selected)  # only a resolver tells
        with pytest.raises(RecipeError, match=r"test/package\.json") as caught:
            here.fix(LEAF, files)
    assert caught.value.reason is RefusalReason.UNKNOWN


def test_what_a_fixture_pins_is_raised_all_the_same(tmp_path: Path) -> None:
    odd = manifest(dependencies={"leaf": "1.0.0", "no-such-package": "1.0.0"})
    files = {**project({"leaf": "^1.0.0"}, {"leaf": at("1.0.0")}), "test/a/package.json": odd}
    second = bad("other", ("0", "1.1.0")).model_copy(update={"id": "OSV-TEST-2"})
    with world(universe(), tmp_path) as here:
        result = here.fix(bundle([LEAF, second]), files)
    assert [change.path for change in result.changes] == [
        "package-lock.json",
        "test/a/package.json",
    ]
    assert result.left == ()
    assert any("test/a/package.json" in note for note in result.notes)
