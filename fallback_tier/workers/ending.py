"""How the process of one fix ends before its work does: told to, or because the fix took too long."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fallback_tier.errors import FallbackError
from fallback_tier.workers.problem import Problem, defect, problem_of, took_too_long


class Late(BaseException):
    """SIGALRM: the fix has taken as long as it may."""


class _Stopped(BaseException):
    """SIGTERM: what is running is ended in good order, and can be resumed."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM ends what is inside in good order, and then the process, as a shell says it (143)."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except _Stopped:
        sys.exit(128 + signal.SIGTERM)


def carry_out(
    work: Callable[[], None], failed: Callable[[Problem], None], *, limit_s: float, resume: str
) -> None:
    """Do a worker's fix; if it can't go on, ``failed`` is told why.

    ``limit_s``: what ``end_late`` was given. ``resume``: how the fix continues, as a clause. A defect is
    raised again: its traceback goes to the worker's log.
    """
    try:
        work()
    except (Late, Exception) as error:
        if is_late(error):
            failed(took_too_long(limit_s, resume))
        elif isinstance(error, FallbackError):
            failed(problem_of(error))
        else:
            failed(defect(error))
            raise


def is_late(error: BaseException | None) -> bool:
    """Does it come of ``Late``? Whoever is interrupted while a class is made, or a module imported, may
    raise an error of their own for it."""
    while error is not None and not isinstance(error, Late):
        error = error.__cause__ or error.__context__
    return error is not None


def end_late(limit_s: float) -> None:
    """Raise ``Late`` in this thread when ``limit_s`` seconds are over. A worker keeps its limit itself:
    who started it may be dead by then."""
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def not_late() -> None:
    """Its work is done: the limit ends nothing any more."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _late(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Late
