"""Predicates of the trace contract over a whole gate transition: gates, retries, terminal events.

As in ``rules_attempt``, each takes a trail and yields (seq, what is wrong there). Rules about what
a gate runner must do hold where one kept the trail (``trail.managed``).
"""

from collections.abc import Iterator

from fallback_audit.contract.trail import (
    AFTERWORDS,
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
    RecipeEvaluated,
)
from fallback_audit.vocabulary import (
    PROVING_GATES,
    SHOWING_GATES,
    TESTS_GATE,
    AffectedCode,
    EscalationReason,
    FailureKind,
    GateStatus,
    ProofLevel,
    Tier,
)

#: Identical failure signatures that stop a fix (DESIGN §7); a test compares it with the runner's.
SAME_FAILURE_LIMIT = 3

_DECISIONS = (AttemptStarted, AttemptFailed, *TERMINALS)

_ANSWERS_TO_A_PATCH = frozenset({GateJudged, FixEscalated})
_ANSWERS_TO_A_FAILURE = frozenset({AttemptStarted, FixEscalated, FixRefused})


def fix_starts_first(trail: Trail) -> Iterator[Finding]:
    """FixStarted stands once and first; without it there is nothing to end."""
    starts = trail.of(FixStarted)
    for seq, _ in starts[1:]:
        yield seq, "the fix was started twice"
    if starts and trail.entries[0].seq != starts[0].seq:
        yield starts[0].seq, "events stand before FixStarted"
    if trail.terminal and not starts:
        yield trail.terminal.seq, f"{trail.terminal.event.kind} of a fix that was never started"


def one_terminal_event(trail: Trail) -> Iterator[Finding]:
    """A finished fix has exactly one terminal event, and only afterwords behind it."""
    if trail.terminal:
        for seq, event in trail.entries:
            if seq > trail.terminal.seq and not isinstance(event, AFTERWORDS):
                yield seq, f"{event.kind} after the fix had ended ({trail.terminal.event.kind})"


def proposals_are_judged(trail: Trail) -> Iterator[Finding]:
    """A gate judges a proposed patch before anything is decided; else a person is asked."""
    for run in trail.runs if trail.managed else ():
        for seq, _ in run.of(PatchProposed):
            follows = run.next_of(seq, GateJudged, *_DECISIONS)
            decision = follows.event if follows else _successor(run)
            if decision is not None and type(decision) not in _ANSWERS_TO_A_PATCH:
                yield seq, f"no gate judged this patch before {decision.kind}"


def gates_judge_proposals(trail: Trail) -> Iterator[Finding]:
    """A verdict is about a proposed patch, given once, with a failure kind where it failed."""
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
                yield seq, f"gate {verdict.gate!r} was skipped, and names flaky tests"
            judged.add(verdict.gate)


def failed_gates_act(trail: Trail) -> Iterator[Finding]:
    """A failed gate makes the attempt fail."""
    for run in trail.runs:
        for seq, verdict in _judged(run, GateStatus.FAILED):
            if run.went_on and run.next_of(seq, AttemptFailed) is None:
                yield seq, f"gate {verdict.gate!r} failed, and the attempt did not"


def failed_attempts_act(trail: Trail) -> Iterator[Finding]:
    """A failed attempt leads to another attempt, or to the end of the fix without a patch."""
    for seq, _ in trail.of(AttemptFailed):
        follows = trail.act_after(seq)
        if follows and type(follows.event) not in _ANSWERS_TO_A_FAILURE:
            yield seq, f"AttemptFailed is followed by {follows.event.kind}"


