"""Many processes write one chain; kill -9 loses nothing that was acknowledged."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.audit.stores.conformance.backends import Backend, report_of
from tests.waiting import PATIENCE_S, next_line

PROCESS = Path(__file__).with_name("process.py")


def start(backend: Backend, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROCESS), backend.address, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_make_one_chain(backend: Backend) -> None:
    """They also race to create and migrate it."""
    processes = [start(backend, f"writer-{number}", 25) for number in range(4)]
    acknowledged = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    found = report_of(backend)
    assert (found.events, found.integrity_problem_count) == (100, 0)
    sequences = sorted(int(seq) for messages in acknowledged for seq in messages[::2])
    assert sequences == list(range(1, 101))


def test_kill_9_loses_nothing_that_was_acknowledged(backend: Backend) -> None:
    acknowledged: dict[int, str] = {}
    victims = [start(backend, "killed", 100_000) for _ in range(4)]
    for number, victim in enumerate(victims):
        assert victim.stdout is not None
        messages = [next_line(victim)]
        time.sleep(0.003 * number)
        os.kill(victim.pid, signal.SIGKILL)
        messages += victim.stdout.readlines()
        victim.wait(PATIENCE_S)
        victim.stdout.close()
        for line in messages:
            if line.endswith("\n"):
                seq, leaf = line.split()
                acknowledged[int(seq)] = leaf
    survivor = start(backend, "after", 1)
    last = int(survivor.communicate(timeout=60)[0].split()[0])
    # Read behind it: a server may still be ending what a killed writer had sent.
    reader = backend.reader()
    stored = {event.seq: event.leaf for event in reader.events()}
    reader.close()
    assert report_of(backend).integrity_problem_count == 0
    assert len(acknowledged) >= len(victims)
    assert acknowledged.items() <= stored.items()
    assert [*stored] == [*range(1, last + 1)]
