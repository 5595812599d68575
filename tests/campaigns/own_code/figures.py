"""The figures over rows: shares with what they are shares of, never a share alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.campaigns.measuring.pages import Share
from tests.campaigns.own_code.results import Result
from tests.campaigns.own_code.shown import Shown


@dataclass(frozen=True)
class Figure:
    """One line of the table: what is counted, what it should come to."""

    name: str
    goal: str
    share: Callable[[Sequence[Result]], Share]


def _share(rows: Sequence[Result], holds: Callable[[Result], bool]) -> Share:
    return Share(sum(map(holds, rows)), len(rows))


def _first(holds: Callable[[Shown], bool]) -> Callable[[Sequence[Result]], Share]:
    """Of the cases whose fix has a place to see; no prompt shows nothing."""

    def share(rows: Sequence[Result]) -> Share:
        placed = [row for row in rows if row.plan.files]
        return _share(placed, lambda row: row.first is not None and holds(row.first))

    return share


def _retries(holds: Callable[[Shown], bool]) -> Callable[[Sequence[Result]], Share]:
    def share(rows: Sequence[Result]) -> Share:
        found = [one for row in rows for one in row.retries]
        return Share(sum(map(holds, found)), len(found))

    return share


def _wrong(*, with_proof: bool) -> Callable[[Sequence[Result]], Share]:
    """Of the wrong plans that came to a verdict."""

    def share(rows: Sequence[Result]) -> Share:
        found = [one for row in rows for one in row.wrong if one.with_proof == with_proof]
        asked = [one for one in found if one.outcome != "never asked"]
        return Share(sum(one.is_false for one in asked), len(asked))

    return share


def _plain(rows: Sequence[Result]) -> Share:
    return _share([row for row in rows if row.plain is not None], lambda row: row.plain_says_fixed)


FIGURES = (
    Figure("(a) proved with a perfect answer", "≥ 85 %", lambda rows: _share(rows, _proved)),
    Figure("(b) the base commit's tests ran", "≥ 85 %", lambda rows: _share(rows, _tests)),
    Figure("(b) the proof ran", "≥ 90 %", lambda rows: _share(rows, _proof)),
    Figure("(c) first prompt: a line of the fix's place", "≥ 85 %", _first(lambda one: one.any)),
    Figure("(c) first prompt: half of its lines", "", _first(lambda one: one.half)),
    Figure("(c) first prompt: all of its lines", "≥ 60 %", _first(lambda one: one.all)),
    Figure("(c) first prompt: a whole hunk", "", _first(lambda one: one.hunks_whole > 0)),
    Figure("(c) a first prompt was sent at all", "", _first(lambda _: True)),
    Figure("(c) retry prompts: a line", "", _retries(lambda one: one.any)),
    Figure("(c) retry prompts: half", "", _retries(lambda one: one.half)),
    Figure("(c) retry prompts: all", "", _retries(lambda one: one.all)),
    Figure("(d) false fixed: wrong plans, with the proof", "0", _wrong(with_proof=True)),
    Figure("(d) false fixed: wrong plans, without", "0", _wrong(with_proof=False)),
    Figure("(d) false fixed: the true fix, without", "0", _plain),
)


#: Bytes of code and prose that one token is, about.
BYTES_PER_TOKEN = 4

#: The line of the table behind (c): what its prompts cost.
TOKENS = "(c) first prompt: tokens, about, median (largest)"


def tokens(rows: Sequence[Result]) -> str:
    """What the first prompts take; a dash: no row says."""
    sizes = [row.first_bytes // BYTES_PER_TOKEN for row in rows if row.first_bytes is not None]
    return f"{median(sizes):,.0f} ({max(sizes):,})" if sizes else "-"


def _proved(row: Result) -> bool:
    return row.proved


def _tests(row: Result) -> bool:
    return row.tests.ran


def _proof(row: Result) -> bool:
    return row.proof.ran


def false_fixed(rows: Sequence[Result]) -> int:
    """(d) in one number."""
    return sum(row.false_fixed for row in rows)
