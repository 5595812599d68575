"""A piece of work in a child of this process, which has imported already what the work needs.

The child begins with a copy of this process and takes all that it does to it away at its end: no state of
one piece of work reaches the next, and none of them can end this process (ADR-0082).
"""

import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, NoReturn

from fallback_tier.errors import FallbackError
from fallback_tier.sandbox.process import kill_tree

#: How long a child that was asked to end may take: to end its clients, close its store, sign a checkpoint.
GRACE_S = 5.0

#: A patch has at most 8 MiB, and JSON may escape each byte of it in six.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

#: One read of a pipe: Linux pipes hold 64 KiB by default.
_READ_BYTES = 65_536

#: prctl(2): which signal this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


class AttemptEndedError(FallbackError):
    """An attempt gave no answer: its time was over, or its process died."""

    code: ClassVar[str] = "attempt_ended"


def in_a_child(work: Callable[[], bytes], *, time_limit_s: float) -> bytes:
    """What ``work`` returns, done in a child of this process. Nothing of the child is left behind.

    This process must have one thread. The child's standard input is empty, and what it prints goes to
    standard error. Raises AttemptEndedError after ``time_limit_s`` (wall clock), where the child dies, and
    for an answer of more than ``MAX_ANSWER_BYTES``.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(work, writing, parent)
    os.close(writing)
    try:
        _lead_own_group(child)
        answer = _read(reading, until=time.monotonic() + time_limit_s)
    except BaseException:
        _end(child, at_once=True)
        raise
    finally:
        os.close(reading)
    status = _end(child, at_once=answer is None)
    if answer is None:
        raise AttemptEndedError(
            f"The attempt was ended after {time_limit_s:g} s, its limit.",
            next_step="It counts as begun: send it again under a fix_id of its own, with a higher "
            "--time-limit.",
        )
    if len(answer) > MAX_ANSWER_BYTES or os.waitstatus_to_exitcode(status) != 0:
        raise AttemptEndedError(
            _what_happened(answer, status),
            next_step="Standard error says more, if anything does. Is the machine short of memory? "
            "Else report it, please, with the request.",
        )
    return answer


def _what_happened(answer: bytes, status: int) -> str:
    if len(answer) > MAX_ANSWER_BYTES:
        return f"The attempt's answer is larger than {MAX_ANSWER_BYTES:,} bytes."
    if os.WIFSIGNALED(status):
        return f"The attempt's process died by signal {os.WTERMSIG(status)}."
    return f"The attempt's process ended with {os.WEXITSTATUS(status)} and no answer."


def _be_the_child(work: Callable[[], bytes], writing: int, parent: int) -> NoReturn:
    """Whatever happens, this process ends here: what called ``in_a_child`` goes on in the parent alone."""
    status = 1
    try:
        _lead_own_group(os.getpid())
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # closes what is open on its way
        _end_with(parent)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # what a plugin prints is no answer
        with open(writing, "wb") as pipe:
            pipe.write(work())
        status = 0
    except KeyboardInterrupt:
        pass  # told to end, by us
    except BaseException:  # noqa: BLE001 (there is nobody to raise it to)
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _lead_own_group(pid: int) -> None:
    """Both processes ask for it, so that neither has to wait for the other."""
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def _end_with(parent: int) -> None:
    """A child does not outlive who asked for it: it is told to end."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before
        raise KeyboardInterrupt


def _read(pipe: int, *, until: float) -> bytes | None:
    """All that comes, a little more than the limit at most; None where the time was over."""
    found = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(found) <= MAX_ANSWER_BYTES:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                return None
            chunk = os.read(pipe, _READ_BYTES)
            if not chunk:
                break
            found += chunk
    return bytes(found)


def _end(child: int, *, at_once: bool) -> int:
    """Wait for the child's end; ``at_once``: ask for it, and then see to it. The status of ``waitpid``."""
    pidfd = os.pidfd_open(child)
    try:
        if at_once or not _ended(pidfd):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not _ended(pidfd):
                kill_tree(child, None)
    finally:
        os.close(pidfd)
    return os.waitpid(child, 0)[1]


def _ended(pidfd: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pidfd, selectors.EVENT_READ)
        return bool(selector.select(GRACE_S))
