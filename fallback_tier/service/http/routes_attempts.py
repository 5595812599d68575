"""Routes of single attempts, for an orchestrator that proves patches itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Body, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel

from fallback_tier.attempt.task import TierEvent
from fallback_tier.errors import FallbackError
from fallback_tier.service.http import problems
from fallback_tier.service.http.given import (
    ATTEMPT,
    IdempotencyKey,
    JsonRoute,
    TheService,
    may_answer,
)
from fallback_tier.service.http.security import Submitter
from fallback_tier.service.operations.attempts import AttemptAnswer, AttemptOrder
from fallback_tier.service.queue import Token

router = APIRouter(prefix="/v1", tags=["attempts"], route_class=JsonRoute)


@router.post("/attempts", responses=may_answer(409))
def attempt(
    service: TheService,
    caller: Submitter,
    order: Annotated[AttemptOrder, Body(examples=[ATTEMPT])],
    key: IdempotencyKey = None,
) -> AttemptAnswer:
    """One `FallbackTier.run`: a patch that nobody has proved yet, or a refusal with its reason."""
    token = None if key is None else Token.of(key, "attempt", order)
    return service.attempts.run(caller, order, token)


@router.post("/attempts/stream", response_class=EventSourceResponse, responses=may_answer(409))
async def stream(
    service: TheService,
    caller: Submitter,
    order: Annotated[AttemptOrder, Body(examples=[ATTEMPT])],
    key: IdempotencyKey = None,
) -> AsyncIterator[ServerSentEvent]:
    """The same as it comes: the typed events of `FallbackTier.stream`, a model's drafts among them, then
    `Finished` with the answer, or `problem`. An answer that was given before comes as `Finished` alone,
    whole, with `cached`. The attempt goes on to its end when its reader goes.
    """
    token = None if key is None else Token.of(key, "attempt", order)
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[ServerSentEvent]()

    def on_event(event: TierEvent) -> None:
        with suppress(RuntimeError):  # the loop has ended: the attempt continues all the same
            loop.call_soon_threadsafe(queue.put_nowait, _event(event.kind, event))

    async def run_attempt() -> None:
        """Run the attempt; its result is the last event, after all others."""
        try:
            answer = await anyio.to_thread.run_sync(
                service.attempts.run, caller, order, token, on_event
            )
        except FallbackError as error:
            last = _problem(problems.response(error))
        except Exception as error:  # noqa: BLE001 (reported as other routes report it)
            last = _problem(problems.defect(error))
        else:
            last = _event("Finished", answer)
        queue.put_nowait(last)

    task = asyncio.create_task(run_attempt())
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    while True:
        event = await queue.get()
        yield event
        if event.event in ("Finished", "problem"):
            return


#: Running tasks: an event loop keeps only weak references, and a task may outlive its reader.
_going_on: "set[asyncio.Task[None]]" = set()


def _problem(response: Response) -> ServerSentEvent:
    return ServerSentEvent(raw_data=bytes(response.body).decode(), event="problem")


def _event(kind: str, model: BaseModel) -> ServerSentEvent:
    return ServerSentEvent(raw_data=model.model_dump_json(), event=kind)
