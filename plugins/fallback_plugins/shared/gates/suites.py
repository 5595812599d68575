"""Judgement of the base commit's tests on the patched files: a patch fails only for what it does each time.

If a report names each test, they are compared one by one: what passes at the base commit must pass with the
patch. A test that fails there too, or is in a file that could not be read in, is named, but is not caused
by the patch (ADR-0040) and proves nothing. If there is only a log, counts and names of failures count.

Before a patch fails, the tests that it would fail for are run alone, on both sides, then the suite with the
patch (ADR-0078): one run shows that a test failed, not why (a clock, a port, a busy machine). What fails
here in some runs and passes in others is neither a failure nor a pass: a person decides. If it was seen in
one run only, the suite is run once more first, and what passes then passes, with a note (ADR-0119).

What the tests did outside of their process is compared too (ADR-0065). An act is a line: its kind, then its
object. An act that only the patch can have caused, and that no plan declared, is a person's question, if it
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

#: Runs of such tests, on either side. A test that fails by chance, however often, fails in the suite and in
#: all of these with the patch, and in none of these and of the suite's three runs at the base commit, in
#: less than one of 800 cases (p⁴(1-p)⁶).
ALONE_RUNS = 3

#: Tests that are run alone, at most: to blame a patch one is enough, and their names are an argument.
MAX_ALONE = 20

#: Further runs with the patch before a person is asked about what was seen in one run alone. A race that
#: the patch brings in fails in the first run and in neither of the two behind it in at most 15 of 100 cases
#: (p(1-p)²); one that does not fail in the first run is never noticed.
SECOND_LOOKS = 1

#: How to run these tests alone in a tree, in the gate's own time.
_Alone = Callable[[Sequence[str]], Run]


@dataclass(frozen=True)
class _RunAlone:
    """Results of tests that were run alone; the first three are disjoint."""

    #: Passed each time at the base commit, and never with the patch.
    broken: frozenset[str] = frozenset()
    #: Passed in some runs at the base commit, and in others not.
    flaky: frozenset[str] = frozenset()
    #: Passed each time at the base commit, and with the patch in some runs and not in others.
    uneven: frozenset[str] = frozenset()
    #: Passed with the patch, once or more.
    passing: frozenset[str] = frozenset()


def run_alone(context: GateContext, alone: _Alone, tests: Iterable[str]) -> _RunAlone | None:
    """Run tests alone, ``ALONE_RUNS`` times on either side; of more than ``MAX_ALONE`` the first. None: a
    run has no result (no report, not in time, nothing installed). Raises what a run raises."""
    chosen = sorted(tests)[:MAX_ALONE]
    run = alone(chosen)
    seen: dict[bool, list[Report]] = {False: [], True: []}
    for _ in range(ALONE_RUNS):
        for patched, reports in seen.items():
            with context.worktree.fresh(patched=patched) as tree:
                one = run(context.repo.laid_out(tree))
            if isinstance(one, NotInstalled) or one.report is None or one.result.timed_out:
                return None
            reports.append(one.report)

    def which(holds: Callable[[list[bool], list[bool]], bool]) -> frozenset[str]:
        there, here = seen.values()
        return frozenset(
            test
            for test in chosen
            if holds([one.clears(test) for one in there], [one.clears(test) for one in here])
        )

    return _RunAlone(
        broken=which(lambda there, here: all(there) and not any(here)),
        flaky=which(lambda there, _: any(there) and not all(there)),
        uneven=which(lambda there, here: all(there) and any(here) and not all(here)),
        passing=which(lambda _, here: any(here)),
    )


@dataclass(frozen=True)
class Part:
    """The tests in the files that reach what the patch changes, and how to run no others within the limits
    of a context."""

    reaching: Reaching
    within: Callable[[GateContext], Run]


#: Names that a verdict's one sentence repeats.
_NAMED = 3

#: Of the tests that passed before the time-out at the base commit, how many must have passed here before
#: it: a busy machine comes less far, a patch that makes the suite hang comes nowhere.
_LEAST_SHARE = 0.5

#: Of a log's last line, in a verdict's one sentence.
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


def _judge_late(gate: str, context: GateContext, ours: SuiteRun, late: BaseRun) -> GateVerdict:
    """Judge if neither run ended: what passed there before its end, and failed here, is the patch's."""
    here, there = ours.report or _NOTHING, late.report or _NOTHING
    what = f"the tests do not end within {time_of(context).limit_s:.0f} s, nor do those of the base commit"
    what += f"; {in_words(ours)}"
    if unseen := [one for one in here.failed if not there.excuses(one)]:
        what += f"; the base commit's run did not come to {_named(unseen)}"
        return undecided(gate, what, ours.result.output)
    if len(here.passed & there.passed) < len(there.passed) * _LEAST_SHARE:
        what += f", of {len(there.passed)} that passed in time at the base commit"
        return undecided(gate, what, ours.result.output)
    if there.passed:
        count, before = len(here.passed & there.passed), len(there.passed)
        what += (
            f"; {count:,} of the {before:,} that passed in time there passed here, none fails anew"
        )
    return skipped(gate, f"could not be judged: {what}", ours.result.output)


