"""Valid trails as schema version 7 writes them, which say whose code is affected, and their mutants."""

from collections.abc import Callable

from fallback_audit.events import (
    AttemptFailed,
    AuditEvent,
    FixEscalated,
    FixPatched,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
)
from fallback_audit.vocabulary import (
    AffectedCode,
    DecidedBy,
    EscalationReason,
    FailureKind,
    GateStatus,
    ProofLevel,
    Tier,
)
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, changed, digest, without

GATES = ("applies", "not_vulnerable", "proof", "tests")


def begun(code: AffectedCode) -> AuditEvent:
    own = ("shop",) if code is AffectedCode.OWN else ()
    more = {
        "gates": GATES,
        "inputs_sha256": digest("inputs"),
        "affected_code": code,
        "decided_by": DecidedBy.MANIFEST,
        "own_packages": own,
    }
    return t.fix_started().model_copy(update=more)


def verdicts(**levels: ProofLevel | None) -> Events:
    """The gates named pass, with what they show; the others are skipped."""
    found = []
    for gate in GATES:
        status = GateStatus.PASSED if gate in levels else GateStatus.SKIPPED
        judged = t.judged(1, gate, status)
        found.append(judged.model_copy(update={"proof_level": levels.get(gate)}))
    return found


def _end(
    kind: type[FixVerified] | type[FixPatched], tier: Tier, level: ProofLevel, *gates: str
) -> AuditEvent:
    return kind(
        attempt=1,
        tier=tier,
        patch_sha256=digest("patch 1"),
        proof_level=level,
        gates_passed=gates,
        gates_skipped=tuple(gate for gate in GATES if gate not in gates),
    )


def dependency_verified() -> Events:
    """Its versions were looked at; no test ran."""
    level = ProofLevel.RESOLVED_TREE
    gates = verdicts(applies=None, not_vulnerable=level)
    end = _end(FixVerified, Tier.RECIPE, level, "applies", "not_vulnerable")
    return [begun(AffectedCode.DEPENDENCY), *t.first_by_recipe(), *gates, end]


def dependency_proved() -> Events:
    """By a proof alone: its versions could not be read."""
    level = ProofLevel.PROOF_TEST
    gates = verdicts(applies=None, proof=level)
    end = _end(FixVerified, Tier.RECIPE, level, "applies", "proof")
    return [begun(AffectedCode.DEPENDENCY), *t.first_by_recipe(), *gates, end]


def own_code_proved() -> Events:
    level = ProofLevel.PROOF_TEST
    gates = verdicts(applies=None, proof=level, tests=None)
    end = _end(FixVerified, Tier.LLM, level, "applies", "proof", "tests")
    return [begun(AffectedCode.OWN), *t.first_by_model(), *gates, end]


def own_code_patched() -> Events:
    gates = verdicts(applies=None, tests=None)
    end = _end(FixPatched, Tier.LLM, ProofLevel.TESTS_ONLY, "applies", "tests")
    return [begun(AffectedCode.OWN), *t.first_by_model(), *gates, end]


def tests_contradict() -> Events:
    """The proof passes, and a test of the base commit asserts what was."""
    broken = ("test_follows_links",)
    judged = [*verdicts(applies=None, proof=ProofLevel.PROOF_TEST)[:-1]]
    judged += [t.judged(1, "tests", GateStatus.FAILED).model_copy(update={"broken": broken})]
    failed = t.failed(1, "tests").model_copy(update={"contradicting_tests": broken})
    refused = [t.started(2, 1), t.skipped(2, 1), t.called(2), t.unanswered(2)]
    end = t.escalated(2, EscalationReason.TESTS_CONTRADICT_PATCH)
    last = [t.refused(2, t.RefusalReason.MODEL_REFUSED), end]
    return [begun(AffectedCode.OWN), *t.first_by_model(), *judged, failed, *refused, *last]


def declared_on_retry() -> Events:
    """The edits were right, and their plan had not said what they reach for."""
    kind = FailureKind.UNDECLARED_CAPABILITY
    capability = t.judged(1, "applies", GateStatus.FAILED).model_copy(update={"failure_kind": kind})
    failed = t.failed(1, "applies", kind=kind)
    skipped = t.skipped(2, 1).model_copy(update={"last_failure_kind": kind})
    again = t.proposed(2).model_copy(update={"edit_digest": digest("edit 1")})
    retry = [t.started(2, 1), skipped, t.called(2), t.answered(2), t.ungrounded(2), again]
    return [
        t.fix_started(),
        *t.first_by_model(),
        capability,
        failed,
        *retry,
        *t.passing_gates(2),
        t.verified(2),
    ]


