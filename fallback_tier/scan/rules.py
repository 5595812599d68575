"""What a scan leaves out, and why: set by options, and by whatever else configures it."""

from enum import StrEnum

from fallback_audit.frozen import Frozen
from fallback_tier.configured import Decided, Ignored, Setting


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


#: The settings that are rules of a scan.
_KEYS = ("severity", "production", "ignore", "paths")


class ScanRules(Frozen):
    """``severity``: the lowest that is shown, None: all; ``production``: leave out what is installed for
    development alone. ``settings``: where each comes from that is not the default."""

    severity: Level | None = None
    production: bool = False
    ignore: tuple[Ignored, ...] = ()
    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, decided: Decided) -> "ScanRules":
        """Return what the settings say."""
        own = decided.own
        return cls(
            severity=Level(own.severity) if own.severity else None,
            production=own.production,
            ignore=tuple(own.ignore),
            settings=tuple(it for it in decided.settings if it.key in _KEYS and it.where),
        )

    def where(self, key: str) -> str:
        """Return where a rule comes from; empty: not known, or it is the default."""
        return next((it.where for it in self.settings if it.key == key), "")
