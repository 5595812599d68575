"""What an engine adds to a fix, what a thousand fixes leave in memory, and where one chain saturates.

``make bench-fleet ARGS="overhead memory chains"``: any of the three; ``--keep`` has the page of them
made again (docs/evaluation/fleet.md). Figures are of this machine and of what else it does meanwhile, so
they come in pairs that were measured in turn, and with its load.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from fallback_audit.events import AttemptStarted
from fallback_audit.ports import Scope
from fallback_audit.stores.postgres import PostgresAuditStore
from fallback_audit.vocabulary import PromptShape
from tests.campaigns.bench.fleet_engines import ENGINES, PAIRS, Engine
from tests.campaigns.bench.fleet_page import keep
from tests.postgres.server import missing, running

#: Pairs before those that count.
WARM = 2

#: What an engine may add to a fix of a minute: one hundredth.
LIMIT_MS = 600.0

#: Fixes of a run, the first half of which fill SQLite's caches (2 MB a connection).
FIXES = 2_000

#: How much more an engine may hold after each fix. A leak of one fix's state is a hundred times this.
LIMIT_KIB_A_FIX = 1.0

WRITERS, SECONDS = (1, 4, 16), 4.0


def overhead(place: Path, _fixes: int) -> dict[str, Any]:
    """What each engine adds to a fix, in milliseconds: medians of pairs measured in turn. Seconds of a core
    are means: the system counts those of other processes in hundredths."""
    found = {}
    for name, (plain, engine, pairs) in PAIRS.items():
        with plain(place) as ours, engine(place) as theirs:
            load = os.getloadavg()[0]
            times = [
                (_timed(ours, f"{name}-{n}"), _timed(theirs, f"{name}-{n}"))
                for n in range(-WARM, pairs)
            ][WARM:]
        found[name] = {"load": round(load, 1), **_compared(times)}
        print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    return found


def _compared(times: list[tuple["Took", "Took"]]) -> dict[str, Any]:
    added = statistics.median(theirs.wall - ours.wall for ours, theirs in times)
    return {
        "pairs": len(times),
        "loop_ms": round(statistics.median(ours.wall for ours, _ in times), 2),
        "ms": round(statistics.median(theirs.wall for _, theirs in times), 2),
        "ratio": round(statistics.median(t.wall / o.wall for o, t in times), 2),
        "added_ms": round(added, 2),
        "added_cpu_ms": round(statistics.mean(t.cpu - o.cpu for o, t in times), 2),
        "of_a_minute": f"{added / 60_000:.2%}",
        "met": added <= LIMIT_MS,
    }


class Took(NamedTuple):
    """Milliseconds: by the clock, and of a core."""

    wall: float
    cpu: float


def _timed(engine: Engine, fix_id: str) -> Took:
    others, cpu, began = _others_s(engine), _own_s(), time.perf_counter()
    engine.run(fix_id)
    wall, used = time.perf_counter() - began, _own_s() - cpu
    used += _others_s(engine) - others
    return Took(wall * 1_000, used * 1_000)


def _own_s() -> float:
    """Seconds of a core of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _others_s(engine: Engine) -> float:
    """… and of what else works for the engine."""
    ticks = 0
    for process in engine.others:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(place: Path, fixes: int) -> dict[str, Any]:
    """By engine, in a process of its own: what is resident half-way, at the end, and the slope between.
    Temporal's server is not in it."""
    return {name: _in_child(_grown, place, name, fixes) for name in ENGINES}


def _grown(place: Path, name: str, fixes: int) -> dict[str, Any]:
    sizes: list[tuple[int, float]] = []
    began = time.perf_counter()
    with ENGINES[name](place) as engine:
        for number in range(fixes):
            engine.run(f"{name}-{number}")
            if number % 20 == 0:
                sizes.append((number, _resident_kib()))
            if number % 200 == 0:
                print(
                    f"{name}: {number} fixes, {sizes[-1][1]:,.0f} KiB", file=sys.stderr, flush=True
                )
    warm = [(number, size) for number, size in sizes if number >= fixes // 2]
    slope = statistics.linear_regression(*zip(*warm, strict=True)).slope
    return {
        "fixes": fixes,
        "seconds": round(time.perf_counter() - began),
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


def chains(_place: Path, _fixes: int) -> dict[str, Any]:
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


WHAT: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "overhead": overhead,
    "memory": memory,
    "chains": chains,
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], default=list(WHAT))
    parser.add_argument(
        "--fixes", type=int, default=FIXES, help="of memory's runs; caches fill in a thousand"
    )
    parser.add_argument("--keep", action="store_true", help="in docs/evaluation/fleet")
    given = parser.parse_args(arguments)
    for what in given.what:
        load = round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory() as place:
            found = WHAT[what](Path(place), given.fixes)
        kept = {"load": [load, round(os.getloadavg()[0], 1)], "cores": os.cpu_count()} | found
        print(json.dumps({what: kept}, indent=1), flush=True)
        if given.keep:
            keep(what, kept)


if __name__ == "__main__":
    main(sys.argv[1:])
