"""What an engine adds to a fix, what a thousand fixes leave in memory, and where one chain saturates.

``make bench-fleet ARGS="overhead memory chains"``: any of the three. Figures are of this machine and of
what else it does meanwhile, so they come in pairs that were measured in turn, and with its load.
"""

import argparse
import json
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.sqlite import SqliteSaver

from fallback_audit.events import AttemptStarted, FixStarted
from fallback_audit.ports import Scope
from fallback_audit.stores.postgres import PostgresAuditStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import PromptShape
from fallback_tier.engines.langgraph.fix import FixGraph
from fallback_tier.fix.ends import OneFix
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.steps import FixState, StepKey, next_step
from tests.bench.work_fix_loop import _step as take_step
from tests.postgres.server import missing, running

#: Pairs of a fix by each engine.
PAIRS = 40

#: What an engine may add to a fix of a minute: one hundredth.
LIMIT_MS = 600.0

#: Fixes of a run, and those whose events fill SQLite's caches first (2 MB a connection).
FIXES, WARM = 2_000, 1_000

#: How much more an engine may hold after each fix. A leak of one fix's state is a hundred times this.
LIMIT_KIB_A_FIX = 1.0

WRITERS, SECONDS = (1, 4, 16), 4.0

_START = FixStarted(
    advisory_id="GHSA",
    repository="target",
    base_commit="0" * 40,
    ecosystem="PyPI",
    tool_version="0",
)


class EmptyFix:
    """Its steps do nothing but put their events on record: attempt, one gate, decide."""

    def __init__(self, store: SqliteAuditStore, fix_id: str) -> None:
        self._store = store
        self._scope = Scope(fix_id=fix_id, gate_transition_id="gate")
        self._store.append(self._scope, _START)
        self.state = FixState(isolated=True)

    @property
    def result(self) -> FixResult | None:
        return self.state.result

    def next(self) -> StepKey | None:
        return next_step(self.state, [])

    def step(self, key: StepKey) -> None:
        self.state = take_step(key, self.state, self._store, self._scope)

    def deliver(self) -> OneFix:
        assert self.state.result is not None
        return OneFix(self.state.result)


#: Runs the fix of this name to its end.
Engine = Callable[[str], None]


@contextmanager
def loop(place: Path) -> Iterator[Engine]:
    """The plain one."""
    with closing(SqliteAuditStore(place / "loop.db")) as store:

        def run(fix_id: str) -> None:
            fix = EmptyFix(store, fix_id)
            while (key := fix.next()) is not None:
                fix.step(key)
            fix.deliver()

        yield run


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

            yield run


ENGINES = {"loop": loop, "langgraph": langgraph}


def overhead(place: Path) -> dict[str, Any]:
    """What each engine adds to a fix, in milliseconds: medians of pairs measured in turn."""
    found = {}
    with loop(place) as plain:
        for name, engine in ENGINES.items():
            if name == "loop":
                continue
            with engine(place) as other:
                times = [
                    (_timed(plain, f"{name}-{n}"), _timed(other, f"{name}-{n}"))
                    for n in range(-5, PAIRS)
                ][5:]
            added = statistics.median(theirs.wall - ours.wall for ours, theirs in times)
            found[name] = {
                "loop_ms": round(statistics.median(ours.wall for ours, _ in times), 2),
                "ms": round(statistics.median(theirs.wall for _, theirs in times), 2),
                "ratio": round(statistics.median(t.wall / o.wall for o, t in times), 2),
                "added_ms": round(added, 2),
                "added_cpu_ms": round(statistics.median(t.cpu - o.cpu for o, t in times), 2),
                "of_a_minute": f"{added / 60_000:.2%}",
                "met": added <= LIMIT_MS,
            }
    return found


class Took(NamedTuple):
    """Milliseconds: by the clock, and of a core."""

    wall: float
    cpu: float


def _timed(engine: Engine, fix_id: str) -> Took:
    began, cpu = time.perf_counter(), time.process_time()
    engine(fix_id)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    return Took(wall * 1_000, used * 1_000)


def memory(place: Path) -> dict[str, Any]:
    """By engine, in a process of its own: what is resident at the start, at the end, and the slope."""
    return {name: _in_child(_grown, place, name) for name in ENGINES}


def _grown(place: Path, name: str) -> dict[str, Any]:
    sizes: list[tuple[int, float]] = []
    with ENGINES[name](place) as run:
        for number in range(FIXES):
            run(f"{name}-{number}")
            if number % 20 == 0:
                sizes.append((number, _resident_kib()))
    warm = [(number, size) for number, size in sizes if number >= WARM]
    slope = statistics.linear_regression(*zip(*warm, strict=True)).slope
    return {
        "fixes": FIXES,
        "kib_after_warm_up": warm[0][1],
        "kib_at_the_end": warm[-1][1],
        "kib_a_fix": round(slope, 3),
        "met": slope <= LIMIT_KIB_A_FIX,
    }


def _resident_kib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def _in_child(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def chains(_place: Path) -> dict[str, Any]:
    """Events a second that PostgreSQL takes: so many writers on one chain, and on a chain each."""
    if problem := missing():
        return {"skipped": problem}
    found = []
    with running() as server:
        for writers in WRITERS:
            for shards in sorted({1, writers}):
                found.append(_saturated(server.url(), writers, shards))
    return {"seconds": SECONDS, "rows": found}


def _saturated(url: str, writers: int, shards: int) -> dict[str, Any]:
    schemas = [f"w{writers}_of_{shards}_{n}" for n in range(shards)]
    for schema in schemas:
        PostgresAuditStore(url, schema=schema).close()
    context = get_context("fork")
    ready, counts = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(
            target=_write, args=(url, schemas[n % shards], n, ready, counts), daemon=True
        )
        for n in range(writers)
    ]
    for process in processes:
        process.start()
    made = [counts.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    total = sum(count for count, _ in made)
    worst = max(longest for _, longest in made)
    return {
        "writers": writers,
        "chains": shards,
        "events_a_second": round(total / SECONDS),
        "longest_append_ms": round(worst * 1_000),
    }


def _write(url: str, schema: str, number: int, ready: Any, counts: Any) -> None:
    scope = Scope(fix_id=f"fix-{number}", gate_transition_id="gate")
    event = AttemptStarted(
        attempt=1, advisory_id="GHSA", prior_attempt_count=0, prompt_shape=PromptShape.INITIAL
    )
    with closing(PostgresAuditStore(url, schema=schema)) as store:
        ready.wait(60)
        end, count, longest = time.perf_counter() + SECONDS, 0, 0.0
        while (began := time.perf_counter()) < end:
            store.append(scope, event)
            count += 1
            longest = max(longest, time.perf_counter() - began)
    counts.put((count, longest))


WHAT: dict[str, Callable[[Path], dict[str, Any]]] = {
    "overhead": overhead,
    "memory": memory,
    "chains": chains,
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], default=list(WHAT))
    for what in parser.parse_args(arguments).what:
        with tempfile.TemporaryDirectory() as place:
            found = WHAT[what](Path(place))
        print(json.dumps({what: found, "load": round(os.getloadavg()[0], 1)}, indent=1), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
