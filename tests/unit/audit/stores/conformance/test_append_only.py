"""Append-only by the database itself; what is done behind its back, verification finds."""

from contextlib import closing

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import Record
from tests.kinds import OfKind
from tests.unit.audit.stores.conformance.backends import Backend, Store, report_of
from tests.unit.audit.trails import SCOPE, recipe_verified

EVENT = SandboxDisabled(reason="a person said so")
COLUMNS = {"audit_header": "seq, header, leaf", "audit_payload": "seq, payload"}
COPIES = {"audit_header": "{0}, header, leaf", "audit_payload": "{0}, payload"}

TABLES = pytest.mark.parametrize("table", ["audit_header", "audit_payload"])


@pytest.fixture
def filled(backend: Backend) -> Backend:
    with closing(backend.store()) as store:
        store.append_all([Record(SCOPE, event) for event in recipe_verified()])
    return backend


def dump(backend: Backend) -> list[object]:
    with backend.connect() as connection:
        return [
            connection.execute(f"SELECT {columns} FROM {table} ORDER BY seq").fetchall()
            for table, columns in COLUMNS.items()
        ]


@TABLES
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET seq = seq + 100",
        "UPDATE {table} SET {last} = {last} WHERE seq = 2",
        "DELETE FROM {table} WHERE seq = 2",
        "DELETE FROM {table}",
    ],
)
def test_changes_are_refused(filled: Backend, table: str, statement: str) -> None:
    before = dump(filled)
    last = COLUMNS[table].rpartition(" ")[2]
    with filled.connect() as connection, pytest.raises(filled.refusal, match="append-only"):
        connection.execute(statement.format(table=table, last=last))
    assert dump(filled) == before


@TABLES
@pytest.mark.parametrize("seq", [-1, 0, 2, 99])
def test_only_the_next_number_is_taken(filled: Backend, table: str, seq: int) -> None:
    before = dump(filled)
    copy = COPIES[table].format(seq)
    with filled.connect() as connection, pytest.raises(filled.refusal, match="append-only"):
        connection.execute(
            f"INSERT INTO {table} ({COLUMNS[table]}) SELECT {copy} FROM {table} WHERE seq = 1"
        )
    assert dump(filled) == before


@TABLES
def test_one_statement_may_add_several_in_order_only(filled: Backend, table: str) -> None:
    """A trigger that saw the table as it was before the statement would refuse the second row."""
    next_two = f"SELECT {COPIES[table].format('seq + 1000')} FROM {table} WHERE seq <= 2"
    with filled.connect() as connection, pytest.raises(filled.refusal, match="append-only"):
        connection.execute(f"INSERT INTO {table} ({COLUMNS[table]}) {next_two}")
    with closing(filled.store()) as store:
        assert len(store.append_all([Record(SCOPE, EVENT)] * 3)) == 3


THEFTS = {
    "payload altered": "UPDATE audit_payload SET payload = {other} WHERE seq = 2",
    "payload deleted": "DELETE FROM audit_payload WHERE seq = 2",
    "header deleted": "DELETE FROM audit_header WHERE seq = 2",
    "event deleted": "DELETE FROM audit_header WHERE seq = 2;"
    "DELETE FROM audit_payload WHERE seq = 2",
    "leaf altered": "UPDATE audit_header SET leaf = 'x' || substr(leaf, 2) WHERE seq = 2",
    "moved": "UPDATE audit_header SET seq = 1000 WHERE seq = 2;"
    "UPDATE audit_payload SET seq = 1000 WHERE seq = 2",
    "extra payload": "INSERT INTO audit_payload SELECT 1000, payload FROM audit_payload WHERE seq = 1",
    "duplicate": "INSERT INTO audit_payload SELECT 1000, payload FROM audit_payload WHERE seq = 1;"
    "INSERT INTO audit_header (seq, header, leaf) SELECT 1000, header, leaf FROM audit_header"
    " WHERE seq = 1",
    "header of another": "UPDATE audit_header SET header = {header}, leaf = {leaf} WHERE seq = 2",
}


@pytest.mark.parametrize("theft", THEFTS)
def test_verification_finds_what_was_done_behind_the_triggers(filled: Backend, theft: str) -> None:
    one = "(SELECT {0} FROM audit_{1} WHERE seq = 1)"
    statements = THEFTS[theft].format(
        other=one.format("payload", "payload"),
        header=one.format("header", "header"),
        leaf=one.format("leaf", "header"),
    )
    assert report_of(filled).integrity_problem_count == 0
    with filled.attacker() as connection:
        for statement in statements.split(";"):
            connection.execute(statement)
    found = report_of(filled)
    assert found.integrity_problem_count >= 1
    assert found.first_bad is not None
    assert found.first_bad.seq in {2, 3, 1000}


def test_the_schema_itself_is_checked(filled: Backend) -> None:
    with filled.connect() as connection:
        connection.execute("DROP INDEX audit_trail")
    assert [p.reason for p in report_of(filled).integrity_problems] == ["audit_trail is missing"]


# --- Opening --------------------------------------------------------------------------------------


def test_a_place_that_is_another_programs(backend: Backend) -> None:
    with backend.connect() as connection:
        connection.execute("CREATE TABLE theirs (a integer)")
    for opened in (backend.store, backend.reader):
        with pytest.raises(AuditStoreError) as caught:
            opened()
        assert backend.address.partition("?")[0] in caught.value.problem
        assert caught.value.next_step
    with backend.connect() as connection:
        assert connection.execute("SELECT count(*) FROM theirs").fetchone() == (0,)
        with pytest.raises(Exception, match="audit_header"):
            connection.execute("SELECT * FROM audit_header")


def test_a_store_of_a_newer_program(filled: Backend) -> None:
    record = {
        "sqlite": "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
        " VALUES ('fallback_audit', '0099_future', '')",
        "postgres": "INSERT INTO audit_migration VALUES ('0099_future')",
    }
    with filled.connect() as connection:
        connection.execute(record["sqlite" if filled.mark == "?" else "postgres"])
    with pytest.raises(
        AuditStoreError, check=OfKind("newer_version"), match="0099_future"
    ) as caught:
        filled.store()
    assert "Upgrade" in caught.value.next_step


def test_a_reader_creates_nothing(backend: Backend) -> None:
    for _ in range(2):
        with pytest.raises(AuditStoreError, check=OfKind("no_such_file", "no_trail")):
            backend.reader()


def test_opening_an_existing_store_changes_nothing(filled: Backend, store: Store) -> None:
    before = dump(filled)
    with closing(filled.store()) as again:
        assert again.tip() == store.tip()
    assert dump(filled) == before
