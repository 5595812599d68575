"""A store whose log was deleted while it was open: it is opened again, and no acknowledged event is lost.

The other processes are real. That nothing of ours opens such a file: tests/database_files.py.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import Scope
from fallback_audit.stores import sqlite_connection
from fallback_audit.stores.sqlite import SqliteAuditReader, SqliteAuditStore, open_readonly
from fallback_audit.stores.sqlite_schema import enable_wal
from fallback_audit.verifying.verify import verify
from fallback_tier.errors import StateFolderError
from fallback_tier.workers.sqlite_file import SqliteFile
from tests.database_files import deleted_files
from tests.forks import Forked
from tests.kinds import OfKind
from tests.waiting import PATIENCE_S, at_once, exit_code

TABLE = ("CREATE TABLE rows (name TEXT NOT NULL) STRICT",)


def append(store: SqliteAuditStore, name: str, count: int = 1) -> None:
    for _ in range(count):
        store.append(Scope(fix_id=name, gate_transition_id="gate"), SandboxDisabled(reason=name))


def counts(reader: SqliteAuditReader) -> dict[str, int]:
    found: dict[str, int] = {}
    for stored in reader.events():
        found[stored.scope.fix_id] = found.get(stored.scope.fix_id, 0) + 1
    return found


def append_elsewhere(arguments: list[str]) -> int:
    """In another process: open the store, append, close it."""
    path, name, count = arguments
    with closing(SqliteAuditStore(Path(path))) as store:
        append(store, name, int(count))
    return 0


def insert_elsewhere(arguments: list[str]) -> int:
    with SqliteFile(Path(arguments[0]), TABLE, "a test") as file, file.writing() as db:
        db.execute("INSERT INTO rows VALUES (?)", (arguments[1],))
    return 0


def elsewhere(work: Callable[[list[str]], int], *arguments: object, code: int = 0) -> None:
    main = f"{__name__}:{work.__name__}"
    fork = Forked(main, [str(one) for one in arguments], cwd=Path.cwd(), env=dict(os.environ))
    assert fork.stdout is not None
    with fork.stdout:
        assert fork.wait(PATIENCE_S) == code, fork.stdout.read()


def lose_locks(path: Path) -> None:
    """What a health check once did: opened the file, to see whether it can be written."""
    with path.open("r+b"):
        pass


def delete(path: Path) -> None:
    """What a person may do."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()


def judged(path: Path, expected: dict[str, int]) -> None:
    """From outside: all that was acknowledged is there, and the chain is whole."""
    with closing(open_readonly(path)) as reader:
        assert counts(reader) == expected
        assert verify(reader, checkpoints=None).integrity_problem_count == 0
    assert deleted_files(os.getpid(), path.parent) == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


def test_sqlite_alone_loses_what_was_acknowledged(path: Path) -> None:
    """The experiment of ADR-0091: what the class prevents. The file is sound all the while."""
    elsewhere(insert_elsewhere, path, "first")
    rows = "SELECT name, count(*) FROM rows GROUP BY name"
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        assert own.execute(rows).fetchall() == [("first", 1)]
        lose_locks(path)
        elsewhere(insert_elsewhere, path, "b")  # ends, and deletes the log that is open here
        for _ in range(50):
            own.execute("INSERT INTO rows VALUES ('own')")
        for _ in range(2):
            elsewhere(insert_elsewhere, path, "c")
        assert seen_elsewhere(path, rows) == [["b", 1], ["c", 2], ["first", 1]]  # none of the 50
    assert seen_elsewhere(path, rows) == [
        ["b", 1],
        ["first", 1],
        ["own", 50],
    ]  # and now none of c's
    assert seen_elsewhere(path, "PRAGMA integrity_check") == [["ok"]]


def seen_elsewhere(path: Path, sql: str) -> object:
    program = (
        "import json, sqlite3, sys; "
        "print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
    )
    command = [sys.executable, "-c", program, str(path), sql]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_a_reader_of_deleted_files_reads_on(path: Path) -> None:
    elsewhere(append_elsewhere, path, "first", 3)
    with closing(open_readonly(path)) as reader, closing(open_readonly(path)) as other:
        assert counts(reader) == counts(other) == {"first": 3}
        for number in range(3):
            lose_locks(path)
            elsewhere(append_elsewhere, path, f"later-{number}", 200)
            assert deleted_files(os.getpid(), path.parent)
            assert counts(reader)[f"later-{number}"] == 200
            assert verify(reader, checkpoints=None).integrity_problem_count == 0
            assert counts(other) == counts(reader)
            assert deleted_files(os.getpid(), path.parent) == []


