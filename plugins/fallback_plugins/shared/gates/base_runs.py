"""Runs of a gate's command at the base commit, where the patch can't be the cause, and the choice of the
command.

A commit does not change, so results at it are kept in the cache that outlives attempts. A suite runs
there as often as it takes to determine which failing tests are caused by the patch. Rerunning with the
patch alone would call a race that the patch brought in "flaky" (Luo et al., "An Empirical Analysis of
Flaky Tests", FSE 2014: a rerun hides, it does not explain). So a test counts as flaky only if it was seen
to fail *and* to pass at the base commit.

Of a project's test commands, the first that runs tests at the base commit is chosen (ADR-0118), in the
order in which they were found, plain discovery last. Both trees then run the same one. The choice is kept
with the base commit's runs, and so is why another did not serve.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import content_key, some_of
from fallback_plugins.shared.gates.suite_run import Act, Report, SuiteRun, last_line, steady_lines
from fallback_plugins.shared.installation import NotInstalled
from fallback_tier.files import whole
from fallback_tier.gate_ports import GateContext, GateVerdict, SuiteTime
from fallback_tier.limits import MAX_TESTS_S
from fallback_tier.repo import RepoContext

_Seen = TypeVar("_Seen")

#: Version of stored results. It changes with their form, and with how a log is read: older ones don't
#: count.
_FORMAT = 11


def run_at_base(context: GateContext, run: Callable[[RepoContext], _Seen]) -> _Seen:
    """Return what ``run`` returns over fresh files of the base commit. Raises what it raises, ToolError."""
    with context.worktree.fresh(patched=False) as tree:
        return run(context.repo.laid_out(tree))


def patient(context: GateContext) -> GateContext:
    """Return the context of a gate on tests: a suite runs for as long as it prints or reports tests, and
    may be silent for a gate's own time."""
    most_s = context.repo.settings.test_timeout_s or MAX_TESTS_S
    return replace(context, suite_time=SuiteTime(most_s, context.timeout_s))


def limited(context: GateContext, base: "BaseRuns") -> GateContext:
    """Return the context of the runs with the patch: a gate's own time, and twice what the tests took at
    the base commit if that is more, but at most MAX_TESTS_S; or what a person stated. So a suite that ended
    just in time there does not count as hanging if it ends a minute later here."""
    stated_s = context.repo.settings.test_timeout_s
    took = [2 * run.took_s for run in base.until(bool) if run.took_s is not None]
    if base.late is not None and base.late.took_s is not None:
        took.append(base.late.took_s)
    limit_s = stated_s or min(MAX_TESTS_S, max([context.timeout_s, *took]))
    if context.suite_time is None:
        return replace(context, timeout_s=limit_s)
    return replace(context, suite_time=replace(context.suite_time, limit_s=limit_s))


def time_of(context: GateContext) -> SuiteTime:
    """Return the time limits of one run of the tests."""
    return context.suite_time or SuiteTime(context.timeout_s)


def place_of(context: GateContext, gate: str, folder: str, on: str, *parts: object) -> Path:
    """Return the path for a gate's result at the base commit, in one folder.

    ``on``: the interpreter and what is installed there, to the byte; another one has another path. So has
    another kind of sandbox: a failure for lack of a network in one excuses nothing outside of it.
    """
    sandbox_kind = type(context.sandbox).__qualname__
    commit = context.repo.base_commit
    key = gating.content_key(_FORMAT, commit, gate, folder, on, sys.version, sandbox_kind, *parts)
    return context.cache / "base" / f"{key}.json"


def kept(path: Path) -> Any:
    """Return the JSON value that is stored at a path; None if there is none."""
    try:
        return json.loads(whole.kept(path) or b"null")
    except ValueError:
        return None


def keep(path: Path, value: object) -> None:
    """Store a value, so that a reader sees the old or the new one. Of a folder only the values that were
    last used are kept."""
    whole.keep(path, json.dumps(value).encode())


