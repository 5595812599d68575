"""How many fixes a worker has open: it asks the server for another only where it has room."""

import asyncio
from collections.abc import Callable

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

#: Between two looks at whether there is room again (seconds): a fix takes minutes.
_LOOK_S = 0.1


class RoomForFixes(CustomSlotSupplier):
    """A slot to open a fix with, while ``opened()`` and those that are being opened leave room.

    A fix keeps its room from one activity to the next, which is why the worker's own count of activities
    does not do. While not ``can_open()`` there is none: a worker that could open no fix would fail at once
    with each, and ask for the next before anybody else does.
    """

    def __init__(
        self, fixes: int, opened: Callable[[], int], can_open: Callable[[], bool] = lambda: True
    ) -> None:
        self._fixes = fixes
        self._opened = opened
        self._can_open = can_open
        self._reserved = 0

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for room."""
        while (permit := self.try_reserve_slot(ctx)) is None:
            await asyncio.sleep(_LOOK_S)
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002
        """Room that there is now."""
        if not self._can_open() or self._opened() + self._reserved >= self._fixes:
            return None
        self._reserved += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """It opens a fix."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002
        """The fix is open, or could not be opened; or nobody needs the slot any more."""
        self._reserved -= 1