def test_another_reader_does_not_share_a_deleted_index(path: Path) -> None:
    """A health check opens the store beside the reader of the service, which has deleted files."""
    elsewhere(append_elsewhere, path, "first", 3)
    with closing(open_readonly(path)) as reader:
        lose_locks(path)
        elsewhere(append_elsewhere, path, "later", 200)
        with closing(open_readonly(path)) as other:
            assert deleted_files(os.getpid(), path.parent) == []
            assert counts(other) == counts(reader) == {"first": 3, "later": 200}


def test_a_writer_of_deleted_files_loses_nothing(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store, closing(open_readonly(path)) as reader:
        append(store, "a", 2)
        lose_locks(path)
        elsewhere(append_elsewhere, path, "b", 5)
        append(store, "a", 50)
        elsewhere(append_elsewhere, path, "c", 30)
        append(store, "a")
        assert counts(reader) == {"a": 53, "b": 5, "c": 30}
    judged(path, {"a": 53, "b": 5, "c": 30})


def test_a_writer_that_closes_deleted_files_overwrites_nothing(path: Path) -> None:
    """Its log is older than the file: SQLite would copy it over the newer pages."""
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a", 2)
        lose_locks(path)
        elsewhere(append_elsewhere, path, "b", 5)
        with pytest.raises(AuditStoreError, check=OfKind("replaced")):
            late(store, path)  # it is told that this event may be lost
        elsewhere(append_elsewhere, path, "c", 30)
    judged(path, {"a": 2, "b": 5, "c": 30})


def late(store: SqliteAuditStore, path: Path) -> None:
    """Append an event whose log is deleted between the check and the commit."""
    with store._connection.using():  # the same files as at the path
        pass
    using = store._connection.using

    @contextmanager
    def with_loss() -> Iterator[sqlite3.Connection]:
        with using() as db:
            lose_locks(path)
            elsewhere(append_elsewhere, path, "b", 0)
            yield db

    store._connection.using = with_loss  # type: ignore[method-assign]
    try:
        append(store, "late")
    finally:
        store._connection.using = using  # type: ignore[method-assign]


def test_a_log_that_a_person_deleted_is_saved_by_its_writer(path: Path) -> None:
    """All of it, the tables included: nothing was copied into the file so far."""
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a", 3)
        delete(path)
        append(store, "a")
        judged(path, {"a": 4})
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a")
        delete(path)
    judged(path, {"a": 5})


def killed_elsewhere(arguments: list[str]) -> int:
    """In another process, which is killed with the store open."""
    append(SqliteAuditStore(Path(arguments[0])), "killed", 4)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_another_processs_log_is_left_alone(path: Path) -> None:
    """Its writer was killed: what it acknowledged is in this log only."""
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a", 2)
        lose_locks(path)
        elsewhere(append_elsewhere, path, "b", 1)
        elsewhere(killed_elsewhere, path, code=-signal.SIGKILL)
        assert path.with_name("audit.db-wal").stat().st_size
    judged(path, {"a": 2, "b": 1, "killed": 4})


def test_files_in_a_long_use_are_waited_for_and_then_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "RENEWAL_WAIT_S", 0.2)
    elsewhere(append_elsewhere, path, "first", 3)
    with closing(open_readonly(path)) as reader:
        failed: list[AuditStoreError] = []

        def read() -> None:
            try:
                counts(reader)
            except AuditStoreError as error:
                failed.append(error)

        def read_for_long() -> None:
            with reader.snapshot() as long:
                assert len(list(long.rows())) == 3
                lose_locks(path)
                elsewhere(append_elsewhere, path, "later", 1)
                at_once([read])
                read()  # in the thread that has the snapshot: it does not wait for itself

        with pytest.raises(AuditStoreError, check=OfKind("replaced")):
            read_for_long()
        for error in failed:
            assert type(error) is AuditStoreError  # not damaged
            assert error.kind == "replaced"
            assert "fallback-tier audit verify" in error.next_step
        assert len(failed) == 2
        assert counts(reader) == {"first": 3, "later": 1}


