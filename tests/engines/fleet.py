"""A scenario with a server, workers and a client: started, killed, started again."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fallback_tier.engines.temporal.client import FixWorkflows
from fallback_tier.engines.temporal.connecting import Cluster, EngineUnreachableError
from fallback_tier.engines.temporal.messages import Limits, Ticket
from tests.engines.scenario import EngineScenario
from tests.forks import Forked
from tests.waiting import PATIENCE_S, becomes, next_line

ROOT = Path(__file__).parents[2]

_WORKER = (sys.executable, "-m", "tests.engines.worker")

Process = subprocess.Popen[str] | Forked

#: A lost worker is noticed soon, and nothing that lives is taken for lost on a busy machine.
QUICK = Limits(heartbeat_s=10.0, pickup_s=30.0, backoff_s=0.2, max_openings=20)


@dataclass
class Fleet:
    """Of one scenario, on a queue of its own."""

    scenario: EngineScenario
    cluster: Cluster
    limits: Limits = QUICK
    patience_s: float = PATIENCE_S
    #: Workers are forks of a process that has imported them, not programs: none is inside of anything.
    forks: bool = False
    workers: dict[str, Process] = field(default_factory=dict)
    #: How each worker was started, for whoever starts it again: its build, and what runs it elsewhere.
    _ways: dict[str, tuple[str | None, Sequence[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = FixWorkflows(self.cluster, self.limits)

    def start(self, *fix_ids: str) -> None:
        for fix_id in fix_ids:
            self.client.start(Ticket(fix_id, "0" * 64))

    def worker(
        self, host: str = "one", build: str | None = None, inside: Sequence[str] = ()
    ) -> Process:
        """Start it, and wait until it works. ``inside``: a command that becomes the one behind it."""
        scenario, cluster = self.scenario, self.cluster
        words = [str(scenario.root), cluster.address, cluster.queue, host, scenario.database or ""]
        words += [build] if build else []
        log = scenario.root / f"worker-{host}.log"
        process = (
            self._forked(words, log) if self.forks else _started([*inside, *_WORKER, *words], log)
        )
        self.workers[host] = process
        self._ways[host] = build, inside
        assert next_line(process) == "ready\n"
        return process

    def _forked(self, words: Sequence[str], log: Path) -> Process:
        return Forked("tests.engines.worker:main", words, cwd=ROOT, env=os.environ, log=log)

    def keep_working(self, host: str = "one") -> bool:
        """Start a worker again that was killed; True: it was."""
        process = self.workers[host]
        if process.poll() is None:
            return False
        if process.stdout:
            process.stdout.close()
        self.worker(host, *self._ways[host])
        return True

    def phase(self, fix_id: str) -> str:
        return self.client.state(fix_id).phase

    def reach(self, phase: str, fix_ids: Iterable[str]) -> None:
        """Wait until each is in this phase; workers that die meanwhile are started again."""
        for fix_id in fix_ids:

            def is_there(fix_id: str = fix_id) -> bool:
                for host in tuple(self.workers):
                    self.keep_working(host)
                try:
                    found = self.client.state(fix_id)
                except EngineUnreachableError:
                    return False
                assert found.phase != "failed" or phase == "failed", found
                return found.phase == phase

            becomes(is_there, f"{fix_id} is {phase}", patience_s=self.patience_s, every_s=0.1)

    def end(self, host: str) -> None:
        """End a worker in good order, or else at once; nobody starts it again."""
        process = self.workers.pop(host)
        process.terminate()
        _until_over(process)

    def close(self) -> None:
        for process in self.workers.values():
            process.terminate()
        for process in self.workers.values():
            _until_over(process)
        self.client.close()


def _started(words: Sequence[str], log: Path) -> Process:
    with log.open("a") as file:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, text=True, cwd=ROOT)


def _until_over(process: Process) -> None:
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_S)
    if process.stdout:
        process.stdout.close()


@contextmanager
def fleet_on(
    address: str,
    root: Path,
    queue: str,
    *,
    database: str | None = None,
    limits: Limits = QUICK,
    forks: bool = False,
) -> Iterator[Fleet]:
    root.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(address=address, queue=queue)
    fleet = Fleet(EngineScenario(root, database), cluster, limits, forks=forks)
    try:
        yield fleet
    finally:
        fleet.close()