#: Runs of the base commit's suite, at most, to distinguish flaky, broken and sound tests: two beyond
#: the one that counts tests. A test that fails in half of all runs is seen both ways in three of four
#: cases.
BASE_RUNS = 3

#: Further runs with the patch, for tests that are flaky at the base commit.
PATCHED_RERUNS = 2


@dataclass(frozen=True)
class SortedFailures:
    """Failing tests by their results at the base commit; the three are disjoint."""

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
    """Return whether further runs at the base commit would change nothing. They can only make tests
    flaky."""
    return len(base) >= BASE_RUNS or not set(failing) - set(sort_failures(failing, base).flaky)


#: Runs a suite in a tree, once its dependencies are installed.
Run = Callable[[RepoContext], SuiteRun | NotInstalled]

#: Returns what a suite runs on at the base commit (``place_of``): called only once that is installed.
On = Callable[[], str]


@dataclass(frozen=True)
class BaseRun:
    """The stored result of one run at the base commit."""

    exit_code: int | None
    count: int | None
    failed: int | None
    #: Failing tests by the log.
    failing: frozenset[str] | None
    report: Report | None
    #: Digest of what the run printed, without what varies: for a runner that names no tests.
    said: str
    #: If a script has several commands, what the others printed (``SuiteRun.others``).
    others: str = ""
    #: What it did (``SuiteRun.acts``).
    acts: frozenset[Act] | None = None
    #: Duration; None if unknown.
    took_s: float | None = None
    #: Whether its log was too long to be kept whole.
    is_cut: bool = False
    #: See ``SuiteRun.without_options``.
    without_options: bool = False
    #: See ``SuiteRun.can_select``.
    can_select: bool = False

    @classmethod
    def of(cls, run: SuiteRun) -> "BaseRun":
        """Return the result of a run."""
        failing = None if run.failing is None else frozenset(run.failing)
        return cls(
            run.result.exit_code, run.count, run.failed, failing, run.report, digest_of(run), run.others,
            run.acts, run.result.duration_ms / 1000, run.result.truncated, run.without_options,
            run.can_select,
        )  # fmt: skip

    @property
    def is_conclusive(self) -> bool:
        """Whether the run reached a test, and names those that failed."""
        return self.count != 0 and (self.failing is not None or self.report is not None)

    @property
    def failed_whole(self) -> bool:
        """Whether it failed, and it is known that no test passed."""
        if self.report is not None:
            return self.exit_code != 0 and not self.report.passed
        return self.exit_code != 0 and self.count is not None and self.count == (self.failed or 0)

    def excused(self, failing: Iterable[str], *, by_report: bool) -> frozenset[str] | None:
        """Return the failing tests that are not new; None if this run doesn't show that."""
        if self.count == 0:
            return None
        if not by_report:
            return None if self.failing is None else self.failing.intersection(failing)
        report = self.report
        return (
            None if report is None else frozenset(test for test in failing if report.excuses(test))
        )


class BaseRuns:
    """The runs at the base commit of one suite in one folder, as many as are needed."""

    def __init__(self, context: GateContext, gate: str, folder: str, run: Run, on: On) -> None:
        self._context = context
        self._run = run
        self._where = (gate, folder, on)
        self._runs: list[BaseRun] | None = None
        #: Why there is no run at all: nothing can be installed there.
        self.absent: NotInstalled | None = None
        #: The run that the time limit ended. It is not stored, as the cause may be temporary.
        self.late: BaseRun | None = None

    @cached_property
    def _place(self) -> Path:
        gate, folder, on = self._where
        return place_of(self._context, gate, folder, on(), self._run.__module__)

    @property
    def made(self) -> list[BaseRun]:
        """The runs so far."""
        if self._runs is None:
            self._runs = _kept_form().validate_python(kept(self._place) or [])
        return self._runs

    def until(self, enough: Callable[[list[BaseRun]], bool]) -> list[BaseRun]:
        """Return stored runs, and make more until they are enough: at most BASE_RUNS. Raises what the run
        raises."""
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
    """Return the adapter of stored runs, built when it is first needed: that takes longer than its use."""
    return TypeAdapter(list[BaseRun])