def test_threads_renew_together(path: Path) -> None:
    elsewhere(append_elsewhere, path, "first", 3)
    with (
        closing(SqliteAuditStore(path)) as store,
        closing(open_readonly(path)) as one,
        closing(open_readonly(path)) as two,
    ):
        ended = threading.Event()

        def read(reader: SqliteAuditReader) -> None:
            while not ended.is_set():
                assert counts(reader)["first"] == 3

        def disturb() -> None:
            try:
                for number in range(10):
                    lose_locks(path)
                    elsewhere(append_elsewhere, path, "other", 10)
                    append(store, "own")
                    assert store.tip()[0] == 3 + 11 * (number + 1)
            finally:
                ended.set()

        at_once([disturb, lambda: read(one), lambda: read(two), lambda: read(one)])
    judged(path, {"first": 3, "other": 100, "own": 10})


def test_a_writer_does_not_go_on_with_an_older_file(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a")
        older = path.with_name("older.db")
        store.copy_to(older)
        append(store, "a")
        with closing(open_readonly(path)) as reader:
            delete(path)
            older.replace(path)
            with pytest.raises(AuditStoreError, check=OfKind("replaced"), match="event 2,"):
                append(store, "a")
            assert counts(reader) == {"a": 1}
        path.unlink()
        with pytest.raises(AuditStoreError, check=OfKind("not_openable")):
            append(store, "a")
        assert not path.exists()


def test_damage_is_still_damage(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a", 3)
    with closing(open_readonly(path)) as reader:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(size - 4096))
        with pytest.raises(AuditIntegrityError, check=OfKind("damaged")) as caught:
            counts(reader)
    assert "fallback-tier audit verify" in caught.value.next_step


def test_a_fork_neither_uses_nor_closes_what_it_inherited(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store:
        append(store, "a")
        child = os.fork()
        if child == 0:
            os._exit(fork_refuses(store, path))
        assert exit_code(child) == 0
        append(store, "a")
        assert path.with_name("audit.db-wal").exists()
    child = os.fork()
    if child == 0:  # nothing is open now: a fork may open it
        os._exit(append_elsewhere([str(path), "fork", "1"]))
    assert exit_code(child) == 0
    judged(path, {"a": 2, "fork": 1})


def fork_refuses(store: SqliteAuditStore, path: Path) -> int:
    refused = 0
    for work in (lambda: append(store, "fork"), lambda: open_readonly(path)):
        try:
            work()
        except AuditStoreError as error:
            refused += error.kind == "fork"
    store.close()
    return 2 - refused


def test_a_queue_of_deleted_files_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    with SqliteFile(path, TABLE, "a test") as file:
        for number in range(3):
            lose_locks(path)
            elsewhere(insert_elsewhere, path, f"other-{number}")
            with file.reading() as db:
                assert db.execute("SELECT count(*) FROM rows").fetchone()[0] == 2 * number + 1
            with file.writing() as db:
                db.execute("INSERT INTO rows VALUES ('own')")
            assert deleted_files(os.getpid(), tmp_path) == []
        delete(path)
        with file.writing() as db:
            assert db.execute("SELECT count(*) FROM rows").fetchone()[0] == 6
        path.unlink()
        with pytest.raises(StateFolderError, match=r"service\.db|unable to open"), file.writing():
            pass
        assert not path.exists()


def test_opening_twice_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Both classes once opened the file by themselves, to make it."""
    path = tmp_path / "service.db"
    with SqliteFile(path, TABLE, "a test"):
        SqliteFile(path, TABLE, "a test").close()
        elsewhere(insert_elsewhere, path, "other")
        assert deleted_files(os.getpid(), tmp_path) == []


class BusyConnection(sqlite3.Connection):
    """Refuses the switch of its journal, as SQLite does if another process is at the same switch."""

    refusals = 0

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *parameters)


def test_switch_to_a_write_ahead_log_is_tried_again_until_its_time_is_over(tmp_path: Path) -> None:
    """SQLite calls no busy handler if two processes switch at once."""
    with closing(sqlite3.connect(tmp_path / "a.db", factory=BusyConnection)) as db:
        db.refusals = 1_000_000
        with pytest.raises(sqlite3.OperationalError):
            enable_wal(db, busy_timeout_s=0.05)
        db.refusals = 2
        assert enable_wal(db, busy_timeout_s=PATIENCE_S)
        assert db.refusals == 0
