"""Judges a run of the base commit's tests on the patched files, over ports alone.

All pass, and none went missing. Tests that fail at the base commit too are not counted against a
patch, and no patch hides behind them: each failing test must be one of them, by name, and while any of
them stays red the gate is skipped, since it may be the one that shows the flaw.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from fallback_audit.vocabulary import FailureKind
from fallback_plugins.at_base import keep, kept, place_of, run_at_base
from fallback_plugins.flaky import BASE_RUNS, PATCHED_RERUNS, Weighed, is_settled, weigh
from fallback_plugins.gating import failed, passed, patched, skipped, timed_out
from fallback_tier.execution import CommandResult
from fallback_tier.ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Names that a verdict's one sentence repeats.
_NAMED = 3

#: What differs between two runs that print the same: durations, seeds, addresses. Never a count.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:[.:]\d+)+|\d+(?= ?(?:ms|s|m)\b)|\d{4,}")


@dataclass(frozen=True)
class Summary:
    """What a test runner's log tells: tests that ran, that failed, and names of those that failed.

    Skipped tests did not run. Two tests of one name are told apart by the order in which they fail.
    """

    ran: int
    failed: int
    names: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[str, ...] | None:
        """Every failing test's name; None where the log does not name each."""
        return self.names if self.names and len(self.names) >= self.failed else None


@dataclass(frozen=True)
class SuiteRun:
    """One run of a test suite. ``count``: tests that ran (skipped ones did not); None: not told.

    The result's output has the tree's paths relative: it is compared with that of another tree.
    """

    result: CommandResult
    count: int | None
    #: Tests that passed; None: not told.
    passing: int | None = None
    #: Names of all that failed; None: not told, or not of each.
    failing: tuple[str, ...] | None = None
    #: How many failed, as the runner counts them; None: not told.
    failed: int | None = None

    @classmethod
    def told(cls, result: CommandResult, summary: Summary | None) -> "SuiteRun":
        """A run, by its log's summary, if there is one."""
        if summary is None:
            return cls(result, None, None, () if result.ok else None)
        failing = () if result.ok else summary.failing
        passing = max(0, summary.ran - summary.failed)
        return cls(result, summary.ran, passing, failing, summary.failed)


Run = Callable[[RepoContext], SuiteRun | None]


