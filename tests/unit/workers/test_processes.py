"""Workers of one owner: by a process of its own, and by a lock that somebody else's worker holds."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.workers import processes
from fallback_tier.workers.processes import WorkerLocks, WorkerProcesses
from tests.waiting import PATIENCE_S, becomes, next_line

#: Takes its order, says that it is there, and waits; with ``deaf`` it hears no request to end.
WAITS = "import sys, time; sys.stdin.read(); print('there', flush=True); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcesses]:
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", WAITS))
    one = WorkerProcesses("module", WorkerLocks(tmp_path, tmp_path))
    yield one
    one.end_all()


def started(workers: WorkerProcesses) -> None:
    assert workers.start("fix-0", 60.0, lambda _: b"")
    becomes(lambda: "there" in workers.locks.log("fix-0").read_text(), "the worker is there")


def test_a_fix_has_one_worker(workers: WorkerProcesses) -> None:
    started(workers)
    assert not workers.start("fix-0", 60.0, lambda _: b"")
    assert (workers.own, workers.alive, workers.is_alive("fix-0")) == ({"fix-0"}, 1, True)
    assert workers.gone("fix-0") is None
    workers.end("fix-0")
    becomes(lambda: not workers.is_alive("fix-0"), "it has gone")
    gone = workers.gone("fix-0")
    assert gone is not None
    assert gone.code == -15
    assert (workers.gone("fix-0"), workers.own, workers.alive) == (None, frozenset(), 0)


def test_an_order_that_can_not_be_made_starts_nothing(workers: WorkerProcesses) -> None:
    def order(_: int) -> bytes:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        workers.start("fix-0", 60.0, order)
    assert not workers.is_alive("fix-0")
    started(workers)


def test_who_does_not_end_is_killed(
    workers: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", DEAF))
    now = 0.0
    workers.clock = lambda: now
    started(workers)
    workers.end("fix-0")
    now = processes.GRACE_S
    workers.end("fix-0")
    assert workers.is_alive("fix-0")
    now += 1
    workers.end("fix-0")
    becomes(lambda: not workers.is_alive("fix-0"), "it has gone")


def test_a_worker_of_an_earlier_owner_is_met_and_killed(workers: WorkerProcesses) -> None:
    lock = workers.locks.take("fix-0")
    assert lock is not None
    words = [sys.executable, "-c", DEAF]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(lock.fileno(),)
    ) as worker:
        next_line(worker)
        with lock:
            lock.write(str(worker.pid).encode())
        now = 0.0
        workers.clock = lambda: now
        assert not workers.start("fix-0", 60.0, lambda _: b"")
        assert (workers.own, workers.alive) == (frozenset(), 1)
        workers.end("fix-0")
        assert workers.is_alive("fix-0")
        now = processes.GRACE_S + 1
        workers.end("fix-0")
        worker.wait(PATIENCE_S)
    becomes(lambda: not workers.is_alive("fix-0"), "its lock is free")
    assert workers.alive == 0


def test_all_own_ones_end(workers: WorkerProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", DEAF))
    monkeypatch.setattr(processes, "GRACE_S", 0.2)
    started(workers)
    workers.end_all()
    assert not workers.is_alive("fix-0")


def test_a_child_that_has_gone_is_ended_by_the_lock_alone(
    workers: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guard died, and the worker lives on: the child's number may be anybody's by now."""
    started(workers)
    child = workers._children["fix-0"]
    child.kill()
    child.wait(PATIENCE_S)
    killed: list[int] = []
    monkeypatch.setattr(processes, "kill_tree", lambda pid, _: killed.append(pid))
    asked: list[bool] = []
    monkeypatch.setattr(
        WorkerLocks, "end_holder", lambda _self, _fix_id, *, at_once: asked.append(at_once)
    )
    now = 0.0
    workers.clock = lambda: now
    workers.end("fix-0")
    now = processes.GRACE_S + 1
    workers.end("fix-0")
    assert (killed, asked) == ([], [False, True])


def test_a_worker_that_is_met_and_then_started_counts_once(workers: WorkerProcesses) -> None:
    lock = workers.locks.take("fix-0")
    assert lock is not None
    with lock:
        assert not workers.start("fix-0", 60.0, lambda _: b"")
    assert workers.alive == 1
    started(workers)
    assert workers.alive == 1
