"""Failing tests weighed against the base commit's own runs: the policy, over made-up runs."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates.base_runs import (
    BASE_RUNS,
    PATCHED_RERUNS,
    is_settled,
    sort_failures,
)
from fallback_plugins.shared.gates.suite_run import SuiteRun, Summary
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

NAMES = st.sampled_from(["a", "b", "c", "d"])


class Trees:
    """A worktree whose trees differ by name alone."""

    def __init__(self, root: Path) -> None:
        self.tree = FileTree(root=root / "patched")
        self._root = root

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[FileTree]:
        yield FileTree(root=self._root / ("patched" if patched else "base"))


def run(ran: int, *failing: str, exit_code: int | None = None, message: str = "") -> SuiteRun:
    """A run in which so many tests ran, and these failed."""
    code = bool(failing) if exit_code is None else exit_code
    result = CommandResult(argv=("test",), exit_code=code, output=message, duration_ms=1)
    return SuiteRun.read(result, Summary(ran, len(failing), failing))


def unnamed(message: str, exit_code: int = 1) -> SuiteRun:
    result = CommandResult(argv=("test",), exit_code=exit_code, output=message, duration_ms=1)
    return SuiteRun.read(result, None)


class Project:
    """Runs as scripted; the last of each tree goes on."""

    def __init__(
        self, patched: list[SuiteRun | NotInstalled], base: list[SuiteRun | NotInstalled]
    ) -> None:
        self.runs = {"patched": list(patched), "base": list(base)}
        self.asked: list[str] = []

    def __call__(self, tree: RepoContext) -> SuiteRun | NotInstalled:
        name = tree.tree.root.name
        self.asked.append(name)
        left = self.runs[name]
        return left.pop(0) if len(left) > 1 else left[0]


def context(place: Path) -> Any:
    repo = RepoContext(
        root=place / "repo",
        base_commit="0" * 40,
        tracked_files=(),
        manifests=(),
        fix_id="fix-1",
        gate_transition_id="gate-1",
    )
    facts: dict[str, Any] = dict.fromkeys(("advisory", "application", "sandbox", "clients"))
    facts["worktree"] = Trees(place)
    return GateContext(repo=repo, cache=place / "cache", timeout_s=60, **facts)


def judge(place: Path, project: Project) -> GateVerdict:
    return judge_tests("tests", context(place), ".", project, lambda: "an interpreter")


def test_a_test_that_never_fails_at_the_base_commit_fails_the_patch(tmp_path: Path) -> None:
    project = Project([run(3, "a")], [run(3)])
    verdict = judge(tmp_path, project)
    assert (verdict.failure_kind, verdict.flaky) == (FailureKind.TESTS_FAILED, ())
    assert verdict.detail == "tests failed (3 ran)"
    asked = ["base", "patched", *["base"] * (BASE_RUNS - 1), *["patched"] * PATCHED_RERUNS]
    assert project.asked == asked


def test_a_test_that_fails_now_and_then_at_the_base_commit_may_pass_on_a_rerun(
    tmp_path: Path,
) -> None:
    verdict = judge(tmp_path, Project([run(3, "a"), run(3)], [run(3), run(3, "a")]))
    assert (verdict.status, verdict.flaky) == (GateStatus.PASSED, ("a",))
    assert verdict.detail == "3 test(s) pass; flaky, at the base commit too: a"


def test_a_flaky_test_that_never_passes_with_the_patch_is_a_question(tmp_path: Path) -> None:
    project = Project([run(3, "a")], [run(3), run(3, "a")])
    verdict = judge(tmp_path, project)
    assert (verdict.status, verdict.flaky) == (GateStatus.UNDECIDED, ("a",))
    assert "flaky at the base commit, they never pass here: a" in verdict.detail
    assert project.asked.count("patched") == 1 + PATCHED_RERUNS


@pytest.mark.parametrize(
    ("rerun", "what"),
    [
        pytest.param(run(3, "b"), "not as at the base commit: b", id="another fails"),
        pytest.param(run(2), "2 test(s) ran, 3 at the base commit", id="fewer run"),
    ],
)
def test_a_rerun_that_fails_otherwise_is_a_question(
    tmp_path: Path, rerun: SuiteRun, what: str
) -> None:
    verdict = judge(tmp_path, Project([run(3, "a"), rerun], [run(3), run(3, "a")]))
    assert (verdict.status, verdict.broken) == (GateStatus.UNDECIDED, ())
    assert what in verdict.detail


@pytest.mark.parametrize("rerun", [NotInstalled("gone"), unnamed("it crashed")])
def test_a_rerun_that_tells_nothing_excuses_nothing(
    tmp_path: Path, rerun: SuiteRun | NotInstalled
) -> None:
    verdict = judge(tmp_path, Project([run(3, "a"), rerun], [run(3), run(3, "a")]))
    assert verdict.status is GateStatus.UNDECIDED


def test_a_new_failure_beside_a_flaky_one_is_named(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([run(3, "a", "b")], [run(3), run(3, "a")]))
    assert verdict.detail == "tests failed (3 ran), not at the base commit: b"
    assert verdict.flaky == ("a",)


def test_what_always_fails_at_the_base_commit_is_named_and_not_the_patchs(tmp_path: Path) -> None:
    """Before ADR-0040 it was skipped; what it proves is bounded where a fix ends, not here."""
    verdict = judge(tmp_path, Project([run(3, "a")], [run(3, "a", "b")]))
    assert (verdict.status, verdict.flaky) == (GateStatus.PASSED, ())
    assert verdict.detail == "2 test(s) pass; 1 fail as at the base commit: a"
    assert (verdict.failing_before, verdict.broken) == (("a",), ())


def test_a_suite_that_is_red_and_flaky_names_both(tmp_path: Path) -> None:
    base = [run(4, "a"), run(4, "a", "b")]
    verdict = judge(tmp_path, Project([run(4, "a", "b"), run(4, "a")], base))
    assert (verdict.status, verdict.flaky) == (GateStatus.PASSED, ("b",))
    assert verdict.failing_before == ("a",)


def test_no_patch_hides_behind_a_broken_suite(tmp_path: Path) -> None:
    other = judge(tmp_path / "1", Project([run(3, "a", "b")], [run(3, "a")]))
    fewer = judge(tmp_path / "2", Project([run(2, "a")], [run(3, "a")]))
    nothing = judge(tmp_path / "3", Project([run(1, "a")], [run(1, "a")]))
    assert other.failure_kind is FailureKind.TESTS_FAILED
    assert fewer.failure_kind is FailureKind.TESTS_MISSING
    assert nothing.status is GateStatus.SKIPPED


def test_more_failures_of_one_name_are_not_excused(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([run(4, "a", "a (2)")], [run(4, "a")]))
    assert verdict.failure_kind is FailureKind.TESTS_FAILED


def counted(ran: int, failed: int, *names: str) -> SuiteRun:
    result = CommandResult(argv=("test",), exit_code=1, output="", duration_ms=1)
    return SuiteRun.read(result, Summary(ran, failed, names))


def test_more_failures_than_at_the_base_commit_are_not_excused_by_their_names(
    tmp_path: Path,
) -> None:
    """A suite's own line makes up for a test that the log does not name."""
    patched, base = counted(9, 2, "suite", "a"), counted(9, 1, "suite", "a")
    verdict = judge(tmp_path / "1", Project([patched], [base]))
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.detail == "2 test(s) failed, 1 at the base commit"
    same = judge(tmp_path / "2", Project([base], [base]))
    assert same.status is GateStatus.PASSED


