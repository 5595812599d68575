"""A fix that stopped at its budget: what to ask a person, and the record of what was decided."""

from decimal import Decimal

from fallback_audit.events import BudgetRaised, BudgetReached, ReviewDecided, decided_words
from fallback_audit.ports import AuditStore
from fallback_audit.vocabulary import BudgetLimit
from fallback_tier.budget.meter import amount, is_of_a_day
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.history import Transition, read_history

#: The option that raises each cap of a fix, the same in ``review raise-budget`` and ``fix``.
_OPTIONS = {
    BudgetLimit.USD_PER_FIX: "--max-usd",
    BudgetLimit.TOKENS_PER_FIX: "--max-tokens",
    BudgetLimit.USD_PER_DAY: "--max-usd-per-day",
    BudgetLimit.TOKENS_PER_DAY: "--max-tokens-per-day",
}


def how_to_go_on(reached: BudgetReached, fix_id: str) -> str:
    """Return the question to a person: the commands that raise the cap and continue."""
    option, least = _OPTIONS[reached.limit], _least(reached)
    raising, resuming = raising_command(reached, fix_id), f"fallback-tier resume {fix_id}"
    if is_of_a_day(reached.limit):
        return f"Go on tomorrow, or with {option} {least} or more? `{raising}`, then `{resuming}`."
    return f"Go on? `{raising}` (or more), then `{resuming}`."


def raising_command(reached: BudgetReached, fix_id: str) -> str:
    """Return the command that lets the fix continue, with the lowest cap under which the next call fits."""
    raising = f"fallback-tier review raise-budget {fix_id} --by NAME --because TEXT"
    if is_of_a_day(reached.limit):
        return raising
    return f"{raising} {_OPTIONS[reached.limit]} {_least(reached)}"


def raise_budget(audit: AuditStore, fix_id: str, raised: BudgetRaised) -> BudgetReached:
    """Record that a person raised a cap; returns what had been reached.

    Raises InputError, and records nothing: no such fix, one that did not stop at its budget, was rejected
    there or abandoned, no name or reason, a cap that is not higher. After a cap per day no number is
    needed: that one is an option of ``fix``, and the record says who let the fix continue.
    """
    history = read_history(audit, fix_id)
    history.check_not_abandoned()
    transition = history.current
    if (decision := transition.last_of(ReviewDecided)) is not None:
        raise InputError(
            f"Fix {fix_id} was answered already: {' '.join(decided_words(decision).split())}.",
            next_step="Start a new fix to try again.",
            kind="answered",
        )
    reached = transition.stopped
    if reached is None:
        raise InputError(
            f"Fix {fix_id} did not stop at its budget: its last event is {transition.last_kind}.",
            next_step="Only a fix that was escalated with budget_exhausted can be given more.",
            kind="not_at_budget",
        )
    if not (raised.by.strip() and raised.reason.strip()):
        raise InputError(
            "A raised budget needs a name and a reason.",
            next_step="Give --by NAME and --because TEXT: both go on record.",
            kind="signature_empty",
        )
    for limit, given in (
        (BudgetLimit.USD_PER_FIX, raised.usd_per_fix),
        (BudgetLimit.TOKENS_PER_FIX, raised.tokens_per_fix),
    ):
        _check_higher(transition, reached, limit, None if given is None else str(given))
    audit.append(transition.scope, raised)
    return reached


def _check_higher(
    transition: Transition, reached: BudgetReached, limit: BudgetLimit, given: str | None
) -> None:
    """The cap that was reached must be raised; another one may be, and then truly so."""
    standing = [reached.cap] if reached.limit is limit else []
    for raised in transition.of(BudgetRaised):
        earlier = getattr(raised, limit.value)
        standing += [] if earlier is None else [str(earlier)]
    cap = max(standing, key=Decimal, default=None)
    if given is None:
        # Raised before, and nothing was asked since: that one stands.
        needed = reached.limit is limit and cap == reached.cap
    else:
        needed = cap is not None and Decimal(given) <= Decimal(cap)
    if needed and cap is not None:
        message = "" if given is None else f", and {amount(limit, given)} is not more"
        raise InputError(
            f"The present cap is {amount(limit, cap)}{message}.",
            next_step=f"Give {_OPTIONS[limit]} {_least(reached) if reached.limit is limit else 'N'} "
            "or more.",
            kind="cap_not_given" if given is None else "cap_not_higher",
        )


def _least(reached: BudgetReached) -> str:
    """The lowest cap under which the next call fits."""
    if not reached.wanted:
        return "N"
    return f"{Decimal(reached.used) + Decimal(reached.wanted):f}"
