"""The plain loop and each engine, to run fixes of ``empty_fix`` with."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from langgraph.checkpoint.sqlite import SqliteSaver

from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.engines.langgraph.fix import FixGraph
from fallback_tier.engines.temporal.activities import Launch
from fallback_tier.engines.temporal.dev import dev_server
from fallback_tier.engines.temporal.messages import Limits, Request, Ticket
from fallback_tier.engines.temporal.session import FixProcess, start_process
from tests.campaigns.bench.empty_fix import EmptyFix
from tests.engines.in_process import Run, TemporalHere, ThreadedFix
from tests.ports import free_port

ROOT = Path(__file__).parents[3]


class Engine(NamedTuple):
    """``run`` takes the fix of this name to its end. ``others``: processes that work for it besides, whose
    seconds of a core are its own too."""

    run: Callable[[str], None]
    others: tuple[int, ...] = ()


@contextmanager
def loop(place: Path) -> Iterator[Engine]:
    """The plain one."""
    with closing(SqliteAuditStore(place / "loop.db")) as store:

        def run(fix_id: str) -> None:
            fix = EmptyFix(store, fix_id)
            while (key := fix.next()) is not None:
                fix.step(key)
            fix.deliver()

        yield Engine(run)


@contextmanager
def langgraph(place: Path) -> Iterator[Engine]:
    """The graph, its checkpoints in SQLite, each durable before the next node."""
    with (
        closing(SqliteAuditStore(place / "langgraph.db")) as store,
        closing(sqlite3.connect(place / "checkpoints.db", check_same_thread=False)) as db,
    ):

        @contextmanager
        def opening(fix_id: str) -> Iterator[EmptyFix]:
            yield EmptyFix(store, fix_id)

        with FixGraph(opening, store, SqliteSaver(db)) as graph:

            def run(fix_id: str) -> None:
                assert graph.run(fix_id).outcome == "verified"

            yield Engine(run)


@contextmanager
def temporal(place: Path) -> Iterator[Engine]:
    """The product's workflow, worker and activities on a real server, whose file is on the same disk; what
    the worker opens is in a thread."""
    with closing(SqliteAuditStore(place / "temporal.db")) as store:

        @contextmanager
        def opening(fix_id: str) -> Iterator[EmptyFix]:
            yield EmptyFix(store, fix_id)

        async def launch(ticket: Ticket) -> ThreadedFix:
            return ThreadedFix(Run(opening), ticket.fix_id)

        with on_temporal(place / "temporal", launch) as engine:
            yield engine


@contextmanager
def processes(place: Path) -> Iterator[Engine]:
    """A process a fix, as a worker has it, asked for its steps by nobody but this loop. It imports all that
    a real one does."""
    launch = _launching(place / "loop-processes.db")

    async def all_steps(fix_id: str) -> None:
        process = await launch(Ticket(fix_id, ""))
        try:
            standing = await process.heard()
            while standing.next is not None:
                standing = await process.ask(Request("step", standing.next))
            await process.ask(Request("deliver"))
        finally:
            await process.end()

    yield Engine(lambda fix_id: asyncio.run(all_steps(fix_id)))


@contextmanager
def temporal_processes(place: Path) -> Iterator[Engine]:
    """``temporal``, with a process a fix."""
    launch = _launching(place / "processes.db")
    with on_temporal(place / "temporal-processes", launch) as engine:
        yield engine


@contextmanager
def on_temporal(folder: Path, launch: Launch) -> Iterator[Engine]:
    with (
        dev_server(folder, free_port()) as server,
        closing(TemporalHere(server.address, launch, Limits())) as here,
    ):

        def run(fix_id: str) -> None:
            found = here.run_launched(fix_id)
            assert found.phase == "ended", found

        yield Engine(run, _group(server.process.pid))


def _group(leader: int) -> tuple[int, ...]:
    """The processes of its group, now."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getpgid(int(place.name)) == leader:
                found.append(int(place.name))
    return tuple(found)


def _launching(record: Path) -> Callable[[Ticket], Awaitable[FixProcess]]:
    SqliteAuditStore(record).close()

    async def launch(ticket: Ticket) -> FixProcess:
        command = (sys.executable, "-m", "tests.campaigns.bench.fleet_process")
        order = f"{record}\t{ticket.fix_id}".encode()
        return await start_process(command, order, record.with_suffix(".log"), ROOT)

    return launch


Opened = Callable[[Path], AbstractContextManager[Engine]]

ENGINES: dict[str, Opened] = {"loop": loop, "langgraph": langgraph, "temporal": temporal}


class Pair(NamedTuple):
    """What is measured in turn, and how often (the processes of fixes take seconds to start)."""

    plain: Opened
    engine: Opened
    pairs: int = 40


PAIRS = {
    "langgraph": Pair(loop, langgraph),
    "temporal": Pair(loop, temporal),
    "temporal, a process a fix": Pair(processes, temporal_processes, 10),
}
