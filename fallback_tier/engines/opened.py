"""A fix in an engine's hands: what it may ask of one, whoever holds it."""

from typing import Protocol

from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix_result import FixResult, OneFix


class OpenedFix(Protocol):
    """A fix in this process's hands, as ``fallback_tier.fix.fixer`` opens one."""

    @property
    def state(self) -> FixProgress:
        """What the steps so far have come to."""
        ...

    @property
    def result(self) -> FixResult | None:
        """How it has ended; None: there are steps to take."""
        ...

    def next(self) -> StepKey | None:
        """The step that follows; None where the fix has ended."""
        ...

    def step(self, key: StepKey) -> None:
        """Take it."""
        ...

    def deliver(self) -> OneFix:
        """After the last one; what was delivered is not delivered again."""
        ...
