"""What a scan leaves out, and why: set by options, and by whatever else configures it."""

from datetime import date
from enum import StrEnum

from pydantic import Field

from fallback_audit.frozen import Frozen


class Level(StrEnum):
    """A severity. ``UNKNOWN``: no database states one that can be read."""

    UNKNOWN = "unknown"
    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Its place in the order. An unknown severity may be any, and is above all."""
        return _RANKS[self]


_RANKS = {level: place for place, level in enumerate(Level)} | {Level.UNKNOWN: len(Level)}


class Ignored(Frozen):
    """An advisory that a person decided to leave, by its id or an alias. ``until``: the last day on which
    it is ignored."""

    id: str = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=500)
    until: date

    def holds_on(self, day: date) -> bool:
        """Return whether it is still ignored on this day."""
        return day <= self.until


class ScanRules(Frozen):
    """``severity``: the lowest that is shown, None: all; ``production``: leave out what is installed for
    development alone."""

    severity: Level | None = None
    production: bool = False
    ignore: tuple[Ignored, ...] = ()
