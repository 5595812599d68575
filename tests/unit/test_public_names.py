"""The public surface, pinned: a name that comes, goes or changes is seen in review."""

from typing import get_args

import pytest

import fallback_tier
from fallback_audit.events import KINDS, SCHEMA_VERSION, TERMINAL_KINDS, Event
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    Capability,
    DeliveryPlace,
    EscalationReason,
    FailureKind,
    GateStatus,
    LadderStep,
    ModelFailureKind,
    PromptShape,
    ProofLevel,
    Provenance,
    RefusalReason,
    RetrievalVerdict,
    Retrieve,
    ReviewVerdict,
    Support,
    Tier,
)


def test_exported_names() -> None:
    assert fallback_tier.__all__ == [
        "Advisory",
        "Applied",
        "AttemptSummary",
        "FallbackError",
        "FallbackTier",
        "Finished",
        "Refused",
        "RepoContext",
    ]
    for name in fallback_tier.__all__:
        assert getattr(fallback_tier, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        fallback_tier.Nothing  # noqa: B018


#: What stood in stored trails when schema version 16 was current: a kind may be added (then nothing changes
#: here), never renamed or removed.
EVENT_KINDS = {
    "AnswerReused",
    "AppendFlagged",
    "AttemptFailed",
    "AttemptRefused",
    "AttemptStarted",
    "BudgetRaised",
    "BudgetReached",
    "ConsumerLeft",
    "EvidenceCollected",
    "ExampleReplayed",
    "FixEscalated",
    "FixPatched",
    "FixRefused",
    "FixResumed",
    "FixStarted",
    "FixVerified",
    "GateJudged",
    "GroundingJudged",
    "GroundingNotEvaluated",
    "LowConfidenceFlagged",
    "ModelAnswered",
    "ModelCalled",
    "ModelFailed",
    "MoreCodeShown",
    "PatchDelivered",
    "PatchProposed",
    "PayloadRedacted",
    "PlanRejected",
    "RagSkippedOnRetry",
    "RecipeCandidateFailed",
    "RecipeEvaluated",
    "RecordBegunAgain",
    "RepeatedPatchRejected",
    "RetrievalQueried",
    "RetrieveDecided",
    "ReviewDecided",
    "SandboxDisabled",
    "SegmentRetired",
    "SegmentScored",
    "SegmentSealed",
    "SigningKeyRotated",
    "StrategyDegraded",
    "TransitionReopened",
}


def test_event_kinds() -> None:
    names = {one.__name__ for one in KINDS}
    assert {one.model_fields["kind"].default for one in KINDS} == names
    assert len(names) == len(KINDS)
    assert names >= EVENT_KINDS
    assert {"FixEscalated", "FixPatched", "FixRefused", "FixVerified"} <= TERMINAL_KINDS
    assert SCHEMA_VERSION >= 16


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_declared_whole(kind: type[Event]) -> None:
    assert kind.in_words is not Event.in_words
    assert kind.__doc__
    assert 1 <= kind.since <= SCHEMA_VERSION
    assert get_args(kind.model_fields["kind"].annotation) == (kind.__name__,)


CLOSED = {
    FailureKind: """
        patch_does_not_apply undeclared_change policy_violation resolution_failed still_vulnerable
        build_failed tests_failed tests_missing proof_failed custom_gate_failed undeclared_capability
        gate_timeout plan_invalid repeated_patch
    """,
    RefusalReason: """
        not_affected no_fixed_version ecosystem_unsupported manifest_missing blocked_by_constraint
        own_code whose_code_unclear recipe_unsupported resolver_failed tool_missing model_not_configured
        model_unavailable model_refused context_too_long budget_exhausted plan_invalid
        repeated_patch nothing_changed retry_cap_reached fails_together unknown release_too_new outside_paths
    """,
    EscalationReason: """
        retry_cap_reached same_failure_repeated gate_infrastructure model_unavailable
        budget_exhausted retry_refused nothing_proved tests_contradict_patch gates_failed_again
        gates_undecided
    """,
    Tier: "recipe rag llm",
    PromptShape: "initial retry none",
    CallType: "author judge critique rewrite",
    ModelFailureKind: """
        overloaded rate_limited timeout unreachable broken_stream context_too_long unauthorised
        unknown_model rejected server_error not_an_answer withheld
    """,
    Retrieve: "yes no continue",
    Support: "full partial none",
    BudgetLimit: "usd_per_fix usd_per_day tokens_per_fix tokens_per_day",
    Provenance: "live replayed scripted",
    RetrievalVerdict: "hit degraded miss",
    GateStatus: "passed failed skipped undecided",
    ProofLevel: "resolved_tree pins source proof_test tests_only",
    Capability: "process network dynamic_code unknown",
    ReviewVerdict: "approved rejected",
    DeliveryPlace: "working_tree branch",
    LadderStep: "lock_refresh direct_bump parent_bump override lock_edit",
}


@pytest.mark.parametrize("vocabulary", CLOSED, ids=lambda vocabulary: vocabulary.__name__)
def test_closed_vocabularies(vocabulary: type) -> None:
    assert [member.value for member in vocabulary] == CLOSED[vocabulary].split()  # type: ignore[attr-defined]
    for member in vocabulary:  # type: ignore[attr-defined]
        assert member.name == member.value.upper()
