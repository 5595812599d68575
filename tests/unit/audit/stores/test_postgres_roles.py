"""Who may do what to a chain: the server itself refuses the rest."""

from contextlib import closing
from typing import Any

import psycopg
import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import MAINTENANCE, Record, Segment
from fallback_audit.stores.postgres import PostgresAuditStore, open_readonly
from fallback_audit.stores.postgres_connection import MAINTAIN_SINCE
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.stores.postgres_roles import Roles, init_postgres
from tests.kinds import OfKind
from tests.postgres.server import Server
from tests.unit.audit.stores.conformance.backends import report
from tests.unit.audit.stores.conformance.test_keeping import redaction, sealing
from tests.unit.audit.trails import SCOPE

EVENT = SandboxDisabled(reason="a person said so")


class Chain:
    """A chain with its roles, and a user in each."""

    def __init__(self, server: Server, schema: str) -> None:
        self.schema = schema
        self._server = server
        self.roles = init_postgres(server.url(), schema=schema)
        with psycopg.connect(server.url(), autocommit=True) as connection:
            self.version = connection.info.server_version
            for name, role in self.roles._asdict().items():
                connection.execute(f"CREATE ROLE {schema}_{name}_user LOGIN IN ROLE {role}")

    def url(self, role: str) -> str:
        return f"{self._server.url(f'{self.schema}_{role}_user')}&schema={self.schema}"

    def connect(self, role: str) -> Any:
        connection = psycopg.connect(self.url(role).partition("&schema")[0], autocommit=True)
        connection.execute(f"SET search_path = {self.schema}")
        return connection


@pytest.fixture
def schema(postgres_url: str) -> str:
    return PostgresLocation.of(postgres_url).schema


@pytest.fixture
def chain(postgres_server: Server, schema: str) -> Chain:
    made = Chain(postgres_server, schema)
    with closing(PostgresAuditStore(made.url("writer"))) as store:
        store.append_all([Record(SCOPE, EVENT)] * 4)
    return made


def test_a_writer_appends_and_a_reader_verifies(chain: Chain) -> None:
    with closing(PostgresAuditStore(chain.url("writer"))) as store:
        assert store.append(SCOPE, EVENT).seq == 5
    with closing(open_readonly(chain.url("reader"))) as reader:
        assert [event.seq for event in reader.events(since="2020-01-01T00:00:00Z")] == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert report(reader).integrity_problems == ()


FORBIDDEN = {
    "writer": (
        "UPDATE audit_payload SET payload = ''",
        "UPDATE audit_header SET leaf = ''",
        "DELETE FROM audit_header WHERE seq = 4",
        "DELETE FROM audit_payload WHERE seq = 4",
        "TRUNCATE audit_header",
        "INSERT INTO audit_segment VALUES (1, 1, 2, '')",
        "INSERT INTO audit_tombstone VALUES (1, '')",
        "INSERT INTO audit_migration VALUES ('0099')",
        "DELETE FROM audit_migration",
        "ALTER TABLE audit_header DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_delete ON audit_header",
        "CREATE OR REPLACE FUNCTION audit_never() RETURNS trigger LANGUAGE sql AS ''",
        "SET session_replication_role = replica",
        "CREATE TABLE mine ()",
        "DROP TABLE audit_header",
        "BEGIN; LOCK TABLE audit_header IN ACCESS EXCLUSIVE MODE",
    ),
    "reader": (
        "INSERT INTO audit_payload VALUES (5, '')",
        "INSERT INTO audit_header (seq, header, leaf) VALUES (5, '{}', '')",
        "UPDATE audit_payload SET payload = ''",
        "DELETE FROM audit_header",
        "TRUNCATE audit_payload",
        "CREATE TABLE mine ()",
    ),
    "keeper": (
        "UPDATE audit_header SET leaf = ''",
        "UPDATE audit_payload SET seq = 99",
        "TRUNCATE audit_payload",
        "DELETE FROM audit_segment",
        "UPDATE audit_tombstone SET tombstone = ''",
        "DELETE FROM audit_tombstone",
        "ALTER TABLE audit_payload DISABLE TRIGGER ALL",
        "DROP TABLE audit_payload",
    ),
}


@pytest.mark.parametrize("role", FORBIDDEN)
def test_the_server_refuses_what_a_role_may_not(chain: Chain, role: str) -> None:
    with chain.connect(role) as connection:
        for statement in FORBIDDEN[role]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_payload SET payload = '' WHERE seq = 2",
        "DELETE FROM audit_payload WHERE seq = 1",
        "DELETE FROM audit_header WHERE seq = 1",
        "INSERT INTO audit_segment VALUES (1, 2, 3, '')",
        "INSERT INTO audit_tombstone VALUES (99, '')",
    ],
)
def test_the_triggers_refuse_what_is_left_to_a_keeper(chain: Chain, statement: str) -> None:
    refused = pytest.raises(psycopg.errors.RestrictViolation, match="append-only")
    with chain.connect("keeper") as connection, refused:
        connection.execute(statement)


