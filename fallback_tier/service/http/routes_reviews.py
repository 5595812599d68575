"""Routes of questions to people, and their answers."""

from typing import Annotated

from fastapi import APIRouter, Body, Query

from fallback_audit.frozen import Frozen
from fallback_tier.fix.journal.questions import Question, Review
from fallback_tier.service.http.given import DECISION, FixId, JsonRoute, TheService, may_answer
from fallback_tier.service.http.security import Decider, Reader
from fallback_tier.service.operations.reviews import Decided, Decision

router = APIRouter(prefix="/v1", tags=["reviews"], route_class=JsonRoute)


class Questions(Frozen):
    """The newest first."""

    questions: tuple[Question, ...]


@router.get("/reviews", responses=may_answer())
def reviews(
    service: TheService,
    _: Reader,
    answered: Annotated[bool, Query(description="also those that were answered")] = False,
) -> Questions:
    """Escalated fixes that wait for an answer."""
    return Questions(questions=tuple(service.reviews.questions(answered=answered)))


@router.get("/reviews/{fix_id}", responses=may_answer(404))
def review(service: TheService, _: Reader, fix_id: FixId) -> Review:
    """One question, with each attempt, the last failure, the patch that it is about."""
    return service.reviews.show(fix_id)


@router.post("/reviews/{fix_id}/decisions", status_code=201, responses=may_answer(404, 409, 410))
def decide(
    service: TheService,
    caller: Decider,
    fix_id: FixId,
    decision: Annotated[Decision, Body(examples=[DECISION])],
) -> Decided:
    """Answer it. The answer is one event, in the caller's name; who comes second is told the first.

    After `reopen`, `gates_again`, `raise_budget`: `POST /v1/fixes/{fix_id}/resume`.
    """
    return service.reviews.decide(caller, fix_id, decision)
