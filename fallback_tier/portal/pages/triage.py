"""Escalated fixes: the queue, one question with what is needed to decide, and decisions.

Questions about the same package with the same failure can be decided together, with one event each.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse, Response

from fallback_audit.errors import AuditError
from fallback_audit.evidence.store import get_document
from fallback_audit.ports import EvidenceStore
from fallback_tier.errors import FallbackError, InputError
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.journal.inputs import FixInputs, recorded_vulnerabilities
from fallback_tier.portal.board import FixLine
from fallback_tier.portal.pages.fixes import line_of
from fallback_tier.portal.pages.verification import chain_state
from fallback_tier.portal.routing import (
    PREFIX,
    Because,
    PageRoute,
    ReadersVisit,
    SentByDecider,
    Visit,
)
from fallback_tier.portal.views.triage import choices, triage
from fallback_tier.service.http.given import FixId
from fallback_tier.service.http.security import SignedIn
from fallback_tier.service.opening import Service
from fallback_tier.service.operations.reviews import Decided, Decision, Verdict
from fallback_tier.service.refusals import ConflictError, NotServedError
from fallback_tier.service.roles import Role

#: Maximum number of questions that are compared, and decided together: a person looks at each of them.
MAX_ALIKE = 100

_DECISIONS = {
    Verdict.APPROVE: "approved",
    Verdict.REJECT: "rejected",
    Verdict.REOPEN: "reopened in a new gate transition",
    Verdict.GATES_AGAIN: "its gates are run again",
    Verdict.RAISE_BUDGET: "budget raised",
}

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Questions on the page: as many as a browser can lay out at once.
ROWS = 500

#: Decisions for several fixes. A cap is left out: what is reasonable for one fix need not be for another.
_TOGETHER = frozenset({Verdict.APPROVE, Verdict.REJECT, Verdict.REOPEN, Verdict.GATES_AGAIN})


def _packages_of(line: FixLine, evidence: EvidenceStore) -> frozenset[str]:
    """Return its advisory's packages, as ``npm:lodash``; if they are no longer kept, the advisory's ids."""
    if line.inputs_sha256 is not None:
        try:
            advisory = get_document(evidence, FixInputs, line.inputs_sha256).advisory
        except AuditError:
            return frozenset(line.advisory_ids)
        packages = (entry.package for entry in advisory.affected if entry.package is not None)
        names = frozenset(f"{package.ecosystem}:{package.name}" for package in packages)
        if names:
            return names
    return frozenset(line.advisory_ids)


def alike(line: FixLine, waiting: Sequence[FixLine], evidence: EvidenceStore) -> list[FixLine]:
    """Return the fixes that wait for the same reason, with the same failure and package; ``line`` first."""
    same = [other for other in waiting if other is not line and _failure(other) == _failure(line)]
    packages = _packages_of(line, evidence)
    alike_lines = [other for other in same[:MAX_ALIKE] if _packages_of(other, evidence) == packages]
    return [line, *alike_lines] if line.waits else []


def _failure(line: FixLine) -> tuple[object, ...]:
    return line.reason, line.cause, line.failure_kind, line.failing_gates


def decision_message(done: str, command: Callable[[str], str] = str) -> str | None:
    """Return the message for ``done``: fix, verdict, and how it continues, separated by dots; None for
    another text.

    ``command`` returns a suggested command as it works on the service's machine.
    """
    parts = done.rsplit(".", 2)
    if len(parts) != 3 or parts[1] not in list(Verdict):
        return None
    text_by_continuation = {
        "queued": " It goes on now.",
        "waits": f" To go on with it: {command(f'fallback-tier resume {parts[0]}')}",
    }
    return f"{parts[0]}: {_DECISIONS[Verdict(parts[1])]}.{text_by_continuation.get(parts[2], '')}"


def _read_decision(
    verdict: Verdict, because: str, *, usd_per_fix: str = "", tokens_per_fix: str = ""
) -> Decision:
    try:
        return Decision.model_validate(
            {
                "verdict": verdict,
                "because": because.strip(),
                "usd_per_fix": usd_per_fix.strip() or None,
                "tokens_per_fix": tokens_per_fix.strip() or None,
            }
        )
    except ValueError as error:
        raise InputError(
            "A decision needs a reason (2,000 characters at most), and a cap is a number.",
            next_step="Nothing was recorded: correct it, and decide again.",
        ) from error


def _gone_on(service: Service, who: SignedIn, decided: Decided) -> str:
    """Resume the fix after a decision that allows it, and return what follows.

    ``queued``: the service's queue resumes it; ``waits``: for its command, since it is not one of the
    queue's fixes or the caller may not submit; ``over``: nothing is to be resumed.
    """
    if not decided.goes_on:
        return "over"
    if not who.caller.may(Role.SUBMIT):
        return "waits"
    try:
        service.fixes.resume(who.caller, decided.fix_id)
    except FallbackError:
        return "waits"
    return "queued"


@router.get("/queue")
def queue(visit: ReadersVisit, part: bool = False, done: str = "") -> Response:
    """Return the questions, the newest first. ``part``: the rows only, for an open page; ``done``: the
    last decision.
    """
    waiting = visit.read.board.waiting()
    evidence = visit.service.record.evidence
    return visit.page(
        "queue_rows.html" if part else "queue.html",
        read=visit.read,
        lines=waiting[:ROWS],
        total=len(waiting),
        about=lambda line: recorded_vulnerabilities(line.inputs_sha256, evidence),
        told=decision_message(done, visit.service.record.command),
    )


@router.get("/fixes/{fix_id}/triage")
def show(visit: ReadersVisit, fix_id: FixId, done: str = "") -> Response:
    """Return the screen. ``done``: the previous decision, with its fix."""
    return _screen(visit, fix_id, message=decision_message(done, visit.service.record.command))


@router.get("/fixes/{fix_id}/meanwhile")
def meanwhile(visit: ReadersVisit, fix_id: FixId) -> Response:
    """Return for an open screen whether the question was answered in the meantime."""
    return visit.page("meanwhile.html", answer=line_of(visit.read, fix_id).answer)


@router.post("/fixes/{fix_id}/decisions")
def decide(
    visit: SentByDecider,
    fix_id: FixId,
    verdict: Annotated[Verdict, Form()],
    because: Because = "",
    usd_per_fix: Annotated[str, Form(max_length=20)] = "",
    tokens_per_fix: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Record the decision by the operation of the JSON interface, and continue to the next question."""
    service, who = visit.service, visit.who
    waiting = visit.read.board.waiting()
    try:
        decision = _read_decision(
            verdict, because, usd_per_fix=usd_per_fix, tokens_per_fix=tokens_per_fix
        )
        decided = service.reviews.decide(who.caller, fix_id, decision)
    except ConflictError as error:
        message = f"{error.problem} Your decision was not recorded."
        return _screen(visit, fix_id, problem=message, because=because, status=409)
    except InputError as error:
        message = f"{error.problem} {error.next_step}"
        return _screen(visit, fix_id, problem=message, because=because, status=422)
    continuation = _gone_on(service, who, decided)
    following = _after(waiting, fix_id)
    path = f"fixes/{following.fix_id}/triage" if following else "queue"
    return RedirectResponse(f"{PREFIX}/{path}?done={fix_id}.{verdict}.{continuation}", 303)