def test_even_the_owner_meets_the_triggers(chain: Chain) -> None:
    with chain.connect("owner") as connection:
        for statement in ("DELETE FROM audit_header", "TRUNCATE audit_header CASCADE"):
            with pytest.raises(psycopg.errors.RestrictViolation):
                connection.execute(statement)


def test_a_keeper_redacts_and_seals(chain: Chain, postgres_server: Server) -> None:
    steps = (
        lambda store: store.replace_payload(3, b"tombstone", redaction(3)),
        lambda store: store.add_segment(Segment(1, 1, 2, b"statement"), sealing(1, 2)),
    )
    with closing(PostgresAuditStore(chain.url("keeper"))) as store:
        for number, step in enumerate(steps, start=5):
            if chain.version >= MAINTAIN_SINCE:
                assert step(store).seq == number
            else:  # only the owner writes the tables anew
                with pytest.raises(AuditStoreError, check=OfKind("not_rewritten")):
                    step(store)
        assert [row.seq for row in store.headers()] == [3, 4, 5, 6]
    with chain.connect("reader") as connection:
        kept = connection.execute("SELECT payload FROM audit_payload WHERE seq = 3").fetchone()
        assert kept == (b"tombstone",)


@pytest.mark.parametrize("role", ["writer", "reader"])
def test_others_are_no_keepers(chain: Chain, role: str) -> None:
    with closing(PostgresAuditStore(chain.url(role))) as store:
        with pytest.raises(AuditStoreError, check=OfKind("not_permitted")):
            store.replace_payload(3, b"tombstone", redaction(3))
        with pytest.raises(AuditStoreError, check=OfKind("not_permitted")):
            store.add_segment(Segment(1, 1, 2, b"statement"), sealing(1, 2))
        assert store.tip()[0] == 4
    with closing(open_readonly(chain.url("reader"))) as reader:
        assert reader.segments() == []


def test_a_reader_can_not_append(chain: Chain) -> None:
    with closing(PostgresAuditStore(chain.url("reader"))) as store:
        with pytest.raises(AuditStoreError, check=OfKind("not_permitted")) as caught:
            store.append(MAINTENANCE, EVENT)
        assert "docs/postgresql.md" in caught.value.next_step


def test_a_stranger_sees_nothing(chain: Chain, postgres_server: Server) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {chain.schema}_stranger LOGIN")
    url = postgres_server.url(f"{chain.schema}_stranger")
    for opened in (PostgresAuditStore, open_readonly):
        with pytest.raises(AuditStoreError, check=OfKind("not_permitted")):
            opened(url, schema=chain.schema)


# --- Setting up -----------------------------------------------------------------------------------


def test_setting_up_again_changes_nothing(chain: Chain, postgres_server: Server) -> None:
    assert init_postgres(postgres_server.url(), schema=chain.schema) == Roles.of(chain.schema)
    with closing(PostgresAuditStore(chain.url("writer"))) as store:
        assert store.append(SCOPE, EVENT).seq == 5


def test_a_chain_that_a_store_made_gets_roles(
    postgres_server: Server, postgres_url: str, schema: str
) -> None:
    with closing(PostgresAuditStore(postgres_url)) as store:
        store.append(SCOPE, EVENT)
    chain = Chain(postgres_server, schema)
    with closing(PostgresAuditStore(chain.url("writer"))) as store:
        assert store.append(SCOPE, EVENT).seq == 2
        assert report(store).integrity_problems == ()
    with chain.connect("reader") as connection:
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = %s", (schema,)
        ).fetchall()
    assert owners == [(chain.roles.owner,)]


def test_an_administrator_need_not_be_a_superuser(postgres_server: Server, schema: str) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema}_admin LOGIN CREATEROLE")
        connection.execute(f"GRANT CREATE ON DATABASE postgres TO {schema}_admin")
    roles = init_postgres(postgres_server.url(f"{schema}_admin"), schema=schema)
    assert roles == Roles.of(schema)
    assert init_postgres(postgres_server.url(f"{schema}_admin"), schema=schema) == roles


def test_who_may_not_set_up_leaves_nothing(postgres_server: Server, schema: str) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema}_nobody LOGIN CREATEROLE")
        with pytest.raises(AuditStoreError, check=OfKind("setup_not_permitted")) as caught:
            init_postgres(postgres_server.url(f"{schema}_nobody"), schema=schema)
        assert "superuser" in caught.value.next_step
        made = connection.execute(
            "SELECT count(*) FROM pg_roles WHERE rolname = ANY(%s)", (list(Roles.of(schema)),)
        ).fetchone()
    assert made == (0,)


def test_another_programs_schema_is_left_alone(postgres_server: Server, schema: str) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs ()")
    with pytest.raises(AuditStoreError, check=OfKind("not_a_trail")):
        init_postgres(postgres_server.url(), schema=schema)