def failures_have_grounds(trail: Trail) -> Iterator[Finding]:
    """AttemptFailed names the failed gates and one of their kinds, or follows a refusal."""
    for run in trail.runs:
        for seq, failure in run.of(AttemptFailed):
            failed = [verdict for _, verdict in _judged(run, GateStatus.FAILED)]
            refused = [e.event.reason for e in run.of(AttemptRefused)]
            if failed:
                if set(failure.failing_gates) != {verdict.gate for verdict in failed}:
                    yield seq, "failing_gates are not the gates that failed"
                if failure.failure_kind not in {verdict.failure_kind for verdict in failed}:
                    yield seq, f"no failed gate has the kind {failure.failure_kind}"
            elif not any(_same(reason.value, failure.failure_kind) for reason in refused):
                yield seq, "no gate failed, and the attempt was not refused for this"


def refusals_act(trail: Trail) -> Iterator[Finding]:
    """A refused attempt fails where a fresh context may do better; else the fix ends."""
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


def retries_follow_failures(trail: Trail) -> Iterator[Finding]:
    """A retry is started by a failed attempt, or takes up an interrupted one."""
    for run in trail.runs if trail.managed else ():
        if run.successor and not run.interrupted and not run.of(AttemptFailed):
            yield run.successor.start.seq, f"attempt {run.attempt} had not failed"


def same_failure_stops(trail: Trail) -> Iterator[Finding]:
    """After SAME_FAILURE_LIMIT failures of one signature nothing is tried again."""
    signatures: list[str] = []
    for seq, event in trail.any_of(AttemptFailed, AttemptStarted):
        if type(event) is AttemptFailed:
            signatures.append(event.failure_signature)
        elif _repeated(signatures):
            yield seq, f"another attempt after {SAME_FAILURE_LIMIT} identical failures"


def same_failure_is_real(trail: Trail) -> Iterator[Finding]:
    """An escalation for a repeated failure has SAME_FAILURE_LIMIT identical ones on record."""
    signatures = [failure.event.failure_signature for failure in trail.of(AttemptFailed)]
    for seq, escalation in trail.of(FixEscalated):
        if escalation.reason is EscalationReason.SAME_FAILURE_REPEATED and not _repeated(
            signatures
        ):
            yield seq, f"escalated without {SAME_FAILURE_LIMIT} identical failures"


def verified_is_proved(trail: Trail) -> Iterator[Finding]:
    """FixVerified is about the last proposed patch, which every gate that ran has passed, and one of those
    that can see the flaw gone did."""
    for seq, verified in trail.of(FixVerified):
        passed = _passed(trail)
        yield from _accepted(trail, seq, verified)
        gates = _proving_gates(trail)
        if gates.isdisjoint(verdict.gate for verdict in passed):
            yield seq, "no gate that could prove this patch passed"
        shown = [verdict.proof_level for verdict in passed]
        first = next(filter(None, shown), None)
        if verified.proof_level is not (first or verified.proof_level) or (
            first is None and gates is not PROVING_GATES
        ):
            yield seq, f"no gate has shown proof level {verified.proof_level}"


def patched_is_tested(trail: Trail) -> Iterator[Finding]:
    """FixPatched is about the last proposed patch, whose tests passed; and says that nothing shows more."""
    for seq, patched in trail.of(FixPatched):
        passed = {verdict.gate for verdict in _passed(trail)}
        yield from _accepted(trail, seq, patched)
        if TESTS_GATE not in passed:
            yield seq, "the tests of the base commit did not pass"
        if not SHOWING_GATES[_code(trail)].isdisjoint(passed):
            yield seq, "a gate has shown the flaw gone, and the end says that none did"
        if patched.proof_level is not ProofLevel.TESTS_ONLY:
            yield seq, f"passing tests show no proof level {patched.proof_level}"


def own_code_takes_no_recipe(trail: Trail) -> Iterator[Finding]:
    """Where the repository's own code is affected, no version of anything else is the fix; where nobody
    can tell whose is, there is none."""
    code = _code(trail)
    events = () if code is AffectedCode.DEPENDENCY else trail.any_of(RecipeEvaluated, PatchProposed)
    for seq, event in events:
        if isinstance(event, RecipeEvaluated) and event.selected:
            yield seq, f"affected is {code} code, and a recipe was selected"
        if isinstance(event, PatchProposed) and (
            event.tier is Tier.RECIPE or code is AffectedCode.UNCLEAR
        ):
            yield seq, f"affected is {code} code, and there is a patch by the {event.tier} tier"


