"""The interface of an open fix to an engine."""

from typing import Protocol

from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix_result import FixResult, OneFix


class OpenedFix(Protocol):
    """A fix that this process holds, as ``fallback_tier.fix.fixer`` opens one."""

    @property
    def state(self) -> FixProgress:
        """Return the state after the steps so far."""
        ...

    @property
    def result(self) -> FixResult | None:
        """Return how it has ended, or None if steps remain."""
        ...

    def next(self) -> StepKey | None:
        """Return the next step, or None if the fix has ended."""
        ...

    def step(self, key: StepKey) -> None:
        """Take this step."""
        ...

    def deliver(self) -> OneFix:
        """Deliver after the last step; what was delivered is not delivered again."""
        ...
