"""Rules on gates and ends: proposals are judged, failures lead to retries, and an end is earned."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Kind, Removed, rule
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

# --- From a proposal to what follows from its gates. -----------------------------------------------

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
            following = run.next_of(seq, GateJudged, *_DECISIONS)
            decision = following.event if following else _successor(run)
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
        following = trail.act_after(seq)
        if following and type(following.event) not in _ANSWERS_TO_A_FAILURE:
            yield seq, f"AttemptFailed is followed by {following.event.kind}"


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
            if is_budget_stop(refusal):  # a budget can be raised: it ends no fix by itself
                allowed = (FixEscalated, AttemptStarted) if run.resumed else (FixEscalated,)
            if refusal.reason.is_attempt_failure:
                allowed = (AttemptFailed, *allowed)
            following = run.next_of(seq, *_DECISIONS)
            decision = following.event if following else _successor(run)
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
    """Return whether a refusal has this failure kind: those that are failures share the names."""
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


# --- What an end requires. -------------------------------------------------------------------------


@rule(
    "FixVerified is about the proposed patch; every gate that ran passed, one that sees the flaw gone.",
    "ADR-0038",
    breaches=(
        Removed(GateJudged),
        Altered(FixVerified, "patch_sha256"),
        Altered(FixVerified, "gates_passed"),
        Altered(FixVerified, "proof_level"),
        Altered(FixStarted, "affected_code"),
    ),
    sees={FixStarted, FixVerified, AttemptStarted, GateJudged},
)
def verified_is_proved(trail: Trail) -> Iterator[Finding]:
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


@rule(
    "FixPatched is about the proposed patch; every gate that ran passed, tests did, none saw more.",
    "ADR-0038",
    breaches=(
        Removed(GateJudged),
        Altered(FixPatched, "patch_sha256"),
        Altered(FixPatched, "gates_passed"),
        Altered(FixPatched, "proof_level"),
    ),
    sees={FixStarted, FixPatched, AttemptStarted, GateJudged},
)
def patched_is_tested(trail: Trail) -> Iterator[Finding]:
    for seq, patched in trail.of(FixPatched):
        passed = {verdict.gate for verdict in _passed(trail)}
        yield from _accepted(trail, seq, patched)
        if TESTS_GATE not in passed:
            yield seq, "the tests of the base commit did not pass"
        if not SHOWING_GATES[_code(trail)].isdisjoint(passed):
            yield seq, "a gate has shown the flaw gone, and the end says that none did"
        if patched.proof_level is not ProofLevel.TESTS_ONLY:
            yield seq, f"passing tests show no proof level {patched.proof_level}"


@rule(
    "If own code is affected, no patch comes from a recipe; if it is unclear whose code is affected, "
    "there is no patch.",
    "ADR-0037",
    breaches=(
        Altered(FixStarted, "affected_code"),
        Altered(RecipeEvaluated, "selected"),
        Altered(PatchProposed, "tier"),
    ),
    sees={FixStarted, RecipeEvaluated, PatchProposed},
)
def own_code_takes_no_recipe(trail: Trail) -> Iterator[Finding]:
    code = _code(trail)
    events = () if code is AffectedCode.DEPENDENCY else trail.any_of(RecipeEvaluated, PatchProposed)
    for seq, event in events:
        if isinstance(event, RecipeEvaluated) and event.selected:
            yield seq, f"affected is {code} code, and a recipe was selected"
        if isinstance(event, PatchProposed) and (
            event.tier is Tier.RECIPE or code is AffectedCode.UNCLEAR
        ):
            yield seq, f"affected is {code} code, and there is a patch by the {event.tier} tier"


@rule(
    "A question about tests that contradict a patch follows an attempt that failed in the tests.",
    "ADR-0038",
    breaches=(
        Removed(AttemptFailed),
        Altered(FixEscalated, "reason"),
        Altered(AttemptFailed, "failing_gates"),
    ),
    sees={FixEscalated, AttemptFailed},
)
def contradictions_are_real(trail: Trail) -> Iterator[Finding]:
    questions = [
        seq
        for seq, end in trail.of(FixEscalated)
        if end.reason is EscalationReason.TESTS_CONTRADICT_PATCH
    ]
    failed = any(
        failure.failure_kind is FailureKind.TESTS_FAILED and TESTS_GATE in failure.failing_gates
        for _, failure in trail.of(AttemptFailed)
    )
    for seq in questions if not failed else ():
        yield seq, "no attempt failed by the tests of the base commit"


@rule(
    "A patch that a gate could not decide about never ends a fix: it fails, or a person is asked.",
    "ADR-0077",
    breaches=(
        Altered(GateJudged, "status"),
        Altered(FixEscalated, "reason"),
        Removed(GateJudged),
    ),
    sees={AttemptStarted, GateJudged, FixVerified, FixPatched, FixEscalated},
)
def undecided_is_asked(trail: Trail) -> Iterator[Finding]:
    """Such a question has such a verdict on record, of the attempt in hand."""
    runs = trail.runs[-1:]
    gates = [verdict.gate for run in runs for _, verdict in judged(run, GateStatus.UNDECIDED)]
    for seq, end in trail.any_of(FixVerified, FixPatched) if gates else []:
        yield seq, f"gate {gates[0]!r} was undecided, and the end is {end.kind}"
    for seq, end in trail.of(FixEscalated):
        if end.reason is EscalationReason.GATES_UNDECIDED and not gates:
            yield seq, "no gate was undecided about this patch"


@rule(
    "A patch that ends a fix was judged by each gate that the fix set out with, in order, by no other.",
    "ADR-0028",
    breaches=(
        Removed(GateJudged),
        Altered(FixStarted, "gates"),
    ),
    sees={FixStarted, AttemptStarted, GateJudged, FixVerified, FixPatched},
)
def verified_ran_its_gates(trail: Trail) -> Iterator[Finding]:
    """Before schema version 5 a FixStarted named neither gates nor inputs."""
    start = _start(trail)
    planned = start.gates if start else ()
    names_gates = start is not None and (planned or start.inputs_sha256)
    ends = trail.any_of(FixVerified, FixPatched) if names_gates and trail.runs else []
    for seq, _ in ends:
        judged = tuple(verdict.event.gate for verdict in trail.runs[-1].of(GateJudged))
        if judged != planned:
            yield seq, f"the gates judged are not those planned: {', '.join(planned)}"


def _accepted(trail: Trail, seq: int, end: FixVerified | FixPatched) -> Iterator[Finding]:
    """Check what both ends with a patch require: it was proposed, no gate failed, the gates are named."""
    run = trail.runs[-1] if trail.runs else None
    if run is None or end.attempt != run.attempt:
        yield seq, f"attempt {end.attempt} is not the one in hand"
        return
    proposed = [(patch.patch_sha256, patch.tier) for _, patch in run.of(PatchProposed)]
    if (end.patch_sha256, end.tier) not in proposed:
        yield seq, "this patch was not proposed in the attempt"
    if judged(run, GateStatus.FAILED):
        yield seq, "a gate failed on this patch"
    for status, gates in (
        (GateStatus.PASSED, end.gates_passed),
        (GateStatus.SKIPPED, end.gates_skipped),
    ):
        if set(gates) != {verdict.gate for _, verdict in judged(run, status)}:
            yield seq, f"the gates named as {status} are not those on record"


def _passed(trail: Trail) -> list[GateJudged]:
    """Return the verdicts that passed in the last attempt."""
    runs = trail.runs[-1:]
    return [verdict for run in runs for _, verdict in judged(run, GateStatus.PASSED)]


def _start(trail: Trail) -> FixStarted | None:
    return next((start.event for start in trail.of(FixStarted)), None)


def _proving_gates(trail: Trail) -> frozenset[str]:
    """Return the gates whose pass ends a fix as verified.

    Before schema version 7, when a fix did not record whose code is affected, passing tests were enough.
    """
    start = _start(trail)
    names_code = start is not None and start.affected_code is not None
    return SHOWING_GATES[_code(trail)] if names_code else PROVING_GATES


def _code(trail: Trail) -> AffectedCode:
    start = _start(trail)
    return (start.affected_code if start else None) or AffectedCode.DEPENDENCY


def judged(run: Run, status: GateStatus) -> list[tuple[int, GateJudged]]:
    """Return an attempt's verdicts with this status, with their numbers."""
    return [(e.seq, e.event) for e in run.of(GateJudged) if e.event.status is status]
