"""Rows of a measure as JSON lines, and the page that is made from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

#: The repository.
ROOT = Path(__file__).parents[2]

RESULTS, REPORT = "results.jsonl", "report.md"

_Row = TypeVar("_Row", bound=BaseModel)


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
