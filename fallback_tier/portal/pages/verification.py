"""The verification page, and how much of the audit trail signed checkpoints cover."""

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
    """``covered_to``: number of the last of ``events`` that the latest checkpoint covers. ``problem``:
    why that is not known.
    """

    events: int
    covered_to: int
    problem: str | None = None

    def covers(self, seq: int) -> bool:
        """Return whether a signed checkpoint covers this event."""
        return self.problem is None and seq <= self.covered_to


def chain_state(record: TrailAndEvidence, reader: ReadOnlyTrail) -> ChainState:
    """Return what the checkpoint log says; only a verification shows whether it is true."""
    try:
        lag = chain_lag(reader, CheckpointLog(checkpoint_dir(record.state_dir, record.settings)))
    except AuditError as error:
        return ChainState(0, 0, error.problem)
    return ChainState(lag.last, lag.last - lag.events)


@dataclass
class LastReport:
    """The report of the last verification from a page, kept until the service ends."""

    report: VerificationReport | None = None
    at: str = ""
    by: str = ""


@router.get("/verification")
def verification(request: Request, service: TheService, who: Reader) -> Response:
    """Return what checkpoints cover now, and the report of the last verification."""
    with service.record.reading() as reader:
        chain = chain_state(service.record, reader)
    last: LastReport = request.app.state.last_report
    return page("verification.html", request, who, chain=chain, last=last)


@router.post("/verification")
def verify(request: Request, service: TheService, who: SendingReader) -> Response:
    """Read the whole audit trail, as ``fallback-tier audit verify``. Raises BusyError."""
    report = service.audits.verify()
    last: LastReport = request.app.state.last_report
    last.report, last.by = report, who.caller.name
    last.at = datetime.now(UTC).isoformat(timespec="seconds")
    return RedirectResponse(f"{PREFIX}/verification", 303)
