"""What only PostgreSQL has: servers that are not durable, superusers, passwords, several chains."""

import sys
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.errors import AuditError, AuditIntegrityError, AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import Record, Scope
from fallback_audit.stores.postgres import PostgresAuditStore, open_readonly
from fallback_audit.stores.postgres_connection import store_error
from fallback_audit.stores.postgres_location import (
    DEFAULT_SCHEMA,
    PostgresLocation,
    require_driver,
)
from fallback_audit.stores.postgres_schema import lock_key
from tests.kinds import OfKind
from tests.postgres.server import Server, running
from tests.unit.audit.stores.conformance.backends import PostgresBackend, report
from tests.unit.audit.trails import SCOPE

EVENT = SandboxDisabled(reason="a person said so")
NOWHERE = "127.0.0.1:1"  # nothing listens there


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresAuditStore]:
    with closing(PostgresAuditStore(postgres_url)) as opened:
        opened.append_all([Record(SCOPE, EVENT)] * 3)
        yield opened


@pytest.fixture
def superuser(store: PostgresAuditStore, postgres_url: str) -> Iterator[psycopg.Connection]:
    """On the schema of the chain."""
    with PostgresBackend(postgres_url).connect() as connection:
        yield connection


# --- Durable or nothing ---------------------------------------------------------------------------


def test_a_commit_waits_for_the_disk(postgres_url: str) -> None:
    """Whatever the database's default is."""
    with PostgresBackend(postgres_url).connect() as connection:
        database = "ALTER DATABASE postgres {} synchronous_commit"
        connection.execute(database.format("SET") + " = off")
        try:
            asked: list[str] = []

            class Asking:
                def admit(self, *_: object) -> tuple[()]:
                    rows = store._session.connection().execute("SHOW synchronous_commit")
                    asked.extend(rows.fetchone() or ())
                    return ()

                def appended(self, event: object) -> None: ...

            with closing(PostgresAuditStore(postgres_url, guard=Asking())) as store:
                store.append(SCOPE, EVENT)
                (outside,) = store._session.read("SHOW synchronous_commit")
        finally:
            connection.execute(database.format("RESET"))
    assert (asked, outside) == (["on"], ("off",))


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_is_not_durable_gets_no_event(postgres_server: Server, setting: str) -> None:
    with running(**{setting: "off"}) as server, closing(PostgresAuditStore(server.url())) as store:
        with pytest.raises(AuditStoreError, check=OfKind("not_durable")):
            store.append(SCOPE, EVENT)
        assert list(store.events()) == []
        with closing(open_readonly(server.url())) as reader:  # reading a restored copy is fine
            assert report(reader).integrity_problem_count == 0


# --- Against superusers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE audit_header",
        "TRUNCATE audit_payload, audit_header",
        "TRUNCATE audit_segment CASCADE",
        "TRUNCATE audit_tombstone",
        "SET session_replication_role = replica; DELETE FROM audit_header WHERE seq = 3",
        "INSERT INTO audit_payload VALUES (2, '') ON CONFLICT (seq) DO UPDATE SET payload = ''",
        "COPY audit_payload FROM PROGRAM 'printf 2\\\\tx'",
    ],
)
def test_the_triggers_bind_everybody(superuser: psycopg.Connection, statement: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        superuser.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_header SET fix_id = 'another'",
        "INSERT INTO audit_header (seq, header, leaf, kind) VALUES (4, '{}', '', 'FixVerified')",
    ],
)
def test_no_column_can_contradict_the_header(superuser: psycopg.Connection, statement: str) -> None:
    superuser.execute("ALTER TABLE audit_header DISABLE TRIGGER ALL")
    with pytest.raises(psycopg.errors.GeneratedAlways):
        superuser.execute(statement)