def undecided_and_asked() -> Events:
    """Its versions are proved, and its tests ran on another Python than those of the base commit."""
    gates = verdicts(applies=None, not_vulnerable=ProofLevel.RESOLVED_TREE)
    tests = t.judged(1, "tests", GateStatus.UNDECIDED)
    ask = t.escalated(1, EscalationReason.GATES_UNDECIDED)
    return [begun(AffectedCode.DEPENDENCY), *t.first_by_recipe(), *gates[:-1], tests, ask]


def undecided_for_flaky_tests() -> Events:
    """Tests that fail now and then at the base commit never passed with the patch (ADR-0078)."""
    return changed(undecided_and_asked(), GateJudged, flaky=("test_clock",))


PROOF_VALID = (
    undecided_and_asked,
    undecided_for_flaky_tests,
    declared_on_retry,
    dependency_verified,
    dependency_proved,
    own_code_proved,
    own_code_patched,
    tests_contradict,
)

PROOF_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "undecided-is-asked": [
        lambda: [*undecided_and_asked()[:-1], dependency_verified()[-1]],
        lambda: [*dependency_verified()[:-1], undecided_and_asked()[-1]],
        lambda: [
            *own_code_patched()[:-2],
            t.judged(1, "tests", GateStatus.UNDECIDED),
            own_code_patched()[-1],
        ],
    ],
    "patched-is-tested": [
        lambda: changed(own_code_patched(), FixPatched, patch_sha256=digest("another")),
        lambda: changed(own_code_patched(), FixPatched, gates_passed=("applies",)),
        lambda: changed(own_code_patched(), FixPatched, proof_level=ProofLevel.PROOF_TEST),
        lambda: [
            *own_code_proved()[:-1],
            _end(FixPatched, Tier.LLM, ProofLevel.TESTS_ONLY, "applies", "proof", "tests"),
        ],
        lambda: [
            begun(AffectedCode.OWN),
            *t.first_by_model(),
            *verdicts(applies=None),
            _end(FixPatched, Tier.LLM, ProofLevel.TESTS_ONLY, "applies"),
        ],
    ],
    "own-code-takes-no-recipe": [
        lambda: changed(dependency_proved(), FixStarted, affected_code=AffectedCode.OWN),
        lambda: changed(own_code_proved(), RecipeEvaluated, selected=True),
        lambda: changed(own_code_proved(), PatchProposed, tier=Tier.RECIPE),
    ],
    "contradictions-are-real": [
        lambda: changed(
            t.infrastructure_failed(), FixEscalated, reason=EscalationReason.TESTS_CONTRADICT_PATCH
        ),
        lambda: changed(
            changed(tests_contradict(), AttemptFailed, failure_kind=FailureKind.TESTS_MISSING),
            GateJudged,
            3,
            failure_kind=FailureKind.TESTS_MISSING,
        ),
        lambda: without(tests_contradict(), AttemptFailed),
    ],
}

#: More mutants for a rule whose first ones are elsewhere.
PROOF_ALSO: dict[str, list[Callable[[], Events]]] = {
    "edits-are-new": [
        lambda: changed(
            changed(
                changed(declared_on_retry(), AttemptFailed, failure_kind=FailureKind.BUILD_FAILED),
                GateJudged,
                failure_kind=FailureKind.BUILD_FAILED,
            ),
            RagSkippedOnRetry,
            last_failure_kind=FailureKind.BUILD_FAILED,
        ),
    ],
    "verified-is-proved": [
        # The suite passes, and that is all: no end in "verified", whosever code it is.
        lambda: [
            *own_code_patched()[:-1],
            _end(FixVerified, Tier.LLM, ProofLevel.SOURCE, "applies", "tests"),
        ],
        lambda: [
            begun(AffectedCode.DEPENDENCY),
            *own_code_patched()[1:-1],
            _end(FixVerified, Tier.LLM, ProofLevel.SOURCE, "applies", "tests"),
        ],
        lambda: changed(own_code_proved(), FixVerified, proof_level=ProofLevel.RESOLVED_TREE),
    ],
}
