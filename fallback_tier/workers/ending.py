"""Early ends of the process of one fix: on request, or because the fix took too long."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fallback_tier.errors import FallbackError
from fallback_tier.workers.problem import Problem, defect, problem_of, took_too_long


class Late(BaseException):
    """SIGALRM: the fix has reached its time limit."""


class _Stopped(BaseException):
    """SIGTERM: the current work ends in good order, and can be resumed."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM end the block in good order, and then the process, with a shell's exit code (143)."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except _Stopped:
        sys.exit(128 + signal.SIGTERM)


def carry_out(
    work: Callable[[], None], failed: Callable[[Problem], None], *, limit_s: float, resume: str
) -> None:
    """Run a worker's fix; if it can't continue, call ``failed`` with the reason.

    ``limit_s``: the limit given to ``end_late``. ``resume``: how the fix is continued, as a clause. A
    defect is raised again: its traceback goes to the worker's log.
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
    """Return whether ``Late`` caused this error: code that is interrupted while a class is created, or
    a module imported, may raise a different error.
    """
    while error is not None and not isinstance(error, Late):
        error = error.__cause__ or error.__context__
    return error is not None


def end_late(limit_s: float) -> None:
    """Raise ``Late`` in this thread after ``limit_s`` seconds. A worker enforces its limit itself,
    since the process that started it may be dead by then.
    """
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def not_late() -> None:
    """Cancel the time limit, since the work is done."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _late(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Late
