"""Is the record what was written? What is covered, and the first event that is not right."""

from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from fallback_audit.verifying.report import VerificationReport
from fallback_tier.portal.rendering import PREFIX, page
from fallback_tier.portal.routing import PageRoute, Reader, SendingReader
from fallback_tier.portal.views.chain import chain_state
from fallback_tier.service.http.given import TheService

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


@dataclass
class LastReport:
    """What the last verification from a page found, until the service ends."""

    report: VerificationReport | None = None
    at: str = ""
    by: str = ""


@router.get("/verification")
def verification(request: Request, service: TheService, who: Reader) -> Response:
    """What checkpoints cover now, and what the last verification found."""
    with service.record.reading() as reader:
        chain = chain_state(service.record, reader)
    last: LastReport = request.app.state.last_report
    return page("verification.html", request, who, chain=chain, last=last)


@router.post("/verification")
def verify(request: Request, service: TheService, who: SendingReader) -> Response:
    """Read the whole record, as ``fallback-tier audit verify``. Raises BusyError."""
    report = service.audits.verify()
    last: LastReport = request.app.state.last_report
    last.report, last.by = report, who.caller.name
    last.at = datetime.now(UTC).isoformat(timespec="seconds")
    return RedirectResponse(f"{PREFIX}/verification", 303)
