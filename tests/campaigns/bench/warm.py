"""``attempt --serve`` as a side: one process, asked once a round."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.campaigns.bench.measure import BenchError, Sample, clean_environment
from tests.campaigns.bench.targets import Target

#: The kernel counts a process' time in these.
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class WarmAttempt:
    """A round is one line and its answer. Use as a context manager; the start is not in the figure."""

    label = "fallback-tier attempt --serve"

    def __init__(self, program: Path, target: Target, *options: str) -> None:
        record = json.loads(target.advisory.read_text())
        request = {"advisory": record, "repository": str(target.root)}
        self._line = json.dumps(request) + "\n"
        self._argv = [program, "attempt", "--serve", "--state-dir", target.state, *options]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            text=True,
        )
        self.measure()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def measure(self) -> Sample:
        """One attempt. Raises BenchError where it made no patch."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise BenchError("the serving process was not started")
        before = _cpu_s(process.pid)
        start = time.perf_counter()
        with suppress(BrokenPipeError):
            process.stdin.write(self._line)
            process.stdin.flush()
        message = process.stdout.readline()
        wall_s = time.perf_counter() - start
        answer: dict[str, Any] = json.loads(message) if message else {"error": "it ended"}
        if answer.get("application", {}).get("outcome") != "applied":
            raise BenchError(f"no patch was made: {answer.get('error')}")
        return Sample(wall_s, _cpu_s(process.pid) - before, _peak_bytes(process.pid))


def _cpu_s(pid: int) -> float:
    """Its own time, and that of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) * _TICK_S


def _peak_bytes(pid: int) -> int:
    """Of the serving process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
