"""The stream that open pages listen to: fixes with new events (ADR-0084).

It has names and a number, never a page's text: each page requests what it shows, with its reader's own
rights. The number is that of the last event, so that a client that lost its connection continues after it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from fallback_audit.ports import StoredEvent
from fallback_tier.portal.board import Board
from fallback_tier.portal.routing import PREFIX, PageRoute, Reader
from fallback_tier.service.http.security import AccessControl
from fallback_tier.service.operations.feed import Feed
from fallback_tier.service.refusals import BusyError
from fallback_tier.service.roles import Role

#: Between two looks at the audit trail, for all open pages together (seconds).
POLL_S = 1.0

#: Remembered events. A page that missed more requests everything that it shows again.
MAX_KEPT = 2_000

#: Maximum number of fixes that one message names; more count as all.
MAX_NAMED = 200

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


class Changed(NamedTuple):
    """Changes up to event ``last``. ``fixes``: those with new events; None: more than is remembered."""

    last: int
    fixes: tuple[str, ...] | None


class Recent:
    """The fixes of the last events. The board's follower passes each new event."""

    #: All kinds.
    kinds = None

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str]] = deque(maxlen=MAX_KEPT)
        self._lock = threading.Lock()

    def begin_again(self) -> None:
        """Forget all events: the audit trail was restored or started again."""
        with self._lock:
            self._kept.clear()

    def take(self, stored: StoredEvent) -> None:
        """Receive the next event."""
        with self._lock:
            self._kept.append((stored.seq, stored.scope.fix_id))

    def fixes_behind(self, after: int) -> tuple[str, ...] | None:
        """Return the fixes with events after this number; None if that is further back than remembered."""
        with self._lock:
            events = list(self._kept)
        if not events or after < events[0][0] - 1 or after > events[-1][0]:
            return None
        fix_ids = tuple(dict.fromkeys(fix_id for seq, fix_id in events if seq > after))
        return fix_ids if len(fix_ids) <= MAX_NAMED else None


class Bell:
    """Notifies all open pages of new events, reading the audit trail once for all; for one event loop."""

    def __init__(self, board: Board, recent: Recent, feed: Feed, max_followers: int) -> None:
        self._board = board
        self._recent = recent
        self._feed = feed
        self._max = max_followers
        self._looked_at = 0.0
        self._looking = asyncio.Lock()
        self.followers = 0

    def check(self) -> None:
        """Check before a stream begins. Raises BusyError if too many are open, or the service ends."""
        open_streams = self.followers + self._feed.followers
        if open_streams >= self._max or self._feed.is_closed:
            raise BusyError(
                f"{open_streams:,} event streams are open, and no more are taken.",
                next_step="The page asks now and then by itself.",
                kind="too_many_streams",
            )

    async def follow(self, after: int) -> AsyncIterator[Changed]:
        """Yield what was recorded after event ``after`` and what follows, until the service ends."""
        self.followers += 1
        try:
            while not self._feed.is_closed:
                await self._look()
                last = self._board.read_to
                if last != after:
                    yield Changed(last, self._recent.fixes_behind(after))
                    after = last
                await asyncio.sleep(POLL_S)
        finally:
            self.followers -= 1

    async def _look(self) -> None:
        """Read new events, once for all streams that wait together."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now - self._looked_at >= POLL_S:
                await asyncio.to_thread(self._board.catch_up)
                self._looked_at = asyncio.get_running_loop().time()


async def _bell(request: Request, _: Reader) -> Bell:
    bell: Bell = request.app.state.bell
    bell.check()
    return bell


@router.get("/changes", response_class=EventSourceResponse)
async def changes(
    request: Request,
    bell: Annotated[Bell, Depends(_bell)],
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
    last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,15}$")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Yield the names of fixes with new events, as they come; null: too many to name. ``after``: the
    last event in the page. It ends before the next message if the reader has lost the right to it.
    """
    doorman: AccessControl = request.app.state.doorman
    async for changed in bell.follow(after if last is None else int(last)):
        # It may read the database.
        if not await asyncio.to_thread(doorman.still, request, Role.READ):
            return
        yield ServerSentEvent(data=changed.fixes, event="changed", id=str(changed.last))
