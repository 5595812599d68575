"""Tests compared one by one with the base commit's: the verdicts, over made-up reports."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates.base_runs import BASE_RUNS, Run
from fallback_plugins.shared.gates.suite_run import Report, SuiteRun, Summary
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext
from tests.unit.shared.gates.test_flaky import Project, context, judge

PASSED, SKIPPED, UNDECIDED = GateStatus.PASSED, GateStatus.SKIPPED, GateStatus.UNDECIDED
NAMES = ("a", "b", "c", "d")


def ended(message: str = "", code: int | None = None, **was: str) -> SuiteRun:
    """A run whose report tells how each test was; ``code`` where the tests alone don't decide."""
    ran = sum(one != "skipped" for one in was.values())
    bad = tuple(name for name, one in was.items() if one in ("failed", "uncollected"))
    code = int(bool(bad)) if code is None else code
    result = CommandResult(argv=("test",), exit_code=code, output=message, duration_ms=1)
    return SuiteRun.read(
        result, Summary(ran, len(bad), bad), Report.of(was.items(), (ran, len(bad)))
    )


def late(**was: str) -> SuiteRun:
    """A run that the wall clock ended, and what it told before."""
    result = CommandResult(argv=("test",), exit_code=None, output="", duration_ms=1)
    return SuiteRun.read(result, None, Report.of(was.items()) if was else None)


def test_what_fails_at_the_base_commit_is_named_and_what_passes_there_passes(
    tmp_path: Path,
) -> None:
    """281 passing tests are not thrown away for one that has been broken for years."""
    base = ended(a="passed", b="failed")
    verdict = judge(tmp_path, Project([base], [base]))
    assert (verdict.status, verdict.failing_before) == (PASSED, ("b",))
    assert verdict.detail == "1 test(s) pass; 1 fail as at the base commit: b"


def test_a_test_that_passes_at_the_base_commit_and_fails_here_is_broken(tmp_path: Path) -> None:
    verdict = judge(
        tmp_path, Project([ended(a="failed", b="failed")], [ended(a="passed", b="failed")])
    )
    assert (verdict.failure_kind, verdict.broken) == (FailureKind.TESTS_FAILED, ("a",))


@pytest.mark.parametrize("here", [{"b": "passed", "c": "passed"}, {"a": "skipped", "b": "passed"}])
def test_one_that_passes_there_and_is_gone_here_is_missing_however_many_run(
    tmp_path: Path, here: dict[str, str]
) -> None:
    verdict = judge(tmp_path, Project([ended(**here)], [ended(a="passed", b="passed")]))
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert verdict.detail == "1 test(s) pass at the base commit and did not run here: a"


def test_one_that_is_missing_beside_flaky_ones_is_not_forgotten(tmp_path: Path) -> None:
    base = [ended(a="passed", b="passed"), ended(a="passed", b="failed")]
    gone = judge(tmp_path / "1", Project([ended(b="failed"), ended(b="passed")], base))
    both = ended(a="passed", b="passed")
    once = judge(tmp_path / "2", Project([ended(b="failed"), both], base))
    twice = judge(tmp_path / "3", Project([ended(b="failed"), both, ended(b="failed")], base))
    assert gone.failure_kind is FailureKind.TESTS_MISSING
    assert (once.status, once.flaky) == (PASSED, ("a",))
    assert twice.status is UNDECIDED


def test_names_that_change_from_run_to_run_are_counted(tmp_path: Path) -> None:
    base: list[SuiteRun | NotInstalled] = [
        ended(a="passed", b="passed"),
        ended(a="passed", c="passed"),
    ]
    kept = judge(tmp_path / "1", Project([ended(a="passed", d="passed")], base))
    fewer = judge(tmp_path / "2", Project([ended(a="passed")], base))
    assert kept.status is PASSED
    assert fewer.failure_kind is FailureKind.TESTS_MISSING
    assert fewer.detail == "1 test(s) ran, 2 at the base commit"