def test_a_run_that_ends_well_and_tells_of_no_test_is_compared_with_the_base(
    tmp_path: Path,
) -> None:
    vacuous = judge(tmp_path / "1", Project([unnamed("", exit_code=0)], [run(3)]))
    silent = judge(tmp_path / "2", Project([unnamed("", exit_code=0)], [unnamed("", exit_code=0)]))
    assert vacuous.failure_kind is FailureKind.TESTS_MISSING
    assert silent.status is GateStatus.PASSED


def test_what_was_seen_in_another_sandbox_excuses_nothing(tmp_path: Path) -> None:
    """A test that needs a network fails at the base commit inside a sandbox, and only there."""

    class Inside:
        pass

    class Outside:
        pass

    inside = dataclasses.replace(context(tmp_path), sandbox=Inside())
    outside = dataclasses.replace(context(tmp_path), sandbox=Outside())
    first = judge_tests("tests", inside, ".", Project([run(3, "a")], [run(3, "a")]), lambda: "")
    second = judge_tests("tests", outside, ".", Project([run(3, "a")], [run(3)]), lambda: "")
    assert first.status is GateStatus.PASSED
    assert second.failure_kind is FailureKind.TESTS_FAILED


def test_what_was_seen_on_another_interpreter_or_set_excuses_nothing(tmp_path: Path) -> None:
    here = context(tmp_path)
    first = judge_tests("tests", here, ".", Project([run(3, "a")], [run(3, "a")]), lambda: "20.1")
    kept = judge_tests("tests", here, ".", Project([run(3, "a")], [run(3)]), lambda: "20.1")
    other = judge_tests("tests", here, ".", Project([run(3, "a")], [run(3)]), lambda: "22.0")
    assert (first.status, kept.status) == (GateStatus.PASSED, GateStatus.PASSED)
    assert other.failure_kind is FailureKind.TESTS_FAILED


