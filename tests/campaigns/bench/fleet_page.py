"""The tables of docs/evaluation/fleet.md that ``make bench-fleet`` measures, made of what it has kept."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "docs" / "evaluation"
PAGE, KEPT = FOLDER / "fleet.md", FOLDER / "fleet" / "engines.json"

_NAMES = {
    "loop": "plain loop",
    "langgraph": 'LangGraph, SQLite checkpoints, `durability="sync"`',
    "temporal": "Temporal, its server on the same machine and disk",
    "temporal, a process a fix": "the same, a process a fix on both sides",
}

Found = Mapping[str, Any]


def keep(what: str, found: Found) -> None:
    """In place of what was kept of it before; then the page is made again."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.write_text(json.dumps(kept | {what: found}, indent=1) + "\n")
    PAGE.write_text(made(PAGE.read_text(), json.loads(KEPT.read_text())))


def made(page: str, kept: Mapping[str, Found]) -> str:
    """The page with its tables as they were kept; what was not kept stays."""
    for what, found in kept.items():
        mark, end = f"<!-- {what} -->", f"<!-- /{what} -->"
        pattern = re.compile(f"{re.escape(mark)}.*?{re.escape(end)}", re.DOTALL)
        body = f"{mark}\n{TABLES[what](found)}\n{end}"
        page, count = pattern.subn(lambda _, body=body: body, page)  # type: ignore[misc]
        assert count == 1, f"the page has no place for {what}"
    return page


def overhead(found: Found) -> str:
    rows = [
        (
            _NAMES[name],
            one["load"],
            f"{_ms(one['loop_ms'])} ms",
            f"{_ms(one['ms'])} ms",
            f"{_ms(one['added_ms'])} ms",
            _met(one["of_a_minute"], one["met"]),
            f"{_ms(one['added_cpu_ms'])} ms",
        )
        for name, one in _engines(found)
    ]
    head = ("Engine", "Load", "Without", "With", "Added to a fix")
    return _table((*head, "Of a fix of a minute (goal ≤ 1 %)", "Added of a core"), rows)


def memory(found: Found) -> str:
    rows = [
        (
            _NAMES[name],
            f"{one['fixes']:,}",
            f"{one['kib_after_warm_up'] / 1024:.1f} MiB",
            f"{one['kib_at_the_end'] / 1024:.1f} MiB",
            _met(f"{one['kib_a_fix']:.2f}", one["met"]),
        )
        for name, one in _engines(found)
    ]
    return _table(
        ("Engine", "Fixes", "Resident after half", "at the end", "KiB a fix (goal ≤ 1)"), rows
    )


def chains(found: Found) -> str:
    if "skipped" in found:
        return f"Not measured: {found['skipped']}"
    by_writers: dict[int, list[Found]] = {}
    for row in found["rows"]:
        by_writers.setdefault(row["writers"], []).append(row)
    rows = []
    for writers, (one, *each) in by_writers.items():
        longest = [f"{row['longest_append_ms']:,} ms" for row in (one, *each)]
        many = each[0]["events_a_second"] if each else ""
        rows.append((writers, one["events_a_second"], many, ", ".join(longest)))
    head = ("Writers", "One chain", "A chain each", "Longest append: one chain, a chain each")
    return f"{_table(head, rows)}\n\nAt load {_load(found)}."


TABLES: dict[str, Callable[[Found], str]] = {
    "overhead": overhead,
    "memory": memory,
    "chains": chains,
}


def _engines(found: Found) -> Sequence[tuple[str, Found]]:
    return [(name, found[name]) for name in _NAMES if name in found]


def _load(found: Found) -> str:
    return " to ".join(dict.fromkeys(f"{one:.0f}" for one in found["load"]))


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _met(figure: str, met: bool) -> str:
    return f"{figure}, {'met' if met else '**missed**'}"


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |".replace("|  |", "| |") for line in lines)
