"""The tests that reach a patch, beside a suite that does not end at the base commit: verdicts over made-up
runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_plugins.shared.gates.reaching import Reaching
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suites import Part, judge_tests
from fallback_tier.gate_ports import GateVerdict
from tests.unit.shared.gates.test_flaky import Project, context
from tests.unit.shared.gates.test_suites_by_name import ended, late

REACHING = Reaching(("tests/test_a.py",), 9, "idna")


def selecting(run: SuiteRun) -> SuiteRun:
    return replace(run, can_select=True)


def judge(place: Path, whole: Project, part: Project | str) -> GateVerdict:
    chosen = part if isinstance(part, str) else Part(REACHING, lambda _: part)
    return judge_tests("tests", context(place), ".", whole, lambda: "it", part=lambda: chosen)


def slow(*base: str, **here: str) -> Project:
    """A suite that is late on both sides, in which these passed at the base commit."""
    return Project([late(**here)], [selecting(late(**dict.fromkeys(base, "passed")))])


def test_part_that_breaks_fails_the_patch_and_the_whole_is_not_run(tmp_path: Path) -> None:
    whole = slow("x", x="passed")
    part = Project([ended(a="failed", b="passed")], [ended(a="passed", b="passed")])
    verdict = judge(tmp_path, whole, part)
    assert (verdict.failure_kind, verdict.broken) == (FailureKind.TESTS_FAILED, ("a",))
    assert whole.asked == ["base"]
    what = "2 of more than 2 tests (in at most 1 of 9 test files), those that reach idna"
    assert verdict.tests[0].reason == what
    assert verdict.detail.startswith(f"compared with the base commit: {what}: tests failed")


def test_part_that_passes_is_a_pass_of_the_part(tmp_path: Path) -> None:
    part = Project([ended(a="passed", b="passed")], [ended(a="passed", b="passed")])
    verdict = judge(tmp_path, slow("x", "y", "z", x="passed", y="passed"), part)
    assert (verdict.status, verdict.tests_level) == (GateStatus.PASSED, Level.RAN)
    levels = [(it.project, it.tests_level) for it in verdict.tests]
    assert levels == [(".", Level.COMPARED), (".", Level.RAN)]
    what = "2 of more than 3 tests (in at most 1 of 9 test files), those that reach idna"
    assert verdict.tests[0].reason == what
    assert what in verdict.detail


def test_how_many_there_are_is_told_by_a_run_that_ended_or_by_the_runner(tmp_path: Path) -> None:
    def told(place: str, whole: Project) -> str:
        part = Project([ended(a="passed")], [ended(a="passed")])
        return judge(tmp_path / place, whole, part).tests[0].reason

    names = {f"t{number}": "passed" for number in range(1_500)}
    base = selecting(late(a="passed"))
    assert told("1", Project([ended(**names, a="passed")], [base])).startswith("1 of 1,501 tests")
    assert base.report is not None
    counted = replace(base, report=replace(base.report, collected=5_012))
    assert told("2", Project([late(a="passed")], [counted])).startswith("1 of 5,012 tests")


def test_what_fails_beyond_the_part_still_fails(tmp_path: Path) -> None:
    part = Project([ended(a="passed")], [ended(a="passed")])
    whole = Project([late(x="failed")], [selecting(late(x="passed"))])
    verdict = judge(tmp_path, whole, part)
    assert verdict.status is not GateStatus.PASSED, "asked again, it stays a question at least"
    assert judge(tmp_path / "2", whole, "nothing reaches it").status is verdict.status


def test_question_about_either_stays_one(tmp_path: Path) -> None:
    good = Project([ended(a="passed")], [ended(a="passed")])
    flaky = Project([ended(a="failed")], [ended(a="passed"), ended(a="failed")])
    unseen = Project([late(x="passed", y="failed")], [selecting(late(x="passed"))])
    assert judge(tmp_path / "1", unseen, good).status is GateStatus.UNDECIDED
    assert "those that reach idna" in judge(tmp_path / "1", unseen, good).detail
    of_part = judge(tmp_path / "2", slow("x", x="passed"), flaky)
    assert (of_part.status, of_part.flaky) == (GateStatus.UNDECIDED, ("a",))


@pytest.mark.parametrize(
    "part",
    [
        Project([late(a="passed")], [late(a="passed")]),
        Project([ended()], [ended()]),
        Project([ended(a="failed")], [ended(a="failed")]),
    ],
    ids=["late too", "no test", "nothing passes"],
)
def test_part_that_tells_nothing_changes_nothing(tmp_path: Path, part: Project) -> None:
    verdict = judge(tmp_path, slow("x", x="passed"), part)
    alone = judge(tmp_path / "2", slow("x", x="passed"), "nothing reaches it")
    assert (verdict.status, verdict.tests_level) == (alone.status, alone.tests_level)
    assert [it.tests_level for it in verdict.tests] == [Level.RAN]


def test_part_is_chosen_only_if_the_base_commit_is_late_and_the_runner_can(tmp_path: Path) -> None:
    never = Project([ended(a="failed")], [ended(a="passed")])
    in_time = Project([ended(x="passed")], [selecting(ended(x="passed"))])
    unable = Project([late(x="passed")], [late(x="passed")])
    assert judge(tmp_path / "1", in_time, never).tests_level is Level.COMPARED
    assert judge(tmp_path / "2", unable, never).status is GateStatus.SKIPPED
    assert never.asked == []


def test_runs_of_a_part_at_the_base_commit_are_kept_by_its_files(tmp_path: Path) -> None:
    part = Project([ended(a="passed")], [ended(a="passed")])
    for _ in range(2):
        judge(tmp_path, slow("x", x="passed"), part)
    assert part.asked.count("base") == 1
