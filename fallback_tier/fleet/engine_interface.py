"""The contract of an engine, which runs fixes (ADR-0086, ADR-0087), and what becomes of a job whose worker
is gone.

An engine starts a fix, and continues it if a worker died. It does not decide which fix comes when
(``scheduling``), and its state of a fix is a hint: how one ended is read from the record.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.fix_order import FixOrder
from fallback_tier.workers.problem import MAX_TAKES, PASSING, TIME_LIMIT, Problem


class Phase(StrEnum):
    """Where an engine has a fix.

    ``unknown``: it does not have it, whether it never had or has lost it: submit it. ``active``: it waits
    for a worker of the engine's, or has one. ``waiting``: for a person; it costs nothing. ``ended``: the
    record says how. ``failed``: nobody goes on with it by itself. ``cancelled``: it was ended by us.
    """

    UNKNOWN = "unknown"
    ACTIVE = "active"
    WAITING = "waiting"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EngineState(Frozen):
    """``problem``: why it failed; of an unknown one, how its worker ended without a word, if the engine has
    just seen that."""

    phase: Phase
    problem: Problem | None = None


class FleetEngine(Protocol):
    """Runs fixes. Each call may be made again at any time, by another process too: none does anything
    twice. They raise FallbackError where the engine can't be reached: then nothing is known."""

    @property
    def room(self) -> int | None:
        """How many fixes may be submitted now; None: it has a queue of its own, without a bound."""
        ...

    def submit(self, order: FixOrder) -> None:
        """Have this fix run, from its start or from where the record says that it stands. One that is
        active already goes on, as with ``renew``; one that is over in any way is begun again, by the
        record."""
        ...

    def renew(self, order: FixOrder) -> None:
        """The campaign's settings may have changed since it was submitted: where others may take its next
        step, they do by this order. Unknown or over: nothing."""
        ...

    def state(self, fix_id: str) -> EngineState:
        """Where it stands now."""
        ...

    def cancel(self, fix_id: str) -> None:
        """End it in good order, soon; what is on record stays. Unknown or over: nothing."""
        ...

    def wake(self, fix_id: str) -> None:
        """A person has decided, which is on record: whoever waits is to look. It may be lost."""
        ...

    def forget(self, fix_id: str) -> None:
        """Its end is in the campaign's list: what the engine keeps of it on this machine may go."""
        ...

    def close(self) -> None:
        """Let go of what this process holds. Workers of this process end in good order, and their fixes
        can be submitted again; others go on. ``state`` may be asked still: an engine whose fixes go on
        without this process may raise FallbackError. Idempotent."""
        ...


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
