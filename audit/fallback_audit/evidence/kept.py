"""Which evidence an event obliges its writer to keep, and which of it is private."""

from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AuditEvent,
    Digest,
    EvidenceCollected,
    FixEscalated,
    FixStarted,
    GateJudged,
    GroundingJudged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RetrievalQueried,
)


def kept_digests(event: AuditEvent) -> tuple[Digest, ...]:
    """Digests whose bytes must be kept: what a gate judged or said, why retrieval answered as it did,
    what a retry stands on, what a judge found, what a fix or an attempt that is resumed needs.

    Prompts are kept only when switched on: an event then says so.
    """
    match event:
        case PatchProposed():
            kept = (event.patch_sha256, event.remediation_sha256, event.application_sha256)
            return tuple(filter(None, kept))
        case FixStarted():
            return tuple(filter(None, (event.inputs_sha256, event.batch_sha256)))
        case GateJudged():
            return tuple(filter(None, (event.evidence_sha256, *event.resolutions)))
        case RetrievalQueried(account_sha256=str(digest)):
            return (digest,)
        case ModelAnswered(answer_evidence=str(digest)) | AnswerReused(answer_evidence=digest):
            return (digest,)
        case ModelCalled(prompt_evidence=str(digest)) | EvidenceCollected(list_sha256=digest):
            return (digest,)
        case GroundingJudged():
            return (event.judgement_sha256,)
        case AttemptFailed():
            return (event.summary_sha256,)
        case FixEscalated():
            return event.evidence_sha256
        case _:
            return ()


def private_digests(event: AuditEvent) -> tuple[Digest, ...]:
    """Return those of ``kept_digests`` that are what a model was asked or answered, word for word.

    They are in no export, and over HTTP for admins alone.
    """
    private = ModelCalled | ModelAnswered | AnswerReused | GroundingJudged
    return kept_digests(event) if isinstance(event, private) else ()
