"""The verification page, and how far the audit trail is covered by signed checkpoints."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditError
from fallback_audit.verifying.report import VerificationReport
from fallback_tier.observing.record import chain_lag
from fallback_tier.portal.routing import PREFIX, PageRoute, Reader, SendingReader, page
from fallback_tier.service.http.given import TheService
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.wiring.trail import ReadOnlyTrail, checkpoint_dir

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


class ChainState(NamedTuple):
    """``covered_to``: of ``events``, by the latest checkpoint. ``problem``: why that is not known."""

    events: int
    covered_to: int
    problem: str | None = None

    def covers(self, seq: int) -> bool:
        """Stands this event under a signature?"""
        return self.problem is None and seq <= self.covered_to


def chain_state(record: TrailAndEvidence, reader: ReadOnlyTrail) -> ChainState:
    """What the checkpoint log says; a verification says whether it is true."""
    try:
        lag = chain_lag(reader, CheckpointLog(checkpoint_dir(record.state_dir, record.settings)))
    except AuditError as error:
        return ChainState(0, 0, error.problem)
    return ChainState(lag.last, lag.last - lag.events)


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