def _judge_beside_late(
    gate: str, context: GateContext, ours: SuiteRun, late: BaseRun
) -> GateVerdict:
    """Judge if only the base commit's run did not end: what it reported before is compared."""
    log, there = ours.result.output, late.report or _NOTHING
    if lost := sorted(there.passed - (ours.report or _NOTHING).passed):
        what = f"{len(lost)} test(s) pass at the base commit and did not run here: {_named(lost)}"
        return failed(gate, FailureKind.TESTS_MISSING, what, log)
    beside = f"the base commit's tests do not end within {time_of(context).limit_s:.0f} s"
    if ours.count == 0:
        return skipped(gate, f"could not be judged: no test ran here, and {beside}", log)
    failing = () if ours.result.ok else (ours.report or _NOTHING).failed or ours.failing
    unseen = [one for one in failing or () if not there.excuses(one)]
    if unseen or failing is None or not (failing or ours.result.ok):
        return undecided(gate, f"{in_words(ours)}, and {beside}", log)
    if not (ours.passing or ours.count is None):
        return skipped(gate, f"no test passes here, and {beside}", log)
    verdict = passed(gate, f"{in_words(ours)}; {beside}", log)
    return verdict.model_copy(update={"failing_before": tuple(failing)})


def _broken(gate: str, ours: SuiteRun, late: BaseRun) -> GateVerdict | None:
    there = (late.report or _NOTHING).passed
    broken = tuple(test for test in (ours.report or _NOTHING).failed if test in there)
    if not broken:
        return None
    what = f"tests failed that passed at the base commit before the time-out: {_named(broken)}"
    verdict = failed(gate, FailureKind.TESTS_FAILED, what, ours.result.output)
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
    """One suite's verdict in the making. Runs at the base commit are made as they are needed."""

    gate: str
    context: GateContext
    base: BaseRuns
    run: Run
    #: Both sides have a report: tests are compared by name.
    by_report: bool = False
    #: Tests that fail in some runs at the base commit when run alone, and pass in others.
    flaky_alone: frozenset[str] = frozenset()
    #: The suite's runs with the patch.
    patched: list[SuiteRun] = field(default_factory=list)
    #: Tests that a run with the patch raised a question about.
    questioned: set[str] = field(default_factory=set)
    #: Does the last verdict, an undecided one, come from what one run alone did?
    seen_once: bool = False

    @property
    def late(self) -> BaseRun | None:
        """The base commit's run, if the wall clock ended it and there is no other. Flaky tests count as
        failed there."""
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

    def level(self, ours: SuiteRun, verdict: GateVerdict) -> TestsLevel:
        """Return how far a verdict on a run with the patch judged the tests. Logs compare them too if both
        name all failing tests of equally many."""
        if self.late is not None:
            ran = ours.passing or (ours.report or _NOTHING).passed
            return TestsLevel.RAN if ran else TestsLevel.NOT_JUDGED
        if verdict.status is GateStatus.SKIPPED:
            return TestsLevel.NOT_JUDGED
        counts = {run.count for run in self.base.made if run.failing is not None}
        by_log = ours.failing is not None and ours.count and ours.count in counts
        is_compared = by_log or (self.by_report and ours.report is not None)
        return TestsLevel.COMPARED if is_compared else TestsLevel.RAN

    def account(self, folder: str, ours: SuiteRun, verdict: GateVerdict) -> JudgedTests:
        """Return what a person needs to judge the tests if they were not compared."""
        level = self.level(ours, verdict)
        command = ours.command
        is_compared = level is TestsLevel.COMPARED
        shows_error = not (is_compared or ours.result.ok)
        return JudgedTests(
            project=folder,
            tests_level=level,
            reason="" if is_compared else self._not_compared(ours, verdict),
            command=" ".join(ours.result.argv) if command is None else command.line,
            source="" if command is None else command.source,
            last_line=last_line(ours.result.output),
            exit_code=None if is_compared else ours.result.exit_code,
            output=error_lines(ours.result.output) if shows_error else "",
        )

    def _not_compared(self, ours: SuiteRun, verdict: GateVerdict) -> str:
        if verdict.status in {GateStatus.SKIPPED, GateStatus.UNDECIDED}:
            return verdict.detail
        if self.late is not None:
            return "the base commit's tests were ended before they finished"
        if ours.count is None:
            return "the runner does not report which tests ran"
        before = self._count_at_base()
        there = "are not counted" if before is None else f"{before} ran"
        return f"no report names the tests: {ours.count} ran, and at the base commit {there}"

    def in_runs(self) -> str:
        """Return how the tests in question, or the whole runs if none is named, ended on both sides."""
        base = (*self.base.made, *filter(None, [self.base.late]))
        if not self.questioned:
            here = f"{sum(not run.result.ok for run in self.patched)} of {len(self.patched)}"
            there = f"{sum(run.exit_code != 0 for run in base)} of {len(base)}"
            return f"no test is named: with the patch {here} runs fail, at the base commit {there}"
        sides = (self.patched, base)
        words = []
        for test in sorted(self.questioned)[:_NAMED]:
            told = [[end for run in side if (end := _end_of(test, run))] for side in sides]
            word = "fails" if any("failed" in side for side in told) else "does not run"
            here, there = (f"{len(it) - it.count('passed')} of {len(it)}" for it in told)
            words.append(
                f"{test} {word} in {here} runs with the patch, in {there} at the base commit"
            )
        more = len(self.questioned) - _NAMED
        return "; ".join([*words, *([f"and {more} more tests"] if more > 0 else [])])

    def blamed(self, ours: SuiteRun) -> frozenset[str] | None:
        """Return the tests that the patch would fail for by this run: new failures, and what passes at the
        base commit and did not here. None: they are not named."""
        if (late := self.late) is not None:
            here, there = ours.report or _NOTHING, late.report or _NOTHING
            lost = frozenset() if ours.result.timed_out else there.passed - here.passed
            return lost | there.passed.intersection(here.failed)
        if self.by_report:
            new = self._sort_failures(ours.report.failed if ours.report else ()).new
            return self._lost(ours) | frozenset(new)
        if ours.failing is None:
            return None
        return frozenset(self._sort_failures(ours.failing).new)

    def judge(self, ours: SuiteRun) -> GateVerdict:
        self.seen_once = False
        runs = self.base.until(bool)
        if not runs and self.base.absent is not None:
            why = f"the base commit's dependencies could not be installed: {self.base.absent.why}"
            what = f"here {in_words(ours)}, and {why}"
            if not ours.result.ok:
                return undecided(self.gate, what, ours.result.output)
            return skipped(self.gate, f"could not be judged: {what}", ours.result.output)
        if (late := self.late) is not None:
            judged = _judge_late if ours.result.timed_out else _judge_beside_late
            verdict = _broken(self.gate, ours, late)
            verdict = verdict or judged(self.gate, self.context, ours, late)
            self.seen_once = verdict.status is GateStatus.UNDECIDED
            return verdict
        if ours.result.timed_out:
            spent = replace(self.context, timeout_s=time_of(self.context).limit_s)
            return timed_out(self.gate, ours.result, spent)
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
        """Judge a run that passed, or reached no test."""
        log = ours.result.output
        before = self._count_at_base()
        if ours.count is None and before:
            # So does a runner that the patch ends before its time.
            what = f"the runner does not tell that any test ran; {before} did at the base commit"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, log)
        if ours.count is None:
            what = "tests pass; the runner does not report how many ran"
            return passed(self.gate, what, log, kinds=["not_counted"])
        if before is None and not ours.result.ok:
            what = "the test run failed before any test"
            return failed(self.gate, FailureKind.TESTS_FAILED, what, log)
        if (fewer := self._fewer(ours)) is not None:
            return fewer
        if ours.count == 0:
            return skipped(self.gate, "no test ran, here or at the base commit", log)
        return passed(self.gate, f"{ours.passing} test(s) pass", log)

    def _judge_failing(self, ours: SuiteRun) -> GateVerdict:
        """Judge a run with failing tests by those that fail at the base commit too, always or sometimes."""
        failing = self._failing(ours)
        if failing is None:
            return self._judge_unnamed(ours)
        failures = self._sort_failures(failing)
        if failures.new and not self._passes_nowhere(ours):
            return self._failed(ours, failures)
        if (fewer := self._fewer(ours)) is not None:
            return fewer
        if failures.new:
            return self._none_passes(ours)
        if failures.flaky:
            return self._rerun(ours, failures)
        return self._more_failing(ours) or self._as_before(ours, failures)

    def _passes_nowhere(self, ours: SuiteRun) -> bool:
        """Return whether no test passes, here or in any run at the base commit, which failed each time:
        then the patch broke none. An error before all tests has another name in another release of the
        runner."""
        runs = self.base.made
        return ours.passing == 0 and bool(runs) and all(run.failed_whole for run in runs)

    def _none_passes(self, ours: SuiteRun) -> GateVerdict:
        why = f"no test passes, here or at the base commit{_ending(ours)}"
        return skipped(self.gate, why, ours.result.output)

    def _as_before(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Judge a run in which only tests fail that always fail at the base commit. The verdict names them,
        as one may be the test that shows the vulnerability."""
        if not ours.passing and not (ours.count is None and failures.broken):
            return self._none_passes(ours)
        what = (
            "the runner does not report how many tests ran"
            if ours.count is None
            else f"{ours.passing} test(s) pass"
        )
        if failures.broken:
            what += (
                f"; {len(failures.broken)} fail as at the base commit: {_named(failures.broken)}"
            )
        else:
            what += (
                f"; the run itself fails (exit code {ours.result.exit_code}), as at the base commit"
            )
        verdict = passed(self.gate, what, ours.result.output)
        return verdict.model_copy(update={"failing_before": failures.broken})

    def _judge_unnamed(self, ours: SuiteRun) -> GateVerdict:
        """Judge a run of which the failing tests are unknown. The same output at the base commit shows
        nothing, and neither does another one if it differs there each time."""
        said = digest_of(ours)
        runs = self.base.until(lambda runs: any(run.said == said for run in runs))
        if any(run.said == said for run in runs):
            why = (
                f"the tests fail as at the base commit (exit code {ours.result.exit_code}), and no failing "
                f"test is named, so nothing is compared{_ending(ours)}"
            )
            return skipped(self.gate, why, ours.result.output)
        failing = {run.said for run in runs if run.exit_code}
        if failing and len({run.said for run in runs}) > 1:
            what = "the tests fail, and none is named; at the base commit they fail too, otherwise than"
            self.seen_once = True
            return undecided(self.gate, f"{what} here and than in another run", ours.result.output)
        return self._failed(ours, SortedFailures((), (), ()))

    def _rerun(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        """Judge by flaky tests alone: each must pass once with the patch, and no other test may fail. A
        patch never fails for them: what sometimes fails at the base commit may fail here too."""
        left = set(failures.flaky)
        self.questioned |= left
        self.seen_once = True
        what = f"flaky at the base commit, they never pass here: {_named(failures.flaky)}"
        for _ in range(PATCHED_RERUNS):
            again = self.again()
            if isinstance(again, NotInstalled) or (failing := self._failing(again)) is None:
                what = f"flaky at the base commit: {_named(failures.flaky)}; another run gave no result"
                break
            found = self._sort_failures(failing)
            if found.new:
                self.questioned |= {*found.new}
                what = (
                    f"another run fails otherwise, not as at the base commit: {_named(found.new)}"
                )
                break
            if (worse := self._fewer(again) or self._more_failing(again)) is not None:
                what = f"another run fails otherwise: {worse.detail}"
                break
            left -= self._passing(again, failing)
            if not left and again.passing:
                return self._passed_but_flaky(again, failures, found)
        else:
            self.seen_once = False
        what = f"tests fail in some runs with the patch ({what})"
        verdict = undecided(self.gate, what, ours.result.output)
        return verdict.model_copy(update={"flaky": failures.flaky})

    def _passed_but_flaky(
        self, again: SuiteRun, failures: SortedFailures, found: SortedFailures
    ) -> GateVerdict:
        seen = tuple(sorted({*failures.flaky, *found.flaky}))
        verdict = self._as_before(again, found) if found.broken else None
        what = f"{again.passing} test(s) pass" if verdict is None else verdict.detail
        what += f"; flaky, at the base commit too: {_named(seen)}"
        verdict = verdict or passed(self.gate, what, again.result.output)
        return verdict.model_copy(update={"detail": what, "flaky": seen})

    def _failed(self, ours: SuiteRun, failures: SortedFailures) -> GateVerdict:
        ran = "" if ours.count is None else f" ({ours.count} ran)"
        what = f"tests failed{ran}"
        if failures.new and (failures.flaky or failures.broken):
            what += f", not at the base commit: {_named(failures.new)}"
        verdict = failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)
        # Without the base commit's word nobody can say that they pass there.
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
        """Return the flaky tests that this run clears: they passed; by a log, they did not fail."""
        if self.by_report and run.report:
            reports = [one.report for one in self.base.made if one.report is not None]
            seen = {test for report in reports for test in report.failed}
            return {*run.report.passed, *filter(run.report.passes, seen)}
        return {test for one in self.base.made for test in (one.failing or ())} - set(failing)

    def _fewer(self, ours: SuiteRun) -> GateVerdict | None:
        """Return the failure if less passed, or ran, than at the base commit."""
        if lost := sorted(self._lost(ours)):
            here = (
                "did not run here"
                if ours.report
                else "have no report here that its log agrees with"
            )
            what = f"{len(lost)} test(s) pass at the base commit and {here}: {_named(lost)}"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)
        before, now = self._count_at_base(), ours.count
        if self.by_report and ours.report is not None:
            # Without those that fail there now and then; names that change from run to run are counted.
            reports = [run.report for run in self.base.made if run.report is not None]
            apart = {test for it in reports for test in it.failed} | self.flaky_alone
            before = min(len(it.passed - apart) for it in reports)
            now = len(ours.report.passed - apart)
        if now is None or before is None or now >= before:
            return None
        what = f"{now} test(s) ran, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)

    def _lost(self, ours: SuiteRun) -> frozenset[str]:
        """Return what passes in every run at the base commit and did not pass here. Further runs there sort
        out names that change each time."""

        def lost(runs: Sequence[BaseRun]) -> frozenset[str]:
            reported = [run.report.passed for run in runs if run.report is not None]
            now = frozenset() if ours.report is None else ours.report.passed
            return frozenset.intersection(*reported) - now if reported else frozenset()

        return lost(self.base.until(lambda runs: not lost(runs))) - self.flaky_alone

    def _more_failing(self, ours: SuiteRun) -> GateVerdict | None:
        """Return the failure if more tests fail than at the base commit, by a log: a suite's own line, or
        two tests of one name, can make its list of names look complete."""
        before = max((run.failed for run in self.base.made if run.failed is not None), default=None)
        if self.by_report or before is None or ours.failed is None or ours.failed <= before:
            return None
        what = f"{ours.failed} test(s) failed, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)

    def _count_at_base(self) -> int | None:
        """Return how many tests ran there; the least number above 0 if that differs, so that one crashed
        run hides nothing. None: unknown."""
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


#: The act of a run whose report is gone, cut or forged: what else it did is not known.
DAMAGED: Act = "damage"

#: How an act reads, and what declares it. Files are written by many a fix, so that is only named.
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

#: Acts that a verdict's one sentence names, and characters of each. The log has all.
_ACTS_NAMED, _MAX_CHARS = 5, 80


def _judge_acts(
    verdict: GateVerdict, suite: _Suite, ours: SuiteRun, alike: Callable[[], bool]
) -> GateVerdict:
    """Return the tests' verdict with their new acts; failed if one had to be declared.

    ``alike``: whether the same is installed as at the base commit. If not, another release may be the
    reason, and new acts are only named. Raises what the suite's ``run`` raises.
    """
    did = ours.acts
    if did is None or verdict.status is GateStatus.FAILED:
        return verdict
    new = _new(did, suite.base.until(lambda runs: not _new(did, runs)))
    if not new:
        return verdict
    plan = suite.context.application.plan
    declared = frozenset(plan.capabilities if plan else ())
    asked = [act for act in new if _KINDS[_kind(act)][1] not in {None, *declared}]
    if asked and alike():
        again = suite.again()
        twice = None if isinstance(again, NotInstalled) else again.acts
        asked = [act for act in asked if twice is None or act in twice]
        if asked:
            return _undeclared(verdict, asked, new)
    message = "\n".join(
        ["", "New with the patch, seen while the tests ran:", *map(_act_in_words, new)]
    )
    # In front: a record cuts what is too long at its end, and tests may have long names.
    what = f"new with the patch, seen while its tests ran: it {_some_acts(new)}; {verdict.detail}"
    return verdict.model_copy(update={"detail": what, "log": verdict.log + message})


def _act_in_words(act: Act) -> str:
    return f"{_KINDS[_kind(act)][0]} {act.partition(' ')[2]}".strip()


def _new(did: frozenset[Act], runs: Sequence[BaseRun]) -> list[Act]:
    """Return the acts of no run at the base commit; none if no run there was observed whole."""
    before = [run.acts for run in runs if run.acts is not None and DAMAGED not in run.acts]
    return sorted(did.difference(*before)) if before else []


def _undeclared(verdict: GateVerdict, asked: Sequence[Act], new: Sequence[Act]) -> GateVerdict:
    kinds = sorted({f'"{_KINDS[_kind(act)][1]}"' for act in asked})
    how = (
        f'Do without, or declare it: add "capabilities": [{", ".join(kinds)}] to the plan, beside '
        '"action", and say in one sentence of "rationale" why the fix needs that.'
    )
    what = "while its tests run, the patched code does what the base commit's never did: it"
    log = "\n".join([how, *(f"new: it {_act_in_words(act)}" for act in new), "", verdict.log])
    return failed(
        verdict.gate, FailureKind.UNDECLARED_CAPABILITY, f"{what} {_some_acts(asked)}", log
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

    ``run`` gets the tree to run in; ``on``: what it runs on at the base commit (``place_of``); ``alike``:
    see ``_judge_acts``; ``within``: as ``run``, by the wall clock of another context, for suites that take
    most of theirs; ``alone``: as ``run``, only these tests; None where the runner can't; ``base``:
    the runs at the base commit, if some were made by now; ``part``: returns the tests that reach what the
    patch changes, or why there are none, as a clause; asked for only if the base commit's suite does not
    end in time. Raises what ``run`` raises, ToolError.
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
    its_run, its_base = chosen.within(context), lambda: content_key(on(), key)
    its_runs = BaseRuns(context, gate, folder, its_run, its_base)
    its_limits = limited(context, its_runs)
    suite = _Suite(gate, its_limits, its_runs, chosen.within(its_limits))
    verdict, ours = _judged(suite, folder, alike, alone)
    if verdict.status is GateStatus.FAILED:  # the others would change nothing
        return _of_part(verdict, chosen.reaching, late, ours, None)
    others, theirs = _judged(whole, folder, alike, alone)
    return _joined(_of_part(verdict, chosen.reaching, late, ours, theirs), others)


def _judged(
    suite: _Suite, folder: str, alike: Callable[[], bool], alone: _Alone | None
) -> tuple[GateVerdict, SuiteRun | None]:
    """Return the verdict on a suite with its account, and the run with the patch that it is about, if any.
    Raises what a run raises, ToolError."""
    # As the base commit's: fresh files without .git, at a path as long. Names of tests can have it in them.
    gate, base, ours = suite.gate, suite.base, suite.again()
    if isinstance(ours, NotInstalled):
        why = f"the project's dependencies could not be installed, so no test ran: {ours.why}"
        if any(there.count != 0 for there in base.made) or base.late is not None:
            what = undecided(gate, f"{why}; at the base commit they do", kinds=["not_installed"])
            return unjudged(what, folder), None
        return unjudged(skipped(gate, why, kinds=["not_installed"]), folder), None
    verdict = suite.judge(ours)
    if verdict.status is GateStatus.FAILED:
        verdict = _ask_again(suite, ours, verdict, alone)
    verdict = _with_the_same_options(verdict, suite, ours)
    verdict, decisive = _look_again(suite, verdict, ours)
    account = suite.account(folder, decisive, verdict)
    verdict = _judge_acts(verdict, suite, ours, alike)
    reported: dict[str, object] = {
        "tests_level": account.tests_level,
        "tests": (account,),
        "notes": (*verdict.notes, *ours.unserved),
    }
    if ours.without_options:
        reported["kinds"] = verdict.kinds | {"without_own_options"}
    if ours.installed:
        reported["detail"] = f"{verdict.detail}; {ours.installed}"
    return verdict.model_copy(update=reported), decisive


def _of_part(
    verdict: GateVerdict,
    reaching: Reaching,
    late: BaseRun,
    ours: SuiteRun | None,
    theirs: SuiteRun | None,
) -> GateVerdict:
    """Return the verdict on a part of the tests with the number of tests compared; skipped if there are
    none. ``late``, ``theirs``: the runs of all, at the base commit and with the patch."""
    ran = 0 if ours is None else len(_tests_in(ours.report)) or ours.count or 0
    files = f"in at most {len(reaching.files):,} of {reaching.of:,} test files"
    is_failed = verdict.status is GateStatus.FAILED
    if not is_failed and (verdict.tests_level is not TestsLevel.COMPARED or not ran):
        why = f"tests {files}, {reaching.which}, could not be compared: {verdict.detail}"
        is_open = verdict.status is GateStatus.UNDECIDED
        status = verdict.status if is_open else GateStatus.SKIPPED
        return verdict.model_copy(update={"status": status, "detail": why})
    whole = theirs.count if theirs is not None and theirs.count else None
    known = whole or (None if late.report is None else late.report.collected)
    reports = (late.report, None if theirs is None else theirs.report)
    least = max(ran, *(len(_tests_in(one)) for one in reports))
    of = f"{known:,}" if known and known >= least else f"more than {least:,}"
    what = f"{ran:,} of {of} tests ({files}), {reaching.which}"
    accounts = tuple(it.model_copy(update={"reason": what}) for it in verdict.tests)
    update = {"detail": f"compared with the base commit: {what}: {verdict.detail}"}
    return verdict.model_copy(update={**update, "tests": accounts})


def _joined(part: GateVerdict, others: GateVerdict) -> GateVerdict:
    """Return one verdict: a pass is a pass of the part, and reports on the others. If a part was compared,
    the tests have run, whatever the rest shows."""
    is_compared = part.tests_level is TestsLevel.COMPARED
    if is_compared and others.tests_level is TestsLevel.NOT_JUDGED:
        ran = {"tests_level": TestsLevel.RAN}
        tests = tuple(it.model_copy(update=ran) for it in others.tests)
        others = others.model_copy(update={**ran, "tests": tests})
    verdict = together(part.gate, [part, others])
    if is_compared:
        is_told = verdict.status is not GateStatus.UNDECIDED or part.status is verdict.status
        more = "" if is_told else f"; {part.detail}"
        return verdict.model_copy(update={"detail": f"{verdict.detail}{more}"})
    update = {"tests_level": others.tests_level, "tests": others.tests}
    return verdict.model_copy(update=update)


def _tests_in(report: Report | None) -> frozenset[str]:
    """Return the tests that ran, without files that could not be read in."""
    if report is None:
        return frozenset()
    return report.passed.union(report.failed).difference(report.uncollected)


def _look_again(
    suite: _Suite, verdict: GateVerdict, ours: SuiteRun
) -> tuple[GateVerdict, SuiteRun]:
    """Run the suite once more before a person is asked about what one run alone did. Returns the verdict,
    and the run that it is about. What is in question, or flaky, has a note on how both sides' runs
    ended."""
    is_asked = verdict.status is GateStatus.UNDECIDED
    for _ in range(SECOND_LOOKS if is_asked and suite.seen_once else 0):
        again = suite.again()
        if isinstance(again, NotInstalled):
            break
        found = _with_the_same_options(suite.judge(again), suite, again)
        if found.status in {GateStatus.PASSED, GateStatus.SKIPPED}:
            note = (
                f"run once more before asking a person, the tests are judged so; {suite.in_runs()}"
            )
            flaky = tuple(sorted({*verdict.flaky, *found.flaky, *suite.questioned}))
            return found.model_copy(update={"notes": (note,), "flaky": flaky}), again
        what = f"{verdict.detail}; run once more before asking: {found.detail}"
        verdict = verdict.model_copy(update={"detail": what})
    if is_asked or verdict.flaky:
        verdict = verdict.model_copy(update={"notes": (*verdict.notes, suite.in_runs())})
    return verdict, ours


def _ask_again(
    suite: _Suite, ours: SuiteRun, verdict: GateVerdict, alone: _Alone | None
) -> GateVerdict:
    """Return the verdict on a failure after further runs: only what fails each time here and never at the
    base commit stays one."""
    if verdict.failure_kind is FailureKind.GATE_TIMEOUT:
        return _in_time_once(suite, verdict, alone)
    blamed = suite.blamed(ours)
    suite.questioned |= blamed or set()
    is_named = suite.by_report or suite.late is not None
    told = run_alone(suite.context, alone, blamed) if alone and blamed and is_named else None
    if told is None:
        return _ask_the_suite(suite, verdict, blamed)
    if told.broken:
        return _without(verdict, told.flaky | told.uneven)
    if told.uneven:
        why = "run alone it fails with the patch in some runs and passes in others"
        why = f"{why}, and passes at the base commit: {_some(told.uneven)}"
        return _not_each_time(suite, verdict, why, kind="fails_at_times_alone")
    if told.flaky:
        suite.flaky_alone |= told.flaky
        verdict = suite.judge(ours)
        if verdict.status is not GateStatus.FAILED:
            return _named_flaky(suite, verdict, told, ours)
    return _ask_the_suite(suite, verdict, suite.blamed(ours))


def _ask_the_suite(
    suite: _Suite, verdict: GateVerdict, blamed: frozenset[str] | None
) -> GateVerdict:
    """Run the suite with the patch again: it fails for what fails, or is missing, in all runs."""
    if suite.late is not None:
        why = "that is one run, and the base commit's tests do not end in time to be asked again"
        return _not_each_time(suite, verdict, why, kind="base_too_slow")
    left = blamed
    for number in range(PATCHED_RERUNS):
        again = suite.again()
        if isinstance(again, NotInstalled):
            why = f"another run was not possible: {again.why}"
            return _not_each_time(suite, verdict, why, kind="not_run_again")
        if left:
            found = suite.blamed(again)
            left = left if found is None else left & found
            is_gone = not left
        else:
            is_gone = suite.judge(again).status is not GateStatus.FAILED
        if is_gone:
            which = f": {_some(blamed)}" if blamed else ""
            why = f"not so in another run with the patch{which}"
            once = number == 0 and suite.judge(again).status is not GateStatus.FAILED
            return _not_each_time(suite, verdict, why, kind="not_in_another_run", once=once)
    return _without(verdict, (blamed or frozenset()) - (left or frozenset()))


def _in_time_once(suite: _Suite, verdict: GateVerdict, alone: _Alone | None) -> GateVerdict:
    """Run a suite that the wall clock ended once more: it hangs, or the machine was busy."""
    again = suite.again()
    if isinstance(again, NotInstalled) or again.result.timed_out:
        return verdict
    found = suite.judge(again)
    if found.status is GateStatus.FAILED:
        return _ask_again(suite, again, found, alone)
    why = f"another run did: {found.detail}"
    return _not_each_time(suite, verdict, why, kind="in_time_once", once=True)


def _named_flaky(
    suite: _Suite, verdict: GateVerdict, told: _RunAlone, ours: SuiteRun
) -> GateVerdict:
    """Name the flaky tests in a verdict that leaves them out. Each must have passed with the patch: alone,
    if the suite no longer has it or the base commit's suite does not end; otherwise in a further run."""
    never = told.flaky - told.passing
    if suite.late is None and ours.report is not None:
        never -= {*ours.report.failed, *ours.report.passed}
    if never:
        why = f"flaky at the base commit, and never passes with the patch: {_some(never)}"
        verdict = _not_each_time(suite, verdict, why, kind="never_passes")
    return verdict.model_copy(update={"flaky": tuple(sorted({*verdict.flaky, *told.flaky}))})


def _with_the_same_options(verdict: GateVerdict, suite: _Suite, ours: SuiteRun) -> GateVerdict:
    """Return undecided for a pass without the project's own options if the base commit ran with them."""
    base = (*suite.base.made, *filter(None, [suite.base.late]))
    if verdict.status is not GateStatus.PASSED or not ours.without_options:
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
    """Return the failure without tests that the patch may not have broken."""
    left = tuple(test for test in verdict.broken if test not in {*excused})
    return verdict.model_copy(update={"broken": left})


def _some(tests: Iterable[str]) -> str:
    return _named(sorted(tests))
