"""Judge of a suite's tests on the patched files: a patch fails only for what it causes each time.

If a report names each test, they are compared one by one: what passes at the base commit must pass with the
patch. A test that fails there too, or is in a file that could not be loaded, is named, but is not caused by
the patch (ADR-0040) and proves nothing. If there is only a log, counts and names of failures are compared.

Before a patch fails, the tests that it would fail for are run alone, on both sides, then the suite with the
patch (ADR-0078): one run shows that a test failed, not why (a clock, a port, a busy machine). What fails
with the patch in some runs and passes in others is neither a failure nor a pass: a person decides. If
it was seen in one run only, the suite is run once more first, and what passes then passes, with a note
(ADR-0119).

What the tests did outside of their process is compared too (ADR-0065). An act is a line: its kind, then its
object. A person is asked about an act that only the patch can have caused, and that no plan declared, if it
was seen twice with the patch and never in as many runs of the base commit as it takes to detect flaky
tests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fallback_audit.event_types import JudgedTests
from fallback_audit.vocabulary import Capability, FailureKind, GateStatus, TestsLevel
from fallback_plugins.shared.gates.base_runs import (
    PATCHED_RERUNS,
    BaseRun,
    BaseRuns,
    On,
    Run,
    SortedFailures,
    digest_of,
    is_settled,
    limited,
    sort_failures,
    time_of,
)
from fallback_plugins.shared.gates.comparing import together
from fallback_plugins.shared.gates.gating import (
    content_key,
    failed,
    passed,
    skipped,
    some_of,
    timed_out,
    undecided,
    unjudged,
)
from fallback_plugins.shared.gates.reaching import Reaching
from fallback_plugins.shared.gates.suite_run import Act, Report, SuiteRun, error_lines, last_line
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.gate_ports import GateContext, GateVerdict

#: Runs of tests alone, on either side. A test that fails by chance, with whatever probability p, fails
#: in the suite and in all of these with the patch, and in none of these and of the suite's three runs
#: at the base commit, in less than one of 800 cases (p⁴(1-p)⁶).
ALONE_RUNS = 3

#: Tests that are run alone, at most: one is enough to blame a patch, and their names are an argument.
MAX_ALONE = 20

#: Further runs with the patch before a person is asked about what was seen in one run alone. A race that
#: the patch brings in fails in the first run and in neither of the next two in at most 15 of 100 cases
#: (p(1-p)²); one that does not fail in the first run is never noticed.
SECOND_LOOKS = 1

#: Returns a function that runs only these tests in a tree, in the gate's own time.
_Alone = Callable[[Sequence[str]], Run]


@dataclass(frozen=True)
class _RunAlone:
    """Results of tests that were run alone; the first three are disjoint sets."""

    #: Passed each time at the base commit, and never with the patch.
    broken: frozenset[str] = frozenset()
    #: Passed in some runs at the base commit, and in others not.
    flaky: frozenset[str] = frozenset()
    #: Passed each time at the base commit, and with the patch in some runs and not in others.
    uneven: frozenset[str] = frozenset()
    #: Passed with the patch, once or more.
    passing: frozenset[str] = frozenset()


def run_alone(context: GateContext, alone: _Alone, tests: Iterable[str]) -> _RunAlone | None:
    """Run tests alone, ``ALONE_RUNS`` times on either side; of more than ``MAX_ALONE`` the first.
    Return None if a run has no result (no report, not in time, nothing installed). Raises what a run
    raises."""
    chosen = sorted(tests)[:MAX_ALONE]
    run = alone(chosen)
    seen: dict[bool, list[Report]] = {False: [], True: []}
    for _ in range(ALONE_RUNS):
        for patched, reports in seen.items():
            with context.worktree.fresh(patched=patched) as tree:
                suite_run = run(context.repo.laid_out(tree))
            if (
                isinstance(suite_run, NotInstalled)
                or suite_run.report is None
                or suite_run.result.timed_out
            ):
                return None
            reports.append(suite_run.report)

    def which(holds: Callable[[list[bool], list[bool]], bool]) -> frozenset[str]:
        base_reports, patched_reports = seen.values()
        return frozenset(
            test
            for test in chosen
            if holds(
                [report.clears(test) for report in base_reports],
                [report.clears(test) for report in patched_reports],
            )
        )

    return _RunAlone(
        broken=which(lambda base, patched: all(base) and not any(patched)),
        flaky=which(lambda base, _: any(base) and not all(base)),
        uneven=which(lambda base, patched: all(base) and any(patched) and not all(patched)),
        passing=which(lambda _, patched: any(patched)),
    )


@dataclass(frozen=True)
class Part:
    """The tests in the files that reach what the patch changes, and how to run only those within the limits
    of a context."""

    reaching: Reaching
    within: Callable[[GateContext], Run]


#: Names that a verdict's sentence repeats.
_NAMED = 3

#: Of the tests that passed before the time-out at the base commit, how many must have passed with the patch
#: before it: on a busy machine fewer pass, and if the patch makes the suite hang, hardly any.
_LEAST_SHARE = 0.5

#: Characters of a log's last line that a verdict's sentence repeats.
_LINE_CHARS = 200

_NOTHING = Report(frozenset())


def _named(names: Sequence[str]) -> str:
    return some_of(names, _NAMED)


def in_words(run: SuiteRun) -> str:
    """Return how a run ended, as a clause."""
    failing = (run.report or _NOTHING).failed or run.failing or ()
    fail = f", {len(failing)} fail: {_named(failing)}" if failing else ""
    if run.result.timed_out:
        return f"{len((run.report or _NOTHING).passed)} test(s) passed in time{fail}"
    if run.passing is not None:
        return f"{run.passing} test(s) pass{fail}"
    return "the tests pass" if run.result.ok else "the tests fail"


def _judge_late(gate: str, context: GateContext, patched: SuiteRun, late: BaseRun) -> GateVerdict:
    """Judge if neither run ended: a test that passed at the base commit and failed here is the patch's."""
    report, base_report = patched.report or _NOTHING, late.report or _NOTHING
    what = f"the tests do not end within {time_of(context).limit_s:.0f} s, nor do those of the base commit"
    what += f"; {in_words(patched)}"
    if unseen := [test for test in report.failed if not base_report.excuses(test)]:
        what += f"; the base commit's run did not come to {_named(unseen)}"
        return undecided(gate, what, patched.result.output)
    if len(report.passed & base_report.passed) < len(base_report.passed) * _LEAST_SHARE:
        what += f", of {len(base_report.passed)} that passed in time at the base commit"
        return undecided(gate, what, patched.result.output)
    if base_report.passed:
        count, before = len(report.passed & base_report.passed), len(base_report.passed)
        what += (
            f"; {count:,} of the {before:,} that passed in time there passed here, none fails anew"
        )
    return skipped(gate, f"could not be judged: {what}", patched.result.output)