def numbered(names: Iterator[str]) -> tuple[str, ...]:
    """Names as they are, a name's second bearer and those after it numbered."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(told)


def judge_tests(gate: str, context: GateContext, folder: str, run: Run, on: str) -> GateVerdict:
    """Run the base commit's tests on the patched files: all pass, and none went missing.

    ``run`` gets the tree to run in; None means that its environment could not be had; ``on``: what it
    runs on at the base commit (``place_of``). Raises what ``run`` raises, ToolError.
    """
    ours = run(patched(context))
    if ours is None:
        return skipped(gate, "the project's dependencies could not be installed, so no test ran")
    if ours.result.timed_out:
        return timed_out(gate, ours.result, context)
    suite = _Suite(gate, context, folder, run, on)
    if not ours.result.ok and ours.count != 0:
        return suite.judge_failing(ours)
    return suite.judge_count(ours)


@dataclass(frozen=True)
class _BaseRun:
    """What is kept of one run at the base commit."""

    count: int | None
    failed: int | None
    failing: frozenset[str] | None
    #: Digest of what the run printed, without what varies: for a runner that names no tests.
    said: str

    @classmethod
    def of(cls, run: SuiteRun) -> "_BaseRun":
        failing = None if run.failing is None else frozenset(run.failing)
        return cls(run.count, run.failed, failing, _said(run))

    @property
    def tells(self) -> bool:
        """Did it come as far as any test, and does it name those that failed?"""
        return self.failing is not None and self.count != 0


@dataclass
class _Suite:
    """One suite's verdict in the making. Runs at the base commit are made as they are needed."""

    gate: str
    context: GateContext
    folder: str
    run: Run
    on: str
    _base: list[_BaseRun] = field(default_factory=list)

    def judge_count(self, ours: SuiteRun) -> GateVerdict:
        """The run passed, or came to no test: did as many run as at the base commit?"""
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
        return passed(self.gate, f"{ours.count} test(s) pass", log)

    def judge_failing(self, ours: SuiteRun) -> GateVerdict:
        """Tests fail: are they those that fail, always or now and then, at the base commit too?"""
        if ours.failing is None:
            return self._judge_unnamed(ours)
        weighed = self._weigh(ours.failing)
        if weighed.new:
            return self._failed(ours, weighed)
        if weighed.flaky:
            return self._rerun(ours, weighed)
        if (worse := self._fewer(ours) or self._more_failing(ours)) is not None:
            return worse
        if not ours.passing:
            why = "no test passes, here or at the base commit, so this tells nothing"
            return skipped(self.gate, why, ours.result.output)
        return self._red(ours, weighed)

    def _red(self, ours: SuiteRun, weighed: Weighed) -> GateVerdict:
        """Only tests fail that always fail at the base commit. One may be the test that shows the flaw."""
        what = f"{ours.passing} test(s) pass; {len(weighed.broken)} fail as at the base commit"
        why = f"{what}, so the suite proves nothing: {_named(weighed.broken)}"
        return skipped(self.gate, why, ours.result.output)

    def _judge_uncounted(self, before: int | None, log: str) -> GateVerdict:
        """It ends well and counts nothing: so does a runner that the patch ends before its time."""
        if before:
            what = f"the runner does not tell that any test ran; {before} did at the base commit"
            return failed(self.gate, FailureKind.TESTS_MISSING, what, log)
        return passed(self.gate, "tests pass; the runner does not tell how many ran", log)

    def _judge_unnamed(self, ours: SuiteRun) -> GateVerdict:
        """Nobody can tell which tests fail. The same words at the base commit tell nothing."""
        runs = self._runs(lambda runs: bool(runs))
        if not runs or runs[0].said != _said(ours):
            return self._failed(ours, Weighed((), (), ()))
        why = "the tests fail at the base commit too, in the same way, so this tells nothing"
        return skipped(self.gate, why, ours.result.output)

    def _rerun(self, ours: SuiteRun, weighed: Weighed) -> GateVerdict:
        """Flaky tests alone decide: each must pass once with the patch, and none may fail anew."""
        left, latest = set(weighed.flaky), ours
        for _ in range(PATCHED_RERUNS):
            with self.context.worktree.fresh(patched=True) as tree:
                again = self.run(self.context.repo.laid_out(tree))
            if again is None or again.failing is None:
                break
            latest, found = again, self._weigh(again.failing)
            if found.new:
                return self._failed(again, replace(found, flaky=weighed.flaky))
            if (worse := self._fewer(again) or self._more_failing(again)) is not None:
                return worse
            left &= set(again.failing)
            if not left and found.broken:
                return self._red(again, found)
            if not left and again.passing:
                seen = sorted({*weighed.flaky, *found.flaky})
                what = f"{again.passing} test(s) pass; flaky, at the base commit too"
                verdict = passed(self.gate, f"{what}: {_named(seen)}", again.result.output)
                return verdict.model_copy(update={"flaky": tuple(seen)})
        return self._failed(latest, weighed)

    def _failed(self, ours: SuiteRun, weighed: Weighed) -> GateVerdict:
        ran = "" if ours.count is None else f" ({ours.count} ran)"
        what = f"tests failed{ran}"
        if weighed.new and (weighed.flaky or weighed.broken):
            what += f", not at the base commit: {_named(weighed.new)}"
        elif weighed.flaky:
            what += f"; flaky at the base commit, they never pass here: {_named(weighed.flaky)}"
        verdict = failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)
        # Without the base commit's word nobody can say that they pass there.
        broken = weighed.new if any(run.tells for run in self._base) else ()
        return verdict.model_copy(update={"flaky": weighed.flaky, "broken": broken})

    def _fewer(self, ours: SuiteRun) -> GateVerdict | None:
        before = self._count_at_base()
        if before is None or ours.count is None or ours.count >= before:
            return None
        what = f"{ours.count} test(s) ran, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_MISSING, what, ours.result.output)

    def _more_failing(self, ours: SuiteRun) -> GateVerdict | None:
        """A suite's own line, or two tests of one name, can make a list of names look complete."""
        before = max((run.failed for run in self._base if run.failed is not None), default=None)
        if before is None or ours.failed is None or ours.failed <= before:
            return None
        what = f"{ours.failed} test(s) failed, {before} at the base commit"
        return failed(self.gate, FailureKind.TESTS_FAILED, what, ours.result.output)

    def _count_at_base(self) -> int | None:
        """How many tests ran there; the least, where that differs and any ran at all, so that one run
        that crashed hides nothing. None: it can't be told."""
        runs = self._runs(lambda runs: bool(runs))
        counts = [run.count for run in runs if run.count is not None]
        return min(filter(None, counts), default=0 if counts else None)

    def _weigh(self, failing: tuple[str, ...]) -> Weighed:
        def told(runs: list[_BaseRun]) -> list[frozenset[str]]:
            return [run.failing for run in runs if run.failing is not None and run.tells]

        return weigh(failing, told(self._runs(lambda runs: is_settled(failing, told(runs)))))

    def _runs(self, enough: Callable[[list[_BaseRun]], bool]) -> list[_BaseRun]:
        """Runs at the base commit, kept ones first, until they are enough: at most BASE_RUNS."""
        place = place_of(self.context, self.gate, self.folder, self.on, self.run.__module__)
        if not self._base:
            self._base = [_read(run) for run in kept(place) or ()]
        while len(self._base) < BASE_RUNS and not enough(self._base):
            base = run_at_base(self.context, self.run)
            if base is None or base.result.timed_out:
                break  # perhaps for a passing reason: asked again next time
            self._base.append(_BaseRun.of(base))
            keep(place, [_written(run) for run in self._base])
        return self._base


def _said(run: SuiteRun) -> str:
    lines = {_VARYING.sub("0", line.strip()) for line in run.result.output.splitlines()}
    return sha256("\n".join([str(run.result.exit_code), *sorted(lines)]).encode()).hexdigest()


def _named(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _written(run: _BaseRun) -> dict[str, Any]:
    failing = None if run.failing is None else sorted(run.failing)
    return {"count": run.count, "failed": run.failed, "failing": failing, "said": run.said}


def _read(run: dict[str, Any]) -> _BaseRun:
    failing = None if run["failing"] is None else frozenset(run["failing"])
    return _BaseRun(run["count"], run["failed"], failing, run["said"])
