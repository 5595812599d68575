"""PostgreSQL goes away in the middle: what was recorded is known, or said to be unknown."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import AuditEvent, SandboxDisabled
from fallback_audit.ports import StoredEvent
from fallback_audit.stores import postgres_connection
from fallback_audit.stores.postgres import PostgresAuditStore, open_readonly
from tests.kinds import OfKind
from tests.postgres.proxy import Lose, Proxy, proxied
from tests.postgres.server import Server
from tests.unit.audit.stores.conformance.backends import report
from tests.unit.audit.trails import SCOPE
from tests.waiting import at_once

EVENT = SandboxDisabled(reason="a person said so")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a Unix socket may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        yield Path(name)


@pytest.fixture
def proxy(folder: Path, postgres_server: Server) -> Iterator[Proxy]:
    with proxied(folder, postgres_server.place) as opened:
        yield opened


@pytest.fixture
def store(
    proxy: Proxy, folder: Path, postgres_server: Server, postgres_url: str
) -> Iterator[PostgresAuditStore]:
    through_proxy = postgres_url.replace(str(postgres_server.place), str(folder))
    with closing(PostgresAuditStore(through_proxy)) as opened:
        opened.append(SCOPE, EVENT)
        yield opened


def leaves(url: str) -> list[str]:
    with closing(open_readonly(url)) as reader:
        assert report(reader).integrity_problem_count == 0
        return [event.leaf for event in reader.events()]


def end_connections(url: str) -> None:
    """As a restart of the server does."""
    with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'fallback-tier audit'"
        )


def test_a_commit_that_never_arrived(
    store: PostgresAuditStore, proxy: Proxy, postgres_url: str
) -> None:
    proxy.lose = Lose.COMMIT
    with pytest.raises(AuditStoreError, check=OfKind("not_recorded"), match="event 2 "):
        store.append(SCOPE, EVENT)
    assert len(leaves(postgres_url)) == 1
    assert store.append(SCOPE, EVENT).seq == 2


def test_a_commit_whose_answer_was_lost(
    store: PostgresAuditStore, proxy: Proxy, postgres_url: str
) -> None:
    """The server is asked again, and has it: the event is acknowledged, and not appended twice."""
    proxy.lose = Lose.ANSWER
    stored = store.append(SCOPE, EVENT)
    assert stored.seq == 2
    assert leaves(postgres_url)[1:] == [stored.leaf]
    assert store.append(SCOPE, EVENT).seq == 3


def test_a_commit_that_nobody_can_be_asked_about(
    store: PostgresAuditStore, proxy: Proxy, postgres_url: str
) -> None:
    proxy.lose = Lose.SERVER
    with pytest.raises(AuditStoreError, check=OfKind("commit_unknown")) as caught:
        store.append(SCOPE, EVENT)
    assert leaves(postgres_url)[1] in caught.value.problem  # this time it is
    assert "audit log" in caught.value.next_step
    with pytest.raises(AuditStoreError):
        store.append(SCOPE, EVENT)


def test_the_outcome_is_known_when_another_writer_went_on(
    store: PostgresAuditStore, proxy: Proxy, postgres_url: str
) -> None:
    """Its event stands at the number that ours was to have."""

    class Rival:
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            proxy.lose = Lose.COMMIT
            return ()

        def appended(self, event: StoredEvent) -> None:
            pytest.fail("it was not recorded")

    store._guard = Rival()
    ask_again = store._session.connection

    def after_the_rival() -> postgres_connection.Connection:
        if proxy.lose is Lose.NOTHING and store._session._connection.closed:
            at_once([lambda: append_elsewhere(postgres_url)])
        return ask_again()

    store._session.connection = after_the_rival  # type: ignore[method-assign]
    with pytest.raises(AuditStoreError, check=OfKind("not_recorded")):
        store.append(SCOPE, EVENT)
    assert len(leaves(postgres_url)) == 2


def append_elsewhere(url: str) -> None:
    with closing(PostgresAuditStore(url)) as other:
        other.append(SCOPE, SandboxDisabled(reason="another"))


def test_a_restart_between_two_appends(store: PostgresAuditStore, postgres_url: str) -> None:
    with closing(open_readonly(postgres_url)) as reader:
        assert reader.tip()[0] == 1
        end_connections(postgres_url)
        assert store.append(SCOPE, EVENT).seq == 2
        assert reader.tip()[0] == 2
        events = reader.events()
        next(events)
        end_connections(postgres_url)
        assert [event.seq for event in events] == [2]


def test_a_connection_that_ends_inside_an_append(
    store: PostgresAuditStore, postgres_url: str
) -> None:
    class Cutting:
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            end_connections(postgres_url)
            return ()

        def appended(self, event: StoredEvent) -> None:
            pytest.fail("it was not recorded")

    store._guard = Cutting()
    with pytest.raises(AuditStoreError, check=OfKind("server_ended")):
        store.append(SCOPE, EVENT)
    store._guard = None
    assert store.append(SCOPE, EVENT).seq == 2


def test_a_writer_that_is_stopped_half_way_does_not_stop_the_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it; whoever waits for the chain's lock gets it."""
    waiting: list[int] = []
    other = closing(PostgresAuditStore(postgres_url))

    class Stopped:
        def admit(self, *_: object) -> tuple[AuditEvent, ...]:
            waiting.append(store.append(SCOPE, EVENT).seq)
            return ()

        def appended(self, event: StoredEvent) -> None:
            pytest.fail("it was not recorded")

    monkeypatch.setattr(postgres_connection, "IDLE_TIMEOUT_S", 0.2)
    with (
        other as store,
        closing(PostgresAuditStore(postgres_url, guard=Stopped())) as stopped,
        pytest.raises(AuditStoreError, check=OfKind("stopped_half_way")),
    ):
        stopped.append(SCOPE, EVENT)
    assert waiting == [1]
    assert len(leaves(postgres_url)) == 1
