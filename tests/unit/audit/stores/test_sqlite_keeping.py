"""What the keepers of a SQLite store may do, and nobody else: migration 2, redaction, sealing."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fallback_audit.canonical import GENESIS
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, ContractError
from fallback_audit.events import (
    AppendFlagged,
    AuditEvent,
    PayloadRedacted,
    SandboxDisabled,
    SegmentSealed,
)
from fallback_audit.ports import (
    MAINTENANCE,
    KeepableStore,
    Record,
    Scope,
    Segment,
    StoredEvent,
    TrailReader,
)
from fallback_audit.stores.sqlite import SqliteAuditStore, SqliteSnapshot, open_readonly
from fallback_audit.stores.sqlite_schema import MIGRATION_NAMES, applied_migrations
from tests.kinds import OfKind
from tests.unit.audit.tamper import behind_the_triggers, build, fixed_clock, report
from tests.unit.audit.trails import SCOPE, digest, recipe_verified, verified_on_retry
from tests.waiting import at_once

RELEASED = Path(__file__).parents[3] / "fixtures" / "stores" / "migration_1.sql"
EVENTS = len(verified_on_retry())
REFUSED = "append-only"


def redacted(seq: int, tombstone: bytes = b"tombstone") -> Record:
    event = PayloadRedacted(
        seq=seq,
        payload_sha256=digest("payload"),
        tombstone_sha256=digest(tombstone.decode()),
        fields=("reason",),
        by="a keeper",
        reason="a name was in it",
    )
    return Record(SCOPE, event)


def sealed(last: int, first: int = 1) -> Record:
    event = SegmentSealed(
        first_seq=first, last_seq=last, sha256=digest("file"), by="a keeper", reason="old"
    )
    return Record(MAINTENANCE, event)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build(tmp_path / "audit.db", verified_on_retry())


@pytest.fixture
def store(path: Path) -> Iterator[SqliteAuditStore]:
    with closing(SqliteAuditStore(path, clock=fixed_clock)) as opened:
        yield opened


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def refuses(path: Path, *statements: str) -> None:
    """Each is refused, and leaves nothing behind."""
    with closing(raw(path)) as db:
        before = list(db.iterdump())
        for statement in statements:
            with pytest.raises(sqlite3.IntegrityError, match=REFUSED):
                db.execute(statement)
        assert list(db.iterdump()) == before


def columns(path: Path, sql: str) -> list[object]:
    with closing(raw(path)) as db:
        return [value for (value,) in db.execute(sql)]


# --- Migration ------------------------------------------------------------------------------------


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A store as the release before made it, byte for byte its schema."""
    path = tmp_path / "released" / "audit.db"
    path.parent.mkdir()
    with closing(raw(path)) as db:
        db.executescript(RELEASED.read_text())
        db.execute("PRAGMA journal_mode = wal")
    return path


def test_a_store_of_the_release_before_is_verified_as_it_is(released: Path) -> None:
    found = report(released)
    assert (found.events, found.integrity_problem_count) == (len(recipe_verified()), 0)
    with closing(open_readonly(released)) as reader:
        assert reader.segments() == []
        assert reader.tip()[0] == len(recipe_verified())
    refuses(released, "DELETE FROM audit_header WHERE seq = 1")


def test_a_store_of_the_release_before_is_migrated_and_goes_on(released: Path) -> None:
    before = columns(released, "SELECT header FROM audit_header")
    with closing(SqliteAuditStore(released, clock=fixed_clock)) as store:
        assert store.append(SCOPE, SandboxDisabled(reason="r")).seq == len(before) + 1
    with closing(raw(released)) as db:
        assert applied_migrations(db) == set(MIGRATION_NAMES)
    assert columns(released, "SELECT header FROM audit_header")[:-1] == before
    assert report(released).integrity_problem_count == 0


def test_a_migration_that_breaks_off_leaves_the_store_as_it_was(released: Path) -> None:
    with closing(raw(released)) as db:
        db.execute("CREATE TABLE audit_tombstone (somebody_elses)")
        before = list(db.iterdump())
        with pytest.raises(AuditStoreError, match="audit_tombstone already exists"):
            SqliteAuditStore(released)
        assert list(db.iterdump()) == before


