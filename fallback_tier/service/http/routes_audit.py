"""Routes of the audit trail: events page by page, the export, the verification."""

from collections.abc import Iterator
from datetime import datetime
from os import SEEK_END
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from fallback_audit.frozen import Frozen
from fallback_audit.verifying.report import VerificationReport
from fallback_tier.service.http.given import Cursor, TheService, cursor_of, may_answer, number_in
from fallback_tier.service.http.security import Reader
from fallback_tier.service.operations.record import MAX_EVENTS

#: Bytes of an export that are read and sent at once.
_PIECE_BYTES = 256 * 1024

router = APIRouter(prefix="/v1/audit", tags=["audit"])

_FixId = Annotated[
    str | None,
    Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="of this fix alone"),
]
_Kind = Annotated[list[str], Query(alias="kind", max_length=60, description="of these kinds")]


class EventPage(Frozen):
    """Events in chain order. ``next`` None: there are no more yet."""

    events: list[dict[str, Any]]
    next: str | None = None


@router.get("/events", responses=may_answer())
def events(
    service: TheService,
    _: Reader,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = 100,
    fix_id: _FixId = None,
    kinds: _Kind = [],  # noqa: B006 (FastAPI copies it)
    since: Annotated[datetime | None, Query(description="recorded then or later")] = None,
) -> EventPage:
    """What is on record."""
    page = service.audits.events(
        after=number_in(cursor) or 0,
        limit=limit,
        fix_id=fix_id,
        kinds=kinds,
        since=None if since is None else since.isoformat(),
    )
    next_cursor = cursor_of(page[-1].seq) if len(page) == limit else None
    return EventPage(events=[stored.model_dump(mode="json") for stored in page], next=next_cursor)


@router.get(
    "/export",
    response_class=Response,
    responses={
        200: {"description": "an export", "content": {"application/octet-stream": {}}},
        **may_answer(404),
    },
)
def export(
    service: TheService,
    _: Reader,
    fix_id: _FixId = None,
    evidence: Annotated[bool, Query(description="with its evidence, private apart")] = False,
) -> StreamingResponse:
    """The record, or one fix of it, as a file that `fallback-tier audit verify FILE` checks."""
    file = service.audits.export(fix_id=fix_id, with_evidence=evidence)
    headers = {
        "Content-Disposition": f'attachment; filename="{fix_id or "audit"}.export"',
        "Content-Length": str(file.seek(0, SEEK_END)),
    }
    return StreamingResponse(_pieces(file), headers=headers, media_type="application/octet-stream")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            yield piece


@router.post("/verify", responses=may_answer())
def verify(
    service: TheService,
    _: Reader,
    evidence: Annotated[bool, Query(description="read all evidence, too")] = True,
) -> VerificationReport:
    """Check bytes, checkpoints and contract of the whole record. `ok` says how it went."""
    return service.audits.verify(with_evidence=evidence)
