"""Goal 2: planning 2,000 locked packages against 500 advisories, beside parsing that lock.

Peak memory has to stay under 300 MiB; it is in the table and in the facts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import BenchError, Worker
from tests.campaigns.bench.row import Bench, Pair, Row

_WORKER = Path(__file__).with_name("worker.py")

#: What a plan's process may take (docs/benchmarks.md, goal 2).
PEAK_LIMIT_MIB = 300


@contextmanager
def npm(bench: Bench) -> Iterator[Pair]:
    """package-lock.json, version 3, against json.loads."""
    with _pair(bench, "npm", "json.loads of package-lock.json") as pair:
        yield pair


@contextmanager
def uv(bench: Bench) -> Iterator[Pair]:
    """uv.lock against tomllib.loads."""
    with _pair(bench, "PyPI", "tomllib.loads of uv.lock") as pair:
        yield pair


@contextmanager
def _pair(bench: Bench, ecosystem: str, parsing: str) -> Iterator[Pair]:
    def work(label: str, side: str) -> Worker:
        argv = [bench.python, _WORKER, "work_plan", bench.place, side, ecosystem]
        return Worker(label, argv, bench.place)

    with work("plan, advisories in memory", "plan") as plan, work(parsing, "parse") as parse:

        def check() -> None:
            peak = plan.facts["peak_mib"]
            if peak >= PEAK_LIMIT_MIB:
                raise BenchError(f"the plan took {peak} MiB, over its {PEAK_LIMIT_MIB}")

        yield Pair(plan, parse, check, facts=lambda: {"ours": plan.facts, "theirs": parse.facts})


ROWS = (
    Row("plan-npm", "Plan 2,000 locked packages, npm", "2", 10.0, 7, npm),
    Row("plan-uv", "Plan 2,000 locked packages, uv", "2", 10.0, 7, uv),
)
