"""The verdict on one run of the patched tree's tests, beside the base commit's runs.

Test by test, where a report names each: what passes at the base commit passes with the patch. A test that
fails there too, or stands in a file that could not be read in, is named and is not the patch's (ADR-0040);
nor does the patch prove anything by it. Where only a log tells, by counts and by the names of what fails.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fallback_audit.vocabulary import FailureKind
from fallback_plugins.shared.gates.base_runs import BaseRun, BaseRuns, Run, digest_of
from fallback_plugins.shared.gates.flaky import (
    PATCHED_RERUNS,
    SortedFailures,
    is_settled,
    sort_failures,
)
from fallback_plugins.shared.gates.gating import failed, passed, skipped, timed_out, undecided
from fallback_plugins.shared.gates.late_suites import in_words, judge_beside_late, judge_late, named
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateContext, GateVerdict


@dataclass
class Suite:
    """One suite's verdict in the making. Runs at the base commit are made as they are needed."""

    gate: str
    context: GateContext
    base: BaseRuns
    run: Run
    #: Both sides have a report: tests are compared by name.
    by_report: bool = False
    #: Tests that fail in some runs at the base commit when run alone, and pass in others.
    flaky_alone: frozenset[str] = frozenset()

    @property
    def late(self) -> BaseRun | None:
        """The base commit's run, where the wall clock ended it and there is no other. What is flaky has
        failed there, as it could have."""
        late = None if self.base.made else self.base.late
        if late is None or late.report is None:
            return late
        passed_there = late.report.passed - self.flaky_alone
        failing = (*late.report.failed, *sorted(late.report.passed & self.flaky_alone))
        return replace(late, report=replace(late.report, passed=passed_there, failed=failing))

    def again(self) -> SuiteRun | NotInstalled:
        """A further run with the patch, over fresh files. Raises what ``run`` raises."""
        with self.context.worktree.fresh(patched=True) as tree:
            return self.run(self.context.repo.laid_out(tree))

    def blamed(self, ours: SuiteRun) -> frozenset[str] | None:
        """Tests that the patch would fail for by this run: new failures, and what passes at the base commit
        and did not here. None: no name can be told."""
        if (late := self.late) is not None:
            here, there = ours.report or Report(frozenset()), late.report or Report(frozenset())
            lost = frozenset() if ours.result.timed_out else there.passed - here.passed
            return lost | there.passed.intersection(here.failed)
        if self.by_report:
            new = self._sort_failures(ours.report.failed if ours.report else ()).new
            return self._lost(ours) | frozenset(new)
        if ours.failing is None:
            return None
        return frozenset(self._sort_failures(ours.failing).new)

    def judge(self, ours: SuiteRun) -> GateVerdict:
        """The verdict on a run with the patch."""
        runs = self.base.until(bool)
        if not runs and self.base.absent is not None:
            why = f"the base commit's dependencies could not be installed: {self.base.absent.why}"
            what = f"here {in_words(ours)}, and {why}"
            if not ours.result.ok:
                return undecided(self.gate, what, ours.result.output)
            return skipped(self.gate, f"could not be judged: {what}", ours.result.output)
        if (late := self.late) is not None:
            judged = judge_late if ours.result.timed_out else judge_beside_late
            return judged(self.gate, self.context, ours, late)
        if ours.result.timed_out:
            return timed_out(self.gate, ours.result, self.context)
        self.by_report = ours.report is not None and any(run.report is not None for run in runs)
        if not self.by_report and (ours.result.truncated or any(run.is_cut for run in runs)):
            what = (
                "no test is named, and a log, here or at the base commit's, was too long to be kept"
            )
            return undecided(self.gate, f"{what} whole", ours.result.output)
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
        """Nobody can tell which tests fail. The same words at the base commit tell nothing, and nor do
        other ones where they are others there each time."""
        said = digest_of(ours)
        runs = self.base.until(lambda runs: any(run.said == said for run in runs))
        if any(run.said == said for run in runs):
            why = "the tests fail at the base commit too, in the same way, so this shows nothing"
            return skipped(self.gate, why, ours.result.output)
        failing = {run.said for run in runs if run.exit_code}
        if failing and len({run.said for run in runs}) > 1:
            what = "the tests fail, and none is named; at the base commit they fail too, otherwise than"
            return undecided(self.gate, f"{what} here and than in another run", ours.result.output)
        return self._failed(ours, SortedFailures((), (), ()))

    def _rerun(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Flaky tests alone decide: each must pass once with the patch, and none may fail anew. A patch
        fails for none of them: what fails at the base commit now and then may do so here too."""
        left = set(failures.flaky)
        what = f"flaky at the base commit, they never pass here: {named(failures.flaky)}"
        for _ in range(PATCHED_RERUNS):
            again = self.again()
            if isinstance(again, NotInstalled) or (failing := self._failing(again)) is None:
                what = (
                    f"flaky at the base commit: {named(failures.flaky)}; another run told nothing"
                )
                break
            found = self._sort_failures(failing)
            if found.new:
                what = f"another run fails otherwise, not as at the base commit: {named(found.new)}"
                break
            if (worse := self._fewer(again) or self._more_failing(again)) is not None:
                what = f"another run fails otherwise: {worse.detail}"
                break
            left -= self._passing(again, failing)
            if not left and again.passing:
                return self._passed_but_flaky(again, failures, found)
        what = f"tests fail in some runs with the patch ({what})"
        verdict = undecided(self.gate, what, ours.result.output)
        return verdict.model_copy(update={"flaky": failures.flaky})

    def _passed_but_flaky(
        self, again: SuiteRun, failures: SortedFailures, found: SortedFailures
    ) -> GateVerdict:
        seen = tuple(sorted({*failures.flaky, *found.flaky}))
        verdict = self._as_before(again, found) if found.broken else None
        what = f"{again.passing} test(s) pass" if verdict is None else verdict.detail
        what += f"; flaky, at the base commit too: {named(seen)}"
        verdict = verdict or passed(self.gate, what, again.result.output)
        return verdict.model_copy(update={"detail": what, "flaky": seen})

    def _failed(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        ran = "" if ours.count is None else f" ({ours.count} ran)"
        what = f"tests failed{ran}"
        if failures.new and (failures.flaky or failures.broken):
            what += f", not at the base commit: {named(failures.new)}"
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
        if self.by_report and run.report:
            reports = [one.report for one in self.base.made if one.report is not None]
            seen = {test for report in reports for test in report.failed}
            return {*run.report.passed, *filter(run.report.passes, seen)}
        return {test for one in self.base.made for test in (one.failing or ())} - set(failing)

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
        if not (lost := sorted(self._lost(ours))):
            return None
        here = "did not run here" if ours.report else "have no report here that its log agrees with"
        what = f"{len(lost)} test(s) pass at the base commit and {here}: {named(lost)}"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)

    def _lost(self, ours: SuiteRun) -> frozenset[str]:
        """What passes in every run at the base commit and did not pass here. Further runs there tell what
        has another name each time."""

        def lost(runs: Sequence[BaseRun]) -> frozenset[str]:
            reported = [run.report.passed for run in runs if run.report is not None]
            now = frozenset() if ours.report is None else ours.report.passed
            return frozenset.intersection(*reported) - now if reported else frozenset()

        return lost(self.base.until(lambda runs: not lost(runs))) - self.flaky_alone

    def _lasting(self, ours: Report) -> tuple[int, int]:
        """Tests that pass, at the base commit (the least) and here, without those that fail there now and
        then: names that change from run to run are at least counted."""
        reports = [run.report for run in self.base.made if run.report is not None]
        apart = {test for report in reports for test in report.failed} | self.flaky_alone
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

    def _sort_failures(self, failing: Iterable[str]) -> SortedFailures:
        flaky = self.flaky_alone.intersection(failing)
        failing = tuple(one for one in failing if one not in flaky)

        def reported(runs: Sequence[BaseRun]) -> list[frozenset[str]]:
            found = (run.excused(failing, by_report=self.by_report) for run in runs)
            return [one for one in found if one is not None]

        found = sort_failures(
            failing, reported(self.base.until(lambda runs: is_settled(failing, reported(runs))))
        )
        return replace(found, flaky=tuple(sorted({*found.flaky, *flaky})))