def _after(waiting: list[FixLine], fix_id: str) -> FixLine | None:
    """Return the next question below; after the last one, the first that remains."""
    others = [question for question in waiting if question.fix_id != fix_id]
    at = next((n for n, question in enumerate(waiting) if question.fix_id == fix_id), 0)
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
        screen = triage(review, read_history(reader, fix_id))
        chain = chain_state(service.record, reader)
    read.board.catch_up()
    waiting = read.board.waiting()
    fix_ids = [question.fix_id for question in waiting]
    at = fix_ids.index(fix_id) if fix_id in fix_ids else None
    return visit.page(
        "triage.html",
        status=status,
        read=read,
        seen=screen,
        review=review,
        question=review.question,
        chain=chain,
        at=at,
        waiting=len(waiting),
        alike=len(alike(waiting[at], waiting, service.record.evidence)) - 1
        if at is not None
        else 0,
        before=fix_ids[at - 1] if at else None,
        behind=fix_ids[at + 1] if at is not None and at + 1 < len(fix_ids) else None,
        may_decide=visit.may_decide,
        told=message,
        problem=problem,
        because=because,
    )


class Told(NamedTuple):
    """The result of deciding one fix."""

    fix_id: str
    recorded: bool
    says: str


@router.get("/fixes/{fix_id}/alike")
def show_alike(visit: ReadersVisit, fix_id: FixId) -> Response:
    """Return the fixes that are like this one."""
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
        packages=sorted(_packages_of(line, evidence)),
        choices=offered,
        may_decide=visit.may_decide,
        results=None,
        verdict="",
    )


@router.post("/fixes/{fix_id}/alike")
def decide_alike(
    visit: SentByDecider,
    fix_id: FixId,
    verdict: Annotated[Verdict, Form()],
    because: Because = "",
    fix: Annotated[tuple[str, ...], Form(max_length=MAX_ALIKE)] = (),
) -> Response:
    """Decide each chosen fix, in order. One for which this decision is not possible is not changed, and
    its reason is shown.
    """
    service, who = visit.service, visit.who
    line = line_of(visit.read, fix_id)
    evidence = service.record.evidence
    alike_ids = {other.fix_id for other in alike(line, visit.read.board.waiting(), evidence)}
    decision = _read_decision(verdict, because)
    if verdict not in _TOGETHER or not fix:
        raise NotServedError(
            "Nothing was chosen, or this decision is made for one fix at a time.",
            next_step="Choose at least one fix, and approve, reject, reopen or run the gates again.",
        )
    results = []
    for chosen_id in dict.fromkeys(fix):
        if chosen_id not in alike_ids:
            results.append(
                Told(chosen_id, False, "It is not like this one, or was answered meanwhile.")
            )
            continue
        try:
            decided = service.reviews.decide(who.caller, chosen_id, decision)
        except FallbackError as error:
            results.append(Told(chosen_id, False, error.problem))
        else:
            resume = service.record.command(f"fallback-tier resume {chosen_id}")
            text_by_continuation = {"queued": " It goes on.", "waits": f" {resume} goes on."}
            message = "Recorded." + text_by_continuation.get(_gone_on(service, who, decided), "")
            results.append(Told(chosen_id, True, message))
    return visit.page(
        "alike.html",
        status=200 if all(result.recorded for result in results) else 409,
        line=line,
        lines=[],
        packages=sorted(_packages_of(line, evidence)),
        choices=[],
        may_decide=True,
        results=results,
        verdict=verdict,
    )
