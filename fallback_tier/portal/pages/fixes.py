"""All fixes; one fix as a timeline or a file; its events and evidence; fixes by subject."""

import base64
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from fallback_audit.errors import AuditError
from fallback_audit.events import PatchProposed
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe import visible
from fallback_tier.advisory.vulnerability import Vulnerability
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.inputs import recorded_vulnerabilities
from fallback_tier.portal.board import (
    ABANDONED,
    ESCALATED,
    OPEN,
    PATCHED,
    REFUSED,
    TAKEN_APART,
    UNKNOWN,
    VERIFIED,
    FixLine,
    Read,
)
from fallback_tier.portal.pages.verification import chain_state
from fallback_tier.portal.routing import (
    PREFIX,
    Because,
    PageRoute,
    Reader,
    ReadersVisit,
    SentByDecider,
    TheBoard,
    Visit,
    page,
    render,
)
from fallback_tier.portal.views.diffs import Diff, read_diff
from fallback_tier.portal.views.timeline import PAGE, timeline
from fallback_tier.service.http.given import DigestPath, FixId, TheService
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.service.refusals import ConflictError, NotFoundError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Fixes on one page of a list.
ROWS = 100

#: Filter for fixes that ended without a patch that gates or a person accepted.
_UNFIXED = "unfixed"

_OUTCOMES = (
    *(OPEN, ESCALATED, VERIFIED, PATCHED, REFUSED, UNKNOWN, TAKEN_APART, ABANDONED),
    _UNFIXED,
)

_After = Annotated[int, Query(ge=0, lt=2**53)]

#: Fixes on a page about one advisory, repository or example.
_ABOUT_ROWS = 200

_Name = Annotated[str, Query(max_length=1_000)]

#: Characters of a log that a page shows: its start, and three times as much of its end, where failures are.
HEAD_CHARS, TAIL_CHARS = 16_000, 48_000


@router.get("/fixes")
def fixes(
    visit: ReadersVisit,
    outcome: str = "",
    text: Annotated[str, Query(max_length=200)] = "",
    skip: Annotated[int, Query(ge=0, le=10**9)] = 0,
    part: bool = False,
) -> Response:
    """Return fixes, the last changed first. ``text``: in the fix's name, its advisory or its repository."""
    lines = [line for line in visit.read.board.newest() if _is_meant(line, outcome, text.strip())]
    return visit.page(
        "fixes_rows.html" if part else "fixes.html",
        read=visit.read,
        lines=lines[skip : skip + ROWS],
        total=len(lines),
        skip=skip,
        more=skip + ROWS if skip + ROWS < len(lines) else None,
        outcome=outcome,
        outcomes=_OUTCOMES,
        text=text,
    )


def _is_meant(line: FixLine, outcome: str, text: str) -> bool:
    names = (line.fix_id, line.repository, *line.advisory_ids)
    has_outcome = line.unfixed if outcome == _UNFIXED else outcome in ("", line.outcome)
    return has_outcome and any(text.lower() in name.lower() for name in names)


def line_of(read: Read, fix_id: str) -> FixLine:
    """Return a fix's line. Raises NotFoundError."""
    line = read.board.fixes.get(fix_id)
    if line is None:
        raise NotFoundError(
            f"There is no fix {fix_id!r} on record.", next_step="The list has all that there are."
        )
    return line


@router.get("/fixes/{fix_id}")
def fix(visit: ReadersVisit, fix_id: FixId, after: _After = 0, part: bool = False) -> Response:
    """Return one page of its events after number ``after``. ``part``: the body only, for an open page."""
    return _fix_page(visit, fix_id, after=after, part=part)


@router.post("/fixes/{fix_id}/abandon")
def abandon(visit: SentByDecider, fix_id: FixId, because: Because = "") -> Response:
    """End an interrupted fix that is not to be continued, in the signed-in person's name."""
    if not because.strip():
        message = "It needs a reason, which goes on record. Nothing was recorded."
        return _fix_page(visit, fix_id, problem=message, status=422)
    try:
        visit.service.reviews.abandon(visit.who.caller, fix_id, because.strip())
    except ConflictError:
        message = "A process works on this fix just now. Nothing was recorded."
        return _fix_page(visit, fix_id, problem=message, because=because, status=409)
    except InputError as error:
        message = f"{error.problem} Nothing was recorded."
        return _fix_page(visit, fix_id, problem=message, because=because, status=422)
    return RedirectResponse(f"{PREFIX}/fixes/{fix_id}", 303)


def _fix_page(
    visit: Visit,
    fix_id: str,
    *,
    after: int = 0,
    part: bool = False,
    problem: str | None = None,
    because: str = "",
    status: int = 200,
) -> Response:
    line, service = line_of(visit.read, fix_id), visit.service
    events = service.audits.events(fix_id=fix_id, after=after, limit=PAGE + 1)
    with service.record.reading() as reader:
        chain = chain_state(service.record, reader)
    return visit.page(
        "fix_body.html" if part else "fix.html",
        read=visit.read,
        line=line,
        chain=chain,
        groups=timeline(events[:PAGE]),
        may_decide=visit.may_decide,
        problem=problem,
        because=because,
        status=status,
        after=after,
        more=events[PAGE - 1].seq if len(events) > PAGE else None,
    )


