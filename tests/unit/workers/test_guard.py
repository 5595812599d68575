"""Whatever becomes of a worker, nothing that it started lives on, and its end is told as it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, becomes

#: A worker under a guard that starts a client in a session of its own, whose child is in another one, and
#: says who they are. ``{after}``: what it does then.
WORKER = """
import os, signal, subprocess, sys, time
from fallback_tier.workers import guard
guard.GRACE_S = 0
guard.stand_guard({limit})
script = "setsid sleep 600 & echo $! >> {told}; echo $$ >> {told}; wait"
subprocess.Popen(["sh", "-c", script], start_new_session=True)
while len(open("{told}").read().split()) < 2:
    time.sleep(0.01)
with open("{told}", "a") as file:
    file.write(f"worker {{os.getpid()}}\\n")
{after}
"""


def begun(
    place: Path, after: str, limit: float = 600
) -> "tuple[subprocess.Popen[bytes], list[int]]":
    """The guard, and the processes below it: the client's child, the client, the worker."""
    (told := place / "told").write_text("")
    text = WORKER.format(told=told, after=after, limit=limit)
    guard = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.DEVNULL, start_new_session=True
    )
    becomes(lambda: "worker" in told.read_text(), "all have begun")
    return guard, [int(word) for word in told.read_text().split() if word.isdecimal()]


def lives(pid: int) -> bool:
    """A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_worker_that_is_killed_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    guard, pids = begun(tmp_path, "time.sleep(600)")
    assert all(map(lives, pids))
    os.killpg(pids[-1], number)
    assert guard.wait(PATIENCE_S) == -number
    assert not any(map(lives, pids))


def test_a_worker_that_ends_leaves_nothing_either(tmp_path: Path) -> None:
    guard, pids = begun(tmp_path, "sys.exit(7)")
    assert guard.wait(PATIENCE_S) == 7
    assert not any(map(lives, pids))


def test_who_asks_the_guard_asks_the_worker(tmp_path: Path) -> None:
    after = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\ntime.sleep(600)"
    guard, pids = begun(tmp_path, after)
    guard.terminate()
    assert guard.wait(PATIENCE_S) in (3, -signal.SIGTERM)  # by whether it had begun to listen
    assert not any(map(lives, pids))


def test_a_worker_without_its_guard_is_asked_to_end(tmp_path: Path) -> None:
    guard, pids = begun(tmp_path, "time.sleep(600)")
    guard.kill()
    guard.wait(PATIENCE_S)
    becomes(lambda: not lives(pids[-1]), "the worker has ended")
    os.kill(
        pids[1], signal.SIGKILL
    )  # what a worker leaves that is killed with its guard is not found
    os.kill(pids[0], signal.SIGKILL)


def test_a_worker_that_does_not_keep_its_limit_is_killed(tmp_path: Path) -> None:
    guard, pids = begun(tmp_path, "time.sleep(600)", limit=1.0)
    assert guard.wait(PATIENCE_S) == -signal.SIGKILL
    assert not any(map(lives, pids))
