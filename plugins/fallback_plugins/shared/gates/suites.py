"""Judges the base commit's tests on the patched files: a patch fails for what it does each time alone.

Before a patch is failed, it is asked again: the tests that it would fail for alone, on both sides, then the
suite with the patch (ADR-0078). What fails here in some runs and passes in others is no failure of the
patch's and no pass: a person's question.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.shared.gates.alone import Alone, RunAlone, run_alone
from fallback_plugins.shared.gates.base_runs import BaseRun, BaseRuns, On, Run
from fallback_plugins.shared.gates.flaky import PATCHED_RERUNS
from fallback_plugins.shared.gates.gating import skipped, undecided
from fallback_plugins.shared.gates.late_suites import named
from fallback_plugins.shared.gates.observing import judge_acts
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suite_verdict import Suite
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
    alone: Alone | None = None,
) -> GateVerdict:
    """Run the base commit's tests on the patched files, and compare.

    ``run`` gets the tree to run in; ``on``: what it runs on at the base commit (``place_of``); ``alike``:
    see ``judge_acts``; ``within``: as ``run``, by the wall clock of another context, for suites that take
    most of theirs; ``alone``: as ``run``, only these tests; None where the runner can't. Raises what
    ``run`` raises, ToolError.
    """
    base = BaseRuns(context, gate, folder, run, on)
    context = replace(context, timeout_s=patience(context.timeout_s, base.until(bool)))
    suite = Suite(gate, context, base, run if within is None else within(context))
    # As the base commit's: fresh files without .git, at a path as long. Names of tests can have it in them.
    ours = suite.again()
    if isinstance(ours, NotInstalled):
        why = f"the project's dependencies could not be installed, so no test ran: {ours.why}"
        if any(there.count != 0 for there in base.made) or base.late is not None:
            return undecided(gate, f"{why}; at the base commit they do")
        return skipped(gate, why)
    verdict = suite.judge(ours)
    if verdict.status is GateStatus.FAILED:
        verdict = _ask_again(suite, ours, verdict, alone)
    verdict = _with_the_same_options(verdict, suite, ours)
    verdict = judge_acts(verdict, suite, ours, alike)
    if not ours.installed:
        return verdict
    return verdict.model_copy(update={"detail": f"{verdict.detail}; {ours.installed}"})


def patience(timeout_s: float, base: Sequence[BaseRun]) -> float:
    """Seconds that the tests get with the patch: a gate's own, and twice what they took at the base commit
    where that is more. What ended there just in time is no hang for ending a minute later here."""
    return max([timeout_s, *(2 * run.took_s for run in base if run.took_s is not None)])


def _ask_again(
    suite: Suite, ours: SuiteRun, verdict: GateVerdict, alone: Alone | None
) -> GateVerdict:
    """What becomes of a failure: does the patch fail each time, and the base commit never?"""
    if verdict.failure_kind is FailureKind.GATE_TIMEOUT:
        return _in_time_once(suite, verdict, alone)
    blamed = suite.blamed(ours)
    is_named = suite.by_report or suite.late is not None
    told = run_alone(suite.context, alone, blamed) if alone and blamed and is_named else None
    if told is None:
        return _ask_the_suite(suite, verdict, blamed)
    if told.broken:
        return _without(verdict, told.flaky | told.uneven)
    if told.uneven:
        why = "run alone it fails with the patch in some runs and passes in others"
        return _not_each_time(
            verdict, f"{why}, and passes at the base commit: {_some(told.uneven)}"
        )
    if told.flaky:
        suite.flaky_alone |= told.flaky
        verdict = suite.judge(ours)
        if verdict.status is not GateStatus.FAILED:
            return _named_flaky(suite, verdict, told, ours)
    return _ask_the_suite(suite, verdict, suite.blamed(ours))


def _ask_the_suite(
    suite: Suite, verdict: GateVerdict, blamed: frozenset[str] | None
) -> GateVerdict:
    """Further runs of the suite with the patch: it fails for what fails, or is gone, in all of them."""
    if suite.late is not None:
        return _not_each_time(
            verdict,
            "that is one run, and the base commit's tests do not end in time to be asked again",
        )
    left = blamed
    for _ in range(PATCHED_RERUNS):
        again = suite.again()
        if isinstance(again, NotInstalled):
            return _not_each_time(verdict, f"another run was not possible: {again.why}")
        if left:
            found = suite.blamed(again)
            left = left if found is None else left & found
            is_gone = not left
        else:
            is_gone = suite.judge(again).status is not GateStatus.FAILED
        if is_gone:
            which = f": {_some(blamed)}" if blamed else ""
            return _not_each_time(verdict, f"not so in another run with the patch{which}")
    return _without(verdict, (blamed or frozenset()) - (left or frozenset()))


def _in_time_once(suite: Suite, verdict: GateVerdict, alone: Alone | None) -> GateVerdict:
    """A suite that the wall clock ended is run once more: it hangs, or the machine was busy."""
    again = suite.again()
    if isinstance(again, NotInstalled) or again.result.timed_out:
        return verdict
    found = suite.judge(again)
    if found.status is GateStatus.FAILED:
        return _ask_again(suite, again, found, alone)
    return _not_each_time(verdict, f"another run did: {found.detail}")


def _named_flaky(suite: Suite, verdict: GateVerdict, told: RunAlone, ours: SuiteRun) -> GateVerdict:
    """A verdict that leaves flaky tests out says which. Each must have passed with the patch: those that
    fail in its suite in a further run of it; alone, those that are gone from it, and all of them beside a
    base commit that does not end."""
    never = told.flaky - told.passing
    if suite.late is None and ours.report is not None:
        never -= {*ours.report.failed, *ours.report.passed}
    if never:
        why = f"flaky at the base commit, and never passes with the patch: {_some(never)}"
        verdict = _not_each_time(verdict, why)
    return verdict.model_copy(update={"flaky": tuple(sorted({*verdict.flaky, *told.flaky}))})


def _with_the_same_options(verdict: GateVerdict, suite: Suite, ours: SuiteRun) -> GateVerdict:
    """A runner that starts with the project's own options at the base commit, and with the patch does not,
    may have passed for what they ask."""
    base = (*suite.base.made, *filter(None, [suite.base.late]))
    if verdict.status is not GateStatus.PASSED or not ours.without_options:
        return verdict
    if all(run.without_options for run in base):
        return verdict
    return _not_each_time(verdict, "at the base commit with the project's own options")


def _not_each_time(verdict: GateVerdict, why: str) -> GateVerdict:
    return undecided(verdict.gate, f"{verdict.detail}; but {why}", verdict.log)


def _without(verdict: GateVerdict, excused: Iterable[str]) -> GateVerdict:
    """The patch's failure, less what is not known to be its doing."""
    left = tuple(test for test in verdict.broken if test not in {*excused})
    return verdict.model_copy(update={"broken": left})


def _some(tests: Iterable[str]) -> str:
    return named(sorted(tests))
