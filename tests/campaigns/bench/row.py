"""What a row is. A new one is a context manager that yields a Pair, and an entry in ``catalogue``::

@contextmanager
def audit_append(bench: Bench) -> Iterator[Pair]:
    yield Pair(ours=…, theirs=…)

ROWS = (Row("audit-append", "Durable audit append", "9", 2.0, 31, audit_append),)
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.bench.measure import BenchError, Side


def _nothing() -> None:
    """A row whose exit codes say it all."""


def _no_facts() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Figure:
    """A goal that is no ratio of times: a time by itself, or a ratio of sizes; ``limit`` not to pass."""

    name: str
    value: float
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        """Is the goal reached?"""
        return self.value <= self.limit


def _no_figures() -> Sequence[Figure]:
    return ()


@dataclass(frozen=True)
class Bench:
    """Where a row works: a scratch folder of its own, and the environments under test."""

    place: Path
    ours: Path
    peers: Path

    @property
    def python(self) -> Path:
        """The interpreter that ours runs on; "bare Python" is this one doing nothing."""
        return self.our("python")

    def our(self, name: str) -> Path:
        """A program of ours. Raises BenchError where `make bench` has not installed it."""
        return _program(self.ours, name)

    def peer(self, name: str, environment: str = "peers") -> Path:
        """A peer's program; one whose pins fit no other has an environment of its own. Raises
        BenchError where `make bench` has not installed it."""
        return _program(self.peers.with_name(environment), name)


@dataclass(frozen=True)
class Pair:
    """Two sides. ``check``, called after the rounds, raises BenchError where work was not done.

    ``figures`` are goals that the ratio of the two does not tell; they count as the row's own.
    """

    ours: Side
    theirs: Side
    check: Callable[[], None] = _nothing
    facts: Callable[[], Mapping[str, Any]] = _no_facts
    figures: Callable[[], Sequence[Figure]] = _no_figures


@dataclass(frozen=True)
class Row:
    """One comparison: which goal it answers, the ratio not to pass (None: for information)."""

    name: str
    title: str
    goal: str
    limit: float | None
    rounds: int
    prepare: Callable[[Bench], AbstractContextManager[Pair]]


def _program(environment: Path, name: str) -> Path:
    path = environment / "bin" / name
    if not path.is_file():
        raise BenchError(f"{name} is not installed in {environment.name}; run `make bench`")
    return path
