"""How far the record's checkpoints are behind its events."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_tier.wiring.trail import ReadOnlyTrail


class ChainLag(NamedTuple):
    """``events`` that no checkpoint covers, the oldest of them ``seconds`` old; of ``last`` events."""

    last: int = 0
    events: int = 0
    seconds: float = 0.0


def chain_lag(
    reader: ReadOnlyTrail,
    log: CheckpointLog,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ChainLag:
    """Raises AuditStoreError, CheckpointError, AuditIntegrityError.

    The checkpoints are asked first: what is recorded meanwhile counts as uncovered, never the reverse.
    """
    covered = log.latest_size()
    last, _ = reader.tip()
    for oldest in reader.events(after=covered):
        age = (clock() - datetime.fromisoformat(oldest.recorded_at)).total_seconds()
        return ChainLag(last, last - covered, max(0.0, age))
    return ChainLag(last)
