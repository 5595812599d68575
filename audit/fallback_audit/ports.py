"""What the rest of the house needs of an audit store and an evidence store."""

from collections.abc import Iterator
from typing import Protocol

from fallback_audit.events import AuditEvent, Digest
from fallback_audit.frozen import Frozen


class Scope(Frozen):
    """Which fix, and which gate transition of it, an event belongs to."""

    fix_id: str
    gate_transition_id: str


class StoredEvent(Frozen):
    """One link of the chain as it stands in the store."""

    seq: int
    scope: Scope
    kind: str
    schema_version: int
    recorded_at: str
    payload_sha256: Digest
    previous_leaf: Digest
    leaf: Digest
    payload: AuditEvent


class AuditReader(Protocol):
    """What is on record, for whoever only reads it."""

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """Events in chain order: of one fix or of all, of these kinds only, behind number ``after``.

        ``since`` (an RFC 3339 time, UTC where it names no zone): from the first event recorded then or
        later on. What follows it is given whatever its date, since clocks are set back: a caller
        that sums up a day counts rather too much than too little.
        """
        ...


class AuditStore(AuditReader, Protocol):
    """Append-only, hash-chained event store. ``append`` returns only when the event is durable."""

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable. Raises AuditStoreError; then nothing was recorded."""
        ...

    def close(self) -> None:
        """Release the store. Idempotent."""
        ...


class EvidenceStore(Protocol):
    """Content-addressed bytes outside the chain, found by SHA-256."""

    def put(self, content: bytes) -> Digest:
        """Store durably, mode 0600. Raises EvidenceError over the size cap."""
        ...

    def get(self, digest: Digest) -> bytes:
        """Raises EvidenceError where missing, or where the bytes no longer match the digest."""
        ...
