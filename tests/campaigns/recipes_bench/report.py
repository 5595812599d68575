"""The run as a JSON document, as tables for a terminal, and as docs/recipe-coverage.md."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.campaigns.recipes_bench.judge import Ending, Verdict
from tests.campaigns.recipes_bench.reviews import Reviews
from tests.campaigns.recipes_bench.summary import Goal, Row, by_group, by_kind, goals, misses

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Raised when a reader of an older document would misread a new one.
SCHEMA_VERSION = 1

#: Packages that a line of the report names before it stops.
_NAMED = 6

_TERMS = (
    "*Fixed*: no version that the case's advisories cover is left in any manifest or lock, at a named "
    "level of proof, and no safeguard was broken. *Rightly refused*: the refusal is in the reviewed "
    "table (`tests/campaigns/recipes_bench/reviewed.toml`), for that reason and naming that cause. "
    "Everything else is a miss."
)

_COUNTS = ("cases", "fixed", "rightly refused", "missed", "exact version", "exact bytes")


def document(verdicts: Sequence[Verdict], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        **facts,
        "goals": [asdict(goal) for goal in goals(verdicts)],
        "by_group": [asdict(row) for row in by_group(verdicts)],
        "by_kind": [asdict(row) for row in by_kind(verdicts)],
        "cases": [asdict(verdict) for verdict in verdicts],
    }


def show(console: "Console", verdicts: Sequence[Verdict], *, whole: bool) -> None:
    """Tables, and every miss with what to read."""
    console.print(_table("by kind", ("ecosystem", "manifests"), by_kind(verdicts)))
    console.print(_table("by group", ("group",), by_group(verdicts)))
    for cause, missed in misses(verdicts).items():
        console.print(f"[bold]{len(missed)} times {cause}[/bold]")
        for verdict in missed:
            console.print(f"  {verdict.case}: {verdict.detail}", markup=False, highlight=False)
    if whole:
        console.print(_goals(goals(verdicts)))


def markdown(verdicts: Sequence[Verdict], reviews: Reviews, facts: Mapping[str, Any]) -> str:
    """The report that is kept with the documentation."""
    parts = [
        "# What the recipes fix",
        "",
        "Made by `make bench-recipes DATA=../shared/data`; every figure comes from that run.",
        f"{len(verdicts)} cases, {facts['date']}, {facts['clients']}.",
        "",
        _TERMS,
        "",
        *_grid(
            ("goal", "wanted", "measured", "met"),
            [(g.name, g.wanted, g.measured, "yes" if g.met else "**no**") for g in goals(verdicts)],
        ),
        "## By ecosystem and manifest kind",
        "",
        *_grid(("ecosystem", "manifests", *_COUNTS), [_cells(row) for row in by_kind(verdicts)]),
        "## By group",
        "",
        *_grid(("group", *_COUNTS), [_cells(row) for row in by_group(verdicts)]),
        *_miss_lines(verdicts),
        *_refusal_lines(verdicts, reviews),
        *_fix_lines(verdicts, reviews),
        *_other_lines(verdicts),
        *_gate_lines(facts),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _miss_lines(verdicts: Sequence[Verdict]) -> list[str]:
    lines = ["## Misses by cause", ""]
    for cause, missed in misses(verdicts).items():
        lines += [f"### {cause} ({len(missed)})", ""]
        lines += [f"* `{verdict.case}`: {_inline(verdict.detail)}" for verdict in missed]
        lines.append("")
    return lines if len(lines) > 2 else [*lines, "None.", ""]


def _refusal_lines(verdicts: Sequence[Verdict], reviews: Reviews) -> list[str]:
    refused = [verdict for verdict in verdicts if verdict.ending is Ending.REFUSED]
    rows = [
        (f"`{one.case}`", one.cause, _inline(one.detail), _inline(reviews.refusals[one.case].why))
        for one in refused
    ]
    head = ("case", "reason", "the refusal's words", "why it is right")
    return ["## Refusals that are right", "", *(_grid(head, rows) if rows else ["None.", ""])]


def _fix_lines(verdicts: Sequence[Verdict], reviews: Reviews) -> list[str]:
    rows = [
        (f"`{one.case}`", _inline(reviews.fixes[one.case]))
        for one in verdicts
        if one.ending is Ending.FIXED and one.case in reviews.fixes
    ]
    head = ("case", "why it is as good or better")
    return ["## Fixes that differ from the peer's", "", *(_grid(head, rows) if rows else ["None."])]


def _other_lines(verdicts: Sequence[Verdict]) -> list[str]:
    rows = [
        (f"`{one.case}`", str(len(one.others)), _inline(", ".join(one.others[:_NAMED])))
        for one in verdicts
        if one.others
    ]
    head = ("case", "packages", "the first of them")
    title = "## Packages that changed with the one that was moved"
    return ["", title, "", *(_grid(head, rows) if rows else ["None."])]


def _gate_lines(facts: Mapping[str, Any]) -> list[str]:
    if not facts.get("gates"):
        return []
    return ["", "## A sample, through the gates", "", *(f"* {line}" for line in facts["gates"])]


def _table(title: str, labels: tuple[str, ...], rows: Sequence[Row]) -> "Table":
    from rich.table import Table

    made = Table(title=title)
    for name in labels:
        made.add_column(name)
    for name in _COUNTS:
        made.add_column(name, justify="right")
    for row in rows:
        if row.cases:
            made.add_row(*_cells(row))
    return made


def _goals(found: Sequence[Goal]) -> "Table":
    from rich.table import Table

    made = Table("goal", "wanted", "measured", "met", title="goals")
    for goal in found:
        made.add_row(goal.name, goal.wanted, goal.measured, "yes" if goal.met else "[red]no[/red]")
    return made


def _cells(row: Row) -> tuple[str, ...]:
    exact = [f"{count} of {row.comparable}" for count in (row.exact_version, row.exact_bytes)]
    counts = [str(count) for count in (row.cases, row.fixed, row.refused, row.missed)]
    return (*row.label, *counts, *(exact if row.comparable else ("", "")))


def _grid(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines] + [""]


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
