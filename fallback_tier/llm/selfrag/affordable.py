"""Whether a step can be paid for, before it is asked for."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from fallback_audit.events import Charge
from fallback_tier.budget.meter import OverBudget
from fallback_tier.llm.selfrag.search_context import SearchContext
from fallback_tier.llm.selfrag.trying import CandidateCall

#: Author calls of one search: a beam of four over four examples for four steps. What takes more is
#: not searched for but guessed at.
MAX_CANDIDATE_CALLS: Final = 64

#: Bytes that a token of a segment comes to in its critique's prompt: what code and JSON have.
_BYTES_PER_TOKEN: Final = 4


def shortage(
    step: Sequence[CandidateCall], asked: int, context: SearchContext
) -> OverBudget | str | None:
    """Why the candidates and their critiques can't all be asked for; None: they can.

    ``asked``: author calls so far. What was answered before an interruption is counted as if it had
    still to be paid: then less is searched than could be, and never more.
    """
    if asked + len(step) > MAX_CANDIDATE_CALLS:
        return f"{asked} of at most {MAX_CANDIDATE_CALLS} candidates were asked for"
    meter = context.parts.meter
    if meter is None:
        return None
    segment = "x" * (_BYTES_PER_TOKEN * context.attempt.task.repo.settings.max_output_tokens)
    needed = [
        charge
        for one in step
        for charge in (
            meter.charge(context.parts.author.model, one.ask(context).request),
            meter.charge(context.parts.critic.model, one.critique(context, segment).request),
        )
    ]
    try:
        meter.check(context.attempt.record.scope, _sum(needed))
    except OverBudget as over:
        return over
    return None


def _sum(charges: Sequence[Charge]) -> Charge:
    """One charge for all; of unknown price as soon as one is."""
    costs = [one.cost_usd_estimate for one in charges]
    known = [Decimal(cost) for cost in costs if cost is not None]
    return Charge(
        tokens=sum(one.tokens for one in charges),
        cost_usd_estimate=f"{sum(known, Decimal(0)):f}" if len(known) == len(costs) else None,
    )