def test_what_stands_in_a_file_that_could_not_be_read_in_is_not_the_patchs(
    tmp_path: Path,
) -> None:
    """17 collection errors at the base commit, and a newer dependency lets some of them in."""
    base = ended(**{"a": "passed", "t/b.py": "uncollected"})
    better = ended(**{"a": "passed", "t/b.py::one": "passed", "t/b.py::two": "failed"})
    other = ended(**{"a": "passed", "t/c.py::two": "failed"})
    verdict = judge(tmp_path / "1", Project([better], [base]))
    assert (verdict.status, verdict.failing_before) == (PASSED, ("t/b.py::two",))
    assert judge(tmp_path / "2", Project([other], [base])).broken == ("t/c.py::two",)
    worse = judge(
        tmp_path / "3", Project([base], [ended(**{"a": "passed", "t/b.py::one": "passed"})])
    )
    assert worse.broken == ("t/b.py",)


def test_a_file_that_can_be_read_in_at_last_need_not_have_a_test_that_runs(tmp_path: Path) -> None:
    base = ended(**{"a": "passed", "t/b.py": "uncollected"})
    verdict = judge(tmp_path, Project([ended(**{"a": "passed", "t/b.py::one": "skipped"})], [base]))
    assert verdict.detail == "1 test(s) pass"


def test_where_nothing_passes_nothing_is_told(tmp_path: Path) -> None:
    base = ended(a="uncollected")
    assert judge(tmp_path, Project([base], [base])).status is SKIPPED


def test_a_run_that_fails_without_a_failing_test_is_compared_with_the_base(tmp_path: Path) -> None:
    """Too little coverage, say."""
    short = ended("coverage 80 %", code=1, a="passed")
    same = judge(tmp_path / "1", Project([short], [short]))
    new = judge(tmp_path / "2", Project([short], [ended(a="passed")]))
    assert same.status is PASSED
    assert "the run itself fails (exit code 1), as at the base commit" in same.detail
    assert new.failure_kind is FailureKind.TESTS_FAILED


# --- Reports that can't be relied on --------------------------------------------------------------


def contradicted(ran: int, failed: int, code: int = 0, **was: str) -> SuiteRun:
    """A log that says so many, and a report that says otherwise."""
    result = CommandResult(argv=("test",), exit_code=code, output="", duration_ms=1)
    report = Report.of(was.items(), (len(was), 0))
    return SuiteRun.read(result, Summary(ran, failed), report)


def test_a_report_that_contradicts_its_log_counts_for_nothing(tmp_path: Path) -> None:
    assert contradicted(1, 0, a="passed", b="passed").report is None
    assert contradicted(2, 0, a="passed", b="passed").report is not None
    forged = contradicted(2, 0, a="passed", b="passed", c="passed")
    verdict = judge(tmp_path, Project([forged], [ended(a="passed", b="passed")]))
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert "have no report here that its log agrees with: a, b" in verdict.detail


def test_a_report_without_the_logs_last_lines_counts_for_nothing() -> None:
    result = CommandResult(argv=("test",), exit_code=0, output="", duration_ms=1)
    run = SuiteRun.read(result, None, Report.of([("a", "passed")], (1, 0)))
    assert (run.report, run.count) == (None, None)


def test_a_log_that_was_too_long_names_no_failures(tmp_path: Path) -> None:
    """Half of its names looked like all: other halves looked like flaky tests, and like fixed ones."""
    whole = CommandResult(argv=("test",), exit_code=1, output="", duration_ms=1)
    cut = whole.model_copy(update={"truncated": True})
    failing = Summary(9, 1, ("suite", "suite > a"))
    assert SuiteRun.read(whole, failing).failing == ("suite", "suite > a")
    run = SuiteRun.read(cut, failing)
    assert (run.failing, run.failed) == (None, 1)
    other = replace(run, result=cut.model_copy(update={"output": "otherwise"}))
    green = replace(run, result=cut.model_copy(update={"exit_code": 0}), failing=())
    kept = SuiteRun.read(whole.model_copy(update={"exit_code": 0}), Summary(9, 0))
    named = ended(a="passed", b="passed")
    for ours, base in [(run, run), (other, run), (green, green), (kept, green), (green, named)]:
        judged = judge(tmp_path / str(hash((id(ours), id(base)))), Project([ours], [base]))
        assert judged.status is UNDECIDED, judged


