"""Stores in memory, and stores that fail on purpose."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from fallback_audit.errors import AuditStoreError, EvidenceError
from fallback_audit.events import SCHEMA_VERSION, AuditEvent
from fallback_audit.ports import Scope, StoredEvent

NO_DIGEST = "0" * 64


@dataclass
class MemoryAudit:
    """Implements AuditStore. ``fail_on`` names an event kind whose append fails (a full disk)."""

    fail_on: str | None = None
    stored: list[StoredEvent] = field(default_factory=list)

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        if event.kind == self.fail_on:
            raise AuditStoreError(f"{event.kind} can't be stored.", next_step="Free some space.")
        stored = StoredEvent(
            seq=len(self.stored) + 1,
            scope=scope,
            kind=event.kind,
            schema_version=SCHEMA_VERSION,
            recorded_at="2026-01-01T00:00:00Z",
            payload_sha256=NO_DIGEST,
            previous_leaf=NO_DIGEST,
            leaf=NO_DIGEST,
            payload=event,
        )
        self.stored.append(stored)
        return stored

    def events(self, fix_id: str | None = None) -> Iterator[StoredEvent]:
        return (e for e in self.stored if fix_id in (None, e.scope.fix_id))

    def close(self) -> None:
        pass

    @property
    def payloads(self) -> list[AuditEvent]:
        return [stored.payload for stored in self.stored]

    @property
    def kinds(self) -> list[str]:
        return [stored.kind for stored in self.stored]


@dataclass
class MemoryEvidence:
    """Implements EvidenceStore."""

    contents: dict[str, bytes] = field(default_factory=dict)

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        if digest not in self.contents:
            raise EvidenceError(f"No evidence {digest}.", next_step="Look elsewhere.")
        return self.contents[digest]
