"""Rules of the trace contract over a whole gate transition: gates, retries, terminal events.

What a gate runner must do is asked where one kept the trail (``trail.managed``).
"""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Kind, Removed, rule
from fallback_audit.contract.rules_ends import judged
from fallback_audit.contract.trail import (
    AFTER_THE_END,
    TERMINALS,
    Finding,
    Run,
    Trail,
    is_budget_stop,
)
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchProposed,
    RecipeCandidateFailed,
)
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    GateStatus,
)

#: Identical failure signatures that stop a fix (ADR-0014); a test compares it with the runner's.
SAME_FAILURE_LIMIT = 3

_DECISIONS: tuple[Kind, ...] = (AttemptStarted, AttemptFailed, *TERMINALS)

_ANSWERS_TO_A_PATCH = frozenset({GateJudged, FixEscalated})
_ANSWERS_TO_A_FAILURE = frozenset({AttemptStarted, FixEscalated, FixRefused})


@rule(
    "A proposed patch is judged by a gate, or a person is asked.",
    "ADR-0070",
    breaches=(Removed(GateJudged),),
    sees={FixStarted, AttemptStarted, AttemptFailed, FixVerified, FixPatched, FixRefused},
    local=True,
)
def proposals_are_judged(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs if trail.managed else ():
        for seq, _ in run.of(PatchProposed):
            follows = run.next_of(seq, GateJudged, *_DECISIONS)
            decision = follows.event if follows else _successor(run)
            if decision is not None and type(decision) not in _ANSWERS_TO_A_PATCH:
                yield seq, f"no gate judged this patch before {decision.kind}"


@rule(
    "A gate judges a proposed patch once, with a failure kind exactly where it failed.",
    "ADR-0070",
    breaches=(
        Added(GateJudged),
        Altered(GateJudged, "failure_kind"),
    ),
    sees={GateJudged},
    local=True,
)
def gates_judge_proposals(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        patches = run.of(PatchProposed)
        judged: set[str] = set()
        for seq, verdict in run.of(GateJudged):
            if not patches or seq < patches[0].seq:
                yield seq, f"gate {verdict.gate!r} judged before a patch was proposed"
            if (verdict.status is GateStatus.FAILED) is (verdict.failure_kind is None):
                yield seq, f"gate {verdict.gate!r}: {verdict.status} and its failure kind disagree"
            if verdict.gate in judged:
                yield seq, f"gate {verdict.gate!r} judged twice"
            if verdict.flaky and verdict.status is GateStatus.SKIPPED:
                yield seq, f"gate {verdict.gate!r} was {verdict.status}, and names flaky tests"
            judged.add(verdict.gate)


@rule(
    "A failed gate makes the attempt, or the recipe's candidate, fail.",
    "ADR-0070",
    breaches=(Removed(AttemptFailed),),
    sees={GateJudged, AttemptStarted, *TERMINALS},
    local=True,
)
def failed_gates_act(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        for seq, verdict in judged(run, GateStatus.FAILED):
            if run.went_on and run.next_of(seq, AttemptFailed, RecipeCandidateFailed) is None:
                yield seq, f"gate {verdict.gate!r} failed, and the attempt did not"


@rule(
    "AttemptFailed names the gates that failed, or comes from a refusal of that kind.",
    "ADR-0070",
    breaches=(
        Removed(GateJudged),
        Altered(AttemptFailed, "failing_gates"),
        Altered(AttemptFailed, "failure_kind"),
    ),
    sees={AttemptFailed, GateJudged},
    local=True,
)
def failures_have_grounds(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        for seq, failure in run.of(AttemptFailed):
            failed = [verdict for _, verdict in judged(run, GateStatus.FAILED)]
            refused = [e.event.reason for e in run.of(AttemptRefused)]
            if failed:
                if set(failure.failing_gates) != {verdict.gate for verdict in failed}:
                    yield seq, "failing_gates are not the gates that failed"
                if failure.failure_kind not in {verdict.failure_kind for verdict in failed}:
                    yield seq, f"no failed gate has the kind {failure.failure_kind}"
            elif not any(_same(reason.value, failure.failure_kind) for reason in refused):
                yield seq, "no gate failed, and the attempt was not refused for this"


@rule(
    "A failed attempt leads to another attempt, or ends the fix without a patch.",
    "ADR-0070",
    breaches=(
        Removed(AttemptStarted),
        Added(GateJudged),
    ),
    sees=None,
)
def failed_attempts_act(trail: Trail) -> Iterator[Finding]:
    for seq, _ in trail.of(AttemptFailed):
        follows = trail.act_after(seq)
        if follows and type(follows.event) not in _ANSWERS_TO_A_FAILURE:
            yield seq, f"AttemptFailed is followed by {follows.event.kind}"


@rule(
    "A refused attempt fails where a fresh context may do better, else the fix ends.",
    "ADR-0070",
    breaches=(
        Removed(AttemptFailed),
        Altered(AttemptRefused, "reason"),
    ),
    sees={FixStarted, AttemptStarted, AttemptFailed, *TERMINALS},
    local=True,
)
def refusals_act(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs if trail.managed else ():
        for seq, refusal in run.of(AttemptRefused):
            allowed: tuple[type, ...] = (FixRefused, FixEscalated)
            if is_budget_stop(refusal):  # can be raised, so it is never the end by itself
                allowed = (FixEscalated, AttemptStarted) if run.resumed else (FixEscalated,)
            if refusal.reason.is_attempt_failure:
                allowed = (AttemptFailed, *allowed)
            follows = run.next_of(seq, *_DECISIONS)
            decision = follows.event if follows else _successor(run)
            if decision is not None and not isinstance(decision, allowed):
                yield seq, f"refused ({refusal.reason}), then {decision.kind}"


@rule(
    "A retry follows a failed attempt, or resumes an interrupted one.",
    "ADR-0070",
    breaches=(Removed(AttemptFailed),),
    sees={FixStarted, AttemptStarted},
    local=True,
)
def retries_follow_failures(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs if trail.managed else ():
        ended = run.keeps_its_number or run.of(AttemptFailed)
        if run.successor and not ended:
            yield run.successor.start.seq, f"attempt {run.attempt} had not failed"


@rule(
    "After three identical failures no further attempt starts.",
    "ADR-0014",
    breaches=(Added(AttemptStarted),),
    sees={AttemptStarted},
)
def same_failure_stops(trail: Trail) -> Iterator[Finding]:
    signatures: list[str] = []
    for seq, event in trail.any_of(AttemptFailed, AttemptStarted):
        if type(event) is AttemptFailed:
            signatures.append(event.failure_signature)
        elif _repeated(signatures):
            yield seq, f"another attempt after {SAME_FAILURE_LIMIT} identical failures"


@rule(
    "An escalation for a repeated failure has three identical ones on record.",
    "ADR-0014",
    breaches=(
        Altered(FixEscalated, "reason"),
        Altered(AttemptFailed, "failure_signature"),
    ),
    sees={FixEscalated, AttemptFailed},
)
def same_failure_is_real(trail: Trail) -> Iterator[Finding]:
    signatures = [failure.event.failure_signature for failure in trail.of(AttemptFailed)]
    for seq, escalation in trail.of(FixEscalated):
        if escalation.reason is EscalationReason.SAME_FAILURE_REPEATED and not _repeated(
            signatures
        ):
            yield seq, f"escalated without {SAME_FAILURE_LIMIT} identical failures"


def _successor(run: Run) -> AttemptStarted | None:
    return run.successor.start.event if run.successor else None


def _repeated(signatures: list[str]) -> bool:
    last = signatures[-SAME_FAILURE_LIMIT:]
    return len(last) == SAME_FAILURE_LIMIT and len(set(last)) == 1


def _same(reason: str, kind: FailureKind) -> bool:
    """A refusal that is an attempt's failure has the failure kind of the same name."""
    return reason == kind.value


@rule(
    "FixStarted is recorded once and first, and only a started fix ends.",
    "ADR-0028",
    breaches=(
        Removed(FixStarted),
        Added(FixStarted),
    ),
    sees={FixStarted, *TERMINALS},
)
def fix_starts_first(trail: Trail) -> Iterator[Finding]:
    starts = trail.of(FixStarted)
    for seq, _ in starts[1:]:
        yield seq, "the fix was started twice"
    if starts and trail.entries[0].seq != starts[0].seq:
        yield starts[0].seq, "events stand before FixStarted"
    if trail.terminal and not starts:
        yield trail.terminal.seq, f"{trail.terminal.event.kind} of a fix that was never started"


@rule(
    "A finished fix has exactly one of verified, patched, refused, escalated; only a delivery, an "
    "answer or a reopening follows.",
    "ADR-0029",
    breaches=(
        Added(FixVerified),
        Added(FixPatched),
        Added(FixEscalated),
        Added(AttemptStarted),
    ),
    sees=None,
)
def one_terminal_event(trail: Trail) -> Iterator[Finding]:
    if trail.terminal:
        for seq, event in trail.entries:
            if seq > trail.terminal.seq and not isinstance(event, AFTER_THE_END):
                yield seq, f"{event.kind} after the fix had ended ({trail.terminal.event.kind})"
