"""Every text member of every event is either somebody's words, or known not to be."""

from collections.abc import Iterator
from typing import Annotated, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fallback_audit.event_types import FREE_TEXT, Blocker, StepDeclined
from fallback_audit.events import AuditEvent, FixRefused, SandboxDisabled, event_adapter
from fallback_audit.retention.free_text import REDACTED, free_text_fields, residue, with_words
from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from tests.unit.audit import trails

#: Text that rules, readers or a resumed run go by, and that a program of ours chose, or a registry.
STRUCTURAL = {
    "AppendFlagged": {"rule"},
    "AnswerReused": {"answer_evidence", "answer_sha256", "example_ids", "model", "request_key"},
    "AttemptFailed": {"edit_digest", "failing_gates", "failure_signature", "summary_sha256"},
    "AttemptStarted": {"advisory_id", "evidence_store"},
    "BudgetRaised": {"usd_per_fix"},
    "BudgetReached": {"cap", "used", "wanted"},
    "ConsumerLeft": {"resume_rule"},
    "EvidenceCollected": {"list_sha256", "older_than"},
    "ExampleReplayed": {"example_id"},
    "FixEscalated": {"evidence_sha256"},
    "FixResumed": {"after", "evidence_store", "tool_version"},
    "FixStarted": {
        "advisory_id",
        "advisory_ids",
        "base_commit",
        "batch_sha256",
        "ecosystem",
        "evidence_store",
        "gates",
        "in_part",
        "inputs_sha256",
        "judges_again",
        "linked_transition",
        "own_packages",
        "tool_version",
    },
    "FixPatched": {"gates_passed", "gates_skipped", "patch_sha256"},
    "FixVerified": {"gates_passed", "gates_skipped", "patch_sha256"},
    "GateJudged": {"evidence_sha256", "gate", "resolutions"},
    "GroundingJudged": {"judge_model", "judgement_sha256"},
    "ModelAnswered": {"answer_evidence", "answer_sha256", "cost_usd_estimate"},
    "ModelCalled": {"example_ids", "model", "prompt_evidence", "prompt_sha256", "request_key"},
    "PatchDelivered": {"patch_sha256"},
    "PatchProposed": {
        "application_sha256",
        "edit_digest",
        "patch_sha256",
        "remediation_sha256",
        "taken_from",
    },
    "PayloadRedacted": {"fields", "payload_sha256", "tombstone_sha256"},
    "RagSkippedOnRetry": {"summary_sha256"},
    "RecipeCandidateFailed": {"failing_gates", "patch_sha256"},
    "RecipeEvaluated": {"recipe"},
    "RecordBegunAgain": {"lost_sha256"},
    "RepeatedPatchRejected": {"edit_digest"},
    "RetrievalQueried": {"account_sha256", "example_ids"},
    "ReviewDecided": {"patch_sha256"},
    "SegmentRetired": {"sha256"},
    "SegmentScored": {"example_id"},
    "SegmentSealed": {"sha256"},
    "SigningKeyRotated": {"new_vkey", "old_vkey"},
    "TransitionReopened": {"judges_again", "opens"},
}

EVENTS: tuple[type[AuditEvent], ...] = get_args(get_args(AuditEvent)[0])


def _texts(annotation: object) -> Iterator[object]:
    """The plain ``str`` types inside an annotation, as far as they are not enumerations."""
    if annotation is str:
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _texts(get_args(annotation)[0])
    else:
        for inner in get_args(annotation):
            yield from _texts(inner)


def test_each_text_is_decided_on() -> None:
    undecided = {
        f"{event.__name__}.{name}"
        for event in EVENTS
        for name, field in event.model_fields.items()
        if any(_texts(field.annotation)) and name not in free_text_fields(event)
        if name not in STRUCTURAL.get(event.__name__, set())
    }
    assert undecided == set()


def test_what_is_structural_is_not_marked() -> None:
    by_name = {event.__name__: event for event in EVENTS}
    for kind, names in STRUCTURAL.items():
        assert names <= set(by_name[kind].model_fields), kind
        assert names.isdisjoint(free_text_fields(by_name[kind])), kind


def test_a_text_without_a_decision_is_noticed() -> None:
    class Undecided(BaseModel):
        marked: Annotated[str, FREE_TEXT] | None = None
        several: tuple[Annotated[str, FREE_TEXT], ...] = ()
        plain: str | None = None

    assert free_text_fields(Undecided) == ("marked", "several")  # type: ignore[arg-type]
    assert any(_texts(Undecided.model_fields["plain"].annotation))


_VALID = [
    event
    for make in (
        trails.verified_on_retry,
        trails.model_with_examples,
        trails.invalid_then_verified,
        trails.cap_reached,
        trails.not_affected,
        trails.unknown,
        trails.excepted,
        trails.interrupted_and_resumed,
    )
    for event in make()
]


@given(event=st.sampled_from(_VALID), data=st.data())
def test_what_is_left_is_an_event_of_the_same_kind(event: AuditEvent, data: st.DataObject) -> None:
    fields = data.draw(st.sets(st.sampled_from(with_words(event)))) if with_words(event) else set()
    left = event_adapter.validate_python(residue(event, fields))
    assert type(left) is type(event)
    for name in type(event).model_fields:
        value, was = getattr(left, name), getattr(event, name)
        if name not in fields:
            assert value == was
        elif isinstance(value, tuple):
            emptied = {
                text
                for item in value
                for text in (
                    dict(item).values() if name in {"unread", "age_exceptions"} else [item]
                )
            }
            assert emptied == {REDACTED}
            assert len(value) == len(was)
        else:
            assert value == REDACTED


def test_declined_steps_lose_their_texts_and_keep_their_kinds() -> None:
    blocker = Blocker(kind=BlockerKind.REGISTRY, package="left", host="host", status=503)
    step = StepDeclined(step=LadderStep.OVERRIDE, reason="why", blockers=(blocker,))
    refused = FixRefused(
        attempt=1, reason=RefusalReason.RESOLVER_FAILED, sentence="no", declined=(step,)
    )
    left = event_adapter.validate_python(residue(refused, {"declined"}))
    assert isinstance(left, FixRefused)
    (emptied,) = left.declined
    (kept,) = emptied.blockers
    assert (emptied.step, emptied.reason) == (LadderStep.OVERRIDE, REDACTED)
    assert (kept.kind, kept.status) == (BlockerKind.REGISTRY, 503)
    assert {kept.package, kept.host} == {REDACTED}


@pytest.mark.parametrize("reason", ["", "because"])
def test_an_empty_text_has_no_words(reason: str) -> None:
    assert with_words(SandboxDisabled(reason=reason)) == (("reason",) if reason else ())
