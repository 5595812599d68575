"""The contract of an engine, which runs fixes (ADR-0086, ADR-0087), and what becomes of a job whose worker
is gone.

An engine starts a fix, and continues it if a worker died. It does not decide which fix starts when
(``scheduling``), and its state of a fix is a hint: how a fix ended is read from the audit trail.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.fix_order import FixOrder
from fallback_tier.workers.problem import MAX_TAKES, PASSING, TIME_LIMIT, Problem


class Phase(StrEnum):
    """The phase of a fix, as its engine knows it.

    ``unknown``: the engine does not have it (never had it, or lost it): submit it. ``active``: it waits for
    a worker of the engine's, or has one. ``waiting``: for a person, at no cost. ``ended``: the audit trail
    says how. ``failed``: it is not continued automatically. ``cancelled``: the fleet ended it.
    """

    UNKNOWN = "unknown"
    ACTIVE = "active"
    WAITING = "waiting"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EngineState(Frozen):
    """The state of a fix in its engine. ``problem``: why it failed; of an unknown fix, how its worker
    ended without a status, if the engine has just noticed that.
    """

    phase: Phase
    problem: Problem | None = None


class FleetEngine(Protocol):
    """Runs fixes. Any process may repeat a call at any time: no call does anything twice. They raise
    FallbackError if the engine can't be reached: then nothing is known.
    """

    @property
    def room(self) -> int | None:
        """Return how many fixes may be submitted now, or None for an engine with its own queue without
        a bound.
        """
        ...

    def submit(self, order: FixOrder) -> None:
        """Run this fix, from its start or from where the audit trail says that it is. One that is
        active continues, as with ``renew``; one that is over in any way is restarted from the audit
        trail.
        """
        ...

    def renew(self, order: FixOrder) -> None:
        """Send the order again, as the campaign's settings may have changed since it was submitted: its
        next step uses this order, if another worker may take it. No effect if unknown or over.
        """
        ...

    def state(self, fix_id: str) -> EngineState:
        """Return its current state."""
        ...

    def cancel(self, fix_id: str) -> None:
        """End it in good order, soon; what is on record stays. No effect if unknown or over."""
        ...

    def wake(self, fix_id: str) -> None:
        """Report that a decision of a person is on record, so that a waiting fix looks. The call may be
        lost.
        """
        ...

    def forget(self, fix_id: str) -> None:
        """Delete what the engine stores of it on this machine: its end is in the campaign's list."""
        ...

    def close(self) -> None:
        """Release what this process holds. Workers of this process end in good order, and their fixes
        can be submitted again; others continue. ``state`` may still be called; an engine whose fixes
        continue without this process may raise FallbackError. Idempotent.
        """
        ...


class Becomes(StrEnum):
    """``stays``: it runs elsewhere. ``again``: it is queued. ``failed`` and ``cancelled``: it is not
    continued automatically.
    """

    STAYS = "stays"
    AGAIN = "again"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Settlement(NamedTuple):
    """What becomes of a job. ``takes``: as far as they count from now on. ``problem``: why it failed,
    or what a fix that is queued again waits for.
    """

    becomes: Becomes
    takes: int
    problem: Problem | None = None


def settle(
    state: EngineState,
    takes: int,
    *,
    cancelling: bool,
    leaving: bool = False,
    retries: bool,
    resume: str,
) -> Settlement:
    """Return what becomes of a job that was taken ``takes`` times. The caller knows of its end only what
    its engine says.

    ``cancelling``: it is to be cancelled. ``leaving``: the scheduler ends in good order, and so did its
    workers, which does not count as a worker's death. ``retries``: retry after a temporary problem or a
    killed worker, since no caller waits for an answer; otherwise the submitter gets the problem.
    ``resume``: how it continues, as a clause.
    """
    problem = state.problem
    is_passing = retries and problem is not None and problem.code in PASSING
    is_late = problem is not None and problem.code == TIME_LIMIT
    gives_way = cancelling and (is_passing or is_late)
    if state.phase is Phase.FAILED and problem is not None and not gives_way:
        if is_passing:
            return Settlement(Becomes.AGAIN, max(0, takes - 1), problem)
        return Settlement(Becomes.FAILED, takes, problem)
    if cancelling or state.phase is Phase.CANCELLED:
        return Settlement(Becomes.CANCELLED, takes)
    if state.phase is Phase.WAITING:
        return Settlement(Becomes.STAYS, takes)
    if leaving:
        return Settlement(Becomes.AGAIN, max(0, takes - 1))
    if problem is not None and not retries:
        return Settlement(Becomes.FAILED, takes, problem)
    if takes >= MAX_TAKES:
        return Settlement(Becomes.FAILED, takes, _died(takes, resume))
    return Settlement(Becomes.AGAIN, takes)


def _died(takes: int, resume: str) -> Problem:
    return Problem(
        code="worker",
        problem=f"Its worker has died {takes} times, and the fix may be the reason.",
        next_step=f"Look at the system's memory and at the worker's log, then {resume}.",
    )
