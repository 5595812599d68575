"""Single attempts, for an orchestrator that proves patches itself."""

from typing import Annotated

from fastapi import APIRouter, Body

from fallback_tier.service.http.examples import ATTEMPT
from fallback_tier.service.http.examples import problems as may_answer
from fallback_tier.service.http.given import IdempotencyKey, TheService
from fallback_tier.service.http.security import Submitter
from fallback_tier.service.operations.attempts import AttemptAnswer, AttemptOrder
from fallback_tier.service.queue.queue import Token

router = APIRouter(prefix="/v1", tags=["attempts"])


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
