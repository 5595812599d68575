"""Decisions that no workflow has heard of are sent again: the record is followed, wherever they were made.

Nobody who decides has to know of Temporal, and what is decided while it is down is sent when it is back.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fallback_audit.errors import FallbackError
from fallback_tier.engines.decisions import Decisions, Record
from fallback_tier.engines.temporal.messages import HINT

#: Between two looks at the record's tip (seconds).
POLL_S = 0.5

#: A decision that nobody has acted on is sent again after so long (seconds).
RESEND_S = 30.0

#: Opens the record for reading. Raises FallbackError: then the next look tries again.
OpenRecord = Callable[[], AbstractContextManager[Record]]


class Reconciler:
    """``run`` it beside a worker; several at once do no harm."""

    def __init__(self, client: Client, opened: OpenRecord) -> None:
        self._client = client
        self._opened = opened
        self._decisions = Decisions()
        self._sent: dict[str, tuple[int, float]] = {}

    async def run(self) -> None:
        """Until it is cancelled. What can't be reached now is tried again."""
        while True:
            # Both come back; nothing of what was not sent is forgotten.
            with suppress(FallbackError, RPCError):
                await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Send what has not been sent, or was sent long ago. Raises FallbackError, RPCError."""
        await asyncio.to_thread(self._read)
        now = asyncio.get_running_loop().time()
        for fix_id, seq in self._decisions.open().items():
            sent = self._sent.get(fix_id)
            if sent is not None and sent[0] == seq and now - sent[1] < RESEND_S:
                continue
            if await self._send(fix_id):
                self._sent[fix_id] = (seq, now)
            else:
                self._decisions.heard(fix_id, seq)
                self._sent.pop(fix_id, None)

    def _read(self) -> None:
        with self._opened() as record:
            self._decisions.read(record)

    async def _send(self, fix_id: str) -> bool:
        """False: no workflow waits for it."""
        try:
            await self._client.get_workflow_handle(fix_id).signal(HINT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True
