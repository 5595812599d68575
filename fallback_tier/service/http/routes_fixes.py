"""Routes of fixes: submit, list, follow, cancel, resume; patch and evidence."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from fallback_audit.frozen import Frozen
from fallback_tier.errors import FallbackError
from fallback_tier.service.http import problems
from fallback_tier.service.http.given import (
    SUBMISSION,
    Cursor,
    DigestPath,
    FixId,
    IdempotencyKey,
    JsonRoute,
    TheService,
    cursor_of,
    may_answer,
    number_in,
)
from fallback_tier.service.http.security import AccessControl, Reader, Submitter
from fallback_tier.service.operations.fixes import MAX_PAGE, EvidenceItem, Fix, Repository
from fallback_tier.service.queue import (
    OrderLine,
    OrderState,
    Submission,
    Token,
)
from fallback_tier.service.roles import Role
from fallback_tier.workers.tables import RepositoryName

router = APIRouter(prefix="/v1", tags=["fixes"], route_class=JsonRoute)


class Repositories(Frozen):
    """What a submission may name."""

    repositories: tuple[Repository, ...]


class FixPage(Frozen):
    """``next`` None: there are no older ones."""

    fixes: tuple[OrderLine, ...]
    next: str | None = None


class EvidenceList(Frozen):
    """Evidence that the record of a fix names."""

    evidence: tuple[EvidenceItem, ...]


@router.get("/repositories", responses=may_answer())
def repositories(service: TheService, _: Reader) -> Repositories:
    """Repositories that can be named."""
    return Repositories(repositories=service.fixes.repositories_named())


@router.post(
    "/fixes",
    status_code=202,
    responses={200: {"description": "taken before", "model": Fix}, **may_answer(409)},
)
def submit(
    service: TheService,
    caller: Submitter,
    response: Response,
    submission: Annotated[Submission, Body(examples=[SUBMISSION])],
    key: IdempotencyKey = None,
) -> Fix:
    """Submit an advisory to be fixed in a repository. It is durable when this is answered."""
    token = None if key is None else Token.of(key, "fix", submission)
    fix = service.fixes.submit(caller, submission, token)
    response.headers["Location"] = f"/v1/fixes/{fix.fix_id}"
    if fix.cached:
        response.status_code = 200
    return fix


@router.get("/fixes", responses=may_answer())
def fixes(
    service: TheService,
    _: Reader,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    state: OrderState | None = None,
    repository: RepositoryName | None = None,
) -> FixPage:
    """Submitted fixes, the newest first."""
    before = number_in(cursor)
    page = service.fixes.page(before=before, limit=limit, state=state, repository=repository)
    next_cursor = cursor_of(page[-1].number) if len(page) == limit else None
    return FixPage(fixes=page, next=next_cursor)


@router.get("/fixes/{fix_id}", responses=may_answer(404))
def fix(service: TheService, _: Reader, fix_id: FixId) -> Fix:
    """Where a fix stands, and how it ended."""
    return service.fixes.show(fix_id)


async def _followed(service: TheService, _: Reader, fix_id: FixId) -> str:
    await service.feed.check(fix_id)
    return fix_id


@router.get("/fixes/{fix_id}/events", response_class=EventSourceResponse, responses=may_answer(404))
async def events(
    request: Request,
    service: TheService,
    fix_id: Annotated[str, Depends(_followed)],
    last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,15}$")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Its events as they come on record, each with its number; at the end one `ended`, the fix whole.

    With `Last-Event-ID` it goes on behind that event. A comment comes where nothing else does for a while.
    It ends before the next event for whom has no right to it any more.
    """
    doorman: AccessControl = request.app.state.doorman
    try:
        async for item in service.feed.follow(fix_id, int(last or 0)):
            if not await anyio.to_thread.run_sync(doorman.still, request, Role.READ):
                return
            number = None if item.number is None else str(item.number)
            yield ServerSentEvent(raw_data=item.data, event=item.kind, id=number)
    except FallbackError as error:
        body = problems.response(error).body
        yield ServerSentEvent(raw_data=bytes(body).decode(), event="problem")


@router.get(
    "/fixes/{fix_id}/patch",
    response_class=Response,
    responses={
        200: {"description": "unified diff", "content": {"text/x-diff": {}}},
        **may_answer(404),
    },
)
def patch(service: TheService, _: Reader, fix_id: FixId) -> Response:
    """The proved patch, for `git apply`."""
    return _attachment(service.fixes.patch(fix_id).encode(), "text/x-diff", f"{fix_id}.patch")


@router.get("/fixes/{fix_id}/evidence", responses=may_answer(404))
def evidence_list(service: TheService, _: Reader, fix_id: FixId) -> EvidenceList:
    """Evidence that its record names: patches, logs, summaries."""
    return EvidenceList(evidence=service.fixes.evidence_of(fix_id))


@router.get(
    "/fixes/{fix_id}/evidence/{digest}",
    response_class=Response,
    responses={
        200: {"description": "the bytes", "content": {"application/octet-stream": {}}},
        **may_answer(404, 410),
    },
)
def evidence(service: TheService, caller: Reader, fix_id: FixId, digest: DigestPath) -> Response:
    """One piece of evidence. Raw prompts and answers: for admins alone."""
    content = service.fixes.evidence(caller, fix_id, digest)
    return _attachment(content, "application/octet-stream", digest)


@router.post("/fixes/{fix_id}/cancel", status_code=202, responses=may_answer(404, 409))
def cancel(service: TheService, caller: Submitter, fix_id: FixId) -> Fix:
    """End it. What is on record stays, and it can be resumed."""
    return service.fixes.cancel(caller, fix_id)


@router.post("/fixes/{fix_id}/resume", status_code=202, responses=may_answer(404, 409))
def resume(service: TheService, caller: Submitter, fix_id: FixId) -> Fix:
    """Go on with one that failed, was cancelled, or that a person let go on."""
    return service.fixes.resume(caller, fix_id)


def _attachment(content: bytes, media_type: str, name: str) -> Response:
    """Return a response that a browser saves, and of which it runs nothing."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(content, media_type=media_type, headers=headers)
