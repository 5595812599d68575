"""One case of ours from end to end: by the real command, and by one that lies."""

import sys
from pathlib import Path

import pytest

from tests.campaigns.measuring.forks import run_to_end
from tests.campaigns.own_code import command, small_case
from tests.campaigns.own_code.checkout import advisory_of, check_out
from tests.campaigns.own_code.running import Options, run_case
from tests.campaigns.own_code.upstream import text_of
from tests.campaigns.own_code.wrong import Kind
from tests.fakes.repository import git

KINDS = [Kind.UNRELATED, Kind.COMMENT, Kind.ELSEWHERE, Kind.DECOY]


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real command in forks that have it imported: a case is eight fixes, and mostly their imports."""
    monkeypatch.setattr(command, "run_to_end", run_to_end)


@pytest.mark.registry("uv")
@pytest.mark.sandbox
@pytest.mark.usefixtures("_forked")
def test_the_true_fix_is_proved_and_no_wrong_one(tmp_path: Path) -> None:
    case, record, clones = small_case.case(tmp_path)
    row = run_case(case, record, Options(clones=clones))
    assert row.proved, row
    assert row.plan.exact is True
    assert (row.tests.ran, row.proof.ran) == (True, True)
    assert row.first is not None
    assert row.first.all
    assert row.retries
    ends = [one for one in row.wrong if one.with_proof]
    assert [one.kind for one in ends] == KINDS
    assert all(one.stopped_by == "proof (proof_failed)" for one in ends), ends
    assert not any(one.is_false for one in ends)


def test_a_command_that_lies_is_found_out(tmp_path: Path) -> None:
    case, record, clones = small_case.case(tmp_path, python=sys.executable)
    row = run_case(case, record, Options(clones=clones, script=small_case.liar(tmp_path)))
    assert row.proved  # it happens to be true
    assert row.tool == "liar 1.0"
    assert [one.kind for one in row.wrong if one.with_proof] == KINDS
    assert all(one.is_false for one in row.wrong), row.wrong
    assert {one.proof_passes for one in row.wrong if one.with_proof} == {False}
    # With the proof, without it, and the true fix without it.
    assert row.false_fixed == 4 + 4 + 1


def test_a_right_plan_among_the_wrong_ones_is_no_false_one(tmp_path: Path) -> None:
    """A fix whose first half is enough: the harness' own run of the proof says so."""
    twice = small_case.FIXED.replace("    return 1", "    pass\n    return 1")
    case, record, clones = small_case.case(tmp_path, sys.executable, twice)
    row = run_case(case, record, Options(clones=clones, script=small_case.liar(tmp_path)))
    (half,) = [one for one in row.wrong if one.kind is Kind.HALF and one.with_proof]
    assert half.says_fixed
    assert half.proof_passes is True
    assert not half.is_false


def test_a_checkout_is_as_somebody_has_it_who_cloned_it(tmp_path: Path) -> None:
    case, _, clones = small_case.case(tmp_path)
    checkout = check_out(case, tmp_path, clones)
    assert checkout.root.name == "left"
    assert text_of(checkout.root / "left.py") == small_case.FLAW
    config = (checkout.root / ".git" / "config").read_text()
    assert "https://github.com/own/left" in config
    assert str(clones) not in config
    assert checkout.at_fix("left.py") == small_case.FIXED.encode()
    assert checkout.at_fix("gone.py") is None


def test_a_file_that_the_clone_lacks_is_taken_away(tmp_path: Path) -> None:
    case, _, clones = small_case.case(tmp_path)
    clone = clones / "own+left.git"
    blob = git(clone, "rev-parse", f"{case.commit}:right.py").strip()
    (clone / "objects" / blob[:2] / blob[2:]).unlink()
    checkout = check_out(case, tmp_path, clones)
    assert checkout.absent == ("right.py",)
    assert git(checkout.root, "status", "--porcelain") == ""
    assert git(checkout.root, "rev-parse", "HEAD^").strip() == case.commit
    day, ours = git(checkout.root, "log", "-2", "--format=%cs").split()
    assert day == ours
    assert "right.py" not in checkout.tracked


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ({"fixed_version": ">=2.8.1", "vulnerable_range": "<=2.8.0"}, ["0", "2.8.1"]),
        ({"fixed_version": ">= 1.7.0-alpha3", "vulnerable_version": None}, ["0", "1.7.0-alpha3"]),
        ({"fixed_version": "2.0.3", "vulnerable_version": "2.0.2"}, ["0", "2.0.3"]),
        ({"fixed_version": "7.0.36", "vulnerable_version": "8.0.0"}, ["0"]),
        ({"fixed_version": None}, ["0"]),
        ({"fixed_version": "next release"}, ["0"]),
    ],
)
def test_an_advisory_of_either_shape(
    tmp_path: Path, told: dict[str, str], events: list[str]
) -> None:
    _, record, _ = small_case.case(tmp_path)
    npm = record.model_copy(update={"ecosystem": "npm", "affected": (told,)})
    (affected,) = advisory_of(npm)["affected"]
    assert affected["package"] == {"ecosystem": "npm", "name": "left"}
    assert [
        value for event in affected["ranges"][0]["events"] for value in event.values()
    ] == events
