"""How the process of one fix ends before its work does: told to, or because the fix took too long."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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


def is_late(error: BaseException | None) -> bool:
    """Does it come of ``Late``? Whoever is interrupted while a class is made, or a module imported, may
    raise an error of their own for it."""
    while error is not None and not isinstance(error, Late):
        error = error.__cause__ or error.__context__
    return error is not None


def end_late(limit_s: float) -> None:
    """Raise ``Late`` in this thread when ``limit_s`` seconds are over."""
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _late(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Late