@pytest.mark.parametrize("name", ["audit_payload_no_update", "audit_header_no_delete"])
def test_the_first_safeguards_do_not_pass_for_the_second(
    path: Path, released: Path, name: str
) -> None:
    """Nor the other way round: a store is judged by the migrations that it says it had."""
    sql = f"SELECT sql FROM sqlite_master WHERE name = '{name}'"
    (first,), (second,) = columns(released, sql), columns(path, sql)
    assert first != second
    for store, other in ((path, first), (released, second)):
        with closing(raw(store)) as db:
            db.execute(f"DROP TRIGGER {name}")
            if store == released:  # where the second one's tables are missing, it can't be made
                db.execute("CREATE TABLE audit_segment (number, last_seq)")
                db.execute("CREATE TABLE audit_tombstone (seq, tombstone)")
            db.execute(str(other))
        reasons = [problem.reason for problem in report(store).integrity_problems]
        assert f"{name} is not as the store made it" in reasons


def test_a_forgotten_migration_is_a_finding(path: Path) -> None:
    with closing(raw(path)) as db:
        db.execute("DELETE FROM _sqlite_migrations WHERE name = ?", (MIGRATION_NAMES[1],))
    assert any("is not as the store made it" in p.reason for p in report(path).integrity_problems)


# --- Redaction ------------------------------------------------------------------------------------


def test_it_is_a_keepable_store(store: SqliteAuditStore) -> None:
    port: KeepableStore = store
    assert port.segments() == []


def test_a_payload_is_replaced_and_the_record_says_so(path: Path, store: SqliteAuditStore) -> None:
    stored = store.replace_payload(3, b"tombstone", redacted(3))
    assert (stored.seq, stored.kind) == (EVENTS + 1, "PayloadRedacted")
    assert columns(path, "SELECT payload FROM audit_payload WHERE seq = 3") == [b"tombstone"]
    assert columns(path, "SELECT tombstone FROM audit_tombstone") == [b"tombstone"]


@pytest.mark.parametrize("seq", [3, 99])
def test_redacting_twice_or_nothing_leaves_no_event(store: SqliteAuditStore, seq: int) -> None:
    store.replace_payload(3, b"tombstone", redacted(3))
    before = store.tip()
    with pytest.raises(AuditStoreError, check=OfKind("safeguard"), match=f"Event {seq} "):
        store.replace_payload(seq, b"another", redacted(seq))
    assert store.tip() == before


def test_only_the_tombstone_on_record_may_stand_where_a_payload_stood(path: Path) -> None:
    refuses(path, "UPDATE audit_payload SET payload = x'00' WHERE seq = 3")
    with closing(raw(path)) as db:
        db.execute("INSERT INTO audit_tombstone VALUES (3, x'01')")
    refuses(
        path,
        "UPDATE audit_payload SET payload = x'00' WHERE seq = 3",
        "UPDATE audit_payload SET payload = x'01' WHERE seq = 4",
        "UPDATE audit_payload SET payload = x'01', seq = 99 WHERE seq = 3",
        "UPDATE OR REPLACE audit_payload SET payload = x'01', seq = 4 WHERE seq = 3",
        "INSERT OR REPLACE INTO audit_payload VALUES (3, x'01')",
        "INSERT INTO audit_payload VALUES (3, x'01') ON CONFLICT DO UPDATE SET payload = x'00'",
        "UPDATE audit_header SET header = x'01' WHERE seq = 3",
        "UPDATE audit_tombstone SET tombstone = x'02'",
        "DELETE FROM audit_tombstone",
        "INSERT INTO audit_tombstone VALUES (3, x'02')",
        "INSERT OR REPLACE INTO audit_tombstone VALUES (3, x'02')",
        "INSERT OR IGNORE INTO audit_tombstone VALUES (99, x'02')",
        "INSERT INTO audit_tombstone (tombstone) VALUES (x'02')",
    )
    with closing(raw(path)) as db:
        db.execute("UPDATE audit_payload SET payload = x'01' WHERE seq = 3")


