"""Evidence that a fix's record names: escaped, cut, or saved."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from fallback_audit.showing.describe import visible
from fallback_tier.portal.rendering import PREFIX, page
from fallback_tier.portal.routing import PageRoute, Reader
from fallback_tier.portal.views.diffs import read_diff
from fallback_tier.service.http.given import DigestPath, FixId, TheService

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: What a page shows of a log: its beginning, and three times as much of its end, where failures stand.
HEAD_CHARS, TAIL_CHARS = 16_000, 48_000


@router.get("/fixes/{fix_id}/evidence/{digest}")
def evidence(
    request: Request, service: TheService, who: Reader, fix_id: FixId, digest: DigestPath
) -> Response:
    """One piece. Raises NotFoundError, NotAllowedError (private), EvidenceError (gone)."""
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
