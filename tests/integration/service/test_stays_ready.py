"""Two workers record fixes, eight readers and health checks ask: the service says what the record says.

Real processes. Once a health check opened ``audit.db`` and closed it, which dropped the service's locks on
it: the next worker that ended deleted the log that the service had open (ADR-0091).
"""

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fallback_audit.ports import Scope
from fallback_tier.service.database import Database, service_db
from fallback_tier.wiring.trail import RecordSettings, audit_db, open_trail
from tests.database_files import deleted_files
from tests.e2e.command import repository, run
from tests.forks import Forked
from tests.service.running import Running, served
from tests.unit.audit import trails
from tests.waiting import PATIENCE_S, joined

WORKERS, READERS = 2, 8

#: Between two fixes, as while a worker starts: at times no worker has the store open.
STARTING_S = 0.1

#: No limit is met. Nothing is submitted: the workers of the test are as fast as they can.
CONFIG = """
[limits]
requests_per_key = "1000000/second"
requests_per_address = "1000000/second"
[repositories.app]
path = "{app}"
"""

PATHS = (
    "/health/ready",
    "/v1/reviews",
    "/v1/audit/events?limit=20",
    "/v1/health",
    "/metrics",
    "/v1/fixes?limit=20",
)


def work(arguments: list[str]) -> int:
    """A worker: fix after fix, each with the stores opened and closed as for one; every tenth asks."""
    state, name, seconds = Path(arguments[0]), arguments[1], float(arguments[2])
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        events = trails.recipe_verified() if number % 10 else trails.cap_reached()
        scope = Scope(fix_id=f"{name}-{number}", gate_transition_id=f"gate-{number}")
        with Database(service_db(state)), closing(open_trail(state, RecordSettings())) as store:
            for event in events:
                store.append(scope, event)
        number += 1
        time.sleep(STARTING_S)
    print(number, flush=True)
    return 0


@contextmanager
def working(state: Path, seconds: float, first: int = 0) -> Iterator[list[Forked]]:
    names = [f"worker-{first + number}" for number in range(WORKERS)]
    forks = [
        Forked(
            f"{__name__}:work", [str(state), name, str(seconds)], cwd=state, env=dict(os.environ)
        )
        for name in names
    ]
    try:
        yield forks
    finally:
        for fork in forks:
            fork.kill()
            fork.wait(PATIENCE_S)
            assert fork.stdout is not None
            fork.stdout.close()


@pytest.mark.parametrize(
    "seconds", [8.0, pytest.param(60.0, marks=pytest.mark.campaign)], ids=["short", "minute"]
)
def test_an_intact_record_is_ready(tmp_path: Path, seconds: float) -> None:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    state = tmp_path / "state"
    answers: Counter[tuple[str, int]] = Counter()
    wrong: list[str] = []
    deleted: set[str] = set()

    def read(service: Running, number: int, until: float) -> None:
        with service.client() as client:
            while time.monotonic() < until:
                path = PATHS[number % len(PATHS)]
                answer = client.get(path)
                answers[path, answer.status_code] += 1
                if answer.status_code != 200:
                    wrong.append(f"{path}: {answer.status_code} {answer.text}")
                number += 1

    def look(service: Running, until: float) -> None:
        while time.monotonic() < until:
            deleted.update(deleted_files(service.process.pid))
            time.sleep(0.1)

    with served(state, CONFIG.format(app=app)) as service, working(state, seconds) as workers:
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=look, args=(service, until), daemon=True)]
        threads += [
            threading.Thread(target=read, args=(service, number, until), daemon=True)
            for number in range(READERS)
        ]
        for thread in threads:
            thread.start()
        joined(*threads)
        assert [worker.wait(PATIENCE_S) for worker in workers] == [0] * WORKERS
        fixes = sum(int(worker.stdout.read()) for worker in workers if worker.stdout is not None)
        assert (wrong[:3], deleted) == ([], set()), answers
        assert len(answers) == len(PATHS)
        says_what_the_record_says(service, state, fixes)
        assert not [line for line in service.said if "database file" in line]


def says_what_the_record_says(service: Running, state: Path, fixes: int) -> None:
    """Metrics count every fix, questions can be answered, and from outside the record is intact."""
    with service.client() as client:
        metrics = client.get("/metrics").text
    name = "fallback_tier_fixes_ended_total{"
    counted = [line for line in metrics.splitlines() if line.startswith(name)]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == fixes
    question = service.get("/v1/reviews")["questions"][0]
    body = {"verdict": "reject", "because": "a test"}
    answer = service.post(f"/v1/reviews/{question['fix_id']}/decisions", body)
    assert answer.status_code == 201, answer.text
    verified = run("audit", "verify", "--state-dir", state, "--no-evidence", "--json")
    assert verified.code == 0, verified


def delete_log(path: Path) -> None:
    """As the process does that believes to close the last connection."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()


def test_a_service_whose_log_was_deleted_goes_on(tmp_path: Path) -> None:
    """By whatever it was deleted: no restart is needed, and nothing is called damaged."""
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    state = tmp_path / "state"
    with served(state, CONFIG.format(app=app)) as service:
        for round_ in range(3):
            with working(state, 0.5, WORKERS * round_) as workers:
                assert [worker.wait(PATIENCE_S) for worker in workers] == [0] * WORKERS
            service.get("/v1/audit/events?limit=20")
            for path in (audit_db(state), service_db(state)):
                delete_log(path)
            assert deleted_files(service.process.pid)
            with closing(open_trail(state, RecordSettings())) as store:
                scope = Scope(fix_id=f"later-{round_}", gate_transition_id="gate")
                for event in trails.cap_reached():
                    store.append(scope, event)
            for path in PATHS:
                with service.client() as client:
                    answer = client.get(path)
                assert answer.status_code == 200, (path, answer.text)
            questions = service.get("/v1/reviews")["questions"]
            assert questions[0]["fix_id"] == f"later-{round_}"
            body = {"verdict": "reject", "because": "a test"}
            decided = service.post(f"/v1/reviews/later-{round_}/decisions", body)
            assert decided.status_code == 201, decided.text
            assert deleted_files(service.process.pid) == []
        assert service.post("/v1/audit/verify?evidence=false").json()["ok"]
