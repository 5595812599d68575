"""What the dispatcher takes from the queue, and what it makes of fixes that an earlier service left."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fallback_tier.errors import StateFolderError
from fallback_tier.fleet.engine_interface import Phase
from fallback_tier.fleet.local import engine
from fallback_tier.fleet.local.engine import WorkerStatus, document_path, write_status
from fallback_tier.observing.health.running import CheckState
from fallback_tier.service.database import Database, service_db, service_dir
from fallback_tier.service.dispatch import Dispatcher
from fallback_tier.service.queue import NewOrder, OrderQueue, OrderState, Submission
from fallback_tier.service.settings import Limits, Secrets, ServiceSettings
from fallback_tier.workers import processes
from fallback_tier.workers.checkouts import checkout
from fallback_tier.workers.problem import MAX_TAKES, Problem
from fallback_tier.workers.processes import WorkerLocks
from fallback_tier.workers.tables import RepositorySettings
from tests.service.running import waited
from tests.waiting import PATIENCE_S

SUBMISSION = Submission(repository="app", advisory={"id": "TEST-2026-1"})
FREE = 10**9

#: A worker finds nothing there, and says so at once.
REPOSITORIES = {"app": RepositorySettings(path=Path("/nowhere/app"))}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[OrderQueue]:
    with Database(service_db(tmp_path)) as database:
        queue = OrderQueue(database)
        for number in range(3):
            name = f"fix-{number}"
            queue.submit(NewOrder(fix_id=name, submission=SUBMISSION, advisory_id="T", by="key:ci"))
        yield queue


def locks(state_dir: Path) -> WorkerLocks:
    return WorkerLocks(state_dir, service_dir(state_dir))


def dispatcher(queue: OrderQueue, place: Path, free: int = FREE, **settings_: Any) -> Dispatcher:
    limits = Limits(concurrent_fixes=2, min_free_bytes=FREE)
    settings = ServiceSettings(limits=limits, **({"repositories": REPOSITORIES} | settings_))
    return Dispatcher(queue, settings, place, Secrets(), free_bytes=lambda _: free)


def finished(one: Dispatcher) -> None:
    """Its workers have gone: the repository is not there, so each says so at once."""
    for child in one._engine._workers._children.values():
        child.wait(PATIENCE_S)


def has_worker(
    one: Dispatcher, words: Sequence[str], since: float = 0.0
) -> "subprocess.Popen[bytes]":
    """Its worker of ``fix-0`` is another program, started ``since`` seconds from now."""
    process = subprocess.Popen(words, start_new_session=True)
    one._engine._workers._children["fix-0"] = process
    one._engine._workers._started["fix-0"] = time.monotonic() + since
    return process


def test_as_many_run_as_may(queue: OrderQueue, tmp_path: Path) -> None:
    one = dispatcher(queue, tmp_path)
    one._look()
    assert [queue.get(f"fix-{n}").state for n in range(3)] == ["running", "running", "queued"]
    finished(one)
    one._look()
    failed = queue.get("fix-0")
    assert failed.state is OrderState.FAILED
    assert failed.problem is not None
    assert failed.problem.code == "repository"
    assert queue.get("fix-2").state is OrderState.RUNNING
    finished(one)
    one._look()
    assert queue.running() == ()
    assert not list((tmp_path / "service" / "workers").iterdir())


def test_a_worker_knows_what_its_clients_may_know(
    queue: OrderQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come through its pipe; an issuer's secret, or a cloud's, is nothing to it."""
    for name in ("FALLBACK_TIER_OIDC_SECRET", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "not-for-workers")
    monkeypatch.setenv("UV_INDEX_OWN_PASSWORD", "for-uv")
    script = "import os, sys; print(sys.stdin.read(), dict(os.environ))"
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", script))
    others = {"oidc": SecretStr("not-for-workers"), "fleet": SecretStr("not-for-workers")}
    secrets = Secrets(api_key=SecretStr("for-the-model"), **others)
    limits = Limits(concurrent_fixes=1, min_free_bytes=0)
    settings = ServiceSettings(limits=limits, repositories=REPOSITORIES)
    one = Dispatcher(queue, settings, tmp_path, secrets)
    one._look()
    finished(one)
    told = locks(tmp_path).log("fix-0").read_text()
    assert "not-for-workers" not in told
    assert "for-uv" in told
    assert "for-the-model" in told
    assert os.environ["PATH"] in told


def test_nothing_begins_on_a_full_disk(queue: OrderQueue, tmp_path: Path) -> None:
    dispatcher(queue, tmp_path, free=FREE - 1)._look()
    assert queue.counts()[OrderState.QUEUED] == 3


def test_what_nobody_holds_waits_again(queue: OrderQueue, tmp_path: Path) -> None:
    queue.take_next()
    dispatcher(queue, tmp_path)._take_up()
    assert queue.get("fix-0").state is OrderState.QUEUED


