"""The trail of one fix, by gate transition: read first by a process that resumes it."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from fallback_audit.contract.trail import NOTES, TERMINALS, is_budget_stop
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
    FixAbandoned,
    FixStarted,
    GateJudged,
    ModelCalled,
    PatchProposed,
    RecipeCandidateFailed,
    TransitionReopened,
    abandoned_words,
)
from fallback_audit.evidence.store import get_document
from fallback_audit.ports import AuditReader, EvidenceStore, Scope, StoredEvent
from fallback_audit.vocabulary import CallType, Tier
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.inputs import RecordedResolution
from fallback_tier.fix.steps import FixProgress, RecordedPatch
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Applied, AttemptSummary, Refused, shared_fields

EventT = TypeVar("EventT")


@dataclass(frozen=True)
class Transition:
    """The events of one gate transition, at least one, in chain order."""

    scope: Scope
    events: tuple[StoredEvent, ...]

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Return the events of this type."""
        return [event.payload for event in self.events if isinstance(event.payload, kind)]

    def last_of(self, kind: type[EventT]) -> EventT | None:
        """Return the latest event of this type, or None."""
        return next(iter(reversed(self.of(kind))), None)

    @property
    def start(self) -> FixStarted | None:
        """The first event, or None if another orchestrator calls for attempts and judges them itself."""
        return next(iter(self.of(FixStarted)), None)

    @property
    def judges_again(self) -> Digest | None:
        """The patch on which this transition only runs the gates again, or None."""
        return self.start.judges_again if self.start else None

    @cached_property
    def run(self) -> "Transition | None":
        """The events from the last AttemptStarted on, or None if no attempt began."""
        start_indexes = [
            index
            for index, event in enumerate(self.events)
            if isinstance(event.payload, AttemptStarted)
        ]
        return Transition(self.scope, self.events[start_indexes[-1] :]) if start_indexes else None

    @property
    def last_kind(self) -> str:
        """The kind of the last event."""
        return self.events[-1].kind

    @property
    def stopped(self) -> BudgetReached | None:
        """The cap at which it stopped, raised since or not; None if it did not stop at one."""
        last = self.events[-1].payload
        if is_budget_stop(last) or isinstance(last, BudgetRaised):
            return self.last_of(BudgetReached)
        return None

    @property
    def end(self) -> object | None:
        """The terminal event; None if the transition is open, or open again by a raised budget."""
        for event in reversed(self.events):
            if isinstance(event.payload, BudgetRaised):
                return None
            if isinstance(event.payload, TERMINALS):
                return event.payload
        return None

    @property
    def reopened(self) -> TransitionReopened | None:
        """The event by which a person opened a gate transition that follows this one, or None."""
        return self.last_of(TransitionReopened)

    @property
    def abandoned(self) -> FixAbandoned | None:
        """The event by which a person ended the fix here before its end, or None."""
        return self.last_of(FixAbandoned)


@dataclass(frozen=True)
class History:
    """All gate transitions of one fix, in the order in which they began."""

    fix_id: str
    transitions: tuple[Transition, ...]

    @property
    def current(self) -> Transition:
        """The transition that began last."""
        return self.transitions[-1]

    @property
    def last_seq(self) -> int:
        """The number of the last event."""
        return max(transition.events[-1].seq for transition in self.transitions)

    @property
    def patches(self) -> list[PatchProposed]:
        """All patches that the fix has proposed, in that order."""
        return [patch for transition in self.transitions for patch in transition.of(PatchProposed)]

    def check_not_abandoned(self) -> None:
        """Raise InputError if a person has abandoned the fix."""
        if (abandoned := self.current.abandoned) is not None:
            raise InputError(
                f"Fix {self.fix_id} was {' '.join(abandoned_words(abandoned).split())}.",
                next_step=f"`fallback-tier audit show {self.fix_id}` shows why. Start a new fix to try "
                "again.",
                kind="abandoned",
            )

    def transition(self, identifier: str | None) -> Transition | None:
        """Return the transition with this identifier, or None."""
        matching = (
            transition
            for transition in self.transitions
            if transition.scope.gate_transition_id == identifier
        )
        return next(matching, None)

    def opener_of(self, transition: Transition) -> Transition | None:
        """Return the transition that it is linked to, or None. It must be an earlier one, so that a forged
        link can't form a circle."""
        start = transition.start
        linked = self.transition(start.linked_transition) if start else None
        if linked is None or self.transitions.index(linked) >= self.transitions.index(transition):
            return None
        return linked


def read_history(audit: AuditReader, fix_id: str) -> History:
    """Return a fix's history, without notes of maintenance. Raises InputError if there is no such fix."""
    events_by_scope: dict[Scope, list[StoredEvent]] = {}
    for event in audit.events(fix_id):
        if not isinstance(event.payload, NOTES):
            events_by_scope.setdefault(event.scope, []).append(event)
    if not events_by_scope:
        raise InputError(
            f"There is no fix {fix_id!r} in the audit trail.",
            next_step="`fallback-tier audit log` lists those on record.",
            kind="no_such_fix",
        )
    return History(
        fix_id, tuple(Transition(scope, tuple(events)) for scope, events in events_by_scope.items())
    )