CHANGES = {
    "ALTER TABLE audit_header DISABLE TRIGGER audit_delete": "audit_delete on audit_header is not",
    "ALTER TABLE audit_payload ENABLE TRIGGER audit_update": "audit_update on audit_payload is not",
    "DROP TRIGGER audit_truncate ON audit_payload": "audit_truncate on audit_payload is missing",
    "CREATE OR REPLACE FUNCTION audit_never() RETURNS trigger LANGUAGE plpgsql"
    " AS 'BEGIN RETURN OLD; END'": "function audit_never is not as",
    "CREATE FUNCTION audit_never(a integer) RETURNS void LANGUAGE sql AS ''": "functions in the schema",
    "CREATE TRIGGER a_first BEFORE INSERT ON audit_header FOR EACH ROW EXECUTE FUNCTION"
    " suppress_redundant_updates_trigger()": "a_first on audit_header is a trigger that",
    "CREATE RULE quiet AS ON INSERT TO audit_header DO INSTEAD NOTHING": "quiet on audit_header is a rule",
    "ALTER TABLE audit_header ENABLE ROW LEVEL SECURITY": "audit_header is not as",
    "CREATE TABLE more () INHERITS (audit_header)": "audit_header is not as",
    "ALTER TABLE audit_header ALTER fix_id DROP EXPRESSION": "column fix_id of audit_header is not as",
    "ALTER TABLE audit_header ADD note text": "column note of audit_header is not the",
    "ALTER TABLE audit_payload ALTER payload DROP NOT NULL": "column payload of audit_payload is not",
    "DROP TABLE audit_tombstone": "audit_tombstone is missing",
    "DROP INDEX audit_trail; CREATE INDEX audit_trail ON audit_header (fix_id)": "audit_trail is not as",
}


@pytest.mark.parametrize("statement", CHANGES)
def test_a_changed_schema_is_a_finding(
    store: PostgresAuditStore, superuser: psycopg.Connection, statement: str
) -> None:
    assert report(store).integrity_problems == ()
    superuser.execute(statement)
    found = [problem.reason for problem in report(store).integrity_problems]
    assert any(CHANGES[statement] in reason for reason in found), found


# --- A chain a schema -----------------------------------------------------------------------------


def test_chains_are_apart(postgres_server: Server, postgres_url: str) -> None:
    other = f"{postgres_url}_other"
    with (
        closing(PostgresAuditStore(postgres_url)) as one,
        closing(PostgresAuditStore(other)) as two,
    ):
        one.append(SCOPE, EVENT)
        assert two.append(SCOPE, EVENT).seq == 1
        assert two.append(SCOPE, EVENT).seq == 2
        assert len(list(one.events())) == 1


def test_the_schema_is_an_argument_a_parameter_or_the_default() -> None:
    assert PostgresLocation.of("postgresql://h/d").schema == DEFAULT_SCHEMA
    location = PostgresLocation.of("postgresql://h/d?sslmode=verify-full&schema=one")
    assert location.schema == "one"
    assert location.conninfo == "postgresql://h/d?sslmode=verify-full"
    assert PostgresLocation.of("postgresql://h/d?schema=one", schema="two").schema == "two"


@pytest.mark.parametrize("name", ["", "A", "1a", "a-b", 'a"; DROP', "a" * 49, "é", "a b"])
def test_a_name_that_needs_quotes_is_refused(name: str) -> None:
    if name:  # an empty argument is none
        with pytest.raises(AuditStoreError, check=OfKind("bad_schema_name")):
            PostgresLocation.of("postgresql://h/d", schema=name)
    with pytest.raises(AuditStoreError, check=OfKind("bad_schema_name")):
        PostgresLocation.of(f"postgresql://h/d?schema={name or '%20'}")


def test_the_lock_of_a_chain_is_always_the_same() -> None:
    """Programs of two versions must take the same one."""
    assert lock_key("fallback_audit") == -23769922199381163
    assert len({lock_key(f"chain_{number}") for number in range(1000)}) == 1000


def test_a_temporary_table_does_not_stand_in_for_ours(store: PostgresAuditStore) -> None:
    connection = store._session.connection()
    connection.execute("CREATE TEMPORARY TABLE audit_header (seq bigint, header bytea, leaf text)")
    assert store.append(SCOPE, EVENT).seq == 4
    assert store.tip()[0] == 4


