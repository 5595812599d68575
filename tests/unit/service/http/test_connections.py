"""Connections are counted where they are accepted, and a request that trickles in is cut off."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from fallback_tier.service.http.connections import Door, Room, timed_protocol
from fallback_tier.service.settings import Limits
from tests.waiting import PATIENCE_S


@contextmanager
def door(room: Room) -> Iterator[Door]:
    with closing(Door(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as place:
        place.bind(("127.0.0.1", 0))
        place.listen(16)
        place.room = room
        yield place


def knock(place: Door, address: str = "127.0.0.1") -> socket.socket:
    """A client's connection from this address of this machine."""
    return socket.create_connection(place.getsockname(), PATIENCE_S, source_address=(address, 0))


def test_what_there_is_no_room_for_is_closed() -> None:
    with door(Room(3, 2)) as place:
        one = knock(place)
        first, peer = place.accept()
        assert peer == one.getsockname()
        refused, other = knock(place), knock(place, "127.0.0.2")
        second, peer = place.accept()  # half of three, at least one, of each address
        assert peer == other.getsockname()
        assert refused.recv(1) == b""
        first.close()
        first.close()
        again = knock(place)
        third, peer = place.accept()
        assert peer == again.getsockname()
        for end in (one, refused, other, again, second, third):
            end.close()


def test_all_addresses_together_are_bounded() -> None:
    room = Room(4, 100)
    assert [room.take(f"192.0.2.{number}") for number in range(5)] == [True] * 4 + [False]
    room.give_back("192.0.2.0")
    assert room.take("192.0.2.9")


def test_a_proxy_speaks_for_many() -> None:
    room = Room(4, 2, ["10.0.0.0/8"])
    assert [room.take("10.1.2.3") for _ in range(5)] == [True] * 4 + [False]
    assert not Room(4, 2).by_address > 2


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{len(body)}")(scope, receive, send)


async def _talk(*pieces: bytes, limit_s: float = 0.6) -> bytes:
    """What a server with this limit answers to these, sent one after the other with a pause."""
    limits = Limits(headers_s=limit_s, request_s=limit_s)
    with door(Room(10, 5)) as place:
        config = uvicorn.Config(
            _app, http=timed_protocol(limits), lifespan="off", log_level="critical"
        )
        server = uvicorn.Server(config)
        place.setblocking(False)
        serving = asyncio.create_task(server.serve([place]))
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*place.getsockname())
        reading = asyncio.create_task(_read(reader))
        with suppress(ConnectionError):  # it has been cut off
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.2)
        answer = await asyncio.wait_for(reading, PATIENCE_S)
        writer.close()
        server.should_exit = True
        await serving
        return answer


async def _read(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with suppress(ConnectionError):
        while piece := await reader.read(1_000):
            found += piece
    return found


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"P", b"O", b"S", b"T", b" ", b"/"),
        (HEAD + b"\r\n", b"a", b"b", b"c"),
        (HEAD + b"\r\nabcd" + HEAD, *(b"X: y\r\n" for _ in range(8))),
    ],
    ids=["nothing", "head", "body", "second"],
)
def test_a_request_that_trickles_in_is_cut_off(pieces: tuple[bytes, ...]) -> None:
    """Each byte in time, and the whole too late: without the limit the server would wait for ever."""
    answer = asyncio.run(_talk(*pieces))
    assert answer.count(b"HTTP/1.1 200") == (1 if len(pieces) > 7 else 0)


def test_what_comes_in_time_is_answered_and_the_next_may_wait() -> None:
    request = HEAD + b"Connection: close\r\n\r\nabcd"
    pause = [b""] * 20
    answer = asyncio.run(_talk(HEAD + b"\r\nab", b"cd", *pause, request, limit_s=3))
    assert answer.count(b"HTTP/1.1 200") == 2