def test_where_neither_side_has_a_report_the_logs_tell_as_ever(tmp_path: Path) -> None:
    base = contradicted(3, 0, a="passed")
    assert judge(tmp_path / "1", Project([base], [base])).status is PASSED
    fewer = contradicted(2, 0, a="passed")
    assert judge(tmp_path / "2", Project([fewer], [base])).detail == (
        "2 test(s) ran, 3 at the base commit"
    )


# --- Time-outs ------------------------------------------------------------------------------------


def test_a_time_out_with_the_patch_alone_fails(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([late(a="passed")], [ended(a="passed")]))
    assert verdict.failure_kind is FailureKind.GATE_TIMEOUT


def test_a_time_out_on_both_sides_could_not_be_judged_but_for_what_broke_before(
    tmp_path: Path,
) -> None:
    same = judge(
        tmp_path / "1",
        Project([late(a="passed", c="failed")], [late(a="passed", b="passed", c="failed")]),
    )
    broken = judge(tmp_path / "2", Project([late(a="failed")], [late(a="passed")]))
    assert broken.status is UNDECIDED
    silent = judge(tmp_path / "3", Project([late()], [late()]))
    assert (same.status, silent.status) == (SKIPPED, SKIPPED)
    assert same.detail == (
        "could not be judged: the tests do not end within 60 s, nor do those of the base commit; "
        "1 test(s) passed in time, 1 fail: c; 1 of the 2 that passed in time there passed here, none fails "
        "anew"
    )
    assert broken.detail.startswith(
        "tests failed that passed at the base commit before the time-out: a; but that is one run"
    )


@pytest.mark.parametrize(
    ("ours", "base"),
    [
        pytest.param(
            late(a="passed", c="failed"), late(a="passed"), id="fails what was not come to"
        ),
        pytest.param(late(), late(a="passed", b="passed"), id="comes nowhere"),
        pytest.param(
            late(a="passed"), late(a="passed", b="passed", c="passed"), id="comes less far"
        ),
    ],
)
def test_a_time_out_on_both_sides_excuses_no_doubt(
    tmp_path: Path, ours: SuiteRun, base: SuiteRun
) -> None:
    assert judge(tmp_path, Project([ours], [base])).status is UNDECIDED


@pytest.mark.parametrize(("took_ms", "limit_s"), [(1, 60.0), (29_000, 60.0), (55_000, 110.0)])
def test_what_ends_just_in_time_at_the_base_commit_gets_twice_as_long_here(
    tmp_path: Path, took_ms: int, limit_s: float
) -> None:
    there = ended(a="passed")
    there = replace(there, result=there.result.model_copy(update={"duration_ms": took_ms}))
    limits: list[float] = []

    def within(facts: GateContext) -> Run:
        limits.append(facts.timeout_s)
        return project

    project = Project([ended(a="passed")], [there])
    judge_tests("tests", context(tmp_path), ".", project, str, within=within)
    assert limits == [limit_s]


def test_beside_a_base_commit_that_does_not_end_what_it_told_is_compared(tmp_path: Path) -> None:
    base = late(a="passed", b="failed")
    good = judge(tmp_path / "1", Project([ended(a="passed", c="passed")], [base]))
    red = judge(tmp_path / "2", Project([ended(a="passed", b="failed")], [base]))
    worse = judge(tmp_path / "3", Project([ended(a="failed", b="failed")], [base]))
    gone = judge(tmp_path / "4", Project([ended(b="passed")], [base]))
    unseen = judge(tmp_path / "5", Project([ended(a="passed", d="failed")], [base]))
    assert good.detail == "2 test(s) pass; the base commit's tests do not end within 60 s"
    assert (red.status, red.failing_before) == (PASSED, ("b",))
    assert {worse.status, gone.status} == {UNDECIDED}  # the base commit can't be asked again
    assert "before the time-out: a; but that is one run" in worse.detail
    assert "did not run here: a; but that is one run" in gone.detail
    assert unseen.status is UNDECIDED
    assert unseen.detail.startswith("1 test(s) pass, 1 fail: d, and the base")


