"""The SQLite store: what is written, append-only, permissions, errors, many writers, kill -9."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from fallback_audit.canonical import GENESIS, leaf_digest, payload_digest
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import AuditStore, Scope
from fallback_audit.stores.sqlite import PAGE_ROWS, SqliteAuditStore, open_readonly
from fallback_audit.stores.sqlite_connection import store_error
from fallback_audit.verifying.verify import verify
from tests.kinds import OfKind
from tests.unit.audit.tamper import behind_the_triggers, build, fixed_clock, report
from tests.unit.audit.trails import SCOPE, recipe_verified, replayed, verified_on_retry
from tests.waiting import at_once

EVENT = SandboxDisabled(reason="a person said so")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteAuditStore]:
    with closing(SqliteAuditStore(path, clock=fixed_clock)) as opened:
        yield opened


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_it_is_an_audit_store(store: SqliteAuditStore) -> None:
    port: AuditStore = store
    assert list(port.events()) == []


def test_events_come_back_in_order_and_by_fix(store: SqliteAuditStore) -> None:
    other = Scope(fix_id="another", gate_transition_id="t")
    appended = [
        store.append(other if number % 3 else SCOPE, event)
        for number, event in enumerate(verified_on_retry())
    ]
    assert list(store.events()) == appended
    assert list(store.events("another")) == [e for e in appended if e.scope == other]
    assert list(store.events("nobody")) == []


def test_a_page_is_no_limit(store: SqliteAuditStore) -> None:
    count = PAGE_ROWS * 2 + 1
    with store._connection.using() as db:
        db.execute("PRAGMA synchronous = OFF")  # only this test's time is at stake
    for _ in range(count):
        store.append(SCOPE, EVENT)
    assert [event.seq for event in store.events()] == list(range(1, count + 1))
    assert sum(1 for _ in store.events(SCOPE.fix_id)) == count


def test_links_are_hashes_of_the_stored_bytes(path: Path, store: SqliteAuditStore) -> None:
    previous = GENESIS
    for event in recipe_verified():
        previous = store.append(SCOPE, event).leaf
    with closing(raw(path)) as connection:
        rows = connection.execute(
            "SELECT h.seq, header, leaf, payload FROM audit_header h JOIN audit_payload USING (seq)"
        ).fetchall()
    previous = GENESIS
    for seq, header, leaf, payload in rows:
        members = json.loads(header)
        assert list(members) == sorted(members)
        assert members["seq"] == seq
        assert members["previous_leaf"] == previous
        assert members["payload_sha256"] == payload_digest(payload)
        assert members["recorded_at"] == "2026-01-02T03:04:05.000006Z"
        assert leaf == leaf_digest(header)
        previous = leaf


def test_times_are_recorded_in_utc(path: Path) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    clock = lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)  # noqa: E731
    with closing(SqliteAuditStore(path, clock=clock)) as store:
        assert store.append(SCOPE, EVENT).recorded_at == "2026-01-01T21:34:05.000000Z"


def test_a_commit_is_synced(store: SqliteAuditStore) -> None:
    """synchronous=FULL (2) in WAL mode: the log is synced at each commit, not only at checkpoints."""
    with store._connection.using() as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("table", ["audit_header", "audit_payload"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {0} SET seq = seq + 100",
        "UPDATE OR REPLACE {0} SET seq = 1 WHERE seq = 2",
        "DELETE FROM {0} WHERE seq = 2",
        "INSERT OR REPLACE INTO {0} {1}",
        "REPLACE INTO {0} {1}",
        "INSERT OR IGNORE INTO {0} {2}",
    ],
)
def test_it_is_append_only(path: Path, table: str, statement: str) -> None:
    build(path, recipe_verified())
    row = {"audit_header": "VALUES ({0}, x'00', 'leaf')", "audit_payload": "VALUES ({0}, x'00')"}
    with closing(raw(path)) as connection:
        before = list(connection.iterdump())
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement.format(table, row[table].format(2), row[table].format(99)))
        assert list(connection.iterdump()) == before


def test_files_are_private(path: Path, store: SqliteAuditStore) -> None:
    store.append(SCOPE, EVENT)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"audit.db": 0o600, "audit.db-wal": 0o600, "audit.db-shm": 0o600}


def test_it_is_found_again(path: Path) -> None:
    build(path, recipe_verified())
    with closing(SqliteAuditStore(path)) as store:
        store.append(Scope(fix_id="later", gate_transition_id="t"), EVENT)
    assert report(path).events == len(recipe_verified()) + 1
    assert report(path).ok


def test_close_twice_and_use_after(store: SqliteAuditStore) -> None:
    store.close()
    store.close()
    with pytest.raises(AuditStoreError, check=OfKind("closed")):
        store.append(SCOPE, EVENT)


def test_an_event_without_canonical_form_is_not_recorded(store: SqliteAuditStore) -> None:
    for reason in ("\ud800", "ok"):
        if reason == "ok":
            store.append(SCOPE, SandboxDisabled(reason=reason))
        else:
            with pytest.raises(
                AuditStoreError, check=OfKind("not_encodable"), match="SandboxDisabled"
            ):
                store.append(SCOPE, SandboxDisabled.model_construct(reason=reason))
    assert [event.seq for event in store.events()] == [1]


def test_an_iterator_may_move_between_threads(store: SqliteAuditStore) -> None:
    for event in recipe_verified():
        store.append(SCOPE, event)
    events = store.events()
    seen = [next(events).seq]
    at_once([lambda: seen.extend(event.seq for event in events)])
    assert seen == list(range(1, len(recipe_verified()) + 1))


def test_threads_may_share_a_store(store: SqliteAuditStore) -> None:
    def append() -> None:
        for _ in range(20):
            store.append(SCOPE, EVENT)

    at_once([append] * 4)
    found = verify(store, checkpoints=None)
    assert found.events == 80
    assert found.integrity_problem_count == 0


def test_readers_refuse_altered_bytes(path: Path) -> None:
    build(path, recipe_verified())
    with behind_the_triggers(path) as connection:
        connection.execute("UPDATE audit_payload SET payload = x'7b7d' WHERE seq = 3")
    with (
        closing(open_readonly(path)) as reader,
        pytest.raises(AuditIntegrityError, check=OfKind("event_altered"), match="Event 3 "),
    ):
        list(reader.events())


# --- Faults ---------------------------------------------------------------------------------------


def test_a_full_disk(path: Path, store: SqliteAuditStore) -> None:
    """SQLite's own page limit raises the error that a full disk raises."""
    store.append(SCOPE, EVENT)
    with store._connection.using() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    recorded = 1
    with pytest.raises(AuditStoreError, check=OfKind("disk_full")) as caught:  # noqa: PT012
        while True:
            store.append(SCOPE, EVENT)
            recorded += 1
    assert str(path) in caught.value.problem
    assert caught.value.next_step
    with store._connection.using() as db:
        db.execute("PRAGMA max_page_count = 1000000")
    assert store.append(SCOPE, EVENT).seq == recorded + 1
    assert verify(store, checkpoints=None).integrity_problem_count == 0


