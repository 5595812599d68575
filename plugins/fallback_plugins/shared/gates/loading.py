"""Judges whether the modules of a project can still be imported, beside the base commit.

An ecosystem's probe imports each by itself. It prints ``cannot import NAME: WORDS`` for each that fails,
and ``no time left for NAME, NAME`` at the end of its time; its exit code is 1 where one failed.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Check, Finding, judge_run
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Wall clock of one import. What needs longer starts something, and no check should wait for that.
IMPORT_TIMEOUT_S = 30.0

#: Wall clock of all imports of one project in one tree; most projects take a tenth of it. Half of a gate's
#: own (``GateContext.timeout_s``) where that is less. A verdict names what there was no time for.
IMPORTS_TIMEOUT_S = 240.0

#: Of an error's own words.
_MESSAGE_CHARS = 300

_FAILED = "cannot import "
_NO_TIME = re.compile(r"^no time left for (.+)\n?", re.MULTILINE)

#: Where a file lies: each tree and each environment lies elsewhere.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/'\"():,]+/)+")

#: A pattern, and what stands for what it matches.
Rewriting = tuple[re.Pattern[str], str]

#: What differs from run to run (temporary files, addresses in memory), and lines, which an edit moves.
#: Other numbers stay: "needs left<2, and 1.4 is installed" is another sentence with 2.1, and another
#: failure. What could not be imported before and fails otherwise now fails the gate.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"/tmp/[^\s'\"():,]+|\btmp[a-z0-9_]{8}\b"), "…"),  # noqa: S108 (a pattern)
    (_FOLDERS, "…/"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"\bline \d+|(?<=\.py):\d+"), "line …"),
)


@dataclass(frozen=True)
class Loading:
    """What to import, by names that the probe repeats, and how: ``run`` asks for some of them in any tree.

    ``on``: what it runs on at the base commit (``place_of``). ``varying``: what more makes no new failure.
    ``excused``: is what the probe says of a name no failure at all?
    """

    names: Sequence[str]
    run: Callable[[RepoContext, Sequence[str]], CommandResult | NotInstalled]
    on: Callable[[], str]
    varying: Sequence[Rewriting] = ()
    excused: Callable[[str, str], bool] = lambda _name, _said: False


def limits(context: GateContext) -> tuple[str, str]:
    """Seconds for one import and for all of them, as a probe is told."""
    return str(IMPORT_TIMEOUT_S), str(min(IMPORTS_TIMEOUT_S, context.timeout_s / 2))


def judge_loading(gate: str, context: GateContext, folder: str, asked: Loading) -> GateVerdict:
    """As ``judge_check``. The base commit is asked only for what fails with the patch."""
    ours = asked.run(gating.patched(context), asked.names)
    if isinstance(ours, NotInstalled):
        return gating.skipped(gate, f"the dependencies could not be installed: {ours.why}")
    no_time = _NO_TIME.search(ours.output)
    if no_time is not None and no_time[1].split(", ")[0] == asked.names[0]:
        return gating.skipped(gate, f"no time was left to import {no_time[1]}")
    # What there was no time for is no complaint, and left out of the comparison.
    ours = ours.model_copy(update={"output": _NO_TIME.sub("", ours.output)})
    found = failures(ours.output, asked)
    failing = tuple(found) or tuple(asked.names)
    if (
        ours.exit_code == 1 and not found and _probe_messages(ours.output, asked.names)
    ):  # all is excused
        ours = ours.model_copy(update={"exit_code": 0})
    check = Check(
        f"import of {', '.join(failing[:3])}{' …' if len(failing) > 3 else ''}",
        lambda tree: asked.run(tree, failing),
        lambda output: tuple(failures(output, asked).values()),
        lambda result: _NO_TIME.search(result.output) is not None,
        inputs=failing,
        on=asked.on,
    )
    verdict = judge_run(gate, context, folder, check, ours)
    if no_time is None or verdict.status is not GateStatus.PASSED:
        return verdict
    message = f"{verdict.detail}; no time was left to import {no_time[1]}"
    return verdict.model_copy(update={"detail": message})


def failures(output: str, asked: Loading) -> dict[str, Finding]:
    """What the probe says of each module that could not be imported, by name.

    The same key in both trees where the error is the same, in type and words.
    """
    return {
        name: _finding(name, message, asked.varying)
        for name, message in _probe_messages(output, asked.names).items()
        if not asked.excused(name, message)
    }


def _probe_messages(output: str, names: Sequence[str]) -> dict[str, str]:
    """The probe's words by name, of names that were asked for: modules print, too."""
    lines = [line.removeprefix(_FAILED) for line in output.split("\n") if line.startswith(_FAILED)]
    reported = dict(line.split(": ", 1) for line in lines if ": " in line)
    return {name: message for name, message in reported.items() if name in names}


def _finding(name: str, message: str, varying: Sequence[Rewriting]) -> Finding:
    steady = message
    for pattern, instead in (*varying, *_VARYING):
        steady = pattern.sub(instead, steady)
    shown = _FOLDERS.sub("…/", message)
    return Finding(
        f"{name}: {steady[:_MESSAGE_CHARS]}", f"{_FAILED}{name}: {shown[:_MESSAGE_CHARS]}"
    )