def test_a_base_commit_that_did_not_end_is_asked_again_next_time(tmp_path: Path) -> None:
    judge(tmp_path, Project([ended(a="passed")], [late(a="passed")]))
    again = Project([ended(a="passed")], [ended(a="passed", b="passed")])
    assert judge(tmp_path, again).failure_kind is FailureKind.TESTS_MISSING
    assert "base" in again.asked


# --- What can't be installed ----------------------------------------------------------------------

CLIENTS_WORDS = "npm ci: the lock is out of step"
NOWHERE = NotInstalled(CLIENTS_WORDS)


@pytest.mark.parametrize("ours", [ended(a="passed"), ended(a="failed"), late(), late(a="failed")])
def test_where_the_base_commit_can_not_be_installed_nothing_fails(
    tmp_path: Path, ours: SuiteRun
) -> None:
    verdict = judge(tmp_path, Project([ours], [NOWHERE]))
    assert verdict.status is (SKIPPED if ours.result.ok else UNDECIDED)
    assert verdict.detail.endswith(CLIENTS_WORDS)


def test_what_the_client_says_stands_in_the_verdict(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([NOWHERE], [NOWHERE]))
    assert (verdict.status, verdict.log) == (SKIPPED, "")
    assert CLIENTS_WORDS in verdict.detail


@pytest.mark.parametrize("base", [ended(a="passed"), late(a="passed")])
def test_what_runs_at_the_base_commit_and_can_not_run_here_is_undecided(
    tmp_path: Path, base: SuiteRun
) -> None:
    verdict = judge(tmp_path, Project([NOWHERE], [base]))
    assert verdict.status is UNDECIDED
    assert verdict.kinds == {"not_installed"}


def test_on_what_it_ran_is_said(tmp_path: Path) -> None:
    result = CommandResult(argv=("test",), exit_code=0, output="", duration_ms=1)
    partly = SuiteRun.read(result, Summary(1, 0), None, "installed in part; not: left")
    verdict = judge(tmp_path, Project([partly], [partly]))
    assert verdict.detail == "1 test(s) pass; installed in part; not: left"


# --- All of it ------------------------------------------------------------------------------------

OUTCOMES = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["passed", "failed", "skipped", "uncollected"])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    patched=st.lists(OUTCOMES, min_size=1, max_size=3),
    base=st.lists(OUTCOMES, min_size=BASE_RUNS, max_size=BASE_RUNS),
)
@example(  # gone in the run after a flaky failure, and there again in the next
    patched=[{"a": "passed", "b": "passed", "d": "failed"}, {}, {"a": "passed"}],
    base=[{"a": "passed"}, {"a": "passed"}, {"a": "passed", "b": "passed", "d": "failed"}],
)
def test_no_suite_passes_that_lost_a_test_which_always_passed(
    tmp_path_factory: pytest.TempPathFactory,
    patched: list[dict[str, str]],
    base: list[dict[str, str]],
) -> None:
    """In one run alone it may be gone, if it passes in the others and in the last, and a note says so."""
    project = Project([ended(**one) for one in patched], [ended(**one) for one in base])
    verdict = judge(tmp_path_factory.mktemp("suite"), project)
    lasting = [name for name in NAMES if all(run.get(name) == "passed" for run in base)]
    count = max(1, project.asked.count("patched"))
    runs = (patched + patched[-1:] * count)[:count]
    kept = [all(run.get(name) == "passed" for name in lasting) for run in runs]
    if verdict.status is PASSED and not all(kept):
        assert (sum(kept), len(kept)) >= (2, 3), "one run alone"
        assert kept[-1]
        assert any("run once more before asking a person" in note for note in verdict.notes)
    excused = {name for run in base for name in run if run[name] in ("failed", "uncollected")}
    assert set(verdict.failing_before) <= excused
