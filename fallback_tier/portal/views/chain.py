"""How far the record is covered by signed checkpoints."""

from typing import NamedTuple

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditError
from fallback_tier.observing.chain import chain_lag
from fallback_tier.service.operations.record import TrailAndEvidence
from fallback_tier.wiring.trail import ReadOnlyTrail, checkpoint_dir


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
