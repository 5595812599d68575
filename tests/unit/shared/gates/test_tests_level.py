"""How far a project's tests were judged, and what a person needs to judge them: the policy, over made-up
runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.event_types import JudgedTests
from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_plugins.shared.gates.gating import (
    combined,
    passed,
    skipped,
    undecided,
    unjudged,
    untested,
)
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.test_commands import TestCommand as Command
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.gate_ports import GateVerdict
from tests.unit.shared.gates.test_flaky import Project, judge, run, unnamed
from tests.unit.shared.gates.test_suites_by_name import ended, late

COMPARED, RAN, NOT_JUDGED = Level.COMPARED, Level.RAN, Level.NOT_JUDGED
YARN = "\n> shop@1.0.0 test\n> yarn jest\n\nsh: 1: yarn: not found\n"


@pytest.mark.parametrize(
    ("ours", "base", "level"),
    [
        # By a report on both sides.
        (ended(a="passed"), ended(a="passed"), COMPARED),
        (ended(a="passed", b="failed"), ended(a="passed", b="failed"), COMPARED),
        (ended(a="failed"), ended(a="passed"), COMPARED),
        # By the log: all failing tests by name, and as many ran.
        (run(3), run(3), COMPARED),
        (run(3, "a"), run(3, "a"), COMPARED),
        (run(3), run(3, "a"), COMPARED),
        (run(4), run(3), RAN),
        (ended(a="passed"), run(1), COMPARED),
        # The runner counts nothing.
        (unnamed("ok", 0), unnamed("ok", 0), RAN),
        (run(3), unnamed("ok", 0), RAN),
        (run(3), unnamed("bad"), RAN),
        # Nothing is known.
        (unnamed("bad"), unnamed("bad"), NOT_JUDGED),
        (run(0, exit_code=0), run(0, exit_code=0), NOT_JUDGED),
        (ended(a="uncollected"), ended(a="uncollected"), NOT_JUDGED),
        (NotInstalled("gone"), run(0, exit_code=0), NOT_JUDGED),
        (run(3), NotInstalled("gone"), NOT_JUDGED),
        # The base commit's run was ended.
        (late(a="passed", b="passed"), late(a="passed", b="passed"), RAN),
        (late(), late(), NOT_JUDGED),
        (ended(a="passed", b="passed"), late(a="passed"), RAN),
    ],
)
def test_the_level_says_how_far_they_were_judged(
    tmp_path: Path, ours: SuiteRun | NotInstalled, base: SuiteRun | NotInstalled, level: Level
) -> None:
    verdict = judge(tmp_path, Project([ours], [base]))
    (tests,) = verdict.tests
    assert (verdict.tests_level, tests.tests_level, tests.project) == (level, level, ".")
    assert bool(tests.reason) == (level is not COMPARED)


def test_what_kept_them_from_being_judged_is_told(tmp_path: Path) -> None:
    """The command, its source, the line that says why: not only that it fails as before."""
    command = Command("yarn test", 'package.json, script "test"')
    broken = replace(unnamed(YARN, 127), command=command)
    verdict = judge(tmp_path, Project([broken], [broken]))
    assert verdict.status is GateStatus.SKIPPED
    assert verdict.detail == (
        "the tests fail as at the base commit (exit code 127), and no failing test is named, so nothing is "
        "compared; the output ends: sh: 1: yarn: not found"
    )
    (tests,) = verdict.tests
    assert (tests.command, tests.source) == ("yarn test", 'package.json, script "test"')
    assert tests.last_line == "sh: 1: yarn: not found"
    assert tests.exit_code == 127
    assert tests.output == "sh: 1: yarn: not found"


def test_of_compared_tests_no_error_is_shown(tmp_path: Path) -> None:
    """One that fails as before is not why."""
    (tests,) = judge(tmp_path, Project([run(3, "a")], [run(3, "a")])).tests
    assert (tests.tests_level, tests.exit_code, tests.output) == (COMPARED, None, "")
    assert not {"exit_code", "output"} & tests.model_dump().keys()


def test_a_command_that_nobody_names_is_shown_as_it_was_run(tmp_path: Path) -> None:
    (tests,) = judge(tmp_path, Project([unnamed("bad")], [unnamed("bad")])).tests
    assert (tests.command, tests.source) == ("test", "")


def test_commands_that_did_not_serve_are_noted(tmp_path: Path) -> None:
    served = replace(run(3), unserved=("`make test` (ci.yml) ran no test",))
    assert "`make test` (ci.yml) ran no test" in judge(tmp_path, Project([served], [run(3)])).notes


def of(verdict: GateVerdict, level: Level | None) -> GateVerdict:
    return verdict.model_copy(update={"tests_level": level})


@pytest.mark.parametrize(
    ("levels", "level"),
    [
        ((COMPARED, COMPARED), COMPARED),
        ((COMPARED, RAN), RAN),
        ((RAN, NOT_JUDGED, COMPARED), NOT_JUDGED),
        ((COMPARED, None), NOT_JUDGED),
        ((None, None), None),
    ],
)
def test_a_whole_is_judged_as_far_as_its_weakest_part(
    levels: tuple[Level | None, ...], level: Level | None
) -> None:
    """Whatever a part's verdict is: one that was skipped counts, and one that says nothing."""
    makes = (passed, skipped, undecided)
    for make in makes:
        verdicts = [of(passed("tests", "in order"), levels[0])]
        verdicts += [of(make("tests", "so"), one) for one in levels[1:]]
        assert combined("tests", verdicts).tests_level is level
        assert combined("tests", verdicts[::-1]).tests_level is level
    assert combined("tests", [of(skipped("tests", "none"), levels[0])]).tests_level is levels[0]


