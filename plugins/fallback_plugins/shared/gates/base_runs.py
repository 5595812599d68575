"""What a gate's command does at the base commit, where the patch can't be the reason for it.

What was seen there is kept in the cache that outlives attempts: a commit does not change. A suite runs
there as often as it takes to tell which failing tests are the patch's doing. Rerunning with the patch alone
would call a race that the patch brought in "flaky" (Luo et al., "An Empirical Analysis of Flaky Tests", FSE
2014: a rerun hides, it does not explain). So a test counts as flaky only where it was seen to fail *and* to
pass at the base commit.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import Act, SuiteRun, steady_lines
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.files import whole
from fallback_tier.gate_ports import GateContext, SuiteTime
from fallback_tier.limits import MAX_TESTS_S
from fallback_tier.repo import RepoContext

Seen = TypeVar("Seen")

#: Changed with what is kept, and with how a log is read: what an older version saw counts for nothing.
_FORMAT = 11


def run_at_base(context: GateContext, run: Callable[[RepoContext], Seen]) -> Seen:
    """Run something over fresh files of the base commit. Raises what ``run`` raises, ToolError."""
    with context.worktree.fresh(patched=False) as tree:
        return run(context.repo.laid_out(tree))


def patient(context: GateContext) -> GateContext:
    """Return the context of a gate on tests: a suite runs for as long as it prints or reports tests, and
    may be silent for a gate's own time."""
    most_s = context.repo.settings.test_timeout_s or MAX_TESTS_S
    return replace(context, suite_time=SuiteTime(most_s, context.timeout_s))


def limited(context: GateContext, base: "BaseRuns") -> GateContext:
    """Return the context of the runs with the patch: a gate's own time, and twice what the tests took at
    the base commit if that is more, but at most MAX_TESTS_S; or what a person stated. What ended there
    just in time is no hang for ending a minute later here."""
    stated_s = context.repo.settings.test_timeout_s
    took = [2 * run.took_s for run in base.until(bool) if run.took_s is not None]
    if base.late is not None and base.late.took_s is not None:
        took.append(base.late.took_s)
    limit_s = stated_s or min(MAX_TESTS_S, max([context.timeout_s, *took]))
    if context.suite_time is None:
        return replace(context, timeout_s=limit_s)
    return replace(context, suite_time=replace(context.suite_time, limit_s=limit_s))


def time_of(context: GateContext) -> SuiteTime:
    """Return what one run of the tests gets."""
    return context.suite_time or SuiteTime(context.timeout_s)


def limit_of(context: GateContext) -> float:
    """Return the seconds that one run of the tests gets."""
    return time_of(context).limit_s


def place_of(context: GateContext, gate: str, folder: str, on: str, *parts: object) -> Path:
    """Where is kept what a gate saw at the base commit, in one folder.

    ``on``: the interpreter and what is installed there, to the byte; another is another run. With the
    sandbox or without: what fails for want of a network in the one excuses nothing in the other.
    """
    where = type(context.sandbox).__qualname__
    commit = context.repo.base_commit
    key = gating.content_key(_FORMAT, commit, gate, folder, on, sys.version, where, *parts)
    return context.cache / "base" / f"{key}.json"


def kept(place: Path) -> Any:
    """Return what was kept there, as JSON gives it; None if nothing was."""
    try:
        return json.loads(whole.kept(place) or b"null")
    except ValueError:
        return None


def keep(place: Path, what: object) -> None:
    """Keep it, with as many others as a folder has room for: a reader sees the old or the new."""
    whole.keep(place, json.dumps(what).encode())


#: Runs of the base commit's suite, at most, to tell flaky from broken from sound: two beyond the one
#: that counts tests. A test that fails in half of all runs is seen both ways in three of four cases.
BASE_RUNS = 3

#: Further runs with the patch, for tests that are flaky at the base commit.
PATCHED_RERUNS = 2


@dataclass(frozen=True)
class SortedFailures:
    """Failing tests by what they do at the base commit; the three are disjoint."""

    #: Never failed there: the patch is to blame.
    new: tuple[str, ...]
    #: Failed in some runs, not in others.
    flaky: tuple[str, ...]
    #: Failed in every run.
    broken: tuple[str, ...]


def sort_failures(failing: Iterable[str], base: Sequence[frozenset[str]]) -> SortedFailures:
    """Sort failing tests by the tests that failed in each run of the base commit's suite.

    Without any such run nothing excuses a failure: all are new.
    """
    new, flaky, broken = [], [], []
    for test in sorted(set(failing)):
        times = sum(test in run for run in base)
        if not times:
            new.append(test)
        elif times < len(base):
            flaky.append(test)
        else:
            broken.append(test)
    return SortedFailures(tuple(new), tuple(flaky), tuple(broken))


