"""Rows of a measure as JSON lines, and the page that is made from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel

#: The repository.
ROOT = Path(__file__).parents[3]

RESULTS, REPORT = "results.jsonl", "report.md"

_Row = TypeVar("_Row", bound=BaseModel)


class Made(Protocol):
    """How a row was made. ``tools``: the versions of what it ran with, by name."""

    @property
    def label(self) -> str: ...

    @property
    def made(self) -> str: ...

    @property
    def tool(self) -> str: ...

    @property
    def tools(self) -> Mapping[str, str]: ...

    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class Share:
    """``part`` of ``whole``: never a share alone."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part} of {self.whole}" + (
            f" ({100 * self.part / self.whole:.0f} %)" if self.whole else ""
        )


def read_rows(folder: Path, row: type[_Row]) -> tuple[_Row, ...]:
    """The rows that are there; none without a file."""
    place = folder / RESULTS
    lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
    return tuple(row.model_validate_json(line) for line in lines)


def write_rows(folder: Path, rows: Iterable[BaseModel], page: str) -> None:
    """Rows, in the order given, and page; each whole or not at all, since another run may read."""
    lines = "".join(f"{row.model_dump_json()}\n" for row in rows)
    write_files(folder, {RESULTS: lines, REPORT: page})


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)


def read_page(folder: Path) -> str:
    """The page as it stands; empty without one."""
    place = folder / REPORT
    return place.read_text(encoding="utf-8") if place.exists() else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def in_label_order(labels: Iterable[str]) -> list[str]:
    """The oldest first: where it began, then what has a name, then where it is now."""
    return sorted(set(labels), key=lambda one: (one != "baseline", one == "now", one))


def made_of(rows: Sequence[Made]) -> str:
    """A line for each label: by what its rows were made, when, and in what time."""
    lines = []
    for label in in_label_order(row.label for row in rows):
        found = [row for row in rows if row.label == label]
        days = " and ".join(sorted({row.made for row in found}))
        used = "; ".join(sorted({row.tool for row in found}))
        clients = sorted({", ".join(f"{k} {v}" for k, v in row.tools.items()) for row in found})
        total = sum(row.seconds for row in found)
        lines.append(
            f"- {label}: {used}, on {days}, with {'; and '.join(clients)}; {len(found)} cases, "
            f"{total:,.0f} s in all on a shared machine."
        )
    return "\n".join(lines)
