"""The phases: idle, saturated, at half of that, for long, with many who follow one fix."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.http.given import ADVISORY
from fallback_tier.wiring import audit_db
from tests.campaigns.load.client import Answers, Connection, follow, now
from tests.service.running import Running
from tests.unit.audit import trails

#: Connections of the closed loop that finds the saturation: more than the service has threads for work.
CLOSED = 32

#: Connections of an open loop: enough that a request waits for the service, not for a connection.
OPEN = 64

#: Between two requests of the idle phase (seconds).
IDLE_PAUSE_S = 0.02

#: Of a hundred requests: reads of a fix, of the list, of the record, submissions again, new submissions.
MIX = (55, 15, 15, 10, 5)

Request = tuple[str, str, object, dict[str, str]]


def requests(fix_id: str) -> Iterator[Request]:
    """The same mix for every phase, endlessly."""
    new = itertools.count()
    kinds = ("fix", "list", "record", "again", "new")
    body = {"repository": "app", "advisory": ADVISORY}
    hundred = [kind for kind, count in zip(kinds, MIX, strict=True) for _ in range(count)]
    order = [hundred[(37 * place) % 100] for place in range(100)]  # mixed, and the same each time
    for kind in itertools.cycle(order):
        match kind:
            case "fix":
                yield "GET", f"/v1/fixes/{fix_id}", None, {}
            case "list":
                yield "GET", "/v1/fixes?limit=20", None, {}
            case "record":
                yield "GET", "/v1/audit/events?limit=20", None, {}
            case "again":
                yield "POST", "/v1/fixes", body, {"Idempotency_Key": "always-the-same"}
            case _:
                yield "POST", "/v1/fixes", body, {"Idempotency_Key": f"{id(new)}-{next(new)}"}


async def idle(service: Running, fix_id: str, count: int) -> Answers:
    """One request after the other, with a pause."""
    answers, connection = Answers(), Connection(service.address, service.key)
    for method, path, body, headers in itertools.islice(requests(fix_id), count):
        began = now()
        status, _ = await connection.ask(method, path, body, **headers)
        answers.add(status, now() - began)
        await asyncio.sleep(IDLE_PAUSE_S)
    connection.close()
    return answers


async def saturated(service: Running, fix_id: str, seconds: float) -> tuple[Answers, float]:
    """As many as are answered, each connection asking again at once; and how many a second."""
    answers, mixed, began = Answers(), requests(fix_id), now()

    async def one() -> None:
        connection = Connection(service.address, service.key)
        while now() < began + seconds:
            method, path, body, headers = next(mixed)
            asked = now()
            status, _ = await connection.ask(method, path, body, **headers)
            answers.add(status, now() - asked)
        connection.close()

    await asyncio.gather(*(one() for _ in range(CLOSED)))
    return answers, len(answers.seconds) / (now() - began)


async def steady(
    service: Running,
    fix_id: str,
    rate: float,
    seconds: float,
    looked: Callable[[float], None] = lambda _: None,
) -> Answers:
    """So many a second, whether they are answered or not; a latency counts from when a request was due.
    ``looked`` is called now and then with the seconds since the beginning."""
    answers, due = Answers(), asyncio.Queue[tuple[float, Request] | None]()
    mixed, began = requests(fix_id), now()

    async def worker() -> None:
        connection = Connection(service.address, service.key)
        while (item := await due.get()) is not None:
            at, (method, path, body, headers) = item
            status, _ = await connection.ask(method, path, body, **headers)
            answers.add(status, now() - at)
        connection.close()

    workers = [asyncio.create_task(worker()) for _ in range(OPEN)]
    for number in range(int(rate * seconds)):
        at = began + number / rate
        if (wait := at - now()) > 0:
            await asyncio.sleep(wait)
        due.put_nowait((at, next(mixed)))
        looked(at - began)
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    return answers


@dataclass
class Memory:
    """What the service's process has in memory, by the time since the beginning."""

    pid: int
    every_s: float
    points: list[tuple[float, float]]

    @classmethod
    def of(cls, service: Running, every_s: float) -> "Memory":
        """Of this service's process."""
        return cls(service.process.pid, every_s, [])

    def look(self, seconds: float) -> None:
        """A point, where it is time for one."""
        if not self.points or seconds >= self.points[-1][0] + self.every_s:
            self.points.append((seconds, self.resident_mb()))

    def resident_mb(self) -> float:
        """Now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(kilobytes.split()[1]) / 1024

    def slope_kb_a_minute(self) -> float:
        """Of the line through all points but the first fifth, when caches fill (least squares)."""
        return slope_kb_a_minute(self.points[len(self.points) // 5 :])


def slope_kb_a_minute(points: list[tuple[float, float]]) -> float:
    """Of the line through points in seconds and megabytes (least squares)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points) or 1.0
    return 1024 * 60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


async def followed(service: Running, state: Path, readers: int) -> dict[str, Any]:
    """Many follow one fix while its events are recorded by another process than the service, until it is
    cancelled: what each of them heard."""
    connection = Connection(service.address, service.key)
    body = {"repository": "app", "advisory": ADVISORY}
    _, answer = await connection.ask("POST", "/v1/fixes", body, Idempotency_Key="followed")
    fix_id = json.loads(answer)["fix_id"]
    begun = asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(follow(service.address, service.key, fix_id, begun))
        for _ in range(readers)
    ]
    for _ in tasks:
        await begun.acquire()
    recorded = []
    with closing(SqliteAuditStore(audit_db(state))) as store:
        for event in trails.verified_on_retry():
            stored = store.append(Scope(fix_id=fix_id, gate_transition_id="gate-1"), event)
            recorded.append(str(stored.seq))
            await asyncio.sleep(0.1)
    await connection.ask("POST", f"/v1/fixes/{fix_id}/cancel")
    heard = await asyncio.gather(*tasks)
    connection.close()
    whole = [*recorded, "ended"]
    return {
        "readers": readers,
        "events": len(whole),
        "heard_all_in_order": sum(found == whole for found in heard),
    }
