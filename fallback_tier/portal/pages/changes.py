"""The stream that open pages listen to: which fixes have new events (ADR-0084).

It has names and a number, never a page's text: each page requests what it shows, with its reader's own
rights. The number is that of the last event, so that a client that lost the connection continues behind it.
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

#: Between two looks at the record, for all open pages together (seconds).
POLL_S = 1.0

#: Events that are remembered. Whoever was away for more asks for everything it shows again.
MAX_KEPT = 2_000

#: Fixes that one message names; more are all.
MAX_NAMED = 200

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


class Changed(NamedTuple):
    """Up to event ``last``. ``fixes``: those with new events; None: more than is remembered."""

    last: int
    fixes: tuple[str, ...] | None


class Recent:
    """The fixes of the last events. The board's follower passes each new event."""

    #: All.
    kinds = None

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str]] = deque(maxlen=MAX_KEPT)
        self._lock = threading.Lock()

    def begin_again(self) -> None:
        """The record was restored, or begun anew."""
        with self._lock:
            self._kept.clear()

    def take(self, stored: StoredEvent) -> None:
        """The next event."""
        with self._lock:
            self._kept.append((stored.seq, stored.scope.fix_id))

    def fixes_behind(self, after: int) -> tuple[str, ...] | None:
        """Return the fixes with events after this number; None if that is further back than remembered."""
        with self._lock:
            kept = list(self._kept)
        if not kept or after < kept[0][0] - 1 or after > kept[-1][0]:
            return None
        found = tuple(dict.fromkeys(fix_id for seq, fix_id in kept if seq > after))
        return found if len(found) <= MAX_NAMED else None


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
        """Before a stream begins. Raises BusyError: too many are open, or the service ends."""
        open_streams = self.followers + self._feed.followers
        if open_streams >= self._max or self._feed.is_closed:
            raise BusyError(
                f"{open_streams:,} event streams are open, and no more are taken.",
                next_step="The page asks now and then by itself.",
                kind="too_many_streams",
            )

    async def follow(self, told: int) -> AsyncIterator[Changed]:
        """Yield what was recorded after event ``told`` and what follows, until the service ends."""
        self.followers += 1
        try:
            while not self._feed.is_closed:
                await self._look()
                last = self._board.read_to
                if last != told:
                    yield Changed(last, self._recent.fixes_behind(told))
                    told = last
                await asyncio.sleep(POLL_S)
        finally:
            self.followers -= 1

    async def _look(self) -> None:
        """Once for all who wait here together."""
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
    """The names of fixes with new events, as they come; null: too many to name. ``after``: the event that
    the page was made at. It ends before the next message for whom has no right to it any more."""
    doorman: AccessControl = request.app.state.doorman
    async for changed in bell.follow(after if last is None else int(last)):
        if not doorman.still(request, Role.READ):
            return
        yield ServerSentEvent(data=changed.fixes, event="changed", id=str(changed.last))
