"""Rules of the trace contract over gates that are run again on a patch on record (ADR-0042).

One looks at such a gate transition by itself, one at what it says of those before it.
"""

from collections.abc import Iterator, Sequence

from fallback_audit.contract.links import Link
from fallback_audit.contract.rule import Added, Altered, fix_rule, rule
from fallback_audit.contract.trail import Entry, Finding, Trail
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    ExampleReplayed,
    FixEscalated,
    FixRefused,
    FixStarted,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    TransitionReopened,
)
from fallback_audit.vocabulary import EscalationReason

#: What belongs to the making of a patch, or to giving it up.
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

#: What is said of a patch, wherever it stands.
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
    named = trail.judges_again
    failed = named is not None and trail.of(AttemptFailed)
    for seq, end in trail.of(FixEscalated):
        if end.reason is EscalationReason.GATES_FAILED_AGAIN and not failed:
            yield seq, "no gate that was run again had failed"
    if named is None:
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
        if patch.patch_sha256 != named or patch.taken_from is None:
            yield seq, f"the gates are to be run again on patch {named[:12]}, and this is another"


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
        made = (patch for one in links for patch in one.proposed if patch.seq < seq)
        if opening.judges_again not in {None, *(patch.event.patch_sha256 for patch in made)}:
            yield link, (seq, "no such patch was proposed in this fix")
    by_opened = {entry.event.opens: (link, entry.event) for link, entry in openings}
    for link in links:
        opener = by_opened.get(link.transition)
        if link.started is not None and (opener or link.judges_again):
            yield from ((link, found) for found in _as_asked(link, link.started, opener))
        for entry in link.proposed:
            if entry.event.taken_from is not None and not _was_made(entry, links):
                yield link, (entry.seq, f"not as it was proposed in {entry.event.taken_from}")


def _as_asked(
    link: Link, started: FixStarted, opener: tuple[Link, TransitionReopened] | None
) -> Iterator[Finding]:
    if started.judges_again != (opener[1].judges_again if opener else None):
        yield link.seq, "its gates are not run as the person said who opened it"
    before = opener[0].started if opener else None
    if started.judges_again is None or before is None:
        return
    # Before schema version 7 a fix did not say whose code is affected.
    whose = before.affected_code or started.affected_code
    if (before.base_commit, whose) != (started.base_commit, started.affected_code):
        yield link.seq, f"its gates judge something else than those of {link.linked} did"


def _was_made(taken: Entry[PatchProposed], links: Sequence[Link]) -> bool:
    """Where it says that it was made, with the same said of it: no doubt gets lost on the way."""
    return any(
        made.seq < taken.seq
        and made.event.taken_from is None
        and _recorded(made) == _recorded(taken)
        for link in links
        if link.transition == taken.event.taken_from
        for made in link.proposed
    )


def _recorded(patch: Entry[PatchProposed]) -> tuple[object, ...]:
    """All but free text, which may have been redacted in one place."""
    return tuple(getattr(patch.event, name) for name in _RECORDED)
