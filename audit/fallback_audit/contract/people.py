"""Rules on what people decide, what they have judged again, and what links gate transitions."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from fallback_audit.contract.rule import Added, Altered, Removed, fix_rule, rule
from fallback_audit.contract.trail import NOTES, Entry, Finding, Link, Trail, is_budget_stop
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    Digest,
    ExampleReplayed,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixResumed,
    FixStarted,
    FixVerified,
    ModelCalled,
    PatchDelivered,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.vocabulary import EscalationReason, ReviewVerdict

# --- Resumed, reviewed, reopened. ------------------------------------------------------------------


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
    "A started fix is abandoned by a name with a reason, once, unless it has ended and is not reopened; "
    "nothing of that gate transition follows.",
    "ADR-0138",
    breaches=(
        Removed(FixStarted),
        Added(FixAbandoned),
        Altered(FixAbandoned, "by"),
        Altered(FixAbandoned, "reason"),
    ),
    sees=None,
)
def abandonments_end_a_fix(trail: Trail) -> Iterator[Finding]:
    """What keepers note may follow. Only a fix that a gate runner keeps is abandoned."""
    if not trail.abandonments:
        return
    at, _ = trail.abandonments[0]
    for seq, event in trail.everything:
        if seq > at and not isinstance(event, NOTES):
            yield seq, f"{event.kind} after the fix was abandoned"
        elif isinstance(event, FixAbandoned):
            if not (event.by.strip() and event.reason.strip()):
                yield seq, "abandoned without a name and a reason"
            if not trail.managed:
                yield seq, "abandoned, and it was never started"
            if trail.terminal and trail.terminal.seq < at and not trail.of(TransitionReopened):
                yield seq, f"abandoned although the fix had ended ({trail.terminal.event.kind})"


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
        was_escalated = end is not None and end.seq < seq and isinstance(end.event, FixEscalated)
        if end is None or not was_escalated:
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
        or any(start.event.linked_transition for start in trail.of(FixStarted))
        or trail.not_made
    )
    for seq, event in trail.of(TransitionReopened) if not carried else ():
        if event.judges_again is None:
            yield seq, "reopened, and no attempt had failed"


# --- From one gate transition to the next. ---------------------------------------------------------


@fix_rule(
    "A further gate transition is opened by a person, once, and starts with the last failure; if no "
    "attempt of the fix has failed, with a first attempt.",
    "ADR-0098",
    breaches=(
        Removed(TransitionReopened),
        Altered(FixStarted, "linked_transition"),
        Altered(RagSkippedOnRetry, "summary_sha256"),
        Altered(AttemptStarted, "prior_attempt_count"),
    ),
    sees={FixStarted, AttemptStarted, RagSkippedOnRetry, AttemptFailed, TransitionReopened},
)
def transitions_are_opened(links: Sequence[Link]) -> Iterator[tuple[Link, Finding]]:
    """Before schema version 5 a FixStarted named no gates, and a link had no event: that is let be."""
    if len(links) == 1 and not links[0].opened and not links[0].linked:
        return
    openings = [(link, entry) for link in links for entry in link.opened]
    openings.sort(key=lambda opening: opening[1].seq)
    known_transitions: set[str] = {link.transition for link in links if not link.linked}
    for link, (seq, event) in openings:
        if event.opens in known_transitions:
            yield link, (seq, f"{event.opens} is no new gate transition")
        known_transitions.add(event.opens)
    by_opened = {entry.event.opens: (link, entry.seq) for link, entry in openings}
    last: dict[str, Digest | None] = {}
    for number, link in enumerate(sorted(links, key=lambda link: link.seq)):
        last[link.transition] = _last(link, last)
        yield from (
            (link, finding) for finding in _starts_with_something(link, last[link.transition])
        )
        if link.started is None or not link.started.gates:
            continue
        opener = by_opened.get(link.transition)
        if opener is None:
            if number or link.linked:
                yield link, (link.seq, "a further gate transition that nobody opened")
        else:
            opener_seq, last_failure = opener[1], last.get(opener[0].transition)
            yield from (
                (link, finding) for finding in _goes_on(link, opener[0], opener_seq, last_failure)
            )


def _last(link: Link, last: Mapping[str, Digest | None]) -> Digest | None:
    """Return the failure to continue with: an earlier one if only gates ran again and did not fail."""
    if link.last is None and link.judges_again is not None:
        return last.get(link.linked or "")
    return link.last


def _starts_with_something(link: Link, last: Digest | None) -> Iterator[Finding]:
    """Check that a failure preceded a reopening, which the trail of a linked transition does not show."""
    if link.linked is not None and last is None and not link.not_made:
        for seq, event in link.opened:
            if event.judges_again is None:
                yield seq, "reopened, and no attempt of this fix had failed"


def _goes_on(link: Link, opener: Link, opener_seq: int, last: Digest | None) -> Iterator[Finding]:
    if link.linked != opener.transition or link.seq < opener_seq:
        yield link.seq, f"it is not linked to {opener.transition}, which was reopened for it"
    expected = {None, 0} if link.judges_again is not None or last is None else {None, 1}
    if link.prior_attempts not in expected:
        yield link.seq, f"a reopened transition starts with {link.prior_attempts} prior attempts"
    if link.carried is not None and last is not None and link.carried != last:
        yield link.seq, f"it does not start with the last failure of {opener.transition}"


@fix_rule(
    "After a fix was abandoned, no gate transition of it begins, and it is abandoned in its last one.",
    "ADR-0138",
    breaches=(Added(FixAbandoned),),
    sees={FixStarted, AttemptStarted, FixAbandoned},
)
def abandonments_are_final(links: Sequence[Link]) -> Iterator[tuple[Link, Finding]]:
    """A fix that was reopened, and whose new gate transition has not begun, is abandoned in the one that
    was reopened."""
    last = max((link.seq for link in links), default=0)
    for abandoned in links:
        if abandoned.abandoned is None:
            continue
        for link in links:
            if link.seq > abandoned.abandoned:
                yield link, (link.seq, "a gate transition that begins after the fix was abandoned")
        if abandoned.seq < last < abandoned.abandoned:
            yield (
                abandoned,
                (abandoned.abandoned, "abandoned, and a later gate transition has begun"),
            )


# --- Gates that run again on a recorded patch. -----------------------------------------------------

#: Kinds of events in the making of a patch, or in giving it up.
MAKING = (
    RecipeEvaluated,
    RetrievalQueried,
    ExampleReplayed,
    RagSkippedOnRetry,
    ModelCalled,
    AnswerReused,
    AttemptRefused,
    FixRefused,
)

#: The members of PatchProposed that must agree if a patch is taken over.
_RECORDED = (
    "attempt",
    "tier",
    "prompt_shape",
    "patch_sha256",
    "edit_digest",
    "remediation_sha256",
    "grounded",
    "low_confidence",
    "application_sha256",
)


@rule(
    "If only the gates are run again, they judge the named patch: nothing is asked, made or retried.",
    "ADR-0042",
    breaches=(
        Added(ModelCalled),
        Added(AnswerReused),
        Added(RetrievalQueried),
        Added(ExampleReplayed),
        Added(RecipeEvaluated),
        Added(RagSkippedOnRetry),
        Added(AttemptStarted),
        Altered(FixStarted, "judges_again"),
        Altered(PatchProposed, "patch_sha256"),
        Altered(PatchProposed, "taken_from"),
        Altered(FixEscalated, "reason"),
    ),
    sees={*MAKING, AttemptFailed, AttemptStarted, FixEscalated, FixStarted, PatchProposed},
)
def gates_again_make_nothing(trail: Trail) -> Iterator[Finding]:
    """Elsewhere no patch is taken over."""
    patch_sha256 = trail.judges_again
    failed = patch_sha256 is not None and trail.of(AttemptFailed)
    for seq, end in trail.of(FixEscalated):
        if end.reason is EscalationReason.GATES_FAILED_AGAIN and not failed:
            yield seq, "no gate that was run again had failed"
    if patch_sha256 is None:
        for seq, patch in trail.of(PatchProposed):
            if patch.taken_from is not None:
                yield seq, "a patch from elsewhere, and its gates alone are not run again"
        return
    for seq, event in trail.any_of(*MAKING):
        yield seq, f"{event.kind}, and only gates are to be run again"
    first = trail.runs[0].attempt if trail.runs else 0
    for seq, start in trail.of(AttemptStarted):
        if start.attempt != first or start.prior_attempt_count:
            yield seq, "another attempt, and only gates are to be run again"
    for seq, patch in trail.of(PatchProposed):
        if patch.patch_sha256 != patch_sha256 or patch.taken_from is None:
            yield (
                seq,
                f"the gates are to be run again on patch {patch_sha256[:12]}, and this is another",
            )


@fix_rule(
    "Gates are run again on the patch that a person named, as it was proposed, on its base commit.",
    "ADR-0042",
    breaches=(
        Altered(TransitionReopened, "judges_again"),
        Altered(FixStarted, "judges_again"),
        Altered(FixStarted, "base_commit"),
        Altered(PatchProposed, "patch_sha256"),
        Altered(PatchProposed, "taken_from"),
        Altered(PatchProposed, "low_confidence"),
    ),
    sees={FixStarted, PatchProposed, TransitionReopened},
)
def gates_again_are_of_record(links: Sequence[Link]) -> Iterator[tuple[Link, Finding]]:
    """Nothing is said of the patch that was not said where it was made."""
    openings = [(link, entry) for link in links for entry in link.opened]
    for link, (seq, opening) in openings:
        earlier = (patch for other in links for patch in other.proposed if patch.seq < seq)
        if opening.judges_again not in {None, *(patch.event.patch_sha256 for patch in earlier)}:
            yield link, (seq, "no such patch was proposed in this fix")
    by_opened = {entry.event.opens: (link, entry.event) for link, entry in openings}
    for link in links:
        opener = by_opened.get(link.transition)
        if link.started is not None and (opener or link.judges_again):
            yield from ((link, finding) for finding in _as_asked(link, link.started, opener))
        for entry in link.proposed:
            if entry.event.taken_from is not None and not _was_made(entry, links):
                yield link, (entry.seq, f"not as it was proposed in {entry.event.taken_from}")


def _as_asked(
    link: Link, started: FixStarted, opener: tuple[Link, TransitionReopened] | None
) -> Iterator[Finding]:
    if started.judges_again != (opener[1].judges_again if opener else None):
        yield link.seq, "its gates are not run as the person said who opened it"
    opener_start = opener[0].started if opener else None
    if started.judges_again is None or opener_start is None:
        return
    # Before schema version 7 a fix did not say whose code is affected.
    affected_code = opener_start.affected_code or started.affected_code
    if (opener_start.base_commit, affected_code) != (started.base_commit, started.affected_code):
        yield link.seq, f"its gates judge something else than those of {link.linked} did"


def _was_made(taken: Entry[PatchProposed], links: Sequence[Link]) -> bool:
    """Return whether the patch was proposed in the gate transition that it names, with the same members."""
    return any(
        original.seq < taken.seq
        and original.event.taken_from is None
        and _recorded(original) == _recorded(taken)
        for link in links
        if link.transition == taken.event.taken_from
        for original in link.proposed
    )


def _recorded(patch: Entry[PatchProposed]) -> tuple[object, ...]:
    """Return the members to compare: no free text, which may have been redacted in one of the two."""
    return tuple(getattr(patch.event, name) for name in _RECORDED)


# --- Delivery. -------------------------------------------------------------------------------------


@rule(
    "A patch is delivered only after it was verified, or patched with tests, or approved by a person.",
    "ADR-0070",
    breaches=(
        Removed(ReviewDecided),
        Altered(PatchDelivered, "patch_sha256"),
    ),
    sees={PatchDelivered},
)
def deliveries_are_earned(trail: Trail) -> Iterator[Finding]:
    earned: set[str | None] = set()
    for seq, event in trail.any_of(FixVerified, FixPatched, ReviewDecided, PatchDelivered):
        if not isinstance(event, PatchDelivered):
            earned.add(event.patch_sha256)  # type: ignore[attr-defined]
        elif event.patch_sha256 not in earned:
            yield seq, "delivered, and neither verified, patched nor approved"