def _judge_beside_late(
    gate: str, context: GateContext, patched: SuiteRun, late: BaseRun
) -> GateVerdict:
    """Judge if only the base commit's run did not end: compare with what it reported before that."""
    log, base_report = patched.result.output, late.report or _NOTHING
    if lost := sorted(base_report.passed - (patched.report or _NOTHING).passed):
        what = f"{len(lost)} test(s) pass at the base commit and did not run here: {_named(lost)}"
        return failed(gate, FailureKind.TESTS_MISSING, what, log)
    beside = f"the base commit's tests do not end within {time_of(context).limit_s:.0f} s"
    if patched.count == 0:
        return skipped(gate, f"could not be judged: no test ran here, and {beside}", log)
    failing = () if patched.result.ok else (patched.report or _NOTHING).failed or patched.failing
    unseen = [test for test in failing or () if not base_report.excuses(test)]
    if unseen or failing is None or not (failing or patched.result.ok):
        return undecided(gate, f"{in_words(patched)}, and {beside}", log)
    if not (patched.passing or patched.count is None):
        return skipped(gate, f"no test passes here, and {beside}", log)
    verdict = passed(gate, f"{in_words(patched)}; {beside}", log)
    return verdict.model_copy(update={"failing_before": tuple(failing)})


def _broken(gate: str, patched: SuiteRun, late: BaseRun) -> GateVerdict | None:
    base_passed = (late.report or _NOTHING).passed
    broken = tuple(test for test in (patched.report or _NOTHING).failed if test in base_passed)
    if not broken:
        return None
    what = f"tests failed that passed at the base commit before the time-out: {_named(broken)}"
    verdict = failed(gate, FailureKind.TESTS_FAILED, what, patched.result.output)
    return verdict.model_copy(update={"broken": broken})


def _ending(run: SuiteRun) -> str:
    line = last_line(run.result.output)
    return f"; the output ends: {line[:_LINE_CHARS]}" if line else ""


def _end_of(test: str, run: SuiteRun | BaseRun) -> str:
    if run.report is not None:
        if run.report.passes(test):
            return "passed"
        return "failed" if run.report.excuses(test) else "absent"
    if run.failing is None:
        return ""
    return "failed" if test in run.failing else "passed"


