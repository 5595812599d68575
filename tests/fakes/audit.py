"""Stores in memory, and stores that fail on purpose."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import dropwhile
from typing import TypeVar

from fallback_audit.errors import AuditStoreError, EvidenceError
from fallback_audit.events import SCHEMA_VERSION, AuditEvent
from fallback_audit.ports import HeaderRow, Record, Scope, StoredEvent

NO_DIGEST = "0" * 64

EventT = TypeVar("EventT")


def _moment(message: str) -> datetime:
    moment = datetime.fromisoformat(message)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass
class MemoryAudit:
    """Implements AuditStore. ``fail_on`` names an event kind whose append fails (a full disk)."""

    fail_on: str | None = None
    clock: Callable[[], str] = lambda: "2026-01-01T00:00:00.000000Z"
    stored: list[StoredEvent] = field(default_factory=list)

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        if event.kind == self.fail_on:
            raise AuditStoreError(f"{event.kind} can't be stored.", next_step="Free some space.")
        stored = StoredEvent(
            seq=len(self.stored) + 1,
            scope=scope,
            kind=event.kind,
            schema_version=SCHEMA_VERSION,
            recorded_at=self.clock(),
            payload_sha256=NO_DIGEST,
            previous_leaf=NO_DIGEST,
            leaf=NO_DIGEST,
            payload=event,
        )
        self.stored.append(stored)
        return stored

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        return tuple(self.append(*record) for record in records)

    def tip(self) -> tuple[int, str]:
        return len(self.stored), NO_DIGEST

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        return (HeaderRow(e.seq, b"", e.leaf) for e in self.stored[after:upto])

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        recent = iter(self.stored)
        if since is not None:
            recent = dropwhile(lambda e: _moment(e.recorded_at) < _moment(since), recent)
        return (
            e
            for e in recent
            if e.seq > after
            and fix_id in (None, e.scope.fix_id)
            and (kinds is None or e.kind in kinds)
        )

    def close(self) -> None:
        pass

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of one type, in order."""
        return [event for event in self.payloads if isinstance(event, kind)]

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
