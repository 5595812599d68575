"""A command of a measure: a group of its own, ended at a time limit with all that it started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Between the signal that asks a command to end and the one that ends it.
_GRACE_S = 30

#: Those that run now: they are groups of their own, which no signal to the harness reaches.
_RUNNING: set[int] = set()


@dataclass(frozen=True)
class Done:
    """How a command ended; ``code`` None: at its time limit."""

    code: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def said(self) -> str:
        """What it printed, errors last."""
        return f"{self.out}\n{self.err}".strip()


def run_to_end(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> Done:
    """Run it to its end, or to the time limit. Raises OSError where it can't be started."""
    process = subprocess.Popen(
        [*map(str, command)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    _RUNNING.add(process.pid)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Done(None, *_ended(process))
    finally:
        _RUNNING.discard(process.pid)
    return Done(process.returncode, out, err)


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ask the command, and all that it started, to end; then make it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def end_with_all() -> None:
    """A signal that ends the harness ends what it started too: a run that was cut short is no result."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, _leave)


def _leave(number: int, _frame: object) -> None:
    for pid in tuple(_RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    os._exit(128 + number)