@dataclass
class _Suite:
    """One suite while it is judged. Runs at the base commit are made as they are needed."""

    gate: str
    context: GateContext
    base: BaseRuns
    run: Run
    #: Whether both sides have a report: then tests are compared by name.
    by_report: bool = False
    #: Tests that fail in some runs at the base commit when run alone, and pass in others.
    flaky_alone: frozenset[str] = frozenset()
    #: The suite's runs with the patch.
    patched: list[SuiteRun] = field(default_factory=list)
    #: Tests that a run with the patch raised a question about.
    questioned: set[str] = field(default_factory=set)
    #: Whether the last verdict, an undecided one, is based on what only one run did.
    seen_once: bool = False

    @property
    def late(self) -> BaseRun | None:
        """The base commit's run if the wall clock ended it and there is no other. Flaky tests count as
        failed in it."""
        late = None if self.base.made else self.base.late
        if late is None or late.report is None:
            return late
        passed_there = late.report.passed - self.flaky_alone
        failing = (*late.report.failed, *sorted(late.report.passed & self.flaky_alone))
        return replace(late, report=replace(late.report, passed=passed_there, failed=failing))

    def again(self) -> SuiteRun | NotInstalled:
        """Run once more with the patch, over fresh files. Raises what ``run`` raises."""
        with self.context.worktree.fresh(patched=True) as tree:
            run = self.run(self.context.repo.laid_out(tree))
        if not isinstance(run, NotInstalled):
            self.patched.append(run)
        return run

    def level(self, patched: SuiteRun, verdict: GateVerdict) -> TestsLevel:
        """Return how far a verdict on a run with the patch judged the tests. Logs compare them too, if both
        sides name all their failing tests and count equally many tests."""
        if self.late is not None:
            ran = patched.passing or (patched.report or _NOTHING).passed
            return TestsLevel.RAN if ran else TestsLevel.NOT_JUDGED
        if verdict.status is GateStatus.SKIPPED:
            return TestsLevel.NOT_JUDGED
        counts = {run.count for run in self.base.made if run.failing is not None}
        by_log = patched.failing is not None and patched.count and patched.count in counts
        is_compared = by_log or (self.by_report and patched.report is not None)
        return TestsLevel.COMPARED if is_compared else TestsLevel.RAN

    def account(self, folder: str, patched: SuiteRun, verdict: GateVerdict) -> JudgedTests:
        """Return what a person needs to judge the tests if they were not compared."""
        level = self.level(patched, verdict)
        command = patched.command
        is_compared = level is TestsLevel.COMPARED
        shows_error = not (is_compared or patched.result.ok)
        return JudgedTests(
            project=folder,
            tests_level=level,
            reason="" if is_compared else self._not_compared(patched, verdict),
            command=" ".join(patched.result.argv) if command is None else command.line,
            source="" if command is None else command.source,
            last_line=last_line(patched.result.output),
            exit_code=None if is_compared else patched.result.exit_code,
            output=error_lines(patched.result.output) if shows_error else "",
        )

    def _not_compared(self, patched: SuiteRun, verdict: GateVerdict) -> str:
        if verdict.status in {GateStatus.SKIPPED, GateStatus.UNDECIDED}:
            return verdict.detail
        if self.late is not None:
            return "the base commit's tests were ended before they finished"
        if patched.count is None:
            return "the runner does not report which tests ran"
        before = self._count_at_base()
        at_base = "are not counted" if before is None else f"{before} ran"
        return f"no report names the tests: {patched.count} ran, and at the base commit {at_base}"

    def in_runs(self) -> str:
        """Return how the tests in question ended on both sides, or the whole runs if no test is named."""
        base = (*self.base.made, *filter(None, [self.base.late]))
        if not self.questioned:
            patched_count = (
                f"{sum(not run.result.ok for run in self.patched)} of {len(self.patched)}"
            )
            base_count = f"{sum(run.exit_code != 0 for run in base)} of {len(base)}"
            return (
                f"no test is named: with the patch {patched_count} runs fail, "
                f"at the base commit {base_count}"
            )
        sides = (self.patched, base)
        clauses = []
        for test in sorted(self.questioned)[:_NAMED]:
            endings = [[end for run in side if (end := _end_of(test, run))] for side in sides]
            verb = "fails" if any("failed" in side for side in endings) else "does not run"
            patched_count, base_count = (
                f"{len(ends) - ends.count('passed')} of {len(ends)}" for ends in endings
            )
            clauses.append(
                f"{test} {verb} in {patched_count} runs with the patch, in {base_count} at the base commit"
            )
        more = len(self.questioned) - _NAMED
        return "; ".join([*clauses, *([f"and {more} more tests"] if more > 0 else [])])

    def blamed(self, patched: SuiteRun) -> frozenset[str] | None:
        """Return the tests that the patch would fail for by this run: new failures, and what passes at the
        base commit and did not pass here. Return None if they are not named."""
        if (late := self.late) is not None:
            report, base_report = patched.report or _NOTHING, late.report or _NOTHING
            lost = frozenset() if patched.result.timed_out else base_report.passed - report.passed
            return lost | base_report.passed.intersection(report.failed)
        if self.by_report:
            new = self._sort_failures(patched.report.failed if patched.report else ()).new
            return self._lost(patched) | frozenset(new)
        if patched.failing is None:
            return None
        return frozenset(self._sort_failures(patched.failing).new)

    def judge(self, patched: SuiteRun) -> GateVerdict:
        self.seen_once = False
        runs = self.base.until(bool)
        if not runs and self.base.absent is not None:
            why = f"the base commit's dependencies could not be installed: {self.base.absent.why}"
            what = f"here {in_words(patched)}, and {why}"
            if not patched.result.ok:
                return undecided(self.gate, what, patched.result.output)
            return skipped(self.gate, f"could not be judged: {what}", patched.result.output)
        if (late := self.late) is not None:
            judged = _judge_late if patched.result.timed_out else _judge_beside_late
            verdict = _broken(self.gate, patched, late)
            verdict = verdict or judged(self.gate, self.context, patched, late)
            self.seen_once = verdict.status is GateStatus.UNDECIDED
            return verdict
        if patched.result.timed_out:
            spent = replace(self.context, timeout_s=time_of(self.context).limit_s)
            return timed_out(self.gate, patched.result, spent)
        self.by_report = patched.report is not None and any(run.report is not None for run in runs)
        if not self.by_report and (patched.result.truncated or any(run.is_cut for run in runs)):
            what = (
                "no test is named, and a log, here or at the base commit's, was too long to be kept"
            )
            return undecided(self.gate, f"{what} whole", patched.result.output)
        if patched.result.ok or patched.count == 0:
            return self._judge_count(patched)
        return self._judge_failing(patched)

    def _judge_count(self, patched: SuiteRun) -> GateVerdict:
        """Judge a run that passed, or reached no test."""
        log = patched.result.output
        before = self._count_at_base()
        if patched.count is None and before:
            # A runner that the patch ends too early does the same.
            what = f"the runner does not tell that any test ran; {before} did at the base commit"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, log)
        if patched.count is None:
            what = "tests pass; the runner does not report how many ran"
            return passed(self.gate, what, log, kinds=["not_counted"])
        if before is None and not patched.result.ok:
            what = "the test run failed before any test"
            return failed(self.gate, FailureKind.TESTS_FAILED, what, log)
        if (fewer := self._fewer(patched)) is not None:
            return fewer
        if patched.count == 0:
            return skipped(self.gate, "no test ran, here or at the base commit", log)
        return passed(self.gate, f"{patched.passing} test(s) pass", log)

    def _judge_failing(self, patched: SuiteRun) -> GateVerdict:
        """Judge a run with failing tests by those that fail at the base commit too, always or sometimes."""
        failing = self._failing(patched)
        if failing is None:
            return self._judge_unnamed(patched)
        failures = self._sort_failures(failing)
        if failures.new and not self._passes_nowhere(patched):
            return self._failed(patched, failures)
        if (fewer := self._fewer(patched)) is not None:
            return fewer
        if failures.new:
            return self._none_passes(patched)
        if failures.flaky:
            return self._rerun(patched, failures)
        return self._more_failing(patched) or self._as_before(patched, failures)

    def _passes_nowhere(self, patched: SuiteRun) -> bool:
        """Return whether no test passes, here or in any run at the base commit, which failed each time:
        then the patch broke none. An error before all tests has another name in another release of the
        runner, so names are not compared."""
        runs = self.base.made
        return patched.passing == 0 and bool(runs) and all(run.failed_whole for run in runs)

    def _none_passes(self, patched: SuiteRun) -> GateVerdict:
        why = f"no test passes, here or at the base commit{_ending(patched)}"
        return skipped(self.gate, why, patched.result.output)

    def _as_before(self, patched: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Judge a run in which only tests fail that always fail at the base commit. The verdict names them,
        as one may be the test that shows the vulnerability."""
        if not patched.passing and not (patched.count is None and failures.broken):
            return self._none_passes(patched)
        what = (
            "the runner does not report how many tests ran"
            if patched.count is None
            else f"{patched.passing} test(s) pass"
        )
        if failures.broken:
            what += (
                f"; {len(failures.broken)} fail as at the base commit: {_named(failures.broken)}"
            )
        else:
            what += f"; the run itself fails (exit code {patched.result.exit_code}), as at the base commit"
        verdict = passed(self.gate, what, patched.result.output)
        return verdict.model_copy(update={"failing_before": failures.broken})

    def _judge_unnamed(self, patched: SuiteRun) -> GateVerdict:
        """Judge a run whose failing tests are unknown: skipped if the base commit has the same output,
        undecided if it fails there too and its output differs from run to run."""
        digest = digest_of(patched)
        runs = self.base.until(lambda runs: any(run.said == digest for run in runs))
        if any(run.said == digest for run in runs):
            why = (
                f"the tests fail as at the base commit (exit code {patched.result.exit_code}), and no "
                f"failing test is named, so nothing is compared{_ending(patched)}"
            )
            return skipped(self.gate, why, patched.result.output)
        failing = {run.said for run in runs if run.exit_code}
        if failing and len({run.said for run in runs}) > 1:
            what = "the tests fail, and none is named; at the base commit they fail too, otherwise than"
            self.seen_once = True
            return undecided(
                self.gate, f"{what} here and than in another run", patched.result.output
            )
        return self._failed(patched, SortedFailures((), (), ()))

    def _rerun(self, patched: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Judge by flaky tests alone: each must pass once with the patch, and no other test may fail. A
        patch never fails for them, as what sometimes fails at the base commit may fail here too."""
        remaining = set(failures.flaky)
        self.questioned |= remaining
        self.seen_once = True
        what = f"flaky at the base commit, they never pass here: {_named(failures.flaky)}"
        for _ in range(PATCHED_RERUNS):
            rerun = self.again()
            if isinstance(rerun, NotInstalled) or (failing := self._failing(rerun)) is None:
                what = f"flaky at the base commit: {_named(failures.flaky)}; another run gave no result"
                break
            rerun_failures = self._sort_failures(failing)
            if rerun_failures.new:
                self.questioned |= {*rerun_failures.new}
                what = (
                    "another run fails otherwise, not as at the base commit: "
                    f"{_named(rerun_failures.new)}"
                )
                break
            if (worse := self._fewer(rerun) or self._more_failing(rerun)) is not None:
                what = f"another run fails otherwise: {worse.detail}"
                break
            remaining -= self._passing(rerun, failing)
            if not remaining and rerun.passing:
                return self._passed_but_flaky(rerun, failures, rerun_failures)
        else:
            self.seen_once = False
        what = f"tests fail in some runs with the patch ({what})"
        verdict = undecided(self.gate, what, patched.result.output)
        return verdict.model_copy(update={"flaky": failures.flaky})

    def _passed_but_flaky(
        self, rerun: SuiteRun, failures: SortedFailures, rerun_failures: SortedFailures
    ) -> GateVerdict:
        seen = tuple(sorted({*failures.flaky, *rerun_failures.flaky}))
        verdict = self._as_before(rerun, rerun_failures) if rerun_failures.broken else None
        what = f"{rerun.passing} test(s) pass" if verdict is None else verdict.detail
        what += f"; flaky, at the base commit too: {_named(seen)}"
        verdict = verdict or passed(self.gate, what, rerun.result.output)
        return verdict.model_copy(update={"detail": what, "flaky": seen})

    def _failed(self, patched: SuiteRun, failures: SortedFailures) -> GateVerdict:
        ran = "" if patched.count is None else f" ({patched.count} ran)"
        what = f"tests failed{ran}"
        if failures.new and (failures.flaky or failures.broken):
            what += f", not at the base commit: {_named(failures.new)}"
        verdict = failed(self.gate, FailureKind.TESTS_FAILED, what, patched.result.output)
        # Without a conclusive run at the base commit it is unknown whether they pass there.
        broken = failures.new if any(run.is_conclusive for run in self.base.made) else ()
        return verdict.model_copy(update={"flaky": failures.flaky, "broken": broken})

    def _failing(self, run: SuiteRun) -> tuple[str, ...] | None:
        """Return failing tests by name; None if they are unknown, or not the whole reason."""
        if not self.by_report:
            return run.failing
        if run.report is None:
            return None
        if run.result.ok or run.report.failed:
            return run.report.failed
        # All pass, but the run fails: for lack of coverage, say. That is excused if a run at the base
        # commit fails alike.
        alike = any(
            base_run.exit_code == run.result.exit_code
            and base_run.others == run.others
            and base_run.report
            and not base_run.report.failed
            for base_run in self.base.made
        )
        return () if alike else None

    def _passing(self, run: SuiteRun, failing: Sequence[str]) -> set[str]:
        """Return the flaky tests that this run clears: they passed or, by a log, did not fail."""
        if self.by_report and run.report:
            reports = [
                base_run.report for base_run in self.base.made if base_run.report is not None
            ]
            seen = {test for report in reports for test in report.failed}
            return {*run.report.passed, *filter(run.report.passes, seen)}
        return {test for base_run in self.base.made for test in (base_run.failing or ())} - set(
            failing
        )

    def _fewer(self, patched: SuiteRun) -> GateVerdict | None:
        """Return the failure if fewer tests passed, or ran, than at the base commit."""
        if lost := sorted(self._lost(patched)):
            outcome = (
                "did not run here"
                if patched.report
                else "have no report here that its log agrees with"
            )
            what = f"{len(lost)} test(s) pass at the base commit and {outcome}: {_named(lost)}"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, patched.result.output)
        before, now = self._count_at_base(), patched.count
        if self.by_report and patched.report is not None:
            # Leave out tests that fail there now and then. Names that change from run to run are counted.
            reports = [run.report for run in self.base.made if run.report is not None]
            excluded = {test for report in reports for test in report.failed} | self.flaky_alone
            before = min(len(report.passed - excluded) for report in reports)
            now = len(patched.report.passed - excluded)
        if now is None or before is None or now >= before:
            return None
        what = f"{now} test(s) ran, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, patched.result.output)

    def _lost(self, patched: SuiteRun) -> frozenset[str]:
        """Return what passes in every run at the base commit and did not pass here. Further runs there
        exclude names that change each time."""

        def lost(runs: Sequence[BaseRun]) -> frozenset[str]:
            passed_sets = [run.report.passed for run in runs if run.report is not None]
            now = frozenset() if patched.report is None else patched.report.passed
            return frozenset.intersection(*passed_sets) - now if passed_sets else frozenset()

        return lost(self.base.until(lambda runs: not lost(runs))) - self.flaky_alone

    def _more_failing(self, patched: SuiteRun) -> GateVerdict | None:
        """Return the failure if more tests fail than at the base commit, by a log. Its list of names can
        look complete without being so: by a suite's own line, or two tests of one name."""
        before = max((run.failed for run in self.base.made if run.failed is not None), default=None)
        if self.by_report or before is None or patched.failed is None or patched.failed <= before:
            return None
        what = f"{patched.failed} test(s) failed, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_FAILED, what, patched.result.output)

    def _count_at_base(self) -> int | None:
        """Return how many tests ran there; the least number above 0 if that differs, so that one crashed
        run hides nothing. Return None if unknown."""
        counts = [run.count for run in self.base.made if run.count is not None]
        return min(filter(None, counts), default=0 if counts else None)

    def _sort_failures(self, failing: Iterable[str]) -> SortedFailures:
        flaky = self.flaky_alone.intersection(failing)
        failing = tuple(test for test in failing if test not in flaky)

        def excused_in(runs: Sequence[BaseRun]) -> list[frozenset[str]]:
            excused = (run.excused(failing, by_report=self.by_report) for run in runs)
            return [tests for tests in excused if tests is not None]

        failures = sort_failures(
            failing, excused_in(self.base.until(lambda runs: is_settled(failing, excused_in(runs))))
        )
        return replace(failures, flaky=tuple(sorted({*failures.flaky, *flaky})))


