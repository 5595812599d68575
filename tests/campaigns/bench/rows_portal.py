"""Goal 14: the portal's first page beside a bare FastAPI handler, and a long record beside a short one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import Worker
from tests.campaigns.bench.row import Bench, Figure, Pair, Row

_WORKER = Path(__file__).with_name("worker.py")

#: Of the first page, in the slowest of twenty requests (docs/benchmarks.md, goal 14).
P95_LIMIT_MS = 50.0

#: A queue that a person would find long: two hundred questions.
_QUEUE_EVENTS = 2_000

_SHORT, _LONG = 50, 50_000


def _work(bench: Bench, label: str, side: str, events: int) -> Worker:
    argv = [bench.python, _WORKER, "work_portal", bench.place, side, str(events)]
    return Worker(label, argv, bench.place)


@contextmanager
def page(bench: Bench) -> Iterator[Pair]:
    """The overview of a record with two hundred questions."""
    with (
        _work(bench, "first page, 200 questions", "page", _QUEUE_EVENTS) as ours,
        _work(bench, "bare FastAPI handler", "bare", 0) as bare,
    ):

        def figures() -> Sequence[Figure]:
            return (Figure("p95 of a request", ours.facts["p95_ms"], P95_LIMIT_MS, "ms"),)

        yield Pair(
            ours, bare, facts=lambda: {"ours": ours.facts, "theirs": bare.facts}, figures=figures
        )


@contextmanager
def long_record(bench: Bench) -> Iterator[Pair]:
    """The same page over 50,000 events and over 50, each read once before."""
    with (
        _work(bench, "first page, 50,000 events", "page", _LONG) as long,
        _work(bench, "first page, 50 events", "page", _SHORT) as short,
    ):
        yield Pair(long, short, facts=lambda: {"ours": long.facts, "theirs": short.facts})


ROWS = (
    Row("portal-page", "The portal's first page over HTTP", "14", None, 15, page),
    Row("portal-long", "The first page of a long record", "14", 3.0, 7, long_record),
)