def contradictions_are_real(trail: Trail) -> Iterator[Finding]:
    """A question about tests that contradict a patch has an attempt on record that failed by tests."""
    asked = [
        seq
        for seq, end in trail.of(FixEscalated)
        if end.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    ]
    failed = any(
        failure.failure_kind is FailureKind.TESTS_FAILED and TESTS_GATE in failure.failing_gates
        for _, failure in trail.of(AttemptFailed)
    )
    for seq in asked if not failed else ():
        yield seq, "no attempt failed by the tests of the base commit"


def verified_ran_its_gates(trail: Trail) -> Iterator[Finding]:
    """What the fix set out to judge its patch by was judged, in that order, and nothing else.

    Before schema version 5 a FixStarted named neither gates nor inputs.
    """
    start = _start(trail)
    planned = start.gates if start else ()
    tells = start is not None and (planned or start.inputs_sha256)
    ends = trail.any_of(FixVerified, FixPatched) if tells and trail.runs else []
    for seq, _ in ends:
        judged = tuple(verdict.event.gate for verdict in trail.runs[-1].of(GateJudged))
        if judged != planned:
            yield seq, f"the gates judged are not those planned: {', '.join(planned)}"


def _accepted(trail: Trail, seq: int, end: FixVerified | FixPatched) -> Iterator[Finding]:
    """What holds of both ends with a patch: it was proposed, nothing failed, and the gates are named."""
    run = trail.runs[-1] if trail.runs else None
    if run is None or end.attempt != run.attempt:
        yield seq, f"attempt {end.attempt} is not the one in hand"
        return
    proposed = [(patch.patch_sha256, patch.tier) for _, patch in run.of(PatchProposed)]
    if (end.patch_sha256, end.tier) not in proposed:
        yield seq, "this patch was not proposed in the attempt"
    if _judged(run, GateStatus.FAILED):
        yield seq, "a gate failed on this patch"
    for status, named in (
        (GateStatus.PASSED, end.gates_passed),
        (GateStatus.SKIPPED, end.gates_skipped),
    ):
        if set(named) != {verdict.gate for _, verdict in _judged(run, status)}:
            yield seq, f"the gates named as {status} are not those on record"


def _passed(trail: Trail) -> list[GateJudged]:
    """What passed in the attempt in hand."""
    runs = trail.runs[-1:]
    return [verdict for run in runs for _, verdict in _judged(run, GateStatus.PASSED)]


def _start(trail: Trail) -> FixStarted | None:
    return next((start.event for start in trail.of(FixStarted)), None)


def _proving_gates(trail: Trail) -> frozenset[str]:
    """Gates whose pass ends a fix as verified. Before schema version 7, when a fix did not say whose code
    is affected, passing tests were enough."""
    start = _start(trail)
    told = start is not None and start.affected_code is not None
    return SHOWING_GATES[_code(trail)] if told else PROVING_GATES


def _code(trail: Trail) -> AffectedCode:
    start = _start(trail)
    return (start.affected_code if start else None) or AffectedCode.DEPENDENCY


def _judged(run: Run, status: GateStatus) -> list[tuple[int, GateJudged]]:
    return [(e.seq, e.event) for e in run.of(GateJudged) if e.event.status is status]


def _successor(run: Run) -> AttemptStarted | None:
    return run.successor.start.event if run.successor else None


def _repeated(signatures: list[str]) -> bool:
    last = signatures[-SAME_FAILURE_LIMIT:]
    return len(last) == SAME_FAILURE_LIMIT and len(set(last)) == 1


def _same(reason: str, kind: FailureKind) -> bool:
    """A refusal that is an attempt's failure has the failure kind of the same name."""
    return reason == kind.value