#: The act of a run whose report of acts is missing, cut or forged: its other acts are unknown.
DAMAGED: Act = "damage"

#: The verb for an act's kind, and the capability that declares it. Many fixes write files: that is only
#: named.
_KINDS: dict[str, tuple[str, Capability | None]] = {
    "start": ("starts", Capability.PROCESS),
    "connect": ("connects to", Capability.NETWORK),
    "resolve": ("looks up", Capability.NETWORK),
    "listen": ("listens on", Capability.NETWORK),
    "call": ("calls", Capability.UNKNOWN),
    "load": ("loads", Capability.UNKNOWN),
    "steer": ("steers what runs by", Capability.UNKNOWN),
    "damage": ("damages the record of what it does", Capability.UNKNOWN),
    "write": ("writes", None),
}

#: Acts that a verdict's sentence names, and characters of each. The log has all.
_ACTS_NAMED, _MAX_CHARS = 5, 80


def _judge_acts(
    verdict: GateVerdict, suite: _Suite, patched: SuiteRun, alike: Callable[[], bool]
) -> GateVerdict:
    """Return the tests' verdict with their new acts; failed if a plan had to declare one and did not.

    ``alike``: whether the same is installed as at the base commit. If not, another release may be the
    reason, and new acts are only named. Raises what the suite's ``run`` raises.
    """
    acts = patched.acts
    if acts is None or verdict.status is GateStatus.FAILED:
        return verdict
    new = _new(acts, suite.base.until(lambda runs: not _new(acts, runs)))
    if not new:
        return verdict
    plan = suite.context.application.plan
    declared = frozenset(plan.capabilities if plan else ())
    undeclared = [act for act in new if _KINDS[_kind(act)][1] not in {None, *declared}]
    if undeclared and alike():
        rerun = suite.again()
        acts_again = None if isinstance(rerun, NotInstalled) else rerun.acts
        undeclared = [act for act in undeclared if acts_again is None or act in acts_again]
        if undeclared:
            return _undeclared(verdict, undeclared, new)
    acts_log = "\n".join(
        ["", "New with the patch, seen while the tests ran:", *map(_act_in_words, new)]
    )
    # In front: the audit trail cuts a long detail at its end, and tests may have long names.
    what = f"new with the patch, seen while its tests ran: it {_some_acts(new)}; {verdict.detail}"
    return verdict.model_copy(update={"detail": what, "log": verdict.log + acts_log})


