"""Processes that are killed: forked from one that has imported everything, so a start costs 1 ms."""

import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.waiting import exit_code

#: A child that says nothing for so long hangs.
PATIENCE_S = 120.0

#: What a child writes before the sentence of its failure.
FAILED = "! "


class Child:
    """A forked process; ``work`` writes whole lines to the descriptor that it is given."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._read, write = os.pipe()
        with warnings.catch_warnings():  # Python 3.12 warns: a test runner has threads
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _work(work, self._read, write)
        os.close(write)
        self._said = b""

    def wait_for_a_line(self) -> bool:
        """False where it ended without one. Raises TimeoutError for a child that hangs."""
        while b"\n" not in self._said:
            if not self._more():
                return False
        return True

    def _more(self) -> bool:
        """What it says next is added; False at its end. Raises TimeoutError, and kills it."""
        if not select.select([self._read], [], [], PATIENCE_S)[0]:
            self.kill()
            raise TimeoutError(f"process {self.pid} said nothing for {PATIENCE_S:.0f} s")
        piece = os.read(self._read, 1 << 16)
        self._said += piece
        return bool(piece)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def lines(self) -> list[str]:
        """Every whole line, to its end; then the process is gone. What failed by itself raises."""
        while self._more():
            pass
        os.close(self._read)
        exit_code(self.pid)
        whole = self._said.decode().split("\n")[:-1]
        if failures := [line for line in whole if line.startswith(FAILED)]:
            raise AssertionError(f"a process failed by itself: {failures[0].removeprefix(FAILED)}")
        return whole


def _work(work: Callable[[int], None], read: int, write: int) -> None:
    try:
        os.close(read)
        with Path(os.devnull).open("wb") as nowhere:  # notices; what fails comes through the pipe
            os.dup2(nowhere.fileno(), 2)
        work(write)
    except BaseException:  # noqa: BLE001 (nothing may come back into the parent's code)
        os.write(write, (FAILED + traceback.format_exc().replace("\n", " | ") + "\n").encode())
    finally:
        os._exit(0)


def kill_all(children: Sequence[Child]) -> list[str]:
    """As near to at once as can be; what they had said by then."""
    for child in children:
        child.kill()
    return [line for child in children for line in child.lines()]
