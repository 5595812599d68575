"""Limits on connections, below HTTP: how many are open, and how slowly a request may arrive.

Each connection is a file descriptor, and a worker that gets none fails its fix. So connections are counted
where they are accepted, before TLS, and some descriptors are reserved.
"""

import asyncio
import resource
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fallback_tier.errors import ConfigurationError
from fallback_tier.service.settings import Limits

#: Descriptors reserved for databases, logs, and pipes to workers and to clients of attempts.
RESERVED = 256

#: Requested limit of open files: more than the largest configurable number of connections, and the reserve.
WANTED = 65_536

#: Connections that are refused in one call, before the event loop continues with others.
_REFUSED_AT_ONCE = 64


class Room:
    """Counts open connections up to a total; one address may have at most half of it. Thread-safe.

    ``proxies``: addresses that connect for many clients: only the total limits them.
    """

    def __init__(self, total: int, by_address: int, proxies: Sequence[str] = ()) -> None:
        self.total = total
        self.by_address = max(1, min(by_address, total // 2))
        self._proxies = [ip_network(proxy, strict=False) for proxy in proxies]
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, address: str) -> bool:
        """Count a connection from ``address``. Return False if a limit is reached."""
        with self._lock:
            if self._open.total() >= self.total:
                return False
            if self._open[address] >= self.by_address and not self._speaks_for_many(address):
                return False
            self._open[address] += 1
            return True

    def give_back(self, address: str) -> None:
        """Count a closed connection."""
        with self._lock:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _speaks_for_many(self, address: str) -> bool:
        return any(ip_address(address.partition("%")[0]) in network for network in self._proxies)


class Door(socket.socket):
    """A listening socket that accepts connections within the limits, and closes others at once."""

    room: Room

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, for an event loop. Raises BlockingIOError if none is accepted."""
        for _ in range(_REFUSED_AT_ONCE):
            connection, peer = super().accept()
            if self.room.take(peer[0]):
                return _Connection(connection, self.room, peer[0]), peer
            connection.close()
        raise BlockingIOError


class _Connection(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, accepted: socket.socket, room: Room, address: str) -> None:
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, proto, fileno=accepted.detach())
        self._room: Room | None = room
        self._address = address

    def close(self) -> None:
        """Close the connection. Idempotent."""
        super().close()
        room, self._room = self._room, None
        if room is not None:
            room.give_back(self._address)


class _TimedProtocol(H11Protocol):
    """uvicorn's protocol, closing a connection whose request arrives too slowly. uvicorn itself limits
    the time between requests.
    """

    headers_s: ClassVar[float]
    body_s: ClassVar[float]

    _late: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await(h11.IDLE)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await(self.conn.their_state)

    def on_response_complete(self) -> None:
        """Continue as uvicorn does: the time limit of the next request begins with its first byte."""
        super().on_response_complete()
        self._await(self.conn.their_state if self.conn.trailing_data[0] else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        super().connection_lost(exc)

    def _await(self, state: object) -> None:
        """Start a new state's time limit, which ends however little data arrives."""
        limits: dict[object, float] = {h11.IDLE: self.headers_s, h11.SEND_BODY: self.body_s}
        if state not in limits:
            state = None
        if state is self._awaited:
            return
        if self._late is not None:
            self._late.cancel()
        self._awaited, self._late = state, None
        if state is not None:
            self._late = self.loop.call_later(limits[state], self.transport.abort)


def timed_protocol(limits: Limits) -> type[H11Protocol]:
    """Return the protocol class (HTTP/1.1) with these limits, for uvicorn."""
    limits_s = {"headers_s": limits.headers_s, "body_s": limits.request_s}
    return type("TimedProtocol", (_TimedProtocol,), limits_s)


def room_for(limits: Limits, proxies: Sequence[str]) -> Room:
    """Return a room of as many connections as are configured and as the limit on open files permits.

    That limit is raised as far as this process may. Raises ConfigurationError if it is too low.
    """
    limit = _raised_limit()
    if limit < 2 * RESERVED:
        raise ConfigurationError(
            f"This process may open {limit} files, and the service needs at least {2 * RESERVED}.",
            next_step="Raise the limit: `ulimit -n`, or LimitNOFILE= of its systemd unit.",
        )
    total = min(limits.connections, limit - RESERVED)
    return Room(total, limits.connections_per_address, proxies)


def _raised_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return WANTED if soft == resource.RLIM_INFINITY else soft
