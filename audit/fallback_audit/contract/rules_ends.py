"""Rules of the trace contract over how a fix ends with a patch: what was seen, and what was asked."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Run, Trail
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    FixEscalated,
    FixPatched,
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
    if judged(run, GateStatus.FAILED):
        yield seq, "a gate failed on this patch"
    for status, named in (
        (GateStatus.PASSED, end.gates_passed),
        (GateStatus.SKIPPED, end.gates_skipped),
    ):
        if set(named) != {verdict.gate for _, verdict in judged(run, status)}:
            yield seq, f"the gates named as {status} are not those on record"


def _passed(trail: Trail) -> list[GateJudged]:
    """What passed in the attempt in hand."""
    runs = trail.runs[-1:]
    return [verdict for run in runs for _, verdict in judged(run, GateStatus.PASSED)]


def _start(trail: Trail) -> FixStarted | None:
    return next((start.event for start in trail.of(FixStarted)), None)


def _proving_gates(trail: Trail) -> frozenset[str]:
    """Gates whose pass ends a fix as verified. Before schema version 7, when a fix did not say whose code
    is affected, passing tests were enough."""
    start = _start(trail)
    reported = start is not None and start.affected_code is not None
    return SHOWING_GATES[_code(trail)] if reported else PROVING_GATES


def _code(trail: Trail) -> AffectedCode:
    start = _start(trail)
    return (start.affected_code if start else None) or AffectedCode.DEPENDENCY


def judged(run: Run, status: GateStatus) -> list[tuple[int, GateJudged]]:
    """The verdicts of an attempt that ended so."""
    return [(e.seq, e.event) for e in run.of(GateJudged) if e.event.status is status]
