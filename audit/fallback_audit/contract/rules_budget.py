"""Rules of the trace contract over budgets: a cap stops an attempt, only a person raises it."""

from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Finding, Trail, is_budget_stop
from fallback_audit.events import (
    AttemptRefused,
    AttemptStarted,
    BudgetRaised,
    BudgetReached,
    ConsumerLeft,
    FixEscalated,
    FixRefused,
    ModelCalled,
    PatchProposed,
)


@rule(
    "After BudgetReached nothing is sent or proposed, and the attempt is refused for it.",
    "ADR-0023",
    breaches=(
        Added(ModelCalled),
        Added(PatchProposed),
        Altered(AttemptRefused, "reason"),
    ),
    sees={ModelCalled, PatchProposed, BudgetReached, AttemptRefused},
    local=True,
)
def budget_acts(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        reached = run.of(BudgetReached)
        for seq, event in run.any_of(ModelCalled, PatchProposed, BudgetReached) if reached else ():
            if seq > reached[0].seq:
                yield seq, f"{event.kind} although the budget was used up"
        for seq, refusal in run.of(AttemptRefused) if reached else ():
            if seq > reached[0].seq and not is_budget_stop(refusal):
                yield (
                    seq,
                    f"the budget was used up, and the attempt was refused for {refusal.reason}",
                )


@rule(
    "A refusal or escalation for a budget has its BudgetReached, and no other reason.",
    "ADR-0023",
    breaches=(
        Removed(BudgetReached),
        Altered(FixEscalated, "reason"),
    ),
    sees={AttemptRefused, FixEscalated},
    local=True,
)
def budget_stops_are_real(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        stopped = False
        for seq, event in run.any_of(BudgetReached, BudgetRaised, AttemptRefused, FixEscalated):
            if isinstance(event, BudgetReached | BudgetRaised):
                stopped = isinstance(event, BudgetReached)
            elif is_budget_stop(event) and not stopped:
                yield seq, f"{event.kind} for a budget that was not reached"
            elif stopped and isinstance(event, FixEscalated) and not is_budget_stop(event):
                yield (
                    seq,
                    f"a budget stopped the attempt, and the fix is escalated as {event.reason}",
                )


@rule(
    "BudgetRaised has a name and a reason, and is recorded only if a budget stopped the fix.",
    "ADR-0023",
    breaches=(
        Added(BudgetRaised),
        Altered(BudgetRaised, "by"),
        Altered(BudgetRaised, "reason"),
    ),
    sees={BudgetRaised},
)
def budget_raises_are_signed(trail: Trail) -> Iterator[Finding]:
    for seq, raised in trail.of(BudgetRaised):
        if not (raised.by.strip() and raised.reason.strip()):
            yield seq, "BudgetRaised without a name and a reason"
    if not trail.of(BudgetRaised):
        return
    reached: int | None = None
    for (_, before), (seq, event) in pairwise([(0, None), *trail.acts]):
        if isinstance(event, AttemptStarted):
            reached = None
        elif isinstance(event, BudgetReached):
            reached = seq
        elif isinstance(event, BudgetRaised) and (
            reached is None
            or (
                not isinstance(before, BudgetReached | ConsumerLeft | BudgetRaised)
                and not is_budget_stop(before)
            )
        ):
            yield seq, "BudgetRaised where no budget had stopped the fix"


@rule(
    "After BudgetRaised the stopped attempt is resumed, or the fix ends.",
    "ADR-0023",
    breaches=(
        Removed(AttemptStarted),
        Added(ModelCalled),
    ),
    sees=None,
    local=True,
)
def budget_raises_reopen(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs if trail.of(BudgetRaised) else ():
        raises = run.of(BudgetRaised)
        for seq, event in run.entries if raises else ():
            if seq > raises[0].seq and not isinstance(
                event, BudgetRaised | FixEscalated | FixRefused
            ):
                yield seq, f"{event.kind} after BudgetRaised, before the attempt was resumed"
        if raises and run.successor and not run.resumed:
            yield run.successor.start.seq, f"attempt {run.attempt} was not resumed"
