"""Judges a run of the base commit's tests on the patched files, over ports alone.

Test by test, where a report names each: what passes at the base commit passes with the patch. A test that
fails there too, or stands in a file that could not be read in, is named and is not the patch's (ADR-0040);
nor does the patch prove anything by it. Where only a log tells, by counts and by the names of what fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fallback_audit.vocabulary import FailureKind
from fallback_plugins.shared.gates.base_runs import BaseRun, BaseRuns, On, Run, digest_of
from fallback_plugins.shared.gates.flaky import (
    PATCHED_RERUNS,
    SortedFailures,
    is_settled,
    sort_failures,
)
from fallback_plugins.shared.gates.gating import (
    failed,
    passed,
    skipped,
    timed_out,
    undecided,
)
from fallback_plugins.shared.gates.late_suites import in_words, judge_beside_late, judge_late, named
from fallback_plugins.shared.gates.observing import judge_acts
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateContext, GateVerdict


def judge_tests(
    gate: str,
    context: GateContext,
    folder: str,
    run: Run,
    on: On,
    alike: Callable[[], bool] = lambda: False,
    within: Callable[[GateContext], Run] | None = None,
) -> GateVerdict:
    """Run the base commit's tests on the patched files, and compare.

    ``run`` gets the tree to run in; ``on``: what it runs on at the base commit (``place_of``); ``alike``:
    see ``judge_acts``; ``within``: as ``run``, by the wall clock of another context, for suites that take
    most of theirs. Raises what ``run`` raises, ToolError.
    """
    base = BaseRuns(context, gate, folder, run, on)
    context = replace(context, timeout_s=patience(context.timeout_s, base.until(bool)))
    run = run if within is None else within(context)
    # As the base commit's: fresh files without .git, at a path as long. Names of tests can have it in them.
    with context.worktree.fresh(patched=True) as tree:
        ours = run(context.repo.laid_out(tree))
    if isinstance(ours, NotInstalled):
        why = f"the project's dependencies could not be installed, so no test ran: {ours.why}"
        if any(there.count != 0 for there in base.made) or base.late is not None:
            return undecided(gate, f"{why}; at the base commit they do")
        return skipped(gate, why)
    verdict = _Suite(gate, context, base, run).judge(ours)
    verdict = judge_acts(verdict, context, base, run, ours, alike)
    if not ours.installed:
        return verdict
    return verdict.model_copy(update={"detail": f"{verdict.detail}; {ours.installed}"})


def patience(timeout_s: float, base: Sequence[BaseRun]) -> float:
    """Seconds that the tests get with the patch: a gate's own, and twice what they took at the base commit
    where that is more. What ended there just in time is no hang for ending a minute later here."""
    return max([timeout_s, *(2 * run.took_s for run in base if run.took_s is not None)])


@dataclass
class _Suite:
    """One suite's verdict in the making. Runs at the base commit are made as they are needed."""

    gate: str
    context: GateContext
    base: BaseRuns
    run: Run
    #: Both sides have a report: tests are compared by name.
    by_report: bool = False

    def judge(self, ours: SuiteRun) -> GateVerdict:
        """The verdict on a run with the patch."""
        runs = self.base.until(bool)
        if not runs and self.base.absent is not None:
            why = f"the base commit's dependencies could not be installed: {self.base.absent.why}"
            what = f"here {in_words(ours)}, and {why}"
            if not ours.result.ok:
                return undecided(self.gate, what, ours.result.output)
            return skipped(self.gate, f"could not be judged: {what}", ours.result.output)
        if not runs and self.base.late is not None:
            if ours.result.timed_out:
                return judge_late(self.gate, self.context, ours, self.base.late)
            return judge_beside_late(self.gate, self.context, ours, self.base.late)
        if ours.result.timed_out:
            return timed_out(self.gate, ours.result, self.context)
        self.by_report = ours.report is not None and any(run.report is not None for run in runs)
        if ours.result.ok or ours.count == 0:
            return self._judge_count(ours)
        return self._judge_failing(ours)

    def _judge_count(self, ours: SuiteRun) -> GateVerdict:
        """The run passed, or came to no test: did what passes at the base commit pass?"""
        log = ours.result.output
        before = self._count_at_base()
        if ours.count is None:
            return self._judge_uncounted(before, log)
        if before is None and not ours.result.ok:
            what = "the test run failed before any test"
            return failed(self.gate, FailureKind.TESTS_FAILED, what, log)
        if (fewer := self._fewer(ours)) is not None:
            return fewer
        if ours.count == 0:
            return skipped(self.gate, "no test ran, here or at the base commit", log)
        return passed(self.gate, f"{ours.passing} test(s) pass", log)

    def _judge_failing(self, ours: SuiteRun) -> GateVerdict:
        """Tests fail: are they those that fail, always or now and then, at the base commit too?"""
        failing = self._failing(ours)
        if failing is None:
            return self._judge_unnamed(ours)
        failures = self._sort_failures(failing)
        if failures.new:
            return self._failed(ours, failures)
        if (fewer := self._fewer(ours)) is not None:
            return fewer
        if failures.flaky:
            return self._rerun(ours, failures)
        return self._more_failing(ours) or self._as_before(ours, failures)

    def _as_before(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Only tests fail that always fail at the base commit. One may be the test that shows the flaw, so
        they stand in the verdict by name."""
        if not ours.passing:
            why = "no test passes, here or at the base commit, so this shows nothing"
            return skipped(self.gate, why, ours.result.output)
        what = f"{ours.passing} test(s) pass"
        if failures.broken:
            what += f"; {len(failures.broken)} fail as at the base commit: {named(failures.broken)}"
        else:
            what += (
                f"; the run itself fails (exit code {ours.result.exit_code}), as at the base commit"
            )
        verdict = passed(self.gate, what, ours.result.output)
        return verdict.model_copy(update={"failing_before": failures.broken})

    def _judge_uncounted(self, before: int | None, log: str) -> GateVerdict:
        """It ends well and counts nothing: so does a runner that the patch ends before its time."""
        if before:
            what = f"the runner does not tell that any test ran; {before} did at the base commit"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, log)
        return passed(self.gate, "tests pass; the runner does not report how many ran", log)

    def _judge_unnamed(self, ours: SuiteRun) -> GateVerdict:
        """Nobody can tell which tests fail. The same words at the base commit tell nothing."""
        runs = self.base.made
        if not runs or runs[0].said != digest_of(ours):
            return self._failed(ours, SortedFailures((), (), ()))
        why = "the tests fail at the base commit too, in the same way, so this shows nothing"
        return skipped(self.gate, why, ours.result.output)

    def _rerun(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Flaky tests alone decide: each must pass once with the patch, and none may fail anew."""
        left, latest = set(failures.flaky), ours
        for _ in range(PATCHED_RERUNS):
            with self.context.worktree.fresh(patched=True) as tree:
                again = self.run(self.context.repo.laid_out(tree))
            if isinstance(again, NotInstalled) or (failing := self._failing(again)) is None:
                break
            latest, found = again, self._sort_failures(failing)
            if found.new:
                return self._failed(again, replace(found, flaky=failures.flaky))
            if (worse := self._fewer(again) or self._more_failing(again)) is not None:
                return worse
            left -= self._passing(again, failing)
            if not left and again.passing:
                seen = tuple(sorted({*failures.flaky, *found.flaky}))
                verdict = self._as_before(again, found) if found.broken else None
                what = f"{again.passing} test(s) pass" if verdict is None else verdict.detail
                what += f"; flaky, at the base commit too: {named(seen)}"
                verdict = verdict or passed(self.gate, what, again.result.output)
                return verdict.model_copy(update={"detail": what, "flaky": seen})
        return self._failed(latest, failures)

    def _failed(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        ran = "" if ours.count is None else f" ({ours.count} ran)"
        what = f"tests failed{ran}"
        if failures.new and (failures.flaky or failures.broken):
            what += f", not at the base commit: {named(failures.new)}"
        elif failures.flaky:
            what += f"; flaky at the base commit, they never pass here: {named(failures.flaky)}"
        verdict = failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)
        # Without the base commit's word nobody can say that they pass there.
        broken = failures.new if any(run.is_conclusive for run in self.base.made) else ()
        return verdict.model_copy(update={"flaky": failures.flaky, "broken": broken})

    def _failing(self, run: SuiteRun) -> tuple[str, ...] | None:
        """Failing tests by name; None where they can't be told, or can't be the whole reason."""
        if not self.by_report:
            return run.failing
        if run.report is None:
            return None
        if run.result.ok or run.report.failed:
            return run.report.failed
        # All pass, and the run fails: for want of coverage, say. Then it does so at the base commit.
        alike = any(
            one.exit_code == run.result.exit_code
            and one.others == run.others
            and one.report
            and not one.report.failed
            for one in self.base.made
        )
        return () if alike else None

    def _passing(self, run: SuiteRun, failing: Sequence[str]) -> set[str]:
        """Flaky tests that this run clears: by name they passed; by a log they did not fail."""
        seen = {test for one in self.base.made for test in (one.failing or ())}
        return set(run.report.passed) if self.by_report and run.report else seen - set(failing)

    def _fewer(self, ours: SuiteRun) -> GateVerdict | None:
        """Did less pass, or run, than at the base commit?"""
        if (missing := self._missing(ours)) is not None:
            return missing
        before, now = self._count_at_base(), ours.count
        if self.by_report and ours.report is not None:
            before, now = self._lasting(ours.report)
        if now is None or before is None or now >= before:
            return None
        what = f"{now} test(s) ran, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)

    def _missing(self, ours: SuiteRun) -> GateVerdict | None:
        """What passes in every run at the base commit and did not pass here. Further runs there tell what
        has another name each time."""

        def missing(runs: Sequence[BaseRun]) -> frozenset[str]:
            reported = [run.report.passed for run in runs if run.report is not None]
            now = frozenset() if ours.report is None else ours.report.passed
            return frozenset.intersection(*reported) - now if reported else frozenset()

        lost = sorted(missing(self.base.until(lambda runs: not missing(runs))))
        if not lost:
            return None
        here = "did not run here" if ours.report else "have no report here that its log agrees with"
        what = f"{len(lost)} test(s) pass at the base commit and {here}: {named(lost)}"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)

    def _lasting(self, ours: Report) -> tuple[int, int]:
        """Tests that pass, at the base commit (the least) and here, without those that fail there now and
        then: names that change from run to run are at least counted."""
        reports = [run.report for run in self.base.made if run.report is not None]
        apart = {test for report in reports for test in report.failed}
        return min(len(one.passed - apart) for one in reports), len(ours.passed - apart)

    def _more_failing(self, ours: SuiteRun) -> GateVerdict | None:
        """A suite's own line, or two tests of one name, can make a log's list of names look complete."""
        before = max((run.failed for run in self.base.made if run.failed is not None), default=None)
        if self.by_report or before is None or ours.failed is None or ours.failed <= before:
            return None
        what = f"{ours.failed} test(s) failed, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)

    def _count_at_base(self) -> int | None:
        """How many tests ran there; the least, where that differs and any ran at all, so that one run
        that crashed hides nothing. None: it can't be told."""
        counts = [run.count for run in self.base.made if run.count is not None]
        return min(filter(None, counts), default=0 if counts else None)

    def _sort_failures(self, failing: tuple[str, ...]) -> SortedFailures:
        def reported(runs: Sequence[BaseRun]) -> list[frozenset[str]]:
            found = (run.excused(failing, by_report=self.by_report) for run in runs)
            return [one for one in found if one is not None]

        return sort_failures(
            failing, reported(self.base.until(lambda runs: is_settled(failing, reported(runs))))
        )
