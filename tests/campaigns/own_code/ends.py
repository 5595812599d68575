"""How one run of the command ended, read from what it printed, and what stopped a true fix.

The reader is liberal: the harness measures older and newer tools, whose answers differ in fields and in
outcomes. What is kept is short, and names no machine, no temporary folder and no registry.
"""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from fallback_audit.frozen import Frozen
from tests.campaigns.measuring.words import SAID_CHARS, cleaned

#: The question that the tool asks where tests of the base commit assert the flaw.
_CONTRADICTED = "tests_contradict_patch"


class Gate(Frozen):
    """One verdict."""

    name: str
    status: str
    detail: str
    kind: str = ""


class Failed(Frozen):
    """One attempt that failed; ``gates`` empty: it gave no usable plan."""

    tier: str
    kind: str
    gates: tuple[str, ...]
    said: str


class End(Frozen):
    """``outcome``: the answer's, or ``error``, ``timeout``, ``nothing``; ``tier``: whose patch it was.

    ``gates``: verdicts of the last attempt; ``judged``: those of all, as they are on record.
    """

    code: int | None
    outcome: str
    reason: str = ""
    said: str = ""
    tier: str = ""
    gates: tuple[Gate, ...] = ()
    judged: tuple[Gate, ...] = ()
    failed: tuple[Failed, ...] = ()
    asked: int = 0
    seconds: float = 0.0

    @property
    def says_fixed(self) -> bool:
        return self.code == 0

    def gate(self, name: str) -> Gate | None:
        return next((gate for gate in self.gates if gate.name == name), None)


class Stop(StrEnum):
    """What stopped a perfect answer, by kind."""

    PROOF_DEPENDENCIES = "proof could not start: dependencies"
    PROOF_OTHER = "proof could not start: other"
    NO_PROOF = "proof refused as no proof"
    NOT_AFFECTED = "held for not affected"
    RECIPE = "a recipe took over"
    PLAN_REFUSED = "plan refused as invalid"
    PLAN_REPEATED = "plan refused as a repetition"
    GATE = "a gate failed"
    PERSON = "question to a person"
    UNPROVED = "a patch, called unproved"
    REFUSED = "refused"
    TOOL = "tool error"
    NO_PLAN = "no plan can say it"


class Stopped(Frozen):
    """``what``: the gate with its failure, the question's reason; ``said``: the tool's own sentence."""

    stop: Stop
    what: str = ""
    said: str = ""


def read_end(
    code: int | None,
    out: str,
    err: str,
    *,
    seconds: float,
    asked: int,
    places: Iterable[tuple[str, str]] = (),
) -> End:
    """The end of a run. ``places``: paths of this machine and what is written for them."""
    facts: dict[str, Any] = {"code": code, "asked": asked, "seconds": round(seconds, 1)}
    places = tuple(places)
    answer = _answer(out)
    if code is None:
        return End(outcome="timeout", said=cleaned(err[-SAID_CHARS:], places), **facts)
    if answer is None:
        return End(outcome="nothing", said=cleaned((err or out)[-SAID_CHARS:], places), **facts)
    if isinstance(error := answer.get("error"), dict):
        reason, reported = str(error.get("code", "")), str(error.get("problem", ""))
        return End(outcome="error", reason=reason, said=cleaned(reported, places), **facts)
    application = answer.get("application") or {}
    reported = next((answer[key] for key in ("sentence", "question") if answer.get(key)), "")
    return End(
        outcome=str(answer.get("outcome", "nothing")),
        reason=str(answer.get("reason") or ""),
        said=cleaned(str(reported), places),
        tier=str(application.get("tier") or ""),
        gates=tuple(_gate(one, places) for one in answer.get("verdicts") or ()),
        failed=tuple(_failed(one, places) for one in answer.get("prior_attempts") or ()),
        **facts,
    )