def _act_in_words(act: Act) -> str:
    return f"{_KINDS[_kind(act)][0]} {act.partition(' ')[2]}".strip()


def _new(acts: frozenset[Act], runs: Sequence[BaseRun]) -> list[Act]:
    """Return the acts of no run at the base commit; none if no run there was observed whole."""
    before = [run.acts for run in runs if run.acts is not None and DAMAGED not in run.acts]
    return sorted(acts.difference(*before)) if before else []


def _undeclared(verdict: GateVerdict, undeclared: Sequence[Act], new: Sequence[Act]) -> GateVerdict:
    kinds = sorted({f'"{_KINDS[_kind(act)][1]}"' for act in undeclared})
    how = (
        f'Do without, or declare it: add "capabilities": [{", ".join(kinds)}] to the plan, beside '
        '"action", and say in one sentence of "rationale" why the fix needs that.'
    )
    what = "while its tests run, the patched code does what the base commit's never did: it"
    log = "\n".join([how, *(f"new: it {_act_in_words(act)}" for act in new), "", verdict.log])
    return failed(
        verdict.gate, FailureKind.UNDECLARED_CAPABILITY, f"{what} {_some_acts(undeclared)}", log
    )


def _some_acts(acts: Sequence[Act]) -> str:
    return some_of([_act_in_words(act)[:_MAX_CHARS] for act in acts], _ACTS_NAMED)


