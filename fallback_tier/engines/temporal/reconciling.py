"""Decisions that no workflow has heard of are sent again: the record is followed, wherever they were made.

Nobody who decides has to know of Temporal, and what is decided while it is down is sent when it is back.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from temporalio.client import Client
from temporalio.service import RPCError

from fallback_audit.errors import FallbackError
from fallback_tier.engines.decisions import Decisions, FollowedTrail, answer_on_record
from fallback_tier.engines.temporal.connecting import unless_unknown
from fallback_tier.engines.temporal.messages import HINT, Decided

#: Between two looks at the record's tip (seconds).
POLL_S = 0.5

#: A decision that nobody has acted on is sent again after so long (seconds).
RESEND_S = 30.0

#: Opens the record for reading. Raises FallbackError: then the next look tries again.
OpenRecord = Callable[[], AbstractContextManager[FollowedTrail]]

#: What has become of a fix's question, and whether it may go on. Raises FallbackError.
Look = Callable[[str], Decided]


def looking(opened: OpenRecord, may_go_on: Callable[[str], bool]) -> Look:
    """A decision for good ends a fix; one that lets it go on does where ``may_go_on`` says so."""

    def look(fix_id: str) -> Decided:
        with opened() as audit:
            answer = answer_on_record(audit, fix_id)
        return Decided(answer.goes_on and may_go_on(fix_id), answer.is_over)

    return look


class Reconciler:
    """``run`` it beside a worker; several at once do no harm."""

    def __init__(self, client: Client, opened: OpenRecord, look: Look) -> None:
        self._client = client
        self._opened = opened
        self._look = look
        self._decisions = Decisions()
        self._sent: dict[str, tuple[int, float]] = {}
        #: Whether the record could be read when it was last looked at; not yet, at first.
        self.reaches_record = False

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
            if not await asyncio.to_thread(self._is_worth_telling, fix_id):
                self._sent[fix_id] = (seq, now)  # its campaign tells it when it may go on
                continue
            if await unless_unknown(self._client.get_workflow_handle(fix_id).signal(HINT)):
                self._sent[fix_id] = (seq, now)
            else:
                self._decisions.heard(fix_id, seq)
                self._sent.pop(fix_id, None)

    def _read(self) -> None:
        try:
            with self._opened() as record:
                self._decisions.read(record)
        except FallbackError:
            self.reaches_record = False
            raise
        self.reaches_record = True

    def _is_worth_telling(self, fix_id: str) -> bool:
        try:
            decided = self._look(fix_id)
        except FallbackError:  # of one fix: the others are told
            return False
        return decided.goes_on or decided.is_over
