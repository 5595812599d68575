"""Who follows a fix: its events as they come on record, read once for all who follow the same one.

An event's number in the chain is its identifier, so that whoever lost the connection goes on behind it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fallback_tier.errors import FallbackError
from fallback_tier.service.operations.fixes import Fix, whole
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.queue import OrderQueue
from fallback_tier.service.refusals import BusyError

#: Between two looks at the record, for each fix that somebody follows.
_POLL_S = 0.25


class FeedItem(NamedTuple):
    """One event. ``number`` None: it is no event of the record, but the end of what is told."""

    number: int | None
    kind: str
    data: str


@dataclass
class _Followed:
    items: list[FeedItem] = field(default_factory=list)
    over: bool = False
    failed: FallbackError | None = None
    followers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class Feed:
    """For one event loop."""

    def __init__(self, queue: OrderQueue, record: TrailAndEvidence, max_followers: int) -> None:
        self._queue = queue
        self._record = record
        self._max = max_followers
        self._followed: dict[str, _Followed] = {}
        self._closed = asyncio.Event()

    @property
    def followers(self) -> int:
        """How many follow some fix now."""
        return sum(one.followers for one in self._followed.values())

    @property
    def is_closed(self) -> bool:
        """The service ends."""
        return self._closed.is_set()

    def close(self) -> None:
        """Every stream ends at once; its reader comes back with the last number that it has."""
        self._closed.set()
        for one in self._followed.values():
            one.changed.set()

    async def check(self, fix_id: str) -> None:
        """Before a stream begins. Raises NotFoundError; BusyError: too many are open."""
        if self.followers >= self._max or self.is_closed:
            raise BusyError(
                f"{self.followers:,} event streams are open, and no more are taken.",
                next_step="Try again later, or ask GET /v1/fixes/{id} now and then.",
                kind="streams_full",
            )
        await asyncio.to_thread(self._queue.get, fix_id)

    async def follow(self, fix_id: str, after: int) -> AsyncIterator[FeedItem]:
        """What is on record behind ``after``, what comes, and how it ended (kind ``ended``).

        Raises what the record raises.
        """
        one = self._followed.setdefault(fix_id, _Followed())
        one.followers += 1
        if one.task is None:
            one.task = asyncio.create_task(self._read(fix_id, one))
        try:
            async for reported in self._told(one, after):
                yield reported
        finally:
            one.followers -= 1
            if not one.followers:
                one.task.cancel()
                if self._followed.get(fix_id) is one:
                    del self._followed[fix_id]

    async def _told(self, one: _Followed, after: int) -> AsyncIterator[FeedItem]:
        at = 0
        while True:
            changed = one.changed
            while at < len(one.items):
                reported = one.items[at]
                at += 1
                if reported.number is None or reported.number > after:
                    yield reported
            if one.failed is not None:
                raise one.failed
            if one.over or self.is_closed:
                return
            await changed.wait()

    async def _read(self, fix_id: str, one: _Followed) -> None:
        last = 0
        while not one.over and one.failed is None:
            try:
                fresh, end = await asyncio.to_thread(self._look, fix_id, last)
            except FallbackError as error:
                one.failed = error
                fresh, end = [], None
            if fresh:
                last = fresh[-1].number or last
                one.items.extend(fresh)
            if end is not None:
                one.items.append(end)
                one.over = True
                if self._followed.get(fix_id) is one:
                    del self._followed[fix_id]  # who comes now reads anew: it may be resumed
            if fresh or one.over or one.failed:
                changed, one.changed = one.changed, asyncio.Event()
                changed.set()
            if not one.over:
                await asyncio.sleep(_POLL_S)

    def _look(self, fix_id: str, after: int) -> tuple[list[FeedItem], FeedItem | None]:
        """The state first: what is on record when it is over is all there is."""
        order = self._queue.get(fix_id)
        fresh = [
            FeedItem(stored.seq, stored.kind, stored.payload.model_dump_json())
            for stored in self._record.events(fix_id, after=after)
        ]
        end = None
        if order.state.is_over:
            end = FeedItem(None, "ended", ended_json(whole(order)))
        return fresh, end


def ended_json(fix: Fix) -> str:
    """The last event of a stream, whole: never cut into pieces."""
    return fix.model_dump_json()
