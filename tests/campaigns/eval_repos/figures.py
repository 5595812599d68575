"""The figures over rows, and the goals that they are held against. Nothing here is typed in by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.campaigns.eval_repos.peers import PEERS, PeerEnd
from tests.campaigns.eval_repos.results import Result
from tests.campaigns.measuring.pages import Share

Rows = Sequence[Result]

#: Of all cases, what must end as a careful engineer would end it.
RIGHT_RATE = 0.95


@dataclass(frozen=True)
class Figure:
    """One line of the table: what is counted, what it should come to, and whether it does."""

    name: str
    goal: str
    value: Callable[[Rows], str]
    met: Callable[[Rows], bool]


def false_fixed(rows: Rows) -> Share:
    """Says fixed, and broke what worked, or left what it says is gone."""
    return Share(sum(row.is_false_fixed for row in rows), len(rows))


def tracebacks(rows: Rows) -> Share:
    return Share(sum(row.told.traceback for row in rows), len(rows))


def right(rows: Rows) -> Share:
    """Ended as a careful engineer would have."""
    return Share(sum(row.is_right for row in rows), len(rows))


def agreeing(rows: Rows) -> Share:
    """What the plan says is what the fix first applies."""
    return Share(sum(not row.unlike for row in rows), len(rows))


def diffs(rows: Rows) -> tuple[float, float, int] | None:
    """Medians of the tool's lines and of the smallest peer's, over the cases that both fix; how many."""
    pairs = [
        (row.lines, row.smallest_peer)
        for row in rows
        if row.serves and row.smallest_peer is not None
    ]
    if not pairs:
        return None
    return median(one for one, _ in pairs), median(one for _, one in pairs), len(pairs)


def _diff_text(rows: Rows) -> str:
    found = diffs(rows)
    if found is None:
        return "nothing to compare"
    return f"{found[0]:g} lines, the peer's {found[1]:g} (over {found[2]})"


def _diff_met(rows: Rows) -> bool:
    found = diffs(rows)
    return found is not None and found[0] <= found[1]


FIGURES = (
    Figure(
        "“fixed” that breaks what worked, or leaves the flaw",
        "0",
        lambda rows: str(false_fixed(rows)),
        lambda rows: false_fixed(rows).part == 0,
    ),
    Figure(
        "tracebacks",
        "0",
        lambda rows: str(tracebacks(rows)),
        lambda rows: tracebacks(rows).part == 0,
    ),
    Figure(
        "ended as a careful engineer would",
        f"≥ {100 * RIGHT_RATE:.0f} %",
        lambda rows: str(right(rows)),
        lambda rows: right(rows).part >= RIGHT_RATE * len(rows),
    ),
    Figure(
        "what `plan` says is what `fix` first applies",
        "100 %",
        lambda rows: str(agreeing(rows)),
        lambda rows: agreeing(rows).part == len(rows),
    ),
    Figure(
        "median diff, beside the smallest of a peer that serves",
        "not larger",
        _diff_text,
        _diff_met,
    ),
)


@dataclass(frozen=True)
class Compared:
    """The tool beside one peer, over the cases that the peer is for.

    Where both serve, fewer lines win. Else it wins where it ended rightly and the peer did not serve, and
    loses where the peer served and it did not end rightly. ``broke``: the peer broke what worked.
    """

    peer: str
    cases: int
    serves: int
    broke: int
    wins: int
    losses: int

    @property
    def ties(self) -> int:
        return self.cases - self.wins - self.losses


def compared(rows: Rows) -> tuple[Compared, ...]:
    """Each peer that has an end in one of the rows."""
    found = []
    for name in PEERS:
        pairs = [(row, end) for row in rows for end in row.peers if end.peer == name]
        if pairs:
            found.append(
                Compared(
                    peer=name,
                    cases=len(pairs),
                    serves=sum(end.serves for _, end in pairs),
                    broke=sum(not end.works for _, end in pairs),
                    wins=sum(outcome(row, end) > 0 for row, end in pairs),
                    losses=sum(outcome(row, end) < 0 for row, end in pairs),
                )
            )
    return tuple(found)


def outcome(row: Result, end: PeerEnd) -> int:
    """1: a win of the tool over the peer, -1: a loss, 0: neither."""
    if row.serves and end.serves:
        return (row.lines < end.lines) - (row.lines > end.lines)
    if row.is_right and not end.serves:
        return 1
    return -1 if end.serves and not row.is_right else 0
