"""A small process above each worker, so that nothing of the worker outlives it, however it ends.

A worker starts clients, which start programs of their own. If it is killed they would continue, and no
process would wait for them. The guard is the worker's parent, becomes the parent of whatever the worker
leaves (a "subreaper"), and kills that before it ends itself. It imports little: it costs a few megabytes.

``start_worker`` runs this module with two arguments: the time limit (s), and the worker's module, which has
a ``main``.
"""

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

#: Constants of <linux/prctl.h>.
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36

#: From a worker's time limit, which it enforces itself, to the signal that kills it in any case (seconds).
GRACE_S = 60.0

#: Time for killed processes to disappear (seconds); one that is stuck in the kernel is left to the system.
_GONE_S = 10.0


def stand_guard(limit_s: float) -> None:
    """Fork. The child returns, to do its work; this process waits for it, and ends as it ended.

    ``limit_s``: its time limit; it is killed some time after that. Call this before there is a second
    thread. SIGTERM is passed on; the child also gets it if this process is killed.
    """
    guard = os.getpid()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        _prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != guard:
            os._exit(1)  # the guard was killed before the death signal was set
        return
    os.close(0)  # the worker reads its order from it
    signal.signal(signal.SIGTERM, _passing(worker, signal.SIGTERM))
    signal.signal(signal.SIGALRM, _passing(worker, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)
    _end_as(_ended(worker))


@contextmanager
def keeping_imports() -> Iterator[None]:
    """Suspend garbage collection during a worker's imports, whose objects stay: with it they take half
    as long again (docs/benchmarks.md, `import-gc`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _passing(worker: int, number: signal.Signals) -> Callable[[int, FrameType | None], None]:
    def handle(_: int, __: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker, number)

    return handle


def _ended(worker: int) -> int:
    """Wait until the worker and everything that it left are gone, and return its exit code (negative: a
    signal's number).
    """
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _kill_what_is_left()
    return os.waitstatus_to_exitcode(status)


def _kill_what_is_left() -> None:
    """Kill all children; the children of a killed process become ours, and are killed in the next round."""
    until = time.monotonic() + _GONE_S
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.01)


def _children() -> list[int]:
    """Return our children's process ids; none if this kernel does not list them."""
    try:
        lists = [task / "children" for task in Path("/proc/self/task").iterdir()]
        return [int(pid) for path in lists for pid in path.read_text("ascii").split()]
    except OSError:
        return []


def _end_as(code: int) -> None:
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(0, code))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def main() -> None:
    """Return in the worker only, which then imports what it needs."""
    stand_guard(float(sys.argv[1]))
    with keeping_imports():
        work = import_module(sys.argv[2]).main
    work()


if __name__ == "__main__":
    main()
