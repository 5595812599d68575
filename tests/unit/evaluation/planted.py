"""A small golden set in files, and records to go with it; tests plant one fault at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fallback_eval.retrieval.data import Identity
from fallback_eval.retrieval.golden import MIN_QUERIES

Row = dict[str, Any]


def query(name: str, **fields: Any) -> Row:
    return {
        "query": name,
        "split": "dev",
        "record": f"REC-{name}",
        "advisory": None,
        "expected_fix": "Check the path.",
        "weakness": "path traversal",
        "nothing_here": False,
    } | fields


def judgement(name: str, example: str, grade: Any, **fields: Any) -> Row:
    return {
        "query": name,
        "example": example,
        "grade": grade,
        "reason": "shows the check",
        "found": "pool",
        "methods": ["bm25-text"],
    } | fields


def rows() -> tuple[list[Row], list[Row]]:
    """Queries q0 … of both splits; e0 and e1 are right for each; the last is a nothing-here one."""
    queries, judgements = [], []
    for number in range(MIN_QUERIES):
        name, nothing = f"q{number}", number >= MIN_QUERIES - 10
        split = "reserved" if number % 2 else "dev"
        queries.append(query(name, split=split, nothing_here=nothing))
        for example, grade in (("e0", 2), ("e1", 1), ("e2", 0)):
            judgements.append(judgement(name, example, 0 if nothing else grade))
    return queries, judgements


def write(folder: Path, change: Callable[[list[Row], list[Row]], object] = lambda *_: None) -> Path:
    """The files with one change made to them."""
    queries, judgements = rows()
    change(queries, judgements)
    folder.mkdir(exist_ok=True)
    for name, lines in (("queries", queries), ("judgements", judgements)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def record(name: str, **fields: Any) -> Identity:
    return Identity(
        name,
        **{
            "aliases": frozenset({f"CVE-{name}"}),
            "repository": f"owner/{name}",
            "packages": frozenset({("PyPI", f"package-{name}")}),
            "commits": frozenset({f"commit-{name}"}),
        }
        | fields,
    )


def records() -> dict[str, Identity]:
    names = [*(f"REC-q{number}" for number in range(MIN_QUERIES)), "e0", "e1", "e2", "e3"]
    return {name: record(name) for name in names}
