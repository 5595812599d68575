"""Event feeds of fixes: events as they come on record, read once for all followers of a fix.

An event's identifier is its number in the chain, so that a reader that lost its connection can continue
after it.
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

#: Time between two looks at the audit trail, for each fix that has followers.
_POLL_S = 0.25


class FeedItem(NamedTuple):
    """One event. ``number`` None: the last item, which is not an event of the audit trail."""

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
    """The feeds of one event loop."""

    def __init__(self, queue: OrderQueue, record: TrailAndEvidence, max_followers: int) -> None:
        self._queue = queue
        self._record = record
        self._max = max_followers
        self._followed: dict[str, _Followed] = {}
        self._closed = asyncio.Event()

    @property
    def followers(self) -> int:
        """Return the number of open streams."""
        return sum(followed.followers for followed in self._followed.values())

    @property
    def is_closed(self) -> bool:
        """Return whether the service ends."""
        return self._closed.is_set()

    def close(self) -> None:
        """End every stream at once; a reader can reconnect with the last number that it has."""
        self._closed.set()
        for followed in self._followed.values():
            followed.changed.set()

    async def check(self, fix_id: str) -> None:
        """Check before a stream begins. Raises NotFoundError; BusyError if too many are open."""
        if self.followers >= self._max or self.is_closed:
            raise BusyError(
                f"{self.followers:,} event streams are open, and no more are taken.",
                next_step="Try again later, or ask GET /v1/fixes/{id} now and then.",
                kind="streams_full",
            )
        await asyncio.to_thread(self._queue.get, fix_id)

    async def follow(self, fix_id: str, after: int) -> AsyncIterator[FeedItem]:
        """Yield the events on record after ``after``, new ones as they come, and the end (kind ``ended``).

        Raises the audit trail's errors.
        """
        followed = self._followed.setdefault(fix_id, _Followed())
        followed.followers += 1
        if followed.task is None:
            followed.task = asyncio.create_task(self._read(fix_id, followed))
        try:
            async for item in self._told(followed, after):
                yield item
        finally:
            followed.followers -= 1
            if not followed.followers:
                followed.task.cancel()
                if self._followed.get(fix_id) is followed:
                    del self._followed[fix_id]

    async def _told(self, followed: _Followed, after: int) -> AsyncIterator[FeedItem]:
        at = 0
        while True:
            changed = followed.changed
            while at < len(followed.items):
                item = followed.items[at]
                at += 1
                if item.number is None or item.number > after:
                    yield item
            if followed.failed is not None:
                raise followed.failed
            if followed.over or self.is_closed:
                return
            await changed.wait()

    async def _read(self, fix_id: str, followed: _Followed) -> None:
        last = 0
        while not followed.over and followed.failed is None:
            try:
                fresh, end = await asyncio.to_thread(self._look, fix_id, last)
            except FallbackError as error:
                followed.failed = error
                fresh, end = [], None
            if fresh:
                last = fresh[-1].number or last
                followed.items.extend(fresh)
            if end is not None:
                followed.items.append(end)
                followed.over = True
                if self._followed.get(fix_id) is followed:
                    del self._followed[fix_id]  # a later follower reads it again: it may be resumed
            if fresh or followed.over or followed.failed:
                changed, followed.changed = followed.changed, asyncio.Event()
                changed.set()
            if not followed.over:
                await asyncio.sleep(_POLL_S)

    def _look(self, fix_id: str, after: int) -> tuple[list[FeedItem], FeedItem | None]:
        """Return new events, and the end if the fix is over. Its state is read first: if it is over,
        the events on record are complete.
        """
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
    """Return the last event of a stream, which is never truncated."""
    return fix.model_dump_json()