def rebuild(history: History, evidence: EvidenceStore) -> FixProgress:
    """Return the state of the current gate transition, rebuilt from the trail.

    Raises InputError if the trail lacks it (an older version, another orchestrator), EvidenceError if
    evidence is missing.
    """
    current = history.current
    inherited_attempts = inherited(history, current, evidence)
    failures = current.of(AttemptFailed)
    current_failure = current.run.last_of(AttemptFailed) if current.run else None
    earlier_failures = failures[:-1] if current_failure else failures
    failed_candidates = [] if earlier_failures else current.of(RecipeCandidateFailed)
    state = FixProgress(
        prior_attempts=(
            *inherited_attempts,
            *(_summary(current, failure, evidence) for failure in earlier_failures),
        ),
        signatures=tuple(failure.failure_signature for failure in earlier_failures),
        failed=(_summary(current, current_failure, evidence), current_failure.failure_signature)
        if current_failure
        else None,
        failed_candidates=tuple(failed_candidates),
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
    """Return the prior attempts that a gate transition began with: the last failure of the one that it is
    linked to, if it is to make a patch."""
    if transition.judges_again is not None:
        return ()
    return _failure_before(history, transition, evidence)


def last_failure(
    history: History, transition: Transition, evidence: EvidenceStore
) -> tuple[AttemptSummary, ...]:
    """Return the summary of its last failed attempt, or of the linked transition's; empty if there is none.
    Raises EvidenceError."""
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
    """Return a patch that this fix proposed, with what gates need. Raises EvidenceError if that is missing,
    InputError if an older version did not store it."""
    proposals = [
        (transition.scope.gate_transition_id, patch)
        for transition in history.transitions
        for patch in transition.of(PatchProposed)
        if patch.patch_sha256 == digest and patch.taken_from is None
    ]
    transition_id, patch = proposals[-1]
    application = _application(patch, evidence)
    if application.diff.encode() != evidence.get(digest):
        raise EvidenceError(
            f"The evidence of attempt {patch.attempt} holds another patch than {digest[:12]}.",
            next_step="Start a new fix.",
        )
    return RecordedPatch(patch.model_copy(update={"taken_from": transition_id}), application)


def _judged_again(history: History, evidence: EvidenceStore) -> RecordedPatch | None:
    digest = history.current.judges_again
    return None if digest is None else recorded_patch(history, digest, evidence)


def _with_outcome(state: FixProgress, run: Transition, evidence: EvidenceStore) -> FixProgress:
    if run.of(RecipeCandidateFailed):
        return state  # the next candidate has not begun
    refusal = run.last_of(AttemptRefused)
    if refusal is not None:
        if is_budget_stop(refusal) and run.of(BudgetRaised):
            return state
        application = Refused(**shared_fields(refusal, Refused))
        reached = run.last_of(BudgetReached) if is_budget_stop(refusal) else None
        return replace(state, application=application, reached=reached)
    patch = run.last_of(PatchProposed)
    if patch is None:
        return state
    verdicts = tuple(_verdict(verdict, evidence) for verdict in run.of(GateJudged))
    return replace(state, application=_application(patch, evidence), verdicts=verdicts)


def recorded_resolutions(transition: Transition, evidence: EvidenceStore) -> dict[str, str]:
    """Return the resolutions of a gate transition, by the plugin's keys. Raises EvidenceError if one is
    missing: resolving again would give other releases."""
    resolutions = {}
    for verdict in transition.of(GateJudged):
        for digest in verdict.resolutions:
            try:
                resolution = get_document(evidence, RecordedResolution, digest)
            except EvidenceError as error:
                raise EvidenceError(
                    f"A resolution that this fix recorded at gate {verdict.gate!r} can't be read: "
                    f"{error.problem}",
                    next_step="Restore that evidence from a backup, or start a new fix, which resolves the "
                    "base commit again.",
                ) from error
            resolutions[resolution.key] = resolution.text
    return resolutions


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
    return GateVerdict(**shared_fields(judged, GateVerdict), log=log.decode())


def _summary(
    transition: Transition, failure: AttemptFailed, evidence: EvidenceStore
) -> AttemptSummary:
    return AttemptSummary(
        **shared_fields(failure, AttemptSummary),
        prior_failure_summary=evidence.get(failure.summary_sha256).decode(),
        used_few_shot_ref=_examples(transition, failure.attempt),
    )


def _examples(transition: Transition, attempt: int) -> tuple[str, ...]:
    """Return the examples used for an attempt's patch: the replayed one, or those of its last prompt."""
    patch = next(
        (proposal for proposal in transition.of(PatchProposed) if proposal.attempt == attempt), None
    )
    if patch is None:
        return ()
    if patch.tier is Tier.RAG:
        replays = transition.of(ExampleReplayed)
        return tuple(replay.example_id for replay in replays if replay.attempt == attempt)
    prompts = [
        event.payload.example_ids
        for event in transition.events
        if isinstance(event.payload, ModelCalled | AnswerReused)
        and event.payload.attempt == attempt
        and event.payload.call_type is CallType.AUTHOR
    ]
    return prompts[-1] if prompts and patch.tier is Tier.LLM else ()
