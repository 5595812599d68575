"""The server of the tests itself: it does not outlive them, whatever ends them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres.server import Server, restartable, running
from tests.waiting import next_line

ROOT = Path(__file__).parents[2]

HOLD = """
import sys
from tests.postgres.server import running
with running() as server:
    print(server.place, flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_process_leaves_no_server(postgres_server: Server) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as holder:
        assert holder.stdout is not None
        place = Path(next_line(holder).strip())
        (pid, *_) = (place / "data" / "postmaster.pid").read_text().split()
        os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while place.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not place.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_server_that_cannot_start_says_why(postgres_server: Server) -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"), running(no_such_setting="1"):
        pass


@pytest.mark.usefixtures("postgres_server")
def test_a_killed_server_starts_again_on_its_data() -> None:
    with restartable() as made:
        with psycopg.connect(made.server.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS value")
            assert made.kill() > 1
        assert not made.processes()
        made.start()
        with psycopg.connect(made.server.url()) as connection:
            assert connection.execute("SELECT value FROM kept").fetchone() == (1,)
