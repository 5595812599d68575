"""Results: one JSON document (its shape is pinned by a test) and one table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.campaigns.bench.machine import Machine
from tests.campaigns.bench.measure import Sample
from tests.campaigns.bench.ratio import Comparison, Spread
from tests.campaigns.bench.row import Figure, Row

if TYPE_CHECKING:
    from rich.table import Table

#: Raised when a reader of an older document would misread a new one.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Result:
    """One row's outcome: figures, or the reason why there are none."""

    row: Row
    labels: tuple[str, str] | None = None
    comparison: Comparison | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    figures: Sequence[Figure] = ()

    @property
    def met(self) -> bool | None:
        """Is the goal reached, in every figure that has one? None: not measured, or no limit."""
        if self.comparison is None:
            return None
        verdicts = [figure.met for figure in self.figures]
        if self.row.limit is not None:
            verdicts.append(self.comparison.wall_ratio.median <= self.row.limit)
        return all(verdicts) if verdicts else None


def document(
    results: Sequence[Result],
    *,
    date: str,
    machine: Machine,
    versions: Mapping[str, str],
    peak_floor_bytes: int,
) -> dict[str, Any]:
    """The whole run as JSON. Times in milliseconds, memory in MiB."""
    return {
        "schema_version": SCHEMA_VERSION,
        "date": date,
        "machine": asdict(machine),
        "versions": dict(versions),
        "peak_floor_mib": _mib(peak_floor_bytes),
        "rows": [_row(result) for result in results],
    }


def _row(result: Result) -> dict[str, Any]:
    row, comparison = result.row, result.comparison
    head = {
        "name": row.name,
        "title": row.title,
        "goal": row.goal,
        "limit": row.limit,
        "met": result.met,
        "skipped": result.skipped,
    }
    if comparison is None or result.labels is None:
        return head
    cpu = comparison.cpu_ratio
    return {
        **head,
        "rounds": len(comparison.ours),
        "wall_ratio": _rounded(comparison.wall_ratio, 1, 4),
        "cpu_ratio": None if cpu is None else _rounded(cpu, 1, 4),
        "ours": _side(result.labels[0], comparison.ours),
        "theirs": _side(result.labels[1], comparison.theirs),
        "figures": [{**asdict(figure), "met": figure.met} for figure in result.figures],
        "facts": dict(result.facts),
    }


def _side(label: str, samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "label": label,
        "wall_ms": _rounded(Spread.of([sample.wall_s for sample in samples]), 1000, 3),
        "cpu_ms": _rounded(Spread.of([sample.cpu_s for sample in samples]), 1000, 3),
        "peak_mib": _mib(max(sample.peak_bytes for sample in samples)),
    }


def _rounded(spread: Spread, factor: float, digits: int) -> dict[str, float]:
    return {name: round(value * factor, digits) for name, value in asdict(spread).items()}


def _mib(size: int) -> float:
    return round(size / 2**20, 1)


_VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}


def table(run: Mapping[str, Any]) -> "Table":
    """The document's rows for a person."""
    from rich.table import Table

    made = Table(title="ours ÷ theirs: median of the pairwise ratios (lowest to highest)")
    made.add_column("goal")
    made.add_column("row")
    for heading in ("wall", "processor", "limit", "ours", "theirs"):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in run["rows"]:
        made.add_row(row["goal"], *_cells(row))
    return made


def _cells(row: Mapping[str, Any]) -> list[str]:
    limit = "" if row["limit"] is None else f"≤ {row['limit']:g}"
    if row["skipped"]:
        return [f"{row['title']}\n[dim]{row['skipped']}[/]", "", "", f"{limit}\nno figure"]
    verdict = _VERDICTS[row["met"]]
    figures = "".join(
        f"\n{figure['name']}: {figure['value']:.3g}{figure['unit']} "
        f"(≤ {figure['limit']:g}{figure['unit']}, {_VERDICTS[figure['met']]})"
        for figure in row["figures"]
    )
    return [
        f"{row['title']}\n[dim]{row['ours']['label']}\nvs {row['theirs']['label']}[/]{figures}",
        _ratio(row["wall_ratio"]),
        _ratio(row["cpu_ratio"]),
        f"{limit}\n{verdict}",
        _figures(row["ours"]),
        _figures(row["theirs"]),
    ]


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['median']:.3g}\n[dim]{ratio['low']:.3g} to {ratio['high']:.3g}[/]"


def _figures(side: Mapping[str, Any]) -> str:
    return f"{side['wall_ms']['median']:.1f} ms\n[dim]{side['peak_mib']:.0f} MiB[/]"
