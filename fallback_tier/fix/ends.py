"""How a fix ended, for its caller."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fallback_tier.fix.delivery import DeliveryOutcome
from fallback_tier.gates.result import FixResult

if TYPE_CHECKING:  # most fixes are of one advisory, and pay for no more
    from fallback_tier.batch.outcome import AdvisoryEnd
    from fallback_tier.batch.running import BatchEnd


@dataclass(frozen=True)
class OneFix:
    """How the fix of one advisory ended, and what became of its patch."""

    result: FixResult
    delivery: DeliveryOutcome = field(default_factory=DeliveryOutcome)


@dataclass(frozen=True)
class SeveralFixes:
    """How the fixes of several advisories ended: by part, by advisory, and what became of the patch."""

    end: "BatchEnd"
    advisories: "tuple[AdvisoryEnd, ...]"
    delivery: DeliveryOutcome


#: One or the other.
Fixed = OneFix | SeveralFixes
