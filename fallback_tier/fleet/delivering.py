"""A fix that is proved, and whose patch is not known to be where it was asked for: what the list says."""

from fallback_tier.fleet.model import NOT_DELIVERED, FixFacts, FleetFix
from fallback_tier.workers.problem import Problem

#: The campaign was cancelled meanwhile.
CANCELLED = Problem(
    code=NOT_DELIVERED,
    problem="The campaign was cancelled before its patch was delivered.",
    next_step="`fleet resume`, then `fleet run`.",
)

#: Nobody said how the delivery ended.
CUT_OFF = Problem(
    code=NOT_DELIVERED,
    problem="Its worker ended before it said that the patch was delivered.",
    next_step="`fleet run` does what is left of it.",
)


def undelivered(facts: FixFacts, why: Problem | None) -> FixFacts:
    """As the record has it, but for what it can't know."""
    sentence = None if why is None else f"{why.problem} {why.next_step}"
    return facts.model_copy(update={"why": NOT_DELIVERED, "sentence": sentence})


def as_listed(fix: FleetFix, now: FixFacts) -> FixFacts:
    """What the list is to say where the record says this: that a patch was not delivered stays, until the
    record has it on a branch."""
    stays = fix.why == NOT_DELIVERED and now.state is not None and now.state.has_patch
    if not stays or now.branch is not None:
        return now
    return now.model_copy(update={"why": fix.why, "sentence": fix.sentence})
