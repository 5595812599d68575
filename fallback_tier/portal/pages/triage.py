"""One escalated fix: what is needed to decide, and the decision."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response

from fallback_tier.errors import InputError
from fallback_tier.gates.journal.history import read_history
from fallback_tier.portal.alike import alike
from fallback_tier.portal.lines import FixLine
from fallback_tier.portal.pages.deciding import gone_on, read_decision
from fallback_tier.portal.pages.fixes import line_of
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit, SentByDecider, Visit
from fallback_tier.portal.views.chain import chain_state
from fallback_tier.portal.views.decided import decision_message
from fallback_tier.portal.views.triage import triage
from fallback_tier.service.http.given import FixId
from fallback_tier.service.operations.reviews import Verdict
from fallback_tier.service.refusals import ConflictError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


@router.get("/fixes/{fix_id}/triage")
def show(visit: ReadersVisit, fix_id: FixId, done: str = "") -> Response:
    """The screen. ``done``: the fix that was decided just before, and how."""
    return _screen(visit, fix_id, message=decision_message(done, visit.service.record.command))


@router.get("/fixes/{fix_id}/meanwhile")
def meanwhile(visit: ReadersVisit, fix_id: FixId) -> Response:
    """For a screen that is open: was the question answered since?"""
    return visit.page("meanwhile.html", answer=line_of(visit.read, fix_id).answer)


@router.post("/fixes/{fix_id}/decisions")
def decide(
    visit: SentByDecider,
    fix_id: FixId,
    verdict: Annotated[Verdict, Form()],
    because: Annotated[str, Form(max_length=2_000)] = "",
    usd_per_fix: Annotated[str, Form(max_length=20)] = "",
    tokens_per_fix: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Record the decision by the operation that JSON has, and go on to the next question."""
    service, who = visit.service, visit.who
    waiting = visit.read.board.waiting()
    try:
        decision = read_decision(
            verdict, because, usd_per_fix=usd_per_fix, tokens_per_fix=tokens_per_fix
        )
        decided = service.reviews.decide(who.caller, fix_id, decision)
    except ConflictError as error:
        message = f"{error.problem} Your decision was not recorded."
        return _screen(visit, fix_id, problem=message, because=because, status=409)
    except InputError as error:
        message = f"{error.problem} {error.next_step}"
        return _screen(visit, fix_id, problem=message, because=because, status=422)
    word = gone_on(service, who, decided)
    following = _after(waiting, fix_id)
    place = f"fixes/{following.fix_id}/triage" if following else "queue"
    return RedirectResponse(f"{PREFIX}/{place}?done={fix_id}.{verdict}.{word}", 303)


def _after(waiting: list[FixLine], fix_id: str) -> FixLine | None:
    """The one that stood below; from the last one on, the first that is left."""
    others = [question for question in waiting if question.fix_id != fix_id]
    at = next((n for n, one in enumerate(waiting) if one.fix_id == fix_id), 0)
    return (others[at] if at < len(others) else others[0]) if others else None


def _screen(
    visit: Visit,
    fix_id: str,
    *,
    message: str | None = None,
    problem: str | None = None,
    because: str = "",
    status: int = 200,
) -> Response:
    service, read = visit.service, visit.read
    review = service.reviews.show(fix_id)
    with service.record.reading() as reader:
        seen = triage(review, read_history(reader, fix_id))
        chain = chain_state(service.record, reader)
    read.board.catch_up()
    waiting = read.board.waiting()
    places = [one.fix_id for one in waiting]
    at = places.index(fix_id) if fix_id in places else None
    return visit.page(
        "triage.html",
        status=status,
        read=read,
        seen=seen,
        review=review,
        question=review.question,
        chain=chain,
        at=at,
        waiting=len(waiting),
        alike=len(alike(waiting[at], waiting, service.record.evidence)) - 1
        if at is not None
        else 0,
        before=places[at - 1] if at else None,
        behind=places[at + 1] if at is not None and at + 1 < len(places) else None,
        may_decide=visit.may_decide,
        told=message,
        problem=problem,
        because=because,
    )
