"""Goal 11: what a durable step costs in our embedded loop, and in a graph engine's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.campaigns.bench.measure import Worker
from tests.campaigns.bench.row import Bench, Pair, Row

_WORKER = Path(__file__).with_name("worker.py")


@contextmanager
def as_shipped(bench: Bench) -> Iterator[Pair]:
    """Each with the sync setting it comes with; both durable before the next step."""
    with _pair(bench) as pair:
        yield pair


@contextmanager
def without_sync(bench: Bench) -> Iterator[Pair]:
    """Both with ``synchronous=OFF``: what is left is the engines' own work."""
    with _pair(bench, "OFF") as pair:
        yield pair


@contextmanager
def _pair(bench: Bench, *options: str) -> Iterator[Pair]:
    def work(label: str, python: Path, module: str) -> Worker:
        return Worker(label, [python, _WORKER, module, bench.place, *options], bench.place)

    with (
        work("fix loop, 3 steps", bench.python, "work_fix_loop") as loop,
        work("LangGraph, 3 nodes, SQLite saver", bench.peer("python"), "work_langgraph") as graph,
    ):
        yield Pair(loop, graph, facts=lambda: {"ours": loop.facts, "theirs": graph.facts})


ROWS = (
    Row("loop-langgraph", "Durable loop against LangGraph's", "11", 0.25, 15, as_shipped),
    Row("loop-langgraph-nosync", "The same, neither syncing", "11", None, 15, without_sync),
)
