"""The peer's loop: three nodes that do nothing, checkpointed by its SQLite saver after each.

``durability="sync"`` is its setting for "durable before the next step starts", which is what ours
always does; its default persists in the background.
"""

import itertools
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]


class _State(TypedDict, total=False):
    application: dict[str, Any]
    verdicts: list[dict[str, Any]]
    result: dict[str, Any]


def _attempt(state: _State) -> _State:
    return {"application": {"attempt": 1, "patch_sha256": "0" * 64, "tier": "recipe"}}


def _gate(state: _State) -> _State:
    return {"verdicts": [{"gate": "applies", "status": "passed", "detail": "nothing was run"}]}


def _decide(state: _State) -> _State:
    return {"result": {"outcome": "verified", "attempts": 1}}


def prepare(
    place: Path, synchronous: str = ""
) -> tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]:
    """The graph over a saver in ``place``; ``synchronous`` replaces SQLite's own setting."""
    connection = sqlite3.connect(place / "checkpoints.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    if synchronous:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
    builder = StateGraph(_State)
    steps = [("attempt", _attempt), ("gate", _gate), ("decide", _decide)]
    for name, step in steps:
        builder.add_node(name, step)
    for start, end in itertools.pairwise([START, *(name for name, _ in steps), END]):
        builder.add_edge(start, end)
    graph = builder.compile(checkpointer=saver)
    numbers = itertools.count()

    def fix() -> None:
        thread = {"configurable": {"thread_id": f"fix-{next(numbers)}"}}
        graph.invoke({"application": {}}, thread, durability="sync")

    def facts() -> Mapping[str, Any]:
        return {
            "journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0],
            "synchronous": connection.execute("PRAGMA synchronous").fetchone()[0],
        }

    return fix, facts