def _kind(act: Act) -> str:
    return act.partition(" ")[0]


def judge_tests(
    gate: str,
    context: GateContext,
    folder: str,
    run: Run,
    on: On,
    alike: Callable[[], bool] = lambda: False,
    within: Callable[[GateContext], Run] | None = None,
    alone: _Alone | None = None,
    base: BaseRuns | None = None,
    part: Callable[[], Part | str] | None = None,
) -> GateVerdict:
    """Run the base commit's tests on the patched files, and compare.

    ``run`` gets the tree to run in. ``on``: what it runs on at the base commit (``place_of``). ``alike``:
    see ``_judge_acts``. ``within``: as ``run``, with the time limits of a context, for suites that take
    most of theirs. ``alone``: as ``run``, only these tests; None if the runner can't. ``base``: the runs at
    the base commit, if some were made before. ``part``: returns the tests that reach what the patch
    changes, or why there are none, as a clause; called only if the base commit's suite does not end in
    time. Raises what ``run`` raises, ToolError.
    """
    base = base or BaseRuns(context, gate, folder, run, on)
    with_time = limited(context, base)
    whole = _Suite(gate, with_time, base, run if within is None else within(with_time))
    late = whole.late
    if part is None or late is None or not late.can_select:
        return _judged(whole, folder, alike, alone)[0]
    chosen = part()
    if isinstance(chosen, str):
        verdict = _judged(whole, folder, alike, alone)[0]
        note = f"no tests were selected to be compared alone: {chosen}"
        return verdict.model_copy(update={"notes": (*verdict.notes, note)})
    key = content_key(chosen.reaching.files)
    run_part, on_part = chosen.within(context), lambda: content_key(on(), key)
    part_base = BaseRuns(context, gate, folder, run_part, on_part)
    part_context = limited(context, part_base)
    suite = _Suite(gate, part_context, part_base, chosen.within(part_context))
    verdict, patched = _judged(suite, folder, alike, alone)
    if verdict.status is GateStatus.FAILED:  # the others would change nothing
        return _of_part(verdict, chosen.reaching, late, patched, None)
    whole_verdict, whole_run = _judged(whole, folder, alike, alone)
    return _joined(_of_part(verdict, chosen.reaching, late, patched, whole_run), whole_verdict)