def test_a_locked_store(path: Path, store: SqliteAuditStore) -> None:
    with closing(raw(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with (
            closing(SqliteAuditStore(path, busy_timeout_s=0.05)) as impatient,
            pytest.raises(AuditStoreError, check=OfKind("locked")),
        ):
            impatient.append(SCOPE, EVENT)
        other.execute("ROLLBACK")
    assert store.append(SCOPE, EVENT).seq == 1


def test_not_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"This is a text file, and long enough to be read as a header." * 20)
    for opened in (SqliteAuditStore, open_readonly):
        with pytest.raises(AuditIntegrityError, check=OfKind("not_a_database")):
            opened(path)


def test_another_programs_database(path: Path) -> None:
    path.parent.mkdir()
    with closing(raw(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(AuditStoreError, check=OfKind("another_program")):
        SqliteAuditStore(path)
    with pytest.raises(AuditStoreError, check=OfKind("no_trail")):
        open_readonly(path)
    with closing(raw(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_newer_store(path: Path) -> None:
    build(path, recipe_verified())
    with closing(raw(path)) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
            " VALUES ('fallback_audit', '0099_future', '')"
        )
    with pytest.raises(AuditStoreError, check=OfKind("newer_version"), match="0099_future"):
        SqliteAuditStore(path)


def test_a_missing_store_is_not_created_by_a_reader(path: Path) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("no_such_file")):
        open_readonly(path)
    assert not path.parent.exists()


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(AuditStoreError, match=r"/state/audit\.db: Not a directory"):
        SqliteAuditStore(tmp_path / "state" / "audit.db")


def test_each_reason_has_its_words(tmp_path: Path) -> None:
    """Permission is checked on the mapping too: root, who often runs this, is denied nothing."""
    path = tmp_path / "a.db"
    path.write_bytes(b"no database" * 100)  # what is called damaged is looked at again
    cases = {
        sqlite3.SQLITE_FULL: "disk_full",
        sqlite3.SQLITE_BUSY: "locked",
        sqlite3.SQLITE_NOTADB: "not_a_database",
        sqlite3.SQLITE_CANTOPEN: "not_openable",
        sqlite3.SQLITE_READONLY_DIRECTORY: "read_only",
        sqlite3.SQLITE_IOERR_FSYNC: "disk_failed",
        sqlite3.SQLITE_CORRUPT: "damaged",
    }
    for code, kind in cases.items():
        error = sqlite3.OperationalError("words of SQLite")
        error.sqlite_errorcode = code
        assert store_error(path, error).kind == kind
    denied = store_error(path, PermissionError(errno.EACCES, "Permission denied"))
    assert isinstance(denied, AuditStoreError)
    assert f"{path}: {os.strerror(errno.EACCES)}" in denied.problem


AS_NOBODY = """
import os, sys
from pathlib import Path
from fallback_audit.errors import AuditStoreError
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.verify import verify
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
path = Path(sys.argv[1])
try:
    SqliteAuditStore(path)
except AuditStoreError as error:
    print("refused:", error.kind, error)
print("verified:", verify(open_readonly(path), checkpoints=None).ok)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that another user can reach: pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_read_only_copy_can_be_verified_but_not_opened_for_writing(
    tmp_path: Path, public: Path
) -> None:
    """As a user who may only read: an auditor with a copy on read-only media."""
    source = build(tmp_path / "audit.db", recipe_verified(), replayed())
    directory = public / "copy"
    directory.mkdir()
    copy = Path(shutil.copy(source, directory))
    copy.chmod(0o444)
    directory.chmod(0o555)
    # Import first: nobody may not reach this interpreter's libraries.
    preload = "import sqlite_utils, sqlite_utils.migrations, fallback_audit.stores.sqlite\n"
    done = subprocess.run(
        [sys.executable, "-c", preload + AS_NOBODY, str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: read_only " in done.stdout
    assert str(copy) in done.stdout
    assert "verified: True" in done.stdout
    assert [file.name for file in directory.iterdir()] == [copy.name]
    directory.chmod(0o755)