def is_settled(failing: Iterable[str], base: Sequence[frozenset[str]]) -> bool:
    """Would further runs at the base commit change nothing? They can only make tests flaky."""
    return len(base) >= BASE_RUNS or not set(failing) - set(sort_failures(failing, base).flaky)


#: Runs a suite in a tree, once its dependencies are there.
Run = Callable[[RepoContext], SuiteRun | NotInstalled]

#: What a suite runs on at the base commit (``place_of``): asked for only once that is installed.
On = Callable[[], str]


@dataclass(frozen=True)
class BaseRun:
    """What is kept of one run at the base commit."""

    exit_code: int | None
    count: int | None
    failed: int | None
    #: Failing tests by the log.
    failing: frozenset[str] | None
    report: Report | None
    #: Digest of what the run printed, without what varies: for a runner that names no tests.
    said: str
    #: Of a script of several commands, what the others said (``SuiteRun.others``).
    others: str = ""
    #: What it did (``SuiteRun.acts``).
    acts: frozenset[Act] | None = None
    #: Wall clock; None: not told.
    took_s: float | None = None
    #: Was its log too long to be kept whole?
    is_cut: bool = False
    #: See ``SuiteRun.without_options``.
    without_options: bool = False
    #: See ``SuiteRun.can_select``.
    can_select: bool = False

    @classmethod
    def of(cls, run: SuiteRun) -> "BaseRun":
        """Of a run that was made."""
        failing = None if run.failing is None else frozenset(run.failing)
        return cls(
            run.result.exit_code, run.count, run.failed, failing, run.report, digest_of(run), run.others,
            run.acts, run.result.duration_ms / 1000, run.result.truncated, run.without_options,
            run.can_select,
        )  # fmt: skip

    @property
    def is_conclusive(self) -> bool:
        """Did it come as far as any test, and does it name those that failed?"""
        return self.count != 0 and (self.failing is not None or self.report is not None)

    def excused(self, failing: Iterable[str], *, by_report: bool) -> frozenset[str] | None:
        """Those that are no news here; None where this run can't tell."""
        if self.count == 0:
            return None
        if not by_report:
            return None if self.failing is None else self.failing.intersection(failing)
        reported = self.report
        return (
            None if reported is None else frozenset(one for one in failing if reported.excuses(one))
        )


class BaseRuns:
    """The runs at the base commit of one suite in one folder, as many as somebody needs."""

    def __init__(self, context: GateContext, gate: str, folder: str, run: Run, on: On) -> None:
        self._context = context
        self._run = run
        self._where = (gate, folder, on)
        self._runs: list[BaseRun] | None = None
        #: Why there is no run at all: nothing can be installed there.
        self.absent: NotInstalled | None = None
        #: Why there is none: the wall clock ended it. Not kept, it was perhaps for a passing reason.
        self.late: BaseRun | None = None

    @cached_property
    def _place(self) -> Path:
        gate, folder, on = self._where
        return place_of(self._context, gate, folder, on(), self._run.__module__)

    @property
    def made(self) -> list[BaseRun]:
        """Those that there are already."""
        if self._runs is None:
            self._runs = _kept_form().validate_python(kept(self._place) or [])
        return self._runs

    def until(self, enough: Callable[[list[BaseRun]], bool]) -> list[BaseRun]:
        """Kept ones first, until they are enough: at most BASE_RUNS. Raises what the run raises."""
        while (
            self.absent is None
            and self.late is None
            and len(self.made) < BASE_RUNS
            and not enough(self.made)
        ):
            base = run_at_base(self._context, self._run)
            if isinstance(base, NotInstalled):
                self.absent = base
            elif base.result.timed_out:
                self.late = BaseRun.of(base)
            else:
                self.made.append(BaseRun.of(base))
                keep(self._place, _kept_form().dump_python(self.made, mode="json"))
        return self.made


@cache
def _kept_form() -> TypeAdapter[list[BaseRun]]:
    """Built where it is first needed, once: that takes longer than what it does."""
    return TypeAdapter(list[BaseRun])


def digest_of(run: SuiteRun) -> str:
    """A digest of a run's words."""
    words = [str(run.result.exit_code), *sorted(steady_lines(run.result.output))]
    return sha256("\n".join(words).encode()).hexdigest()