def _judged(
    suite: _Suite, folder: str, alike: Callable[[], bool], alone: _Alone | None
) -> tuple[GateVerdict, SuiteRun | None]:
    """Return the verdict on a suite with its account, and the run with the patch that it is about, if any.
    Raises what a run raises, ToolError."""
    # As at the base commit: fresh files without .git, at a path as long, which names of tests can contain.
    gate, base, patched = suite.gate, suite.base, suite.again()
    if isinstance(patched, NotInstalled):
        why = f"the project's dependencies could not be installed, so no test ran: {patched.why}"
        if any(run.count != 0 for run in base.made) or base.late is not None:
            not_installed = undecided(
                gate, f"{why}; at the base commit they do", kinds=["not_installed"]
            )
            return unjudged(not_installed, folder), None
        return unjudged(skipped(gate, why, kinds=["not_installed"]), folder), None
    verdict = suite.judge(patched)
    if verdict.status is GateStatus.FAILED:
        verdict = _ask_again(suite, patched, verdict, alone)
    verdict = _with_the_same_options(verdict, suite, patched)
    verdict, decisive = _look_again(suite, verdict, patched)
    account = suite.account(folder, decisive, verdict)
    verdict = _judge_acts(verdict, suite, patched, alike)
    update: dict[str, object] = {
        "tests_level": account.tests_level,
        "tests": (account,),
        "notes": (*verdict.notes, *patched.unserved),
    }
    if patched.without_options:
        update["kinds"] = verdict.kinds | {"without_own_options"}
    if patched.installed:
        update["detail"] = f"{verdict.detail}; {patched.installed}"
    return verdict.model_copy(update=update), decisive


def _of_part(
    verdict: GateVerdict,
    reaching: Reaching,
    late: BaseRun,
    patched: SuiteRun | None,
    whole_run: SuiteRun | None,
) -> GateVerdict:
    """Return the verdict on a part of the tests with the number of tests compared; skipped if there are
    none. ``late``, ``whole_run``: the runs of all tests, at the base commit and with the patch."""
    ran = 0 if patched is None else len(_tests_in(patched.report)) or patched.count or 0
    files = f"in at most {len(reaching.files):,} of {reaching.of:,} test files"
    is_failed = verdict.status is GateStatus.FAILED
    if not is_failed and (verdict.tests_level is not TestsLevel.COMPARED or not ran):
        why = f"tests {files}, {reaching.which}, could not be compared: {verdict.detail}"
        is_open = verdict.status is GateStatus.UNDECIDED
        status = verdict.status if is_open else GateStatus.SKIPPED
        return verdict.model_copy(update={"status": status, "detail": why})
    whole_count = whole_run.count if whole_run is not None and whole_run.count else None
    total = whole_count or (None if late.report is None else late.report.collected)
    reports = (late.report, None if whole_run is None else whole_run.report)
    least = max(ran, *(len(_tests_in(report)) for report in reports))
    shown_total = f"{total:,}" if total and total >= least else f"more than {least:,}"
    what = f"{ran:,} of {shown_total} tests ({files}), {reaching.which}"
    accounts = tuple(account.model_copy(update={"reason": what}) for account in verdict.tests)
    update = {"detail": f"compared with the base commit: {what}: {verdict.detail}"}
    return verdict.model_copy(update={**update, "tests": accounts})


def _joined(part: GateVerdict, whole: GateVerdict) -> GateVerdict:
    """Return one verdict: a pass is a pass of the part, and reports on the whole. If a part was compared,
    the tests have run, whatever the whole shows."""
    is_compared = part.tests_level is TestsLevel.COMPARED
    if is_compared and whole.tests_level is TestsLevel.NOT_JUDGED:
        ran = {"tests_level": TestsLevel.RAN}
        tests = tuple(account.model_copy(update=ran) for account in whole.tests)
        whole = whole.model_copy(update={**ran, "tests": tests})
    verdict = together(part.gate, [part, whole])
    if is_compared:
        is_told = verdict.status is not GateStatus.UNDECIDED or part.status is verdict.status
        more = "" if is_told else f"; {part.detail}"
        return verdict.model_copy(update={"detail": f"{verdict.detail}{more}"})
    update = {"tests_level": whole.tests_level, "tests": whole.tests}
    return verdict.model_copy(update=update)


def _tests_in(report: Report | None) -> frozenset[str]:
    """Return the tests that ran, without files that could not be loaded."""
    if report is None:
        return frozenset()
    return report.passed.union(report.failed).difference(report.uncollected)


def _look_again(
    suite: _Suite, verdict: GateVerdict, patched: SuiteRun
) -> tuple[GateVerdict, SuiteRun]:
    """Run the suite once more before a person is asked about what only one run did. Return the verdict, and
    the run that it is about. If a verdict is a question, or tests are flaky, a note says how both sides'
    runs ended."""
    is_asked = verdict.status is GateStatus.UNDECIDED
    for _ in range(SECOND_LOOKS if is_asked and suite.seen_once else 0):
        rerun = suite.again()
        if isinstance(rerun, NotInstalled):
            break
        rerun_verdict = _with_the_same_options(suite.judge(rerun), suite, rerun)
        if rerun_verdict.status in {GateStatus.PASSED, GateStatus.SKIPPED}:
            note = (
                f"run once more before asking a person, the tests are judged so; {suite.in_runs()}"
            )
            flaky = tuple(sorted({*verdict.flaky, *rerun_verdict.flaky, *suite.questioned}))
            return rerun_verdict.model_copy(update={"notes": (note,), "flaky": flaky}), rerun
        what = f"{verdict.detail}; run once more before asking: {rerun_verdict.detail}"
        verdict = verdict.model_copy(update={"detail": what})
    if is_asked or verdict.flaky:
        verdict = verdict.model_copy(update={"notes": (*verdict.notes, suite.in_runs())})
    return verdict, patched


