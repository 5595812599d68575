"""Over a network both ends of a connection notice that the other is gone."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from fallback_audit.stores.postgres import PostgresAuditStore
from fallback_tier.fleet.store.postgres import PostgresTables
from tests.ports import free_port
from tests.postgres.server import running

_IDLE = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)


@pytest.fixture(scope="module")
def over_tcp(postgres_server: object) -> Iterator[str]:
    port = str(free_port())
    with running(listen_addresses="127.0.0.1", port=port):
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


@contextmanager
def _audit(url: str) -> Iterator["psycopg.Connection[Any]"]:
    with closing(PostgresAuditStore(url)) as store:
        yield store._session.connection()


@contextmanager
def _fleet(url: str) -> Iterator["psycopg.Connection[Any]"]:
    with closing(PostgresTables(url)) as tables:
        yield tables._connected()


@pytest.mark.parametrize("connected", [_audit, _fleet])
def test_both_ends_notice_that_the_network_is_gone(
    over_tcp: str, connected: Callable[[str], Any]
) -> None:
    """Who waits for an answer has sent everything: the system alone would end that after two hours."""
    with connected(over_tcp) as connection:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert [end.getsockopt(socket.IPPROTO_TCP, one) for one in _IDLE] == [10, 5, 2]
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        with connection.cursor(row_factory=tuple_row) as cursor:
            shown = [
                cursor.execute(f"SHOW tcp_keepalives_{name}".encode()).fetchone()
                for name in ("idle", "interval", "count")
            ]
    assert shown == [("10",), ("5",), ("2",)]


def test_an_address_may_say_otherwise(over_tcp: str) -> None:
    with (
        _audit(f"{over_tcp}?keepalives_idle=77") as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as end,
    ):
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
