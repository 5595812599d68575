"""Bars of a campaign: what became of its fixes, and what its money is for; as pieces of one row."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fallback_tier.fleet.model import FixState
from fallback_tier.service.operations.campaigns import Spend

#: Length of a bar, in its own units.
WIDTH = 720.0

#: Each state and its class of the style, as the bar has them from the left: what is done comes first.
TONES = {
    FixState.FIXED: "s-good",
    FixState.PARTLY: "s-soft",
    FixState.ESCALATED: "s-warn",
    FixState.REFUSED: "s-dim",
    FixState.FAILED: "s-bad",
    FixState.CANCELLED: "s-line",
    FixState.RUNNING: "s-now",
    FixState.QUEUED: "s-left",
}


class Piece(NamedTuple):
    """A part of a bar. ``tone``: a class of the style; ``says``: what it stands for."""

    x: float
    width: float
    tone: str
    says: str


def progress(counts: Mapping[FixState, int]) -> tuple[Piece, ...]:
    """A piece a state that has fixes."""
    parts = [(counts[state], tone, f"{counts[state]:,} {state}") for state, tone in TONES.items()]
    return _pieces(parts, Decimal(sum(counts.values())))


def money(usd: Spend) -> tuple[Piece, ...]:
    """Spent, reserved, left: of the cap, or of what is more than it, where people raised caps. Without a
    cap there is no bar."""
    if usd.cap is None:
        return ()
    spent, reserved, cap = Decimal(usd.spent), Decimal(usd.reserved), Decimal(usd.cap)
    left = max(Decimal(0), cap - spent - reserved)
    parts = [
        (spent, "s-bad" if spent > cap else "s-good", "spent"),
        (reserved, "s-soft", "reserved by running fixes"),
        (left, "s-left", "left"),
    ]
    return _pieces(parts, spent + reserved + left)


def _pieces(parts: Sequence[tuple[Decimal | int, str, str]], whole: Decimal) -> tuple[Piece, ...]:
    x, found = 0.0, []
    for amount, tone, says in parts:
        if amount:
            width = WIDTH * float(amount / whole)
            found.append(Piece(x, width, tone, says))
            x += width
    return tuple(found)
