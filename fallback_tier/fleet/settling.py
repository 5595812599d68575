"""What becomes of a job whose worker is gone: one rule, for a campaign's runner and for the service."""

from enum import StrEnum
from typing import NamedTuple

from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.workers.problem import MAX_TAKES, PASSING, TIME_LIMIT, Problem


class Becomes(StrEnum):
    """``stays``: it runs elsewhere. ``again``: it is queued. ``failed`` and ``cancelled``: nobody goes on
    with it by itself."""

    STAYS = "stays"
    AGAIN = "again"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Settlement(NamedTuple):
    """``takes``: as far as they count from now on. ``problem``: why it failed; of one that is queued again,
    what it waits for to pass."""

    becomes: Becomes
    takes: int
    problem: Problem | None = None


def settle(
    found: EngineState,
    takes: int,
    *,
    cancelling: bool,
    leaving: bool = False,
    retries: bool,
    resume: str,
) -> Settlement:
    """Return what becomes of a job that was taken ``takes`` times; of its end the caller knows nothing but
    what its engine says.

    ``cancelling``: it is to be cancelled. ``leaving``: the scheduler ends in good order, and so did its
    workers: that counts for no death. ``retries``: nobody waits for an answer, so what passes by itself and
    a worker that was killed are retried; otherwise who submitted it is told. ``resume``: how it continues,
    as a clause.
    """
    why = found.problem
    is_passing = retries and why is not None and why.code in PASSING
    is_late = why is not None and why.code == TIME_LIMIT
    gives_way = cancelling and (is_passing or is_late)
    if found.phase is Phase.FAILED and why is not None and not gives_way:
        if is_passing:
            return Settlement(Becomes.AGAIN, max(0, takes - 1), why)
        return Settlement(Becomes.FAILED, takes, why)
    if cancelling or found.phase is Phase.CANCELLED:
        return Settlement(Becomes.CANCELLED, takes)
    if found.phase is Phase.WAITING:
        return Settlement(Becomes.STAYS, takes)
    if leaving:
        return Settlement(Becomes.AGAIN, max(0, takes - 1))
    if why is not None and not retries:
        return Settlement(Becomes.FAILED, takes, why)
    if takes >= MAX_TAKES:
        return Settlement(Becomes.FAILED, takes, _died(takes, resume))
    return Settlement(Becomes.AGAIN, takes)


def _died(takes: int, resume: str) -> Problem:
    return Problem(
        code="worker",
        problem=f"Its worker has died {takes} times, and the fix may be the reason.",
        next_step=f"Look at the system's memory and at the worker's log, then {resume}.",
    )