def test_a_snapshot_leaves_the_rows_with_the_server(store: PostgresAuditStore) -> None:
    """Memory is flat: what is not read yet stays in a cursor there."""
    with store.snapshot() as snapshot:
        rows = snapshot.rows()
        next(rows)
        cursors = snapshot._connection.execute(
            "SELECT count(*) FROM pg_cursors WHERE name LIKE 'audit%'"
        )
        assert cursors.fetchone() == (1,)
        assert len(list(rows)) == 2


# --- What a user is told --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:{0}@" + NOWHERE + "/db",
        "postgres://me:{0}@" + NOWHERE + "/db?schema=one",
        "postgresql://me@" + NOWHERE + "/db?password={0}",
        "postgresql://me:{0}@" + NOWHERE + "/db?port={0}",
        "postgresql://me:{0}@" + NOWHERE + "/db?unknown={0}",
        "postgresql://me:%zz{0}@" + NOWHERE + "/db",
        "postgresql://me:{0}/{0}@" + NOWHERE + "/db",
        "postgresql://me:{0}#{0}@" + NOWHERE + "/db",
        "postgresql://me:{0}@{0}@" + NOWHERE + "/db",
        "postgresql://me:{0}@/db?host=/nowhere&sslpassword={0}",
    ],
)
def test_no_message_has_a_password(url: str) -> None:
    for opened in (PostgresAuditStore, open_readonly):
        with pytest.raises(AuditError) as caught:
            opened(url.format("s3cret"))
        assert "s3cret" not in str(caught.value)
        assert caught.value.next_step


@given(st.text(min_size=4, alphabet=st.characters(min_codepoint=33)))
def test_no_password_whatever_it_holds(password: str) -> None:
    try:
        location = PostgresLocation.of(f"postgresql://user:§{password}§@host/db")
    except AuditStoreError as refused:
        message = refused.problem
        assert f"§{password}§" not in message
    else:
        assert f"§{password}§" not in f"{location}{location!r}{(location,)}"
        error = psycopg.OperationalError(f"no luck with {location.conninfo} there")
        assert f"§{password}§" not in str(store_error(location, error))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(AuditStoreError, match="refused") as caught:
        PostgresAuditStore(f"postgresql://me@{NOWHERE}/db?schema=one")
    assert caught.value.problem.startswith(f"Audit store postgresql://me@{NOWHERE}/db?schema=one: ")


@pytest.mark.parametrize(
    ("state", "words", "kind"),
    [
        ("53100", "disk is full", AuditStoreError),
        ("55P03", "locked by another writer", AuditStoreError),
        ("42501", "permission was denied", AuditStoreError),
        ("25006", "takes no writes", AuditStoreError),
        ("57P03", "shutting down or starting", AuditStoreError),
        ("53400", "out of resources", AuditStoreError),
        ("58030", "input/output error", AuditStoreError),
        ("XX001", "damaged", AuditIntegrityError),
        ("0A000", "words of the server", AuditStoreError),
    ],
)
def test_each_reason_has_its_words(state: str, words: str, kind: type[AuditError]) -> None:
    error = (
        psycopg.errors.lookup(state)("words of the server")
        if state != "0A000"
        else (psycopg.errors.FeatureNotSupported("words of the server\nDETAIL: more"))
    )
    reported = store_error(PostgresLocation.of("postgresql://h/d"), error)
    assert type(reported) is kind
    assert words in reported.problem
    assert "DETAIL" not in str(reported)


def test_what_postgresql_cannot_index_is_refused(store: PostgresAuditStore) -> None:
    with pytest.raises(AuditStoreError, check=OfKind("not_indexable")):
        store.append(Scope(fix_id="a\0b", gate_transition_id="t"), EVENT)
    assert store.append(SCOPE, SandboxDisabled(reason="a\0b")).payload.reason == "a\0b"


def test_an_encoding_that_loses_characters_is_refused(postgres_server: Server) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    try:
        with pytest.raises(AuditStoreError, check=OfKind("bad_encoding"), match="LATIN1"):
            PostgresAuditStore(postgres_server.url(database="latin"))
    finally:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute("DROP DATABASE latin")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_driver()
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(AuditStoreError, check=OfKind("no_driver")) as caught:
        require_driver()
    assert "fallback-tier[postgres]" in caught.value.next_step
