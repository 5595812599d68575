"""Verdicts on suites that the wall clock ends at the base commit too: what ended before it counts."""

from collections.abc import Sequence

from fallback_audit.vocabulary import FailureKind
from fallback_plugins.shared.gates.base_runs import BaseRun
from fallback_plugins.shared.gates.gating import failed, passed, skipped, some_of, undecided
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_tier.gate_ports import GateContext, GateVerdict

#: Names that a verdict's one sentence repeats.
_NAMED = 3

#: Of the tests that passed before the time-out at the base commit, how many must have passed here before
#: it: a busy machine comes less far, a patch that makes the suite hang comes nowhere.
_LEAST_SHARE = 0.5

_NOTHING = Report(frozenset())


def named(names: Sequence[str]) -> str:
    """So many names as a sentence has room for."""
    return some_of(names, _NAMED)


def in_words(run: SuiteRun) -> str:
    """How a run ended, as a clause; names only where a report tells them."""
    failing = _report_or_none(run.report).failed or run.failing or ()
    fail = f", {len(failing)} fail: {named(failing)}" if failing else ""
    if run.result.timed_out:
        return f"{len(_report_or_none(run.report).passed)} test(s) passed in time{fail}"
    if run.passing is not None:
        return f"{run.passing} test(s) pass{fail}"
    return "the tests pass" if run.result.ok else "the tests fail"


def judge_late(gate: str, context: GateContext, ours: SuiteRun, late: BaseRun) -> GateVerdict:
    """Neither run ended: what passed there before its end, and failed here, is the patch's."""
    if (broken := _broken(gate, ours, late)) is not None:
        return broken
    here, there = _report_or_none(ours.report), _report_or_none(late.report)
    what = f"the tests do not end within {context.timeout_s:.0f} s, nor do those of the base commit"
    what += f"; {in_words(ours)}"
    if unseen := [one for one in here.failed if not there.excuses(one)]:
        what += f"; the base commit's run did not come to {named(unseen)}"
        return undecided(gate, what, ours.result.output)
    if len(here.passed & there.passed) < len(there.passed) * _LEAST_SHARE:
        what += f", of {len(there.passed)} that passed in time at the base commit"
        return undecided(gate, what, ours.result.output)
    return skipped(gate, f"could not be judged: {what}", ours.result.output)


def judge_beside_late(
    gate: str, context: GateContext, ours: SuiteRun, late: BaseRun
) -> GateVerdict:
    """Only the base commit's run did not end: what it told before is compared, the rest can't be."""
    log, there = ours.result.output, _report_or_none(late.report)
    if (broken := _broken(gate, ours, late)) is not None:
        return broken
    if lost := sorted(there.passed - _report_or_none(ours.report).passed):
        what = f"{len(lost)} test(s) pass at the base commit and did not run here: {named(lost)}"
        return failed(gate, FailureKind.TESTS_MISSING, what, log)
    beside = f"the base commit's tests do not end within {context.timeout_s:.0f} s"
    if ours.count == 0:
        return skipped(gate, f"could not be judged: no test ran here, and {beside}", log)
    failing = () if ours.result.ok else _report_or_none(ours.report).failed or ours.failing
    unseen = [one for one in failing or () if not there.excuses(one)]
    if unseen or failing is None or not (failing or ours.result.ok):
        return undecided(gate, f"{in_words(ours)}, and {beside}", log)
    if not (ours.passing or ours.count is None):
        return skipped(gate, f"no test passes here, and {beside}", log)
    verdict = passed(gate, f"{in_words(ours)}; {beside}", log)
    return verdict.model_copy(update={"failing_before": tuple(failing)})


def _broken(gate: str, ours: SuiteRun, late: BaseRun) -> GateVerdict | None:
    there = _report_or_none(late.report).passed
    broken = tuple(test for test in _report_or_none(ours.report).failed if test in there)
    if not broken:
        return None
    what = f"tests failed that passed at the base commit before the time-out: {named(broken)}"
    verdict = failed(gate, FailureKind.TESTS_FAILED, what, ours.result.output)
    return verdict.model_copy(update={"broken": broken})


def _report_or_none(report: Report | None) -> Report:
    return report or _NOTHING