def stopped(end: End) -> Stopped | None:
    """What stopped a perfect answer; None where it was proved with its proof."""
    proof = end.gate("proof")
    if end.says_fixed and end.outcome == "verified" and proof and proof.status == "passed":
        # The recipe can't have proved a flaw of the repository's own; but if it did, that is the end.
        return None if end.tier != "recipe" else Stopped(stop=Stop.RECIPE, said=proof.detail)
    if end.outcome == "error":
        return Stopped(stop=_error_stop(end), what=end.reason, said=end.said)
    if end.outcome in {"timeout", "nothing"}:
        return Stopped(stop=Stop.TOOL, what=end.outcome, said=end.said)
    if end.reason == "not_affected":
        return Stopped(stop=Stop.NOT_AFFECTED, what=end.reason, said=end.said)
    if end.reason == _CONTRADICTED:
        return Stopped(stop=Stop.PERSON, what=end.reason, said=end.said)
    if (failed := _by_failure(end)) is not None:
        return failed
    if end.tier == "recipe":
        return Stopped(stop=Stop.RECIPE, what=end.outcome, said=end.said)
    if end.outcome == "escalated":
        return Stopped(stop=Stop.PERSON, what=end.reason, said=end.said)
    if end.outcome == "refused":
        stop = {"plan_invalid": Stop.PLAN_REFUSED, "repeated_patch": Stop.PLAN_REPEATED}
        return Stopped(stop=stop.get(end.reason, Stop.REFUSED), what=end.reason, said=end.said)
    detail = "no proof gate" if proof is None else f"proof {proof.status}: {proof.detail}"
    return Stopped(stop=Stop.UNPROVED, what=end.outcome, said=cleaned(detail))


def _by_failure(end: End) -> Stopped | None:
    """The first attempt that failed decided: after it the perfect author has nothing else to say."""
    if not end.failed:
        return None
    first = end.failed[0]
    if first.tier == "recipe":
        return Stopped(stop=Stop.RECIPE, what=f"failed: {', '.join(first.gates)}", said=first.said)
    # Told to declare something, it gave the same edits with the declaration.
    last = end.failed[-1]
    if last.kind == "repeated_patch":
        return Stopped(stop=Stop.PLAN_REPEATED, what=f"after {first.kind}", said=last.said)
    if first.kind == "plan_invalid":
        return Stopped(stop=Stop.PLAN_REFUSED, what=first.kind, said=first.said)
    what = f"{', '.join(first.gates) or 'no gate'} ({first.kind})"
    return Stopped(stop=Stop.GATE, what=what, said=first.said)


_NO_DEPENDENCIES = re.compile(
    r"can't be installed|could not be installed|no program|No module named|Cannot find (?:module|package)"
    r"|can't be imported|MODULE_NOT_FOUND",
    re.IGNORECASE,
)
_NO_PROOF = re.compile(
    r"passes already|did not end within|in the way of|not at a place inside", re.IGNORECASE
)


def _error_stop(end: End) -> Stop:
    if end.reason != "proof":
        return Stop.TOOL
    if _NO_PROOF.search(end.said):
        return Stop.NO_PROOF
    return Stop.PROOF_DEPENDENCIES if _NO_DEPENDENCIES.search(end.said) else Stop.PROOF_OTHER


def fix_of_answer(out: str) -> str | None:
    """The fix that an answer is about."""
    answer = _answer(out)
    found = answer.get("fix_id") if answer else None
    return found if isinstance(found, str) else None


def judged_on_record(out: str, places: Iterable[tuple[str, str]] = ()) -> tuple[Gate, ...]:
    """The verdicts in what `audit show --json` printed."""
    answer = _answer(out) or {}
    events = answer.get("events") or ()
    return tuple(_gate(one["payload"], places) for one in events if one["kind"] == "GateJudged")


def _answer(out: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(out.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _gate(one: Mapping[str, Any], places: Iterable[tuple[str, str]]) -> Gate:
    return Gate(
        name=str(one.get("gate", "")),
        status=str(one.get("status", "")),
        detail=cleaned(str(one.get("detail", "")), places),
        kind=str(one.get("failure_kind") or ""),
    )


def _failed(one: Mapping[str, Any], places: Iterable[tuple[str, str]]) -> Failed:
    # Its first line says which gate, the second what the gate said.
    lines = str(one.get("prior_failure_summary", "")).split("\n")
    return Failed(
        tier=str(one.get("tier") or ""),
        kind=str(one.get("failure_kind") or ""),
        gates=tuple(one.get("failing_gates") or ()),
        said=cleaned(next((line for line in lines[1:] if line.strip()), lines[0]), places),
    )
