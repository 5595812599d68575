"""The service's own file: whole after a failure, and never a newer version's."""

import sqlite3
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest

from fallback_tier.errors import StateFolderError
from fallback_tier.service import database
from fallback_tier.service.database import VERSION, Database
from fallback_tier.service.queue import OrderQueue, OrderState, Token, forget_unanswered, known
from fallback_tier.service.refusals import ConflictError
from tests.kinds import OfKind
from tests.waiting import at_once


def test_what_an_exception_leaves_is_undone(tmp_path: Path) -> None:
    with Database(tmp_path / "service.db") as opened:
        with suppress(ZeroDivisionError), opened.writing() as db:
            db.execute("INSERT INTO people VALUES ('ada', x'00', x'00', 'read')")
            _ = 1 // 0
        with opened.reading() as db:
            assert db.execute("SELECT count(*) FROM people").fetchone()[0] == 0


def test_it_is_durable_and_for_its_owner_alone(tmp_path: Path) -> None:
    with Database(tmp_path / "own" / "service.db") as opened, opened.reading() as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert opened.path.stat().st_mode & 0o777 == 0o600
    assert opened.path.parent.stat().st_mode & 0o777 == 0o700


def test_who_reads_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    """A transaction waits for the disk; keys are looked up meanwhile."""
    seen: list[int] = []

    def look() -> None:
        with opened.reading() as db:
            seen.append(db.execute("SELECT count(*) FROM people").fetchone()[0])

    with Database(tmp_path / "service.db") as opened:
        with opened.writing() as db:
            db.execute("INSERT INTO people VALUES ('ada', x'00', x'00', 'read')")
            at_once([look])
        look()
    assert seen == [0, 1]


def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    Database(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(StateFolderError, check=OfKind("newer")):
        Database(path)


def test_an_older_file_keeps_its_idempotency_keys(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    db = sqlite3.connect(path)
    db.executescript(database._STEPS[0])
    db.execute("INSERT INTO tokens VALUES ('key:ci', 'a', 'x', 'fix-1', 9e9)")
    db.execute("INSERT INTO answers VALUES ('key:ci', 'b', 'y', '{}', 9e9)")
    db.execute("INSERT INTO answers VALUES ('key:ci', 'c', 'z', NULL, 9e9)")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    with Database(path) as opened, opened.writing() as now:
        assert known(now, "key:ci", Token("a", "x"), 0) == ("fix-1", None)
        assert known(now, "key:ci", Token("b", "y"), 0) == (None, "{}")
        forget_unanswered(now)
        assert known(now, "key:ci", Token("c", "z"), 0) is None
        with pytest.raises(ConflictError, check=OfKind("another_body"), match=r"\bfix-1\b"):
            known(now, "key:ci", Token("a", "y"), 0)
    Database(path).close()


def test_an_older_file_keeps_its_orders_in_every_state(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(database._STEPS[0])
        for number, state in enumerate(OrderState):
            db.execute(
                "INSERT INTO orders (fix_id, state, repository, advisory_id, submission, submitted_by,"
                " submitted_at, takes) VALUES (?, ?, 'app', 'T', ?, 'key:ci', '2026-11-01', 2)",
                (f"fix-{number}", state, '{"repository": "app", "advisory": {"id": "T"}}'),
            )
        db.execute("PRAGMA user_version = 1")
        db.commit()
    with Database(path) as opened:
        queue = OrderQueue(opened)
        assert [line.state for line in queue.page(limit=9)] == [*reversed(OrderState)]
        (running,) = queue.running()
        assert queue.queue_again(running.fix_id, takes=1)
        for number, goes_on in enumerate([False, False, False, True, True]):
            assert queue.get(f"fix-{number}").submission.repository == "app"
            with nullcontext() if goes_on else pytest.raises(ConflictError):
                assert queue.resume(f"fix-{number}", "key:ops").takes == 0


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "service.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StateFolderError, check=OfKind("unusable"), match="file is not a database"):
        Database(tmp_path / "service.db")