def test_what_somebody_holds_is_his(queue: OrderQueue, tmp_path: Path) -> None:
    queue.take_next()
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    with lock:
        one = dispatcher(queue, tmp_path, free=0)
        one._take_up()
        one._look()
        assert queue.get("fix-0").state is OrderState.RUNNING
    one._look()
    assert queue.get("fix-0").state is OrderState.QUEUED


def test_what_was_to_be_cancelled_is(queue: OrderQueue, tmp_path: Path) -> None:
    queue.take_next()
    queue.cancel("fix-0", "key:ci")
    dispatcher(queue, tmp_path)._take_up()
    assert queue.get("fix-0").state is OrderState.CANCELLED


def test_what_kills_the_service_again_and_again_is_left_alone(
    queue: OrderQueue, tmp_path: Path
) -> None:
    one = dispatcher(queue, tmp_path)
    for _ in range(MAX_TAKES):
        assert queue.get("fix-0").state is OrderState.QUEUED
        queue.take_next()
        one._take_up()
    failed = queue.get("fix-0")
    assert failed.state is OrderState.FAILED
    assert failed.problem is not None
    assert f"died {MAX_TAKES} times" in failed.problem.problem


def test_a_lock_ends_with_the_last_who_has_it(tmp_path: Path) -> None:
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    assert locks(tmp_path).take("fix-0") is None
    lock.close()
    again = locks(tmp_path).take("fix-0")
    assert again is not None
    with locks(tmp_path).path("fix-0").open("ab") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    again.close()


def waits() -> "subprocess.Popen[bytes]":
    """A process that ends well once its standard input is closed, unless it is ended before."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE)


def ended(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(PATIENCE_S)


def test_who_held_the_lock_before_is_not_ended(queue: OrderQueue, tmp_path: Path) -> None:
    """A worker that has just begun has not said who it is; the number there may be anybody's by now."""
    queue.take_next()
    anybody = waits()
    place = locks(tmp_path).path("fix-0")
    place.parent.mkdir(parents=True)
    place.write_text(str(anybody.pid))
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    with lock:
        queue.cancel("fix-0", "key:ci")
        dispatcher(queue, tmp_path)._take_up()
    assert ended(anybody) == 0


def test_who_holds_the_lock_is_ended_by_the_next_service(queue: OrderQueue, tmp_path: Path) -> None:
    queue.take_next()
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    with lock:
        worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),))
        lock.write(str(worker.pid).encode())
    queue.cancel("fix-0", "key:ci")
    dispatcher(queue, tmp_path)._take_up()
    assert ended(worker) == -signal.SIGTERM


def test_a_service_that_ends_in_good_order_has_not_died(queue: OrderQueue, tmp_path: Path) -> None:
    for _ in range(MAX_TAKES):
        assert queue.take_next() is not None
        one = dispatcher(queue, tmp_path)
        has_worker(one, ["sleep", "60"])
        one.stop()
        one._end_all()
        assert queue.get("fix-0").state is OrderState.QUEUED
    queue.take_next()
    dispatcher(queue, tmp_path)._take_up()
    assert queue.get("fix-0").state is OrderState.QUEUED


def test_what_took_too_long_does_not_begin_again_with_the_next_service(
    queue: OrderQueue, tmp_path: Path
) -> None:
    """Its worker was too stuck to say so itself."""
    queue.take_next()
    settings = ServiceSettings(limits=Limits(concurrent_fixes=1, min_free_bytes=0, fix_s=1))
    one = Dispatcher(queue, settings, tmp_path, Secrets())
    has_worker(one, ["sleep", "60"], since=-2.0)
    one.stop()
    one._end_all()
    problem = queue.get("fix-0").problem
    assert problem is not None
    assert problem.code == "time_limit"


def test_readiness_hears_of_a_queue_that_can_not_be_worked_on(tmp_path: Path) -> None:
    with Database(service_db(tmp_path)) as database:
        one = dispatcher(OrderQueue(database), tmp_path)
        assert one.found().state is CheckState.OK
        one.start()
        with database.writing() as db:
            db.execute("ALTER TABLE orders RENAME TO gone")
        waited(one.found, lambda found: found.state is CheckState.FAILED)
        assert "no such table" in one.found().reason
        with database.writing() as db:
            db.execute("ALTER TABLE gone RENAME TO orders")
        waited(one.found, lambda found: found.state is CheckState.OK)
        one.stop()
        assert one.found().kind == "not_dispatching"


def test_what_a_killed_worker_leaves_does_not_fill_the_disk(
    queue: OrderQueue, tmp_path: Path
) -> None:
    queue.take_next()
    (left := checkout(service_dir(tmp_path), "fix-0")).mkdir(parents=True)
    (left / "file").write_text("of the repository")
    one = dispatcher(queue, tmp_path, free=0)
    killed = has_worker(one, ["sleep", "60"])
    killed.kill()
    killed.wait(PATIENCE_S)
    one._look()
    assert queue.get("fix-0").state is OrderState.FAILED
    assert not left.exists()


