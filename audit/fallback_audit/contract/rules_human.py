"""Predicates of the trace contract over interruptions and people: who takes a fix up, who answers it.

As in ``rules_attempt``, each takes a trail and yields (seq, what is wrong there).
"""

from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.contract.trail import Finding, Trail, is_budget_stop
from fallback_audit.events import (
    AttemptFailed,
    FixEscalated,
    FixPatched,
    FixResumed,
    FixStarted,
    FixVerified,
    PatchDelivered,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.vocabulary import ReviewVerdict


def resumes_are_of_open_fixes(trail: Trail) -> Iterator[Finding]:
    """Only a fix that a gate runner keeps, and that has not ended, is taken up, where it stood."""
    if trail.entries and isinstance(trail.entries[0].event, FixResumed):
        yield trail.entries[0].seq, "resumed, and there was nothing before it"
    for (_, before), (seq, event) in pairwise(trail.entries if trail.of(FixResumed) else ()):
        if not isinstance(event, FixResumed):
            continue
        if trail.terminal and seq > trail.terminal.seq:
            yield seq, f"resumed although the fix had ended ({trail.terminal.event.kind})"
        if not trail.managed:
            yield seq, "resumed, and it was never started"
        if event.after != before.kind:
            yield seq, f"resumed after {event.after}, and the last event was {before.kind}"


def reviews_are_signed(trail: Trail) -> Iterator[Finding]:
    """A person, with a name and a reason, answers an escalation, once; a raised budget is no answer."""
    answered: str | None = None
    for seq, answer in trail.entries if trail.any_of(ReviewDecided, TransitionReopened) else ():
        if not isinstance(answer, ReviewDecided | TransitionReopened):
            continue
        if not (answer.by.strip() and answer.reason.strip()):
            yield seq, f"{answer.kind} without a name and a reason"
        end = trail.terminal
        asked = end is not None and end.seq < seq and isinstance(end.event, FixEscalated)
        if end is None or not asked or is_budget_stop(end.event):
            yield seq, f"{answer.kind} where nobody was asked to decide"
        if answered is not None:
            yield seq, f"{answer.kind} after {answered} had settled it"
        answered = answer.kind


def approvals_name_a_patch(trail: Trail) -> Iterator[Finding]:
    """What is approved was proposed here; who rejects, approves of nothing."""
    proposed = {patch.event.patch_sha256 for patch in trail.of(PatchProposed)}
    for seq, decision in trail.of(ReviewDecided):
        if decision.verdict is ReviewVerdict.REJECTED and decision.patch_sha256 is not None:
            yield seq, "rejected, and a patch is named"
        if decision.verdict is ReviewVerdict.APPROVED and decision.patch_sha256 not in proposed:
            yield seq, "approved, and no such patch was proposed"


def reopens_carry_a_failure(trail: Trail) -> Iterator[Finding]:
    """A reopened transition starts with a failure; without one, retrieval would be had again. Where gates
    alone are run again, nothing is had at all."""
    carried = trail.of(AttemptFailed) or any(
        e.event.linked_transition for e in trail.of(FixStarted)
    )
    for seq, event in trail.of(TransitionReopened) if not carried else ():
        if event.judges_again is None:
            yield seq, "reopened, and no attempt had failed"


def deliveries_are_earned(trail: Trail) -> Iterator[Finding]:
    """Only a patch that a fix ended with, or that a person approved, is put anywhere."""
    earned: set[str | None] = set()
    for seq, event in trail.any_of(FixVerified, FixPatched, ReviewDecided, PatchDelivered):
        if not isinstance(event, PatchDelivered):
            earned.add(event.patch_sha256)  # type: ignore[union-attr]
        elif event.patch_sha256 not in earned:
            yield seq, "delivered, and neither verified, patched nor approved"