@pytest.mark.parametrize("length", [40, 40_000], ids=["within a page", "over many pages"])
def test_redacted_words_are_in_no_file_any_more(
    path: Path, store: SqliteAuditStore, length: int
) -> None:
    word = "hunter2!" * (length // 8)
    for _ in range(3):
        seq = store.append(SCOPE, SandboxDisabled(reason=word)).seq
        store.append(SCOPE, SandboxDisabled(reason="between"))
        store.replace_payload(seq, b"tombstone", redacted(seq))
    assert all(b"hunter2!" not in file.read_bytes() for file in path.parent.iterdir())


def test_a_reader_in_the_way_is_said_and_scrubbing_is_made_up_for(path: Path) -> None:
    with closing(SqliteAuditStore(path, busy_timeout_s=0.05)) as store:
        seq = store.append(SCOPE, SandboxDisabled(reason="hunter2!")).seq
        with closing(raw(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM audit_header").fetchone()
            with pytest.raises(AuditStoreError, check=OfKind("log_not_scrubbed")):
                store.replace_payload(seq, b"tombstone", redacted(seq))
        assert store.tip()[0] == seq + 1
        store.scrub()
    assert all(b"hunter2!" not in file.read_bytes() for file in path.parent.iterdir())


# --- Sealing --------------------------------------------------------------------------------------


def test_sealed_events_are_gone_and_the_chain_goes_on(path: Path, store: SqliteAuditStore) -> None:
    stored = store.add_segment(Segment(1, 1, 10, b"one"), sealed(10))
    assert (stored.seq, stored.kind) == (EVENTS + 1, "SegmentSealed")
    assert store.append(*redacted(11)).previous_leaf == stored.leaf
    store.add_segment(Segment(2, 11, EVENTS + 2, b"two"), sealed(EVENTS + 2, 11))
    assert store.segments() == [b"one", b"two"]
    assert [event.seq for event in store.events()] == [EVENTS + 3]
    assert [row.seq for row in store.headers()] == [EVENTS + 3]
    with store.snapshot() as snapshot:
        assert [row.seq for row in snapshot.rows()] == [EVENTS + 3]
        assert snapshot.segments() == [b"one", b"two"]
    assert columns(path, "SELECT seq FROM audit_payload") == [EVENTS + 3]


@pytest.mark.parametrize(
    "segment",
    [
        Segment(2, 11, 12, b"a number left out, or taken"),
        Segment(3, 12, 13, b"an event left out"),
        Segment(3, 10, 13, b"sealed before"),
        Segment(3, 11, 10, b"nothing"),
        Segment(3, 11, EVENTS + 2, b"more than there is"),
    ],
    ids=lambda segment: segment.statement.decode(),
)
def test_segments_follow_each_other(store: SqliteAuditStore, segment: Segment) -> None:
    store.add_segment(Segment(1, 1, 5, b"one"), sealed(5))
    store.add_segment(Segment(2, 6, 10, b"two"), sealed(10, 6))
    before = store.tip()
    if segment.last_seq == EVENTS + 2:  # its own SegmentSealed would be the last event: it stays
        segment = segment._replace(last_seq=EVENTS + 3)
    with pytest.raises(
        AuditStoreError, check=OfKind("safeguard"), match=f"Segment {segment.number} "
    ):
        store.add_segment(segment, sealed(segment.last_seq, segment.first_seq))
    assert store.tip() == before
    assert store.segments() == [b"one", b"two"]


def test_only_what_is_sealed_may_be_deleted(path: Path) -> None:
    with closing(raw(path)) as db:
        db.execute("INSERT INTO audit_segment VALUES (1, 1, 5, x'00')")
    refuses(
        path,
        "DELETE FROM audit_header WHERE seq = 6",
        "DELETE FROM audit_payload WHERE seq = 6",
        "DELETE FROM audit_header",
        "INSERT OR REPLACE INTO audit_header VALUES (6, x'00', 'leaf')",
        "UPDATE audit_header SET leaf = 'leaf' WHERE seq = 5",
        "UPDATE audit_segment SET last_seq = 9",
        "DELETE FROM audit_segment",
        "INSERT OR REPLACE INTO audit_segment VALUES (1, 1, 9, x'00')",
        f"INSERT INTO audit_segment VALUES (2, 6, {EVENTS}, x'00')",
    )
    with closing(raw(path)) as db:
        for table in ("audit_header", "audit_payload"):
            db.execute(f"DELETE FROM {table} WHERE seq <= 5")
    refuses(
        path,
        "INSERT INTO audit_header VALUES (5, x'00', 'leaf')",
        "INSERT INTO audit_payload VALUES (1, x'00')",
    )


def test_segments_without_the_events_behind_them_are_no_empty_store(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store:
        store.add_segment(Segment(1, 1, 10, b"one"), sealed(10))
    with behind_the_triggers(path) as db:
        db.execute("DELETE FROM audit_header")
        db.execute("DELETE FROM audit_payload")
    gone = pytest.raises(AuditIntegrityError, check=OfKind("tail_missing"))
    with closing(open_readonly(path)) as reader, gone:
        reader.tip()
    with closing(SqliteAuditStore(path)) as store, pytest.raises(AuditIntegrityError):
        store.append(*redacted(1))


def test_an_empty_store_begins_at_the_genesis(tmp_path: Path) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db")) as store:
        assert store.tip() == (0, GENESIS)


# --- The guard, as SQLite's transaction shows it ----------------------------------------------------


class Heard:
    """A guard that lets everything through, and runs ``then`` while it is asked."""

    def __init__(self, then: Callable[[TrailReader], object] = lambda _: None) -> None:
        self.seqs: list[int] = []
        self._then = then

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        self._then(recorded)
        if record.event.kind == "SandboxDisabled":
            return (AppendFlagged(at=seq, rule="a-rule", detail="why"),)
        return ()

    def appended(self, event: StoredEvent) -> None:
        self.seqs.append(event.seq)


def test_a_guard_hears_only_of_what_is_durable(path: Path) -> None:
    guard = Heard()
    with closing(SqliteAuditStore(path, guard=guard)) as store:
        store.append(SCOPE, SandboxDisabled(reason="flagged"))
        assert guard.seqs == [EVENTS + 1, EVENTS + 2]
        with store._connection.using() as db:
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {pages}")
        large = Record(SCOPE, SandboxDisabled(reason="x" * 100_000))
        with pytest.raises(AuditStoreError, check=OfKind("disk_full")):
            store.append_all([redacted(1), large])
        assert guard.seqs == [EVENTS + 1, EVENTS + 2]
        assert store.tip()[0] == EVENTS + 2


def test_a_guard_is_asked_under_the_write_lock(path: Path) -> None:
    """Another process can't append between the question and the append."""

    def try_to_write(_: TrailReader) -> None:
        locked = pytest.raises(AuditStoreError, check=OfKind("locked"))
        with closing(SqliteAuditStore(path, busy_timeout_s=0.01)) as other, locked:
            other.append(*redacted(1))

    with closing(SqliteAuditStore(path, guard=Heard(try_to_write))) as store:
        store.append(*redacted(1))
        assert store.tip()[0] == EVENTS + 1


def test_a_guard_that_stops_reading_leaves_nothing_open(path: Path) -> None:
    held: list[object] = []

    def read_one(recorded: TrailReader) -> None:
        trail = recorded.trail(SCOPE.fix_id)
        held.append((next(trail), trail))

    with closing(SqliteAuditStore(path, guard=Heard(read_one))) as store:
        store.append(*redacted(1))
        store.replace_payload(2, b"tombstone", redacted(2))  # empties the log: no statement is open
    assert len(held) == 2


def test_keeping_is_judged_too(path: Path) -> None:
    def refuse(_: TrailReader) -> None:
        raise ContractError("A rule.", next_step="Keep it.")

    with closing(SqliteAuditStore(path, guard=Heard(refuse))) as store:
        with pytest.raises(ContractError):
            store.replace_payload(2, b"tombstone", redacted(2))
        with pytest.raises(ContractError):
            store.add_segment(Segment(1, 1, 10, b"one"), sealed(10))
        assert store.segments() == []
    assert columns(path, "SELECT count(*) FROM audit_tombstone") == [0]


# --- Reading does not grow with the store -----------------------------------------------------------


def plans(store: SqliteAuditStore, read: Callable[[], object]) -> list[str]:
    """How SQLite answers every statement that ``read`` runs on the store's own connections."""
    asked: list[str] = []
    with store._connection.using() as db:
        db.set_trace_callback(asked.append)
    read()
    db.set_trace_callback(None)
    found = []
    for sql in asked:
        if sql.startswith("SELECT"):
            found += [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    return found


def test_a_walk_sorts_nothing_and_builds_no_index(store: SqliteAuditStore) -> None:
    with store._connection.using() as db:
        snapshot = SqliteSnapshot(db)

    def walk() -> None:
        for rows in (
            snapshot.rows(),
            snapshot.rows(3),
            snapshot.rows_by_trail(),
            snapshot.rows_by_trail(frozenset({SCOPE.fix_id, "another"})),
        ):
            list(rows)
        list(store.headers())
        list(store.events())

    found = plans(store, walk)
    assert any("audit_trail" in step for step in found)
    assert not [step for step in found if "TEMP B-TREE" in step or "AUTOMATIC" in step]


def test_one_fix_is_found_by_the_index(store: SqliteAuditStore) -> None:
    found = plans(store, lambda: list(store.events(SCOPE.fix_id, kinds=frozenset({"FixStarted"}))))
    assert "SEARCH audit_header USING INDEX audit_trail (fix_id=?)" in found
    assert not [step for step in found if step.startswith("SCAN audit_")]


@pytest.mark.parametrize("seq", [1, 5, EVENTS, EVENTS + 1])
def test_a_payload_without_a_header_is_shown_wherever_it_is(path: Path, seq: int) -> None:
    with behind_the_triggers(path) as db:
        db.execute("DELETE FROM audit_header WHERE seq = ?", (seq,))
        db.execute("INSERT OR REPLACE INTO audit_payload VALUES (?, x'00')", (seq,))
        db.execute("DELETE FROM audit_payload WHERE seq = 9")  # so that there are as many of both
    with closing(open_readonly(path)) as reader, reader.snapshot() as snapshot:
        assert [row.seq for row in snapshot.rows() if row.header is None] == [seq]
        assert [row.seq for row in snapshot.rows(5) if row.header is None] == [seq] * (seq > 5)


def test_the_rows_of_some_fixes(path: Path) -> None:
    with closing(SqliteAuditStore(path)) as store:
        other = Scope(fix_id="another", gate_transition_id="t")
        store.append(other, SandboxDisabled(reason="a"))
        with store.snapshot() as snapshot:
            found = [r.seq for r in snapshot.rows_by_trail(frozenset({"another", "nobody"}))]
    assert found == [EVENTS + 1]


# --- Clocks and threads -----------------------------------------------------------------------------


def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path) -> None:
    moments = [fixed_clock().replace(day=day) for day in (9, 3, 7, 1)]
    clock = iter(moments)
    with closing(SqliteAuditStore(tmp_path / "audit.db", clock=lambda: next(clock))) as store:
        for _ in moments:
            store.append(SCOPE, SandboxDisabled(reason="r"))
        assert [event.seq for event in store.events()] == [1, 2, 3, 4]
        assert [event.recorded_at[8:10] for event in store.events()] == ["09", "03", "07", "01"]
    assert report(tmp_path / "audit.db").integrity_problem_count == 0


def test_a_batch_is_one_block_among_other_writers(path: Path, store: SqliteAuditStore) -> None:
    def append(name: str) -> None:
        scope = Scope(fix_id=name, gate_transition_id="t")
        with closing(SqliteAuditStore(path)) as own:
            for _ in range(5):
                own.append_all([Record(scope, SandboxDisabled(reason=name))] * 4)

    at_once(partial(append, f"writer-{n}") for n in range(4))
    written = [event.scope.fix_id for event in store.events(after=EVENTS)]
    assert len(written) == 80
    assert all(len(set(written[at : at + 4])) == 1 for at in range(0, 80, 4))
