"""A real record with events on it, and figures over it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.events import AuditEvent
from fallback_audit.ports import Scope, StoredEvent
from fallback_audit.stores.sqlite import SqliteAuditReader, SqliteAuditStore, open_readonly
from fallback_tier.observing.following import Follower
from fallback_tier.observing.metrics import Counting, Families, Figures


class ObservedTrail:
    """``record`` appends; ``value`` asks the figures, as a scraper does."""

    def __init__(self, place: Path, **options: Any) -> None:
        self.path = place / "audit.db"
        self.families = Families(CollectorRegistry())
        self.counting = Counting(self.families)
        self.follower = Follower(self.open, every=[self.counting], **options)
        log = CheckpointLog(place / "checkpoints")
        self.figures = Figures(self.families, self.follower, self.open, log)
        self._store: SqliteAuditStore | None = None

    def open(self) -> SqliteAuditReader | None:
        return open_readonly(self.path) if self.path.exists() else None

    def record(self, events: Iterable[AuditEvent], fix: str = "fix-1") -> list[StoredEvent]:
        if self._store is None:
            self._store = SqliteAuditStore(self.path)
        scope = Scope(fix_id=fix, gate_transition_id=f"gate-of-{fix}")
        return [self._store.append(scope, event) for event in events]

    def value(self, name: str, **labels: str) -> float | None:
        self.figures.refresh()
        return self.families.registry.get_sample_value(name, labels)

    def close(self) -> None:
        """Idempotent; ``record`` opens it again."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
