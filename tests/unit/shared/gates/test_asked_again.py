"""A patch is asked again before it is failed on tests: the policy, over made-up runs (ADR-0078)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates.base_runs import BASE_RUNS, PATCHED_RERUNS, Run
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suites import ALONE_RUNS, MAX_ALONE, judge_tests, run_alone
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.repo import RepoContext
from tests.unit.shared.gates.test_flaky import Project, context, unnamed
from tests.unit.shared.gates.test_suites_by_name import ended, late

PASSED, UNDECIDED = GateStatus.PASSED, GateStatus.UNDECIDED


class Scripted:
    """The tests by themselves: how each is, run by run, on either side; the last goes on."""

    def __init__(
        self, patched: Sequence[SuiteRun | NotInstalled], base: Sequence[SuiteRun | NotInstalled]
    ) -> None:
        self._project = Project([*patched], [*base])
        self.chosen: list[list[str]] = []

    def __call__(self, tests: Sequence[str]) -> Run:
        self.chosen.append([*tests])
        return self._project

    @property
    def asked(self) -> list[str]:
        return self._project.asked


GOOD, BAD = ended(a="passed"), ended(a="failed")
SOUND, BROKEN = ended(a="passed", b="passed"), ended(a="failed", b="passed")


def judge(
    place: Path,
    patched: Sequence[SuiteRun | NotInstalled],
    base: Sequence[SuiteRun | NotInstalled],
    alone: Scripted | None,
) -> tuple[GateVerdict, Project]:
    project = Project([*patched], [*base])
    verdict = judge_tests("tests", context(place), ".", project, lambda: "it", alone=alone)
    return verdict, project


def test_what_fails_alone_each_time_here_and_never_there_fails_the_patch(tmp_path: Path) -> None:
    alone = Scripted([BAD], [GOOD])
    verdict, project = judge(tmp_path, [BROKEN], [SOUND], alone)
    assert (verdict.failure_kind, verdict.broken) == (FailureKind.TESTS_FAILED, ("a",))
    assert alone.chosen == [["a"]]
    # In turn: both sides have the machine of the same minutes. The suite is not run again for it.
    assert alone.asked == ["base", "patched"] * ALONE_RUNS
    assert project.asked.count("patched") == 1


def test_one_that_passes_alone_and_never_in_the_suite_fails_the_patch(tmp_path: Path) -> None:
    """What the patch leaves behind in one test breaks another: alone it says nothing."""
    verdict, project = judge(tmp_path, [BROKEN], [SOUND], Scripted([GOOD], [GOOD]))
    assert (verdict.failure_kind, verdict.broken) == (FailureKind.TESTS_FAILED, ("a",))
    assert project.asked.count("patched") == 1 + PATCHED_RERUNS


def test_one_that_fails_by_chance_in_the_suite_is_a_question(tmp_path: Path) -> None:
    """No pass if it fails twice: the patch may have brought a race in. Nor its failure: it may not."""
    verdict, _ = judge(tmp_path, [BROKEN, SOUND, BROKEN], [SOUND], Scripted([GOOD], [GOOD]))
    assert (verdict.status, verdict.broken) == (UNDECIDED, ())
    assert "but not so in another run with the patch: a" in verdict.detail


def test_one_that_fails_alone_now_and_then_here_is_a_question(tmp_path: Path) -> None:
    alone = Scripted([BAD, GOOD], [GOOD])
    verdict, project = judge(tmp_path, [BROKEN], [SOUND], alone)
    assert verdict.status is UNDECIDED
    assert verdict.kinds == {"fails_at_times_alone"}
    assert project.asked.count("patched") == 1


def test_one_that_fails_alone_now_and_then_there_is_flaky(tmp_path: Path) -> None:
    """It must pass once with the patch, in the suite, as any other flaky one."""
    alone = Scripted([GOOD], [GOOD, BAD])
    verdict, _ = judge(tmp_path / "1", [BROKEN, SOUND], [SOUND], alone)
    assert (verdict.status, verdict.flaky) == (PASSED, ("a",))
    never, _ = judge(tmp_path / "2", [BROKEN], [SOUND], Scripted([BAD], [GOOD, BAD]))
    assert (never.status, never.flaky) == (UNDECIDED, ("a",))


def test_a_flaky_one_excuses_no_other(tmp_path: Path) -> None:
    both = ended(a="failed", b="failed")
    alone = Scripted([both], [SOUND, BROKEN])
    verdict, _ = judge(tmp_path, [both], [SOUND], alone)
    assert (verdict.failure_kind, verdict.broken) == (FailureKind.TESTS_FAILED, ("b",))


def test_one_that_can_not_run_alone_there_is_told_by_the_suite(tmp_path: Path) -> None:
    """It needs what another test leaves behind."""
    alone = Scripted([BAD], [BAD])
    broken, _ = judge(tmp_path / "1", [BROKEN], [SOUND], alone)
    twice = [BROKEN, SOUND, BROKEN]
    chance, _ = judge(tmp_path / "2", twice, [SOUND], Scripted([BAD], [BAD]))
    assert broken.failure_kind is FailureKind.TESTS_FAILED
    assert chance.status is UNDECIDED


@pytest.mark.parametrize("nothing", [late(a="passed"), unnamed("crashed"), NotInstalled("gone")])
def test_a_run_alone_that_tells_nothing_leaves_it_to_the_suite(
    tmp_path: Path, nothing: SuiteRun | NotInstalled
) -> None:
    for number, alone in enumerate((Scripted([nothing], [GOOD]), Scripted([BAD], [nothing]))):
        verdict, project = judge(tmp_path / str(number), [BROKEN], [SOUND], alone)
        assert verdict.failure_kind is FailureKind.TESTS_FAILED
        assert project.asked.count("patched") == 1 + PATCHED_RERUNS


def test_a_test_that_is_gone_is_asked_about_too(tmp_path: Path) -> None:
    gone, fewer = ended(b="passed"), ended()
    lost, _ = judge(tmp_path / "1", [gone], [SOUND], Scripted([fewer], [GOOD]))
    twice, _ = judge(tmp_path / "2", [gone, SOUND, gone], [SOUND], Scripted([GOOD], [GOOD]))
    assert lost.failure_kind is FailureKind.TESTS_MISSING
    assert twice.status is UNDECIDED


def test_one_that_is_gone_passes_for_no_flakiness_at_the_base_commit(tmp_path: Path) -> None:
    """The patch may have it skipped: that it is flaky there says nothing of it here."""
    gone = ended(b="passed")
    never, _ = judge(tmp_path / "1", [gone], [SOUND], Scripted([gone], [GOOD, BAD]))
    assert (never.status, never.flaky) == (UNDECIDED, ("a",))
    assert "never passes with the patch: a" in never.detail
    there, _ = judge(tmp_path / "2", [gone], [SOUND], Scripted([GOOD], [GOOD, BAD]))
    assert (there.status, there.flaky) == (PASSED, ("a",))


def test_two_that_fail_in_turn_are_no_failure_of_the_patchs(tmp_path: Path) -> None:
    other = ended(a="passed", b="failed")
    verdict, _ = judge(tmp_path, [BROKEN, other], [SOUND], None)
    assert verdict.status is UNDECIDED
    third = ended(a="failed", b="failed")
    verdict, _ = judge(tmp_path, [third, BROKEN], [SOUND], None)
    assert verdict.broken == ("a",)


def test_a_suite_that_names_no_test_is_asked_again_too(tmp_path: Path) -> None:
    good = unnamed("", exit_code=0)
    twice, _ = judge(tmp_path / "1", [unnamed("bad"), good, unnamed("bad")], [good], None)
    always, _ = judge(tmp_path / "2", [unnamed("bad")], [good], None)
    there, _ = judge(tmp_path / "3", [unnamed("bad")], [good, unnamed("bad")], None)
    assert twice.status is UNDECIDED
    assert always.failure_kind is FailureKind.TESTS_FAILED
    assert there.status is GateStatus.SKIPPED


def test_one_that_says_something_else_each_time_can_not_be_compared(tmp_path: Path) -> None:
    base = [unnamed("bad: one"), unnamed("bad: two"), unnamed("bad: three")]
    verdict, _ = judge(tmp_path, [unnamed("bad: four")], base, None)
    assert verdict.status is UNDECIDED


def test_a_time_out_is_asked_again_once(tmp_path: Path) -> None:
    runs = [late(a="passed"), SOUND, late(a="passed")]
    slow, _ = judge(tmp_path / "1", runs, [SOUND], None)
    hanging, project = judge(tmp_path / "2", [late(a="passed")], [SOUND], None)
    broken, _ = judge(tmp_path / "3", [late(), BROKEN], [SOUND], Scripted([BAD], [GOOD]))
    assert slow.status is UNDECIDED
    assert "but another run did: 2 test(s) pass; run once more before asking: " in slow.detail
    assert (hanging.failure_kind, project.asked.count("patched")) == (FailureKind.GATE_TIMEOUT, 2)
    assert broken.broken == ("a",)


# --- Beside a base commit whose suite does not end -----------------------------------------------

LATE = late(a="passed", b="passed")


@pytest.mark.parametrize("ours", [BROKEN, late(a="failed", b="passed"), ended(b="passed")])
def test_beside_a_late_base_commit_tests_are_compared_alone(tmp_path: Path, ours: SuiteRun) -> None:
    def ends(number: int, alone: Scripted) -> GateVerdict:
        return judge(tmp_path / str(number), [ours], [LATE], alone)[0]

    broken = ends(1, Scripted([BAD], [GOOD]))
    chance = ends(2, Scripted([GOOD], [GOOD]))
    flaky = ends(3, Scripted([GOOD], [GOOD, BAD]))
    never = ends(4, Scripted([BAD], [GOOD, BAD]))
    if ours.result.timed_out or ours is BROKEN:
        assert broken.broken == ("a",)
        assert flaky.flaky == ("a",)
    if ours.report is not None and "a" in ours.report.failed:
        assert broken.failure_kind is FailureKind.TESTS_FAILED
    else:
        assert broken.failure_kind is FailureKind.TESTS_MISSING
    assert chance.status is UNDECIDED
    assert flaky.status is (GateStatus.SKIPPED if ours.result.timed_out else PASSED)
    assert never.status is UNDECIDED


def test_no_suite_is_run_again_beside_a_base_commit_that_does_not_end(tmp_path: Path) -> None:
    verdict, project = judge(tmp_path, [BROKEN], [LATE], Scripted([GOOD], [GOOD]))
    assert project.asked == ["base", "patched"]
    assert verdict.kinds == {"base_too_slow"}


# --- All of it -------------------------------------------------------------------------------------


def test_of_many_tests_so_many_are_run_alone(tmp_path: Path) -> None:
    names = [f"t{number:03}" for number in range(MAX_ALONE + 5)]
    alone = Scripted([ended()], [ended(**dict.fromkeys(names, "passed"))])
    told = run_alone(context(tmp_path), alone, names)
    assert told is not None
    assert told.broken == {*names[:MAX_ALONE]} == {*alone.chosen[0]}


OUTCOMES = st.fixed_dictionaries(
    {name: st.sampled_from(["passed", "failed", "skipped"]) for name in "ab"}
)


@example(
    patched=[{"a": "passed", "b": "failed"}],
    base=[{"a": "passed", "b": "passed"}],
    alone_here=[{"a": "failed", "b": "passed"}],
    alone_there=[{"a": "passed", "b": "passed"}, {"a": "passed", "b": "failed"}],
    ends=False,
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    patched=st.lists(OUTCOMES, min_size=1, max_size=1 + 2 * PATCHED_RERUNS),
    base=st.lists(OUTCOMES, min_size=1, max_size=BASE_RUNS),
    alone_here=st.lists(OUTCOMES, min_size=1, max_size=ALONE_RUNS),
    alone_there=st.lists(OUTCOMES, min_size=1, max_size=ALONE_RUNS),
    ends=st.booleans(),
)
def test_a_patch_fails_only_for_what_it_does_each_time_and_passes_for_nothing_less_than_before(
    tmp_path_factory: pytest.TempPathFactory,
    patched: list[dict[str, str]],
    base: list[dict[str, str]],
    alone_here: list[dict[str, str]],
    alone_there: list[dict[str, str]],
    ends: bool,
) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    def project(
        here: list[dict[str, str]], there: list[dict[str, str]], *, ends: bool = True
    ) -> Callable[[RepoContext], SuiteRun]:
        left = {"patched": [*here], "base": [*there]}

        def run(tree: RepoContext) -> SuiteRun:
            side = tree.tree.root.name
            was = left[side].pop(0) if len(left[side]) > 1 else left[side][0]
            seen.append((side, was))
            return ended(**was) if ends or side == "patched" else late(**was)

        return run

    def alone(tests: Sequence[str]) -> Callable[[RepoContext], SuiteRun]:
        """A run alone tells of the tests that it is asked for, and of no others."""
        here, there = (
            [{name: was[name] for name in was if name in tests} for was in runs]
            for runs in (alone_here, alone_there)
        )
        return project(here, there)

    verdict = judge_tests(
        *(
            "tests",
            context(tmp_path_factory.mktemp("suite")),
            ".",
            project(patched, base, ends=ends),
        ),
        lambda: "",
        alone=alone,
    )
    here = [was for side, was in seen if side == "patched"]
    there = [was for side, was in seen if side == "base"]
    sound = [name for name in "ab" if all(was.get(name, "passed") == "passed" for was in there)]
    if verdict.status is PASSED:
        assert all(here[-1].get(name, "passed") == "passed" for name in sound)
    if verdict.status is GateStatus.FAILED:
        assert any({*was.values()} != {"passed"} for was in here)
        assert not verdict.broken or any(here[0][name] == "failed" for name in verdict.broken)