def digest_of(run: SuiteRun) -> str:
    """Return the SHA-256 of a run's exit code and stable output lines."""
    lines = [str(run.result.exit_code), *sorted(steady_lines(run.result.output))]
    return sha256("\n".join(lines).encode()).hexdigest()


#: Commands that are tried at the base commit, at most: each can take a gate's whole time.
MAX_TRIED = 6

#: Characters of a line of output that a sentence repeats.
_LINE_CHARS = 200

#: Ways that a note names.
_UNTRIED_NAMED = 3

#: Options of a command that choose no tests: long ones, and letters for the output.
_NO_CHOICE = re.compile(
    r"(?i)^--(?!(?:select)?projects?\b|config|workspaces?\b|suite|filter|grep|scope|package|testmatch|testpath|dir\b|env\b)"
    r"[\w-]+(?:=\S*)?$|^-[vqsx]+$"
)

#: A prefix that starts any program.
_STARTER = re.compile(r"^(?:python[\d.]* -m |\S*/node_modules/\.bin/)")

#: The prefix of a shell's error that names a line of our script.
_SHELLS_PLACE = re.compile(r"^(?:/\S*/)?(?:ba)?sh: (?:line )?\d+: ")


@dataclass(frozen=True)
class Way:
    """One way to run a project's tests. ``label``: the command and its source, for people; ``key``:
    distinguishes its runs from those of other ways; ``hint``: what tests that fail lack, by their output,
    as a clause; empty if that is not known; ``ci_lines``: its commands, if CI runs them."""

    label: str
    run: Run
    key: str = ""
    hint: Callable[[str], str] = lambda _: ""
    ci_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The way that is taken, its runs at the base commit and what they run on, and the ways that did not
    serve, with reasons. ``untried``: other ways in which CI tests."""

    way: Way
    on: On
    base: BaseRuns
    passed_over: tuple[tuple[str, str], ...] = ()
    untried: tuple[str, ...] = ()

    @property
    def unserved(self) -> tuple[str, ...]:
        """Sentences on the ways that did not serve."""
        return tuple(f"{label} does not serve: {why}" for label, why in self.passed_over)

    def explain(self, verdict: GateVerdict) -> GateVerdict:
        """Return the verdict with what was chosen, if there was a choice, with the part of CI that it is,
        and with what tests lack that fail at the base commit too."""
        chosen = [f"the tests run by {self.way.label}"] if self.way.key or self.passed_over else []
        update: dict[str, object] = {}
        if self.untried:
            untried = some_of(self.untried, _UNTRIED_NAMED)
            chosen.append(f"CI tests in other ways too, which were not run: {untried}")
            count = len(self.untried) + bool(self.way.ci_lines)
            reason = f"the tests of one of {count} ways in which CI tests"
            update["tests"] = tuple(
                account if account.reason else account.model_copy(update={"reason": reason})
                for account in verdict.tests
            )
        update["notes"] = tuple(dict.fromkeys((*chosen, *self.unserved, *verdict.notes)))
        is_as_before = verdict.status is GateStatus.SKIPPED or bool(verdict.failing_before)
        if is_as_before and (hint := self.way.hint(verdict.log)):
            update["detail"] = f"{verdict.detail}; {hint}"
        return verdict.model_copy(update=update)


def choose(context: GateContext, gate: str, folder: str, on: On, ways: Sequence[Way]) -> Choice:
    """Return the first way whose tests run at the base commit and pass, one at least; if there is none, the
    first that runs any test; otherwise the last. Raises what a run raises.

    ``ways``: at least one, the last is taken if no other serves; of more than MAX_TRIED those between are
    left out. ``on``: as for ``BaseRuns``.
    """
    choice = _choose(context, gate, folder, on, ways)
    passed_over = {label for label, _ in choice.passed_over}
    run = _what_runs(choice.way)
    untried = [way.label for way in ways if way.label not in passed_over and _what_runs(way) - run]
    # If a user stated the command, or CI does not test, there is nothing else to name.
    return replace(choice, untried=tuple(untried) if run or passed_over else ())


def _what_runs(way: Way) -> set[str]:
    """Return the commands that CI runs in a way, without options that choose no tests."""
    commands = (_STARTER.sub("", line).split() for line in way.ci_lines)
    return {" ".join(word for word in words if not _NO_CHOICE.match(word)) for words in commands}


def _choose(context: GateContext, gate: str, folder: str, on: On, ways: Sequence[Way]) -> Choice:
    def choice_of(way: Way, run: Run) -> Choice:
        way_on: On = (lambda: content_key(on(), way.key)) if way.key else on
        return Choice(way, way_on, BaseRuns(context, gate, folder, run, way_on))

    ways = [*ways[: MAX_TRIED - 1], ways[-1]] if len(ways) > MAX_TRIED else [*ways]
    if len(ways) == 1:
        return choice_of(ways[0], ways[0].run)
    path = place_of(context, gate, folder, on(), "choice", [way.key for way in ways])
    before = kept(path)
    if before is not None:
        chosen = next((way for way in ways if way.key == before["key"]), ways[-1])
        passed_over = tuple((label, why) for label, why in before["passed_over"])
        return replace(choice_of(chosen, chosen.run), passed_over=passed_over)
    tried: list[tuple[Choice, BaseRun, str]] = []
    for way in ways:
        choice, outcome = _tried(context, way, choice_of)
        if outcome is None:  # nothing can be installed: no way serves
            return choice
        run, why = outcome
        tried.append((choice, run, why))
        if not why:
            break
    serving = next((attempt for attempt in tried if not attempt[2]), None)
    running = next(
        (
            attempt
            for attempt in tried
            if attempt[1].count != 0 and attempt[1].exit_code is not None
        ),
        None,
    )
    chosen_, run, _ = serving or running or tried[-1]
    passed_over = tuple(
        (choice.way.label, why) for choice, _, why in tried if why and choice is not chosen_
    )
    if run.exit_code is not None and all(run.exit_code is not None for _, run, _ in tried):
        keep(path, {"key": chosen_.way.key, "passed_over": passed_over})
    return replace(chosen_, passed_over=passed_over)


def _tried(
    context: GateContext, way: Way, choice_of: Callable[[Way, Run], Choice]
) -> tuple[Choice, tuple[BaseRun, str] | None]:
    """Return the way as a choice, its run at the base commit, and why it does not serve; empty if it
    serves."""
    outputs: list[str] = []

    def run(tree: RepoContext) -> SuiteRun | NotInstalled:
        suite_run = way.run(tree)
        if isinstance(suite_run, SuiteRun):
            outputs.append(suite_run.result.output)
        return suite_run

    run.__module__ = way.run.__module__
    choice = choice_of(way, run)
    base = choice.base
    runs = base.until(bool)
    base_run = None if base.absent is not None else runs[0] if runs else base.late
    if base_run is None:
        return choice, None
    report = base_run.report
    passing = (
        (base_run.count or 0) - (base_run.failed or 0) if report is None else len(report.passed)
    )
    if passing > 0:
        return choice, (base_run, "")
    output = outputs[-1] if outputs else ""
    line = _SHELLS_PLACE.sub("", last_line(output))[:_LINE_CHARS]
    if base_run.count:
        why = "no test of it passes"
    elif base_run.exit_code is None:
        why = f"no test of it ended within {time_of(context).limit_s:.0f} s"
    elif base_run.failing:
        why = "it does not report how many tests ran"
    else:
        why = "it runs no test"
    why = "; ".join(filter(None, (f"{why} (`{line}`)" if line else why, way.hint(output))))
    return choice, (base_run, why)