def test_a_take_without_a_worker_does_not_count(queue: OrderQueue, tmp_path: Path) -> None:
    """A process that is about to end still has the lock: the fix is taken again, no death is counted."""
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    one = dispatcher(queue, tmp_path)
    with lock:
        one._look()
        found = queue.get("fix-0")
        assert (found.state, found.takes) == (OrderState.RUNNING, 0)
        assert "fix-0" not in one._engine._workers.own
    one._look()
    assert queue.get("fix-0").takes == 1
    while one._engine._workers.own:
        finished(one)
        one._look()


def test_what_is_not_configured_any_more_fails_and_the_next_one_begins(
    queue: OrderQueue, tmp_path: Path
) -> None:
    one = dispatcher(queue, tmp_path, repositories={})
    one._look()
    problem = queue.get("fix-2").problem
    assert problem is not None
    assert (problem.code, queue.counts()[OrderState.FAILED]) == ("not_found", 3)
    assert one._engine.own == frozenset()


def ended_word(one: Dispatcher, name: str, document: str) -> None:
    """As a worker leaves it that has ended while no service was there."""
    (document_path(one._place, name).parent).mkdir(parents=True, exist_ok=True)
    document_path(one._place, name).write_text(document)
    write_status(
        one._place, name, WorkerStatus(phase=Phase.ENDED, outcome="verified", base_commit="c" * 40)
    )


def test_how_a_worker_ended_is_written_down_by_the_next_service(
    queue: OrderQueue, tmp_path: Path
) -> None:
    queue.take_next()
    one = dispatcher(queue, tmp_path)
    ended_word(one, "fix-0", '{"outcome": "verified"}')
    queue.cancel("fix-0", "key:ci")  # too late
    one._take_up()
    found = queue.get("fix-0")
    assert (found.state, found.outcome, found.ended) == (
        "ended",
        "verified",
        {"outcome": "verified"},
    )
    assert (found.base_commit, found.cancelling) == ("c" * 40, False)
    assert not list((tmp_path / "service" / "workers").iterdir())


def test_a_document_that_is_not_whole_is_made_again(queue: OrderQueue, tmp_path: Path) -> None:
    """The system went down before it was on the disk; the record has all of it."""
    queue.take_next()
    one = dispatcher(queue, tmp_path)
    ended_word(one, "fix-0", "")
    one._take_up()
    found = queue.get("fix-0")
    assert (found.state, found.base_commit) == (OrderState.QUEUED, "c" * 40)


def test_the_commit_is_known_while_it_runs(queue: OrderQueue, tmp_path: Path) -> None:
    queue.take_next()
    lock = locks(tmp_path).take("fix-0")
    assert lock is not None
    with lock:
        one = dispatcher(queue, tmp_path, free=0)
        write_status(one._place, "fix-0", WorkerStatus(base_commit="c" * 40))
        one._look()
        found = queue.get("fix-0")
    assert (found.state, found.base_commit) == (OrderState.RUNNING, "c" * 40)


def test_a_fix_that_is_resumed_does_not_end_by_an_earlier_word(
    queue: OrderQueue, tmp_path: Path
) -> None:
    """The service died after it wrote the failure down, and the next one right after it took the fix."""
    one = dispatcher(queue, tmp_path, free=0)
    why = Problem(code="tool", problem="It broke.", next_step="Mend it.")
    queue.take_next()
    locks(tmp_path).path("fix-0").parent.mkdir(parents=True)
    write_status(one._place, "fix-0", WorkerStatus(phase=Phase.FAILED, problem=why))
    queue.fail("fix-0", why)
    one.start()
    one.stop()
    queue.resume("fix-0", "key:ops")
    queue.take_next()
    dispatcher(queue, tmp_path)._take_up()
    assert queue.get("fix-0").state is OrderState.QUEUED


def test_a_submissions_ref_counts_before_its_repositorys(queue: OrderQueue, tmp_path: Path) -> None:
    app = RepositorySettings(path=Path("/src/app"), ref="main")
    one = dispatcher(queue, tmp_path, repositories={"app": app})
    asked = SUBMISSION.model_copy(update={"ref": "release"})
    queue.submit(NewOrder(fix_id="fix-3", submission=asked, advisory_id="T", by="key:ci"))
    orders = {name: one._ordered(queue.get(name)) for name in ("fix-0", "fix-3")}
    assert [orders[name].source.ref for name in ("fix-0", "fix-3")] == ["main", "release"]
    assert {order.base_commit for order in orders.values()} == {None}


def test_what_a_worker_decided_is_not_decided_again(queue: OrderQueue, tmp_path: Path) -> None:
    queue.begin_at("fix-0", "c" * 40)
    assert dispatcher(queue, tmp_path)._ordered(queue.get("fix-0")).base_commit == "c" * 40


def test_a_take_that_the_disk_has_no_room_for_does_not_count(
    queue: OrderQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StateFolderError("The state folder is full.", next_step="Free some.")

    monkeypatch.setattr(engine, "reserve_status", full)
    one = dispatcher(queue, tmp_path)
    for _ in range(MAX_TAKES + 1):
        with pytest.raises(StateFolderError):
            one._look()
    found = queue.get("fix-0")
    assert (found.state, found.takes) == (OrderState.QUEUED, 0)
