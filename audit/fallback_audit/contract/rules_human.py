"""Rules of the trace contract over interruptions and people: who resumes a fix, who answers it."""

from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Trail, is_budget_stop
from fallback_audit.events import (
    AttemptFailed,
    FixEscalated,
    FixResumed,
    FixStarted,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.vocabulary import ReviewVerdict


@rule(
    "FixResumed resumes a started fix that has not ended, after the event that it names.",
    "ADR-0028",
    breaches=(
        Added(FixResumed),
        Altered(FixResumed, "after"),
    ),
    sees={FixResumed},
)
def resumes_are_of_open_fixes(trail: Trail) -> Iterator[Finding]:
    """Only a fix that a gate runner keeps is resumed."""
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


@rule(
    "A decision or reopening has a name and a reason, and answers one escalation, once; a fix that stopped "
    "at its budget can only be rejected.",
    "ADR-0098",
    breaches=(
        Removed(FixEscalated),
        Altered(ReviewDecided, "by"),
        Altered(ReviewDecided, "reason"),
        Altered(FixEscalated, "reason"),
        Altered(TransitionReopened, "by"),
        Altered(TransitionReopened, "reason"),
    ),
    sees={ReviewDecided, TransitionReopened},
)
def reviews_are_signed(trail: Trail) -> Iterator[Finding]:
    """A raised budget is no answer."""
    answered: str | None = None
    for seq, answer in trail.entries if trail.any_of(ReviewDecided, TransitionReopened) else ():
        if not isinstance(answer, ReviewDecided | TransitionReopened):
            continue
        if not (answer.by.strip() and answer.reason.strip()):
            yield seq, f"{answer.kind} without a name and a reason"
        end = trail.terminal
        asked = end is not None and end.seq < seq and isinstance(end.event, FixEscalated)
        if end is None or not asked:
            yield seq, f"{answer.kind} where nobody was asked to decide"
        elif is_budget_stop(end.event) and not _rejects(answer):
            yield seq, f"{answer.kind} of a fix that stopped at its budget, and it is not rejected"
        if answered is not None:
            yield seq, f"{answer.kind} after {answered} had settled it"
        answered = answer.kind


def _rejects(answer: ReviewDecided | TransitionReopened) -> bool:
    return isinstance(answer, ReviewDecided) and answer.verdict is ReviewVerdict.REJECTED


@rule(
    "An approval names a patch that this gate transition proposed; a rejection names none.",
    "ADR-0029",
    breaches=(
        Altered(ReviewDecided, "patch_sha256"),
        Altered(ReviewDecided, "verdict"),
    ),
    sees={ReviewDecided},
)
def approvals_name_a_patch(trail: Trail) -> Iterator[Finding]:
    proposed = {patch.event.patch_sha256 for patch in trail.of(PatchProposed)}
    for seq, decision in trail.of(ReviewDecided):
        if decision.verdict is ReviewVerdict.REJECTED and decision.patch_sha256 is not None:
            yield seq, "rejected, and a patch is named"
        if decision.verdict is ReviewVerdict.APPROVED and decision.patch_sha256 not in proposed:
            yield seq, "approved, and no such patch was proposed"


@rule(
    "A gate transition is reopened for attempts only if there is a failed attempt to start with, or if the "
    "model was unavailable for its first one.",
    "ADR-0098",
    breaches=(
        Removed(AttemptFailed),
        Added(TransitionReopened),
        Altered(FixEscalated, "reason"),
    ),
    sees={TransitionReopened},
)
def reopens_carry_a_failure(trail: Trail) -> Iterator[Finding]:
    """After a patch that nobody failed, another first attempt would retrieve again. If only the gates are
    run again, nothing is retrieved at all."""
    carried = (
        trail.of(AttemptFailed)
        or any(e.event.linked_transition for e in trail.of(FixStarted))
        or trail.not_made
    )
    for seq, event in trail.of(TransitionReopened) if not carried else ():
        if event.judges_again is None:
            yield seq, "reopened, and no attempt had failed"
