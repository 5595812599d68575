"""Many questions that are one: decided together, with one reason, as one event each."""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form
from fastapi.responses import Response

from fallback_tier.errors import FallbackError
from fallback_tier.gates.journal.history import read_history
from fallback_tier.portal.alike import MAX_ALIKE, alike, packages_of
from fallback_tier.portal.pages.deciding import gone_on, read_decision
from fallback_tier.portal.pages.fixes import line_of
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit, SentByDecider
from fallback_tier.portal.views.triage import choices
from fallback_tier.service.http.given import FixId
from fallback_tier.service.operations.reviews import Verdict
from fallback_tier.service.refusals import NotServedError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: A cap is of one fix: what is reasonable for one need not be for another.
_TOGETHER = frozenset({Verdict.APPROVE, Verdict.REJECT, Verdict.REOPEN, Verdict.GATES_AGAIN})


class Told(NamedTuple):
    """What became of one of them."""

    fix_id: str
    recorded: bool
    says: str


@router.get("/fixes/{fix_id}/alike")
def show(visit: ReadersVisit, fix_id: FixId) -> Response:
    """Those that are like this one."""
    line, record = line_of(visit.read, fix_id), visit.service.record
    evidence = record.evidence
    with record.reading() as reader:
        offered = [
            choice
            for choice in choices(read_history(reader, fix_id))
            if choice.verdict in _TOGETHER and line.waits
        ]
    return visit.page(
        "alike.html",
        line=line,
        lines=alike(line, visit.read.board.waiting(), evidence),
        packages=sorted(packages_of(line, evidence)),
        choices=offered,
        may_decide=visit.may_decide,
        results=None,
        verdict="",
    )


@router.post("/fixes/{fix_id}/alike")
def decide(
    visit: SentByDecider,
    fix_id: FixId,
    verdict: Annotated[Verdict, Form()],
    because: Annotated[str, Form(max_length=2_000)] = "",
    fix: Annotated[tuple[str, ...], Form(max_length=MAX_ALIKE)] = (),
) -> Response:
    """Each chosen one for itself, in their order: one that can't be decided so stays, and is told."""
    service, who = visit.service, visit.who
    line = line_of(visit.read, fix_id)
    evidence = service.record.evidence
    meant = {one.fix_id for one in alike(line, visit.read.board.waiting(), evidence)}
    decision = read_decision(verdict, because)
    if verdict not in _TOGETHER or not fix:
        raise NotServedError(
            "Nothing was chosen, or this decision is made for one fix at a time.",
            next_step="Choose at least one fix, and approve, reject, reopen or run the gates again.",
        )
    results = []
    for chosen in dict.fromkeys(fix):
        if chosen not in meant:
            results.append(
                Told(chosen, False, "It is not like this one, or was answered meanwhile.")
            )
            continue
        try:
            decided = service.reviews.decide(who.caller, chosen, decision)
        except FallbackError as error:
            results.append(Told(chosen, False, error.problem))
        else:
            resume = service.record.command(f"fallback-tier resume {chosen}")
            goes = {"queued": " It goes on.", "waits": f" {resume} goes on."}
            says = "Recorded." + goes.get(gone_on(service, who, decided), "")
            results.append(Told(chosen, True, says))
    return visit.page(
        "alike.html",
        status=200 if all(one.recorded for one in results) else 409,
        line=line,
        lines=[],
        packages=sorted(packages_of(line, evidence)),
        choices=[],
        may_decide=True,
        results=results,
        verdict=verdict,
    )