def test_a_base_suite_that_comes_to_no_test_excuses_nothing(tmp_path: Path) -> None:
    verdict = judge(tmp_path, Project([run(3, "a")], [run(0, "a")]))
    assert verdict.failure_kind is FailureKind.TESTS_FAILED


def test_an_incomplete_list_of_failures_is_no_list() -> None:
    assert Summary(ran=3, failed=2, names=("a",)).failing is None
    assert Summary(ran=3, failed=0).failing is None
    assert Summary(ran=3, failed=1, names=("a", "its suite")).failing == ("a", "its suite")


def test_a_runner_without_names_is_skipped_only_where_it_says_the_same(tmp_path: Path) -> None:
    same = judge(tmp_path / "1", Project([unnamed("bad, 0.2 s")], [unnamed("bad, 0.9 s")]))
    other = judge(tmp_path / "2", Project([unnamed("bad: 2")], [unnamed("bad: 1")]))
    good = judge(tmp_path / "3", Project([unnamed("bad")], [unnamed("", exit_code=0)]))
    assert same.status is GateStatus.SKIPPED
    assert "fail as at the base commit (exit code 1)" in same.detail
    assert {other.failure_kind, good.failure_kind} == {FailureKind.TESTS_FAILED}


def test_runs_at_the_base_commit_are_kept_for_the_next_attempt(tmp_path: Path) -> None:
    first = Project([run(3, "a")], [run(3), run(3, "a")])
    judge(tmp_path, first)
    second = Project([run(3, "a"), run(3)], [run(9, "z")])
    verdict = judge(tmp_path, second)
    assert verdict.flaky == ("a",)
    assert "base" not in second.asked


def test_a_run_at_the_base_commit_that_crashed_hides_no_missing_test(tmp_path: Path) -> None:
    base: list[SuiteRun | NotInstalled] = [run(3), run(0, exit_code=1), run(3, "a")]
    verdict = judge(tmp_path, Project([run(2, "a"), run(2)], base))
    assert verdict.failure_kind is FailureKind.TESTS_MISSING


def test_no_more_runs_at_the_base_commit_than_are_needed(tmp_path: Path) -> None:
    passing = Project([run(3)], [run(3)])
    judge(tmp_path / "1", passing)
    flaky = Project([run(3, "a"), run(3)], [run(3), run(3, "a"), run(3)])
    judge(tmp_path / "2", flaky)
    assert passing.asked.count("base") == 1
    assert flaky.asked.count("base") == 2


@given(
    failing=st.sets(NAMES),
    base=st.lists(st.frozensets(NAMES), max_size=BASE_RUNS),
)
def test_each_failing_test_is_weighed_once_and_only_what_was_seen_is_excused(
    failing: set[str], base: list[frozenset[str]]
) -> None:
    failures = sort_failures(failing, base)
    assert sorted([*failures.new, *failures.flaky, *failures.broken]) == sorted(failing)
    assert not set(failures.new) & frozenset().union(*base)
    for test in failures.flaky:
        assert {test in seen for seen in base} == {True, False}
    if is_settled(failing, base):
        assert len(base) == BASE_RUNS or set(failures.flaky) == failing


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(run(0, exit_code=4, message="settings are missing"), id="none ran"),
        pytest.param(run(1, "tests", exit_code=1), id="another one failed"),
    ],
)
def test_a_patch_breaks_no_test_where_none_passes(tmp_path: Path, base: SuiteRun) -> None:
    """An error before all tests is a failing "test" in another release of the runner."""
    verdict = judge(tmp_path, Project([run(1, "app/tests", exit_code=2)], [base]))
    assert (verdict.status, verdict.failure_kind) == (GateStatus.SKIPPED, None)


def test_a_patch_breaks_the_one_test_that_passes(tmp_path: Path) -> None:
    """In one run of the base commit it passes: then the patch is to blame."""
    project = Project([run(1, "a")], [run(1, "b"), run(1), run(1)])
    assert judge(tmp_path, project).failure_kind is FailureKind.TESTS_FAILED
