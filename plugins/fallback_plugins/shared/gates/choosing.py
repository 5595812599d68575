"""Which of a project's test commands is run: the first that runs tests at the base commit (ADR-0118).

They are tried there in the order in which they were found, plain discovery last. Both trees then run the
same one. What was chosen is kept with the base commit's runs, and so is why another did not serve.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.shared.gates.base_runs import (
    BaseRun,
    BaseRuns,
    On,
    Run,
    keep,
    kept,
    limit_of,
    place_of,
)
from fallback_plugins.shared.gates.gating import content_key, some_of
from fallback_plugins.shared.gates.suite_run import SuiteRun, last_line
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

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

#: What starts a program, whichever that is.
_STARTER = re.compile(r"^(?:python[\d.]* -m |\S*/node_modules/\.bin/)")

#: The line of our script that a shell names.
_SHELLS_PLACE = re.compile(r"^(?:/\S*/)?(?:ba)?sh: (?:line )?\d+: ")


@dataclass(frozen=True)
class Way:
    """One way to run a project's tests. ``label``: the command and its source, for people; ``key``: what
    tells its runs from those of other ways; ``hint``: what tests that fail lack, by their output, as a
    clause; empty if that is not known; ``ci_lines``: its commands, if CI runs them."""

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
            others = some_of(self.untried, _UNTRIED_NAMED)
            chosen.append(f"CI tests in other ways too, which were not run: {others}")
            count = len(self.untried) + bool(self.way.ci_lines)
            of = f"the tests of one of {count} ways in which CI tests"
            update["tests"] = tuple(
                it if it.reason else it.model_copy(update={"reason": of}) for it in verdict.tests
            )
        update["notes"] = tuple(dict.fromkeys((*chosen, *self.unserved, *verdict.notes)))
        is_as_before = verdict.status is GateStatus.SKIPPED or bool(verdict.failing_before)
        if is_as_before and (hint := self.way.hint(verdict.log)):
            update["detail"] = f"{verdict.detail}; {hint}"
        return verdict.model_copy(update=update)


def choose(context: GateContext, gate: str, folder: str, on: On, ways: Sequence[Way]) -> Choice:
    """Return the first way whose tests run at the base commit and pass, one at least; if there is none, the
    first that runs any test; else the last. Raises what a run raises.

    ``ways``: at least one, the last is taken if no other serves; of more than MAX_TRIED those between are
    left out. ``on``: as for ``BaseRuns``.
    """
    choice = _choose(context, gate, folder, on, ways)
    over = {label for label, _ in choice.passed_over}
    run = _what_runs(choice.way)
    others = [it.label for it in ways if it.label not in over and _what_runs(it) - run]
    # What a user states, or a project without CI tests by, is all that was asked for.
    return replace(choice, untried=tuple(others) if run or over else ())


def _what_runs(way: Way) -> set[str]:
    """Return what CI's commands of a way run, without options that choose no tests."""
    words = (_STARTER.sub("", line).split() for line in way.ci_lines)
    return {" ".join(it for it in line if not _NO_CHOICE.match(it)) for line in words}


def _choose(context: GateContext, gate: str, folder: str, on: On, ways: Sequence[Way]) -> Choice:
    ways = [*ways[: MAX_TRIED - 1], ways[-1]] if len(ways) > MAX_TRIED else [*ways]
    if len(ways) == 1:
        return _choice(context, gate, folder, on, ways[0])
    place = place_of(context, gate, folder, on(), "choice", [way.key for way in ways])
    before = kept(place)
    if before is not None:
        chosen = next((way for way in ways if way.key == before["key"]), ways[-1])
        over = tuple((label, why) for label, why in before["passed_over"])
        return _choice(context, gate, folder, on, chosen, over)
    tried: list[tuple[Choice, BaseRun, str]] = []
    for way in ways:
        choice, seen = _tried(context, gate, folder, on, way)
        if seen is None:  # nothing can be installed: no way serves
            return choice
        run, why = seen
        tried.append((choice, run, why))
        if not why:
            break
    serving = next((one for one in tried if not one[2]), None)
    running = next(
        (one for one in tried if one[1].count != 0 and one[1].exit_code is not None), None
    )
    chosen_, run, _ = serving or running or tried[-1]
    over = tuple((one.way.label, why) for one, _, why in tried if why and one is not chosen_)
    if run.exit_code is not None and all(one.exit_code is not None for _, one, _ in tried):
        keep(place, {"key": chosen_.way.key, "passed_over": over})
    return replace(chosen_, passed_over=over)


def _choice(
    context: GateContext,
    gate: str,
    folder: str,
    on: On,
    way: Way,
    over: tuple[tuple[str, str], ...] = (),
) -> Choice:
    on = _on_of(on, way)
    return Choice(way, on, BaseRuns(context, gate, folder, way.run, on), over)


def _on_of(on: On, way: Way) -> On:
    return (lambda: content_key(on(), way.key)) if way.key else on


def _tried(
    context: GateContext, gate: str, folder: str, on: On, way: Way
) -> tuple[Choice, tuple[BaseRun, str] | None]:
    """The way, its run at the base commit, and why it does not serve; empty if it does."""
    outputs: list[str] = []

    def run(tree: RepoContext) -> SuiteRun | NotInstalled:
        made = way.run(tree)
        if isinstance(made, SuiteRun):
            outputs.append(made.result.output)
        return made

    run.__module__ = way.run.__module__
    on = _on_of(on, way)
    base = BaseRuns(context, gate, folder, run, on)
    runs = base.until(bool)
    choice = Choice(way, on, base)
    if base.absent is not None:
        return choice, None
    seen = runs[0] if runs else base.late
    if seen is None:
        return choice, None
    reported = seen.report
    passing = (
        len(reported.passed) if reported is not None else (seen.count or 0) - (seen.failed or 0)
    )
    if passing > 0:
        return choice, (seen, "")
    output = outputs[-1] if outputs else ""
    said = _SHELLS_PLACE.sub("", last_line(output))[:_LINE_CHARS]
    if seen.count:
        why = "no test of it passes"
    elif seen.exit_code is None:
        why = f"no test of it ended within {limit_of(context):.0f} s"
    elif seen.failing:
        why = "it does not report how many tests ran"
    else:
        why = "it runs no test"
    why = "; ".join(filter(None, (f"{why} (`{said}`)" if said else why, way.hint(output))))
    return choice, (seen, why)
