"""One fix as a file that needs no server: what happened, the patch, and the proof of both."""

import base64
import hashlib
from datetime import UTC, datetime
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response
from markupsafe import Markup

from fallback_audit.errors import AuditError
from fallback_audit.events import PatchProposed
from fallback_audit.ports import StoredEvent
from fallback_tier.fix.journal.inputs import recorded_vulnerabilities
from fallback_tier.portal.pages.fixes import line_of
from fallback_tier.portal.rendering import PREFIX, render
from fallback_tier.portal.routing import PageRoute, Reader, TheBoard
from fallback_tier.portal.views.diffs import Diff, read_diff
from fallback_tier.portal.views.timeline import timeline
from fallback_tier.service.http.given import FixId, TheService
from fallback_tier.service.operations.record import TrailAndEvidence

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Events that the page lists; a browser opens so many at once. The proof has all of them.
MAX_EVENTS = 5_000

#: A larger proof is not put into the page: mail and browsers have limits of their own.
MAX_PROOF_BYTES = 16 * 1024 * 1024


@router.get("/fixes/{fix_id}/export.html")
def export(service: TheService, read: TheBoard, _: Reader, fix_id: FixId) -> Response:
    """A file to save. Raises NotFoundError; BusyError: the record is being exported already."""
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
