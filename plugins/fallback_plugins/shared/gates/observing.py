"""Holds what the patched tree's tests did beside the base commit's, and names what is new (ADR-0065).

An act is a line: its kind, then what it is done to. What the patch alone can be the reason for, and no plan
declared, is a person's question, as in the capability gate; but only once it was seen twice with the patch,
and never in as many runs of the base commit as tell flaky tests from sound ones.
"""

from collections.abc import Callable, Iterable, Sequence

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_plugins.shared.gates.base_runs import BaseRun
from fallback_plugins.shared.gates.gating import failed, some_of
from fallback_plugins.shared.gates.suite_run import Act, SuiteRun
from fallback_plugins.shared.gates.suite_verdict import Suite
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.gate_ports import GateVerdict

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
_NAMED, _MAX_CHARS = 5, 80


def judge_acts(
    verdict: GateVerdict, suite: Suite, ours: SuiteRun, alike: Callable[[], bool]
) -> GateVerdict:
    """The tests' verdict, with what is new in what they did; failed where that had to be declared.

    ``alike``: is the same installed as at the base commit? Else another release may be the reason, and what
    is new is only named. Raises what the suite's ``run`` raises.
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
        asked = _again(asked, suite)
        if asked:
            return _undeclared(verdict, asked, new)
    message = "\n".join(["", "New with the patch, seen while the tests ran:", *map(in_words, new)])
    # In front: a record cuts what is too long at its end, and tests may have long names.
    what = f"new with the patch, seen while its tests ran: it {_some(new)}; {verdict.detail}"
    return verdict.model_copy(update={"detail": what, "log": verdict.log + message})


def in_words(act: Act) -> str:
    """An act, as a person reads it."""
    return f"{_KINDS[_kind(act)][0]} {act.partition(' ')[2]}".strip()


def _new(did: frozenset[Act], runs: Sequence[BaseRun]) -> list[Act]:
    """What no run at the base commit did. Where none was observed whole, nothing can be new."""
    before = [run.acts for run in runs if run.acts is not None and DAMAGED not in run.acts]
    return sorted(did.difference(*before)) if before else []


def _again(asked: Iterable[Act], suite: Suite) -> list[Act]:
    """Those that a second run with the patch does too."""
    again = suite.again()
    did = None if isinstance(again, NotInstalled) else again.acts
    return [act for act in asked if did is None or act in did]


def _undeclared(verdict: GateVerdict, asked: Sequence[Act], new: Sequence[Act]) -> GateVerdict:
    kinds = sorted({f'"{_KINDS[_kind(act)][1]}"' for act in asked})
    how = (
        f'Do without, or declare it: add "capabilities": [{", ".join(kinds)}] to the plan, beside '
        '"action", and say in one sentence of "rationale" why the fix needs that.'
    )
    what = f"while its tests run, the patched code does what the base commit's never did: it {_some(asked)}"
    log = "\n".join([how, *(f"new: it {in_words(act)}" for act in new), "", verdict.log])
    return failed(verdict.gate, FailureKind.UNDECLARED_CAPABILITY, what, log)


def _some(acts: Sequence[Act]) -> str:
    return some_of([in_words(act)[:_MAX_CHARS] for act in acts], _NAMED)


def _kind(act: Act) -> str:
    return act.partition(" ")[0]
