"""A small HTTP/1.1 client for load: one connection, one request at a time, little work of its own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: A service that does not answer for so long has failed the campaign (seconds).
ANSWER_S = 120.0


@dataclass
class Answers:
    """What came of a phase: seconds of each answer, how many by status."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def add(self, status: int, seconds: float) -> None:
        """One answer."""
        self.seconds.append(seconds)
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def percentile_ms(self, percent: float) -> float:
        """Nearest rank."""
        ordered = sorted(self.seconds)
        return 1_000 * ordered[max(0, -(-int(len(ordered) * percent) // 100) - 1)]

    @property
    def failed(self) -> int:
        """Answers that are no success."""
        return sum(count for status, count in self.statuses.items() if status >= 400)


class Connection:
    """Kept alive, opened again where the server closed it."""

    def __init__(self, address: str, key: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = f"Host: {parts.netloc}\r\nX-API-Key: {key}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, bytes]:
        """Status and body. Raises TimeoutError, ConnectionError."""
        reader, writer = await self.send(method, path, body, **headers)
        async with asyncio.timeout(ANSWER_S):
            status, length = await _head(reader)
            content = await reader.readexactly(length or 0)
        if length is None:
            writer.close()
            self._writer = None
        return status, content

    async def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The request; the answer is read by the caller."""
        if self._writer is None or self._reader is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1\r\n", self._head]
        lines += [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n")
        self._writer.write("".join([*lines, "\r\n"]).encode() + content)
        return self._reader, self._writer

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    length = fields.get("content-length")
    return int(head[0].split(" ")[1]), None if length is None else int(length)


async def follow(address: str, key: str, fix_id: str, begun: asyncio.Semaphore) -> list[str]:
    """An event stream to its end: the numbers of its events, and ``ended``. ``begun`` is released once it
    is answered."""
    connection = Connection(address, key)
    found: list[str] = []
    try:
        reader, _ = await connection.send("GET", f"/v1/fixes/{fix_id}/events")
        status, _ = await _head(reader)
        assert status == 200, status
        begun.release()
        text = ""
        async for piece in _chunks(reader):
            *events, text = (text + piece).split("\n\n")
            for event in events:
                fields = dict(line.partition(": ")[::2] for line in event.split("\n"))
                if "event" in fields:
                    found.append(fields.get("id", fields["event"]))
    finally:
        connection.close()
    return found


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """The pieces of a body that comes as it is made."""
    while True:
        async with asyncio.timeout(ANSWER_S):
            size = int((await reader.readline()).split(b";")[0], 16)
            piece = await reader.readexactly(size + 2)
        if not size:
            return
        yield piece[:-2].decode()


def now() -> float:
    """Of the clock that latencies are measured with."""
    return time.perf_counter()
