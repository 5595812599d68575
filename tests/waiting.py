"""Waits with a limit: a test that waits for what never comes fails, and says for what.

Without one, the run stops in silence. The limit is on hanging, not on being slow: it is a little below
pytest-timeout's (``pyproject.toml``), which ends the waits that are not ours.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO, AnyStr, Protocol

#: In seconds. The slowest of these waits takes a few on a busy machine.
PATIENCE_S = 300.0

#: How soon something is looked at again that tells nobody, at first; each time a little later, for a look
#: may read a whole record, or ask after every process; and never later than in a tenth of a second.
_LOOK_AGAIN_S, _LATER, _AT_LAST_S = 0.02, 1.1, 0.1


def at_once(works: Iterable[Callable[[], object]]) -> None:
    """Do each in a thread of its own, all to their end. Raises TimeoutError.

    They are daemons: one that hangs does not keep the whole run from ending.
    """
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    joined(*threads)


def joined(*threads: threading.Thread) -> None:
    """Wait until they have all ended. Raises TimeoutError."""
    until = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            raise _late(f"the thread {thread.name} has not ended")


def came(event: threading.Event) -> None:
    """Wait until somebody sets it. Raises TimeoutError."""
    if not event.wait(PATIENCE_S):
        raise _late("nobody has set the event")


def becomes(
    condition: Callable[[], object],
    what: str,
    *,
    patience_s: float | None = None,
    every_s: float = _LOOK_AGAIN_S,
) -> None:
    """Wait until it holds; for what nobody tells us of. ``every_s``: where a look is a call to a server.

    Raises TimeoutError.
    """
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while not condition():
        if time.monotonic() > until:
            raise _late(f"it is not so that {what}")
        time.sleep(every_s)
        every_s = min(every_s * _LATER, max(every_s, _AT_LAST_S))


class Prints(Protocol[AnyStr]):
    """A process whose output we read."""

    stdout: IO[AnyStr] | None

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...


def next_line(process: "Prints[AnyStr]") -> AnyStr:
    """What it prints next, empty at its end. For one that prints whole lines, and waits between them.

    Raises TimeoutError, and kills it.
    """
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], PATIENCE_S)[0]:
        process.kill()
        raise _late(f"process {process.pid} has said nothing")
    return process.stdout.readline()


def exit_code(child: int) -> int:
    """Of a child of ours, reaped here (negative: a signal's number).

    Raises TimeoutError, and kills it with SIGABRT: pytest's faulthandler, which a fork has too, writes
    down where it was.
    """
    ending = os.pidfd_open(child)
    try:
        late = not select.select([ending], [], [], PATIENCE_S)[0]
        if late:
            os.kill(child, signal.SIGABRT)
            if not select.select([ending], [], [], _LAST_WORDS_S)[0]:
                os.kill(child, signal.SIGKILL)
    finally:
        os.close(ending)
    _, status = os.waitpid(child, 0)
    if late:
        raise _late(f"process {child} has not ended")
    return os.waitstatus_to_exitcode(status)


#: What a process has for writing down where it was, in seconds.
_LAST_WORDS_S = 10.0


def _late(what: str) -> TimeoutError:
    return TimeoutError(f"After {PATIENCE_S:.0f} s {what}: it hangs.")
