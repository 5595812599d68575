"""The state of a fix, from its trail and its evidence alone: the trail is the journal.

An attempt without an outcome begins again under its own number. Everything behind an outcome is taken
as it is on record: a verdict is never given twice, a failure never distilled again.
"""

from dataclasses import replace

from fallback_audit.contract.trail import is_budget_stop
from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    BudgetRaised,
    BudgetReached,
    Digest,
    ExampleReplayed,
    GateJudged,
    ModelCalled,
    PatchProposed,
    RecipeCandidateFailed,
)
from fallback_audit.evidence.store import get_document
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import CallType, Tier
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.history import History, Transition
from fallback_tier.fix.journal.inputs import RecordedResolution
from fallback_tier.fix.steps import FixProgress, RecordedPatch
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Applied, AttemptSummary, Refused


def rebuild(history: History, evidence: EvidenceStore) -> FixProgress:
    """The state in which the current gate transition stands, or stood when it ended.

    Raises InputError where the trail does not tell (an older version's, or another orchestrator's
    attempts), EvidenceError where what it names is gone.
    """
    current = history.current
    before = inherited(history, current, evidence)
    failures = current.of(AttemptFailed)
    in_hand = current.run.last_of(AttemptFailed) if current.run else None
    done = failures[:-1] if in_hand else failures
    handed_on = [] if done else current.of(RecipeCandidateFailed)
    state = FixProgress(
        prior_attempts=(*before, *(_summary(current, failure, evidence) for failure in done)),
        signatures=tuple(failure.failure_signature for failure in done),
        failed=_on_record(current, in_hand, evidence) if in_hand else None,
        failed_candidates=tuple(handed_on),
        recorded=_judged_again(history, evidence),
    )
    started = current.last_of(AttemptStarted)
    if started and started.prior_attempt_count != len(state.prior_attempts):
        raise InputError(
            f"Fix {history.fix_id} began with failed attempts of another gate transition.",
            next_step="Start a new fix.",
        )
    return _with_outcome(state, current.run, evidence) if current.run else state


def inherited(
    history: History, transition: Transition, evidence: EvidenceStore
) -> tuple[AttemptSummary, ...]:
    """What a gate transition began with: the last failure of the one that it is linked to, if it is to make
    a patch."""
    if transition.judges_again is not None:
        return ()
    return _failure_before(history, transition, evidence)


def last_failure(
    history: History, transition: Transition, evidence: EvidenceStore
) -> tuple[AttemptSummary, ...]:
    """Its last failed attempt's summary, or the one before it; empty where there is none.

    Raises EvidenceError.
    """
    failure = transition.last_of(AttemptFailed)
    if failure is None:
        return _failure_before(history, transition, evidence)
    return (_summary(transition, failure, evidence),)


def _failure_before(
    history: History, transition: Transition, evidence: EvidenceStore
) -> tuple[AttemptSummary, ...]:
    linked = history.opener_of(transition)
    return () if linked is None else last_failure(history, linked, evidence)


def recorded_patch(history: History, digest: Digest, evidence: EvidenceStore) -> RecordedPatch:
    """A patch that this fix has proposed, with all that gates need of it.

    Raises EvidenceError where that is gone, InputError where an older version did not keep it.
    """
    made = [
        (transition.scope.gate_transition_id, patch)
        for transition in history.transitions
        for patch in transition.of(PatchProposed)
        if patch.patch_sha256 == digest and patch.taken_from is None
    ]
    maker, patch = made[-1]
    application = _application(patch, evidence)
    if application.diff.encode() != evidence.get(digest):
        raise EvidenceError(
            f"The evidence of attempt {patch.attempt} holds another patch than {digest[:12]}.",
            next_step="Start a new fix.",
        )
    return RecordedPatch(patch.model_copy(update={"taken_from": maker}), application)


def _judged_again(history: History, evidence: EvidenceStore) -> RecordedPatch | None:
    digest = history.current.judges_again
    return None if digest is None else recorded_patch(history, digest, evidence)


