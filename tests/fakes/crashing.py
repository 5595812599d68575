"""A process that is killed at an event: SIGKILL, so that nothing of ours runs after it."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fallback_audit.checkpoints.note import Verifier
from fallback_audit.ports import AppendGuard, Record, StoredEvent
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.waiting import exit_code
from tests.warming import warm_once


class Kill(NamedTuple):
    """Right before or right after the process records its ``event``-th event, counted from 1."""

    event: int
    before: bool

    @property
    def label(self) -> str:
        """For test identifiers."""
        return f"{'before' if self.before else 'after'}-{self.event}"


class CrashingStore(SqliteAuditStore):
    """The real store, in a process that dies at a chosen event."""

    def __init__(
        self,
        path: Path,
        kill: Kill | None,
        *,
        guard: AppendGuard | None = None,
        verifiers: Sequence[Verifier] = (),
    ) -> None:
        super().__init__(path, guard=guard, verifiers=verifiers)
        self._kill = kill
        self._appended = 0

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        self._appended += 1
        self._die_at(Kill(self._appended, before=True))
        stored = super().append_all(records)
        self._die_at(Kill(self._appended, before=False))
        return stored

    def _die_at(self, now: Kill) -> None:
        if now == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


def boundaries(events: int) -> list[Kill]:
    """Every place between the events of a run of ``events``, and behind the last one."""
    return [Kill(number, before) for number in range(1, events + 1) for before in (True, False)]


def in_child(work: Callable[[], int], output: Path) -> int | None:
    """Run ``work`` in a forked process, its output in a file: its exit code, or None: it was killed."""
    warm_once()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            with output.open("w") as file, contextlib.redirect_stdout(file):
                code = work()
        except BaseException:  # noqa: BLE001 (the child must not go on with the parent's tests)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = exit_code(child)
    assert code >= 0 or code == -signal.SIGKILL
    return code if code >= 0 else None