@router.get("/fixes/{fix_id}/events/{seq}")
def event(visit: ReadersVisit, fix_id: FixId, seq: int) -> Response:
    """Return one event, with every field, and its link of the chain, at a permanent address."""
    line = line_of(visit.read, fix_id)
    events = visit.service.audits.events(fix_id=fix_id, after=max(0, seq - 1), limit=PAGE)
    if not events or events[0].seq != seq:
        raise NotFoundError(
            f"Fix {fix_id} has no event {seq}.", next_step="Its timeline lists its events."
        )
    (group,) = timeline(events)[:1]
    return visit.page(
        "event.html",
        line=line,
        shown=group.lines[0],
        stored=events[0],
        fields=events[0].payload.model_dump(mode="json"),
    )


@router.get("/advisory")
def advisory(visit: ReadersVisit, id: _Name) -> Response:  # noqa: A002
    """Return the advisory, as the newest fix of it has it on record, and every fix of it."""
    return _about(visit, "Advisory", id, lambda line: id in (line.advisory_id, *line.advisory_ids))


@router.get("/repository")
def repository(visit: ReadersVisit, name: _Name) -> Response:
    """Return every fix in a repository."""
    return _about(visit, "Repository", name, lambda line: line.repository == name)


@router.get("/example")
def example(visit: ReadersVisit, id: _Name) -> Response:  # noqa: A002
    """Return the fixes that a solved example influenced: found, in a prompt, or replayed."""
    return _about(visit, "Example", id, lambda line: id in line.influences)


def _about(visit: Visit, kind: str, name: str, is_meant: Callable[[FixLine], bool]) -> Response:
    lines = [line for line in visit.read.board.newest() if is_meant(line)]
    if not lines:
        raise NotFoundError(
            f"No fix on record has to do with {kind.lower()} {name!r}.",
            next_step="The list of fixes can be searched.",
        )
    vulnerabilities = _recorded(visit, name, lines) if kind == "Advisory" else ()
    return visit.page(
        "about.html",
        read=visit.read,
        kind=kind,
        name=name,
        vulnerabilities=vulnerabilities,
        lines=lines[:_ABOUT_ROWS],
        total=len(lines),
    )


def _recorded(visit: Visit, name: str, lines: list[FixLine]) -> tuple[Vulnerability, ...]:
    """Return the advisory of this name, from the first of these fixes that has it on record; a bundle
    has several.
    """
    evidence = visit.service.record.evidence
    for line in lines[:_ABOUT_ROWS]:
        recorded = recorded_vulnerabilities(line.inputs_sha256, evidence)
        if matches := tuple(entry for entry in recorded if name in (entry.id, line.advisory_id)):
            return matches
    return ()


@router.get("/fixes/{fix_id}/evidence/{digest}")
def evidence(
    request: Request, service: TheService, who: Reader, fix_id: FixId, digest: DigestPath
) -> Response:
    """Return one piece of evidence. Raises NotFoundError, NotAllowedError (private), EvidenceError
    (gone).
    """
    content = service.fixes.evidence(who.caller, fix_id, digest)
    text = content.decode("utf-8", "replace")
    is_patch = text.startswith("diff --git ")
    left_out = max(0, len(text) - HEAD_CHARS - TAIL_CHARS)
    shown = (text, "") if not left_out else (text[:HEAD_CHARS], text[-TAIL_CHARS:])
    return page(
        "evidence.html",
        request,
        who,
        fix_id=fix_id,
        digest=digest,
        size=len(content),
        diff=read_diff(text) if is_patch else None,
        head=visible(shown[0], lines=True),
        tail=visible(shown[1], lines=True),
        left_out=left_out,
    )


#: Events in the saved page: as many as a browser can open at once. The proof has all of them.
MAX_EVENTS = 5_000

#: A larger proof is not included in the page: mail programs and browsers have limits.
MAX_PROOF_BYTES = 16 * 1024 * 1024


@router.get("/fixes/{fix_id}/export.html")
def export(service: TheService, read: TheBoard, _: Reader, fix_id: FixId) -> Response:
    """Return a file to save. Raises NotFoundError; BusyError if the audit trail is being exported
    already.
    """
    line = line_of(read, fix_id)
    with service.audits.export(fix_id=fix_id) as file:
        proof = file.read(MAX_PROOF_BYTES + 1)
    if len(proof) > MAX_PROOF_BYTES:
        proof = b""
    events = service.record.events(fix_id)
    static = files("fallback_tier.portal") / "static"
    style = "".join((static / name).read_text() for name in ("portal.css", "code.css"))
    page = render(
        "export.html",
        line=line,
        vulnerabilities=recorded_vulnerabilities(line.inputs_sha256, service.record.evidence),
        style=Markup(style),  # noqa: S704 (ours)
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        proof=base64.b64encode(proof).decode(),
        proof_bytes=len(proof),
        proof_sha256=hashlib.sha256(proof).hexdigest(),
        proof_missing=f"The proof has more than {MAX_PROOF_BYTES:,} bytes: "
        f"{service.record.command(f'fallback-tier audit export --fix {fix_id}')} makes it as a file.",
        diff=_patch(service.record, events),
        groups=timeline(events[:MAX_EVENTS]),
        more=max(0, len(events) - MAX_EVENTS),
    )
    headers = {
        "Content-Disposition": f'attachment; filename="{fix_id}.html"',
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


def _patch(record: TrailAndEvidence, events: list[StoredEvent]) -> Diff | None:
    """Return the last patch that was proposed, if it is still in the evidence store."""
    for stored in reversed(events):
        if isinstance(stored.payload, PatchProposed):
            try:
                content = record.evidence.get(stored.payload.patch_sha256)
            except AuditError:
                return None
            return read_diff(content.decode("utf-8", "replace"))
    return None
