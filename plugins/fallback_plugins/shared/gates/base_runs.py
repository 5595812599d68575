"""Runs of a suite at the base commit: made as they are needed, kept for the attempts that follow."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter

from fallback_plugins.shared.gates.at_base import keep, kept, place_of, run_at_base
from fallback_plugins.shared.gates.flaky import BASE_RUNS
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import Act, SuiteRun, steady_lines
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateContext
from fallback_tier.repo import RepoContext

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

    @classmethod
    def of(cls, run: SuiteRun) -> "BaseRun":
        """Of a run that was made."""
        failing = None if run.failing is None else frozenset(run.failing)
        return cls(
            run.result.exit_code, run.count, run.failed, failing, run.report, digest_of(run), run.others,
            run.acts, run.result.duration_ms / 1000, run.result.truncated, run.without_options,
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