def _with_outcome(state: FixProgress, run: Transition, evidence: EvidenceStore) -> FixProgress:
    """The state of an attempt whose outcome is on record; else as it was before the attempt."""
    if run.of(RecipeCandidateFailed):
        return state  # the next candidate has not begun
    refusal = run.last_of(AttemptRefused)
    if refusal is not None:
        if is_budget_stop(refusal) and run.of(BudgetRaised):
            return state
        application = Refused(
            attempt=refusal.attempt,
            prompt_shape=refusal.prompt_shape,
            reason=refusal.reason,
            sentence=refusal.sentence,
            unread=refusal.unread,
            declined=refusal.declined,
        )
        reached = run.last_of(BudgetReached) if is_budget_stop(refusal) else None
        return replace(state, application=application, reached=reached)
    patch = run.last_of(PatchProposed)
    if patch is None:
        return state
    verdicts = tuple(_verdict(judged, evidence) for judged in run.of(GateJudged))
    return replace(state, application=_application(patch, evidence), verdicts=verdicts)


def recorded_resolutions(transition: Transition, evidence: EvidenceStore) -> dict[str, str]:
    """What was resolved for the fix in a gate transition, by its plugin's keys.

    Raises EvidenceError if one is gone: another resolution would be of other releases.
    """
    found = {}
    for judged in transition.of(GateJudged):
        for digest in judged.resolutions:
            try:
                one = get_document(evidence, RecordedResolution, digest)
            except EvidenceError as error:
                raise EvidenceError(
                    f"A resolution that this fix recorded at gate {judged.gate!r} can't be read: "
                    f"{error.problem}",
                    next_step="Restore that evidence from a backup, or start a new fix, which resolves the "
                    "base commit again.",
                ) from error
            found[one.key] = one.text
    return found


def _application(patch: PatchProposed, evidence: EvidenceStore) -> Applied:
    if patch.application_sha256 is None:
        raise InputError(
            f"Attempt {patch.attempt} was recorded by an older version, which did not keep all that "
            "gates need.",
            next_step="Start a new fix.",
            kind="older_version",
        )
    return get_document(evidence, Applied, patch.application_sha256)


def _verdict(judged: GateJudged, evidence: EvidenceStore) -> GateVerdict:
    log = b"" if judged.evidence_sha256 is None else evidence.get(judged.evidence_sha256)
    return GateVerdict(
        gate=judged.gate,
        status=judged.status,
        detail=judged.detail,
        failure_kind=judged.failure_kind,
        proof_level=judged.proof_level,
        flaky=judged.flaky,
        broken=judged.broken,
        failing_before=judged.failing_before,
        projects=judged.projects,
        notes=judged.notes,
        tests_level=judged.tests_level,
        tests=judged.tests,
        evidence_sha256=judged.evidence_sha256,
        log=log.decode(),
        duration_ms=judged.duration_ms,
    )


def _on_record(
    transition: Transition, failure: AttemptFailed, evidence: EvidenceStore
) -> tuple[AttemptSummary, Digest]:
    return _summary(transition, failure, evidence), failure.failure_signature


def _summary(
    transition: Transition, failure: AttemptFailed, evidence: EvidenceStore
) -> AttemptSummary:
    return AttemptSummary(
        attempt=failure.attempt,
        tier=failure.tier,
        edit_digest=failure.edit_digest,
        failing_gates=failure.failing_gates,
        failure_kind=failure.failure_kind,
        prior_failure_summary=evidence.get(failure.summary_sha256).decode(),
        used_few_shot_ref=_examples(transition, failure.attempt),
        contradicting_tests=failure.contradicting_tests,
    )


def _examples(transition: Transition, attempt: int) -> tuple[str, ...]:
    """The examples behind an attempt's patch: the replayed one, or those of its last prompt."""
    patch = next((p for p in transition.of(PatchProposed) if p.attempt == attempt), None)
    if patch is None:
        return ()
    if patch.tier is Tier.RAG:
        replays = transition.of(ExampleReplayed)
        return tuple(replay.example_id for replay in replays if replay.attempt == attempt)
    prompts = [
        stored.payload.example_ids
        for stored in transition.events
        if isinstance(stored.payload, ModelCalled | AnswerReused)
        and stored.payload.attempt == attempt
        and stored.payload.call_type is CallType.AUTHOR
    ]
    return prompts[-1] if prompts and patch.tier is Tier.LLM else ()
