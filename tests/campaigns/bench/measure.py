"""One side of a pair, measured by the operating system's own accounting.

A child's peak memory is never reported below that of the process that started it. So this module,
and every row, imports only small parts of the standard library, and the report states the floor.
"""

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol, Self

#: Seconds that one measured command may take: far above every row, so that only a hang meets it.
TIMEOUT_S = 300.0

#: Variables that change what is measured (bytecode, buffering) or that could reach a paid service.
_LEFT_OUT = ("PYTHON", "VIRTUAL_ENV", "ANTHROPIC", "FALLBACK_TIER")

_DEV_NULL = Path(os.devnull)
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class BenchError(Exception):
    """A side did not do its work: then there is no figure, and the sentence says why."""


class Sample(NamedTuple):
    """One run of one side. ``peak_bytes`` is that of its largest process."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


class Side(Protocol):
    """What a pair compares."""

    @property
    def label(self) -> str:
        """What the table calls it."""
        ...

    def measure(self) -> Sample:
        """Do the work once. Raises BenchError where it was not done."""
        ...


@dataclass(frozen=True)
class Command:
    """A whole process: started, awaited, its output thrown away, its exit code checked."""

    argv: Sequence[str | Path]
    cwd: Path
    stdin: Path = _DEV_NULL
    stdout: Path = _DEV_NULL
    env: Mapping[str, str] = field(default_factory=lambda: _NO_VARIABLES)
    exit_code: int = 0

    def run(self, timeout_s: float = TIMEOUT_S) -> Sample:
        """One run, children counted in. Raises BenchError: another exit code, killed, not there."""
        environment = {**clean_environment(), **self.env}
        with self.stdin.open("rb") as source, self.stdout.open("wb") as sink:
            start = time.perf_counter()
            try:
                process = subprocess.Popen(
                    self.argv,
                    cwd=self.cwd,
                    stdin=source,
                    stdout=sink,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                )
            except OSError as error:
                raise BenchError(f"{self.argv[0]} can't be started: {error.strerror}") from error
            killer = threading.Timer(timeout_s, process.kill)
            killer.start()
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - start
            killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != self.exit_code:
            words = " ".join(map(str, self.argv))
            raise BenchError(
                f"`{words}` ended with exit code {process.returncode}, not {self.exit_code}"
            )
        return Sample(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@dataclass(frozen=True)
class Processes:
    """Commands one after the other, their times added up. ``before`` runs first, and untimed."""

    label: str
    commands: Sequence[Command]
    before: Sequence[Command] = ()

    def measure(self) -> Sample:
        """One run of all. Raises BenchError where one fails."""
        for command in self.before:
            command.run()
        return total([command.run() for command in self.commands])


class Worker:
    """Work inside a long-lived process, so that starting it is not in the figure.

    The script answers each line on its standard input with one JSON object on its standard output:
    ``wall_s``, ``cpu_s``, ``peak_bytes`` and whatever it wants to be reported as facts
    (``tests.campaigns.bench.worker.serve`` does that). Use as a context manager.
    """

    def __init__(self, label: str, argv: Sequence[str | Path], cwd: Path) -> None:
        self.label = label
        self.facts: dict[str, Any] = {}
        self._argv = argv
        self._cwd = cwd
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(),
                text=True,
            )
        except OSError as error:
            raise BenchError(f"{self._argv[0]} can't be started: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def measure(self) -> Sample:
        """One round of the script's work. Raises BenchError where it ended instead of answering."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise BenchError(f"the worker {self.label!r} was not started")
        try:
            process.stdin.write("go\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise BenchError(f"the worker {self.label!r} ended with exit code {process.wait()}")
        facts: dict[str, Any] = json.loads(answer)
        sample = Sample(facts.pop("wall_s"), facts.pop("cpu_s"), facts.pop("peak_bytes"))
        self.facts = facts
        return sample


def total(samples: Sequence[Sample]) -> Sample:
    """Samples of commands that ran one after the other, as one."""
    return Sample(
        wall_s=sum(sample.wall_s for sample in samples),
        cpu_s=sum(sample.cpu_s for sample in samples),
        peak_bytes=max(sample.peak_bytes for sample in samples),
    )


def clean_environment() -> dict[str, str]:
    """Ours without what would change the figures."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}


def peak_floor_bytes() -> int:
    """The harness's own peak: no process that it starts is reported below this."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
