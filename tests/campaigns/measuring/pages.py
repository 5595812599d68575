"""What pages of measures have in common: tables, shares, how the rows were made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: The repository.
ROOT = Path(__file__).parents[3]


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