def test_a_project_without_tests_says_nothing_beside_one_that_has_some() -> None:
    about = JudgedTests(project="app", tests_level=COMPARED)
    judged = of(passed("tests", "in order"), COMPARED).model_copy(update={"tests": (about,)})
    none = untested("tests", "the project has no tests")
    for verdicts in ([judged, none], [none, judged]):
        assert combined("tests", verdicts).tests_level is COMPARED
    for other in (unjudged(skipped("tests", "none ran"), "lib"), of(skipped("tests", "so"), None)):
        # Tests that could not be judged count, and so does a verdict that names no project.
        level = combined("tests", [judged, none, other]).tests_level
        assert level is (NOT_JUDGED if other.tests else COMPARED)
    assert combined("tests", [none, none]).tests_level is NOT_JUDGED


# --- a person is asked only after a further run ---------------------------------------------------


def test_a_run_that_fails_once_without_a_name_is_run_again_before_a_person_is_asked(
    tmp_path: Path,
) -> None:
    project = Project([unnamed("crashed"), unnamed("ok", 0)], [unnamed("ok", 0)])
    verdict = judge(tmp_path, project)
    assert verdict.status is GateStatus.PASSED
    assert project.asked.count("patched") == 3
    (note,) = verdict.notes
    assert "run once more" in note
    assert "with the patch 1 of 3 runs fail, at the base commit 0 of 3" in note


def test_a_run_that_fails_twice_is_a_persons_question(tmp_path: Path) -> None:
    bad, good = unnamed("crashed"), unnamed("ok", 0)
    for number, runs in enumerate([[bad, bad, good], [bad, good, bad]]):
        verdict = judge(tmp_path / str(number), Project([*runs], [good]))
        assert verdict.status is GateStatus.UNDECIDED
        assert any("with the patch 2 of 3 runs fail" in note for note in verdict.notes)


def test_an_undecided_verdict_names_its_tests_and_both_sides_runs(tmp_path: Path) -> None:
    bad, good = ended(a="failed", b="passed"), ended(a="passed", b="passed")
    verdict = judge(tmp_path, Project([bad, bad, good], [good]))
    assert verdict.status is GateStatus.UNDECIDED
    assert "a fails in 2 of 3 runs with the patch, in 0 of 3 at the base commit" in verdict.notes


def test_a_flaky_pass_names_its_tests_and_both_sides_runs(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([run(3, "a"), run(3)], [run(3), run(3, "a")]))
    assert (verdict.status, verdict.flaky) == (GateStatus.PASSED, ("a",))
    assert "a fails in 1 of 2 runs with the patch, in 1 of 2 at the base commit" in verdict.notes


def test_what_a_patch_breaks_fails_however_often_it_is_asked(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([ended(a="failed")], [ended(a="passed")]))
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.broken == ("a",)
    assert verdict.notes == ()


def test_a_rerun_that_fails_otherwise_once_is_asked_again(tmp_path: Path) -> None:
    """The suite has a flaky test, and by chance another one fails in its rerun."""
    base = [run(3), run(3, "a")]
    verdict = judge(tmp_path, Project([run(3, "a"), run(3, "b"), run(3)], [*base]))
    assert (verdict.status, verdict.flaky) == (GateStatus.PASSED, ("a", "b"))
    twice = judge(tmp_path / "2", Project([run(3, "a"), run(3, "b"), run(3, "b")], [*base]))
    assert twice.status is GateStatus.UNDECIDED


def test_a_busy_machine_is_asked_again(tmp_path: Path) -> None:
    """The clock ends one run with the patch, and the next two are in time."""
    verdict = judge(tmp_path, Project([late(a="passed"), ended(a="passed")], [ended(a="passed")]))
    assert verdict.status is GateStatus.PASSED
    again = judge(
        tmp_path / "2",
        Project([late(a="passed"), ended(a="passed"), late(a="passed")], [ended(a="passed")]),
    )
    assert again.status is GateStatus.UNDECIDED


def test_options_that_were_left_out_once_are_asked_again(tmp_path: Path) -> None:
    without = replace(run(3), without_options=True)
    verdict = judge(tmp_path, Project([without, run(3)], [run(3)]))
    assert verdict.status is GateStatus.PASSED
    always = judge(tmp_path / "2", Project([without], [run(3)]))
    assert always.status is GateStatus.UNDECIDED