def _ask_again(
    suite: _Suite, patched: SuiteRun, verdict: GateVerdict, alone: _Alone | None
) -> GateVerdict:
    """Return the verdict on a failure after further runs. It stays a failure only for what fails each time
    here and never at the base commit."""
    if verdict.failure_kind is FailureKind.GATE_TIMEOUT:
        return _in_time_once(suite, verdict, alone)
    blamed = suite.blamed(patched)
    suite.questioned |= blamed or set()
    is_named = suite.by_report or suite.late is not None
    results = run_alone(suite.context, alone, blamed) if alone and blamed and is_named else None
    if results is None:
        return _ask_the_suite(suite, verdict, blamed)
    if results.broken:
        return _without(verdict, results.flaky | results.uneven)
    if results.uneven:
        why = "run alone it fails with the patch in some runs and passes in others"
        why = f"{why}, and passes at the base commit: {_some(results.uneven)}"
        return _not_each_time(suite, verdict, why, kind="fails_at_times_alone")
    if results.flaky:
        suite.flaky_alone |= results.flaky
        verdict = suite.judge(patched)
        if verdict.status is not GateStatus.FAILED:
            return _named_flaky(suite, verdict, results, patched)
    return _ask_the_suite(suite, verdict, suite.blamed(patched))


def _ask_the_suite(
    suite: _Suite, verdict: GateVerdict, blamed: frozenset[str] | None
) -> GateVerdict:
    """Run the suite with the patch again. It fails for what fails, or is missing, in all runs."""
    if suite.late is not None:
        why = "that is one run, and the base commit's tests do not end in time to be asked again"
        return _not_each_time(suite, verdict, why, kind="base_too_slow")
    remaining = blamed
    for number in range(PATCHED_RERUNS):
        rerun = suite.again()
        if isinstance(rerun, NotInstalled):
            why = f"another run was not possible: {rerun.why}"
            return _not_each_time(suite, verdict, why, kind="not_run_again")
        if remaining:
            blamed_again = suite.blamed(rerun)
            remaining = remaining if blamed_again is None else remaining & blamed_again
            is_gone = not remaining
        else:
            is_gone = suite.judge(rerun).status is not GateStatus.FAILED
        if is_gone:
            names = f": {_some(blamed)}" if blamed else ""
            why = f"not so in another run with the patch{names}"
            once = number == 0 and suite.judge(rerun).status is not GateStatus.FAILED
            return _not_each_time(suite, verdict, why, kind="not_in_another_run", once=once)
    return _without(verdict, (blamed or frozenset()) - (remaining or frozenset()))


def _in_time_once(suite: _Suite, verdict: GateVerdict, alone: _Alone | None) -> GateVerdict:
    """Run a suite that the wall clock ended once more: it may hang, or the machine was busy."""
    rerun = suite.again()
    if isinstance(rerun, NotInstalled) or rerun.result.timed_out:
        return verdict
    rerun_verdict = suite.judge(rerun)
    if rerun_verdict.status is GateStatus.FAILED:
        return _ask_again(suite, rerun, rerun_verdict, alone)
    why = f"another run did: {rerun_verdict.detail}"
    return _not_each_time(suite, verdict, why, kind="in_time_once", once=True)


def _named_flaky(
    suite: _Suite, verdict: GateVerdict, results: _RunAlone, patched: SuiteRun
) -> GateVerdict:
    """Name the flaky tests in a verdict that leaves them out. Each must have passed with the patch: alone,
    if the suite no longer has it or the base commit's suite does not end; otherwise in a further run."""
    never = results.flaky - results.passing
    if suite.late is None and patched.report is not None:
        never -= {*patched.report.failed, *patched.report.passed}
    if never:
        why = f"flaky at the base commit, and never passes with the patch: {_some(never)}"
        verdict = _not_each_time(suite, verdict, why, kind="never_passes")
    return verdict.model_copy(update={"flaky": tuple(sorted({*verdict.flaky, *results.flaky}))})


def _with_the_same_options(verdict: GateVerdict, suite: _Suite, patched: SuiteRun) -> GateVerdict:
    """Return undecided for a pass without the project's own options if the base commit ran with them."""
    base = (*suite.base.made, *filter(None, [suite.base.late]))
    if verdict.status is not GateStatus.PASSED or not patched.without_options:
        return verdict
    if all(run.without_options for run in base):
        return verdict
    why = "at the base commit with the project's own options"
    return _not_each_time(suite, verdict, why, kind="other_options", once=True)


def _not_each_time(
    suite: _Suite, verdict: GateVerdict, why: str, *, kind: str, once: bool = False
) -> GateVerdict:
    suite.seen_once = once
    what = f"{verdict.detail}; but {why}"
    return undecided(verdict.gate, what, verdict.log, kinds=verdict.kinds | {kind})


def _without(verdict: GateVerdict, excused: Iterable[str]) -> GateVerdict:
    """Return the failure without the tests that the patch may not have broken."""
    broken = tuple(test for test in verdict.broken if test not in {*excused})
    return verdict.model_copy(update={"broken": broken})


def _some(tests: Iterable[str]) -> str:
    return _named(sorted(tests))
