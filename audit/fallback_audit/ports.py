"""Interfaces of the audit store and the evidence store that the rest of the project uses."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fallback_audit.events import AuditEvent, Digest
from fallback_audit.frozen import Frozen


class Scope(Frozen):
    """Which fix, and which gate transition of it, an event belongs to."""

    fix_id: str
    gate_transition_id: str


#: The scope of events about the audit trail as a whole (``events.maintenance``), not about one fix.
MAINTENANCE = Scope(fix_id="audit", gate_transition_id="upkeep")


class Record(NamedTuple):
    """An event to append, with its scope."""

    scope: Scope
    event: AuditEvent


class StoredEvent(Frozen):
    """One link of the chain as it stands in the store.

    ``redacted``: words were taken out of the payload, on record (``PayloadRedacted``).
    """

    seq: int
    scope: Scope
    kind: str
    schema_version: int
    recorded_at: str
    payload_sha256: Digest
    previous_leaf: Digest
    leaf: Digest
    payload: AuditEvent
    redacted: bool = False


class HeaderRow(NamedTuple):
    """An event's canonical header, as stored: the entry that a Merkle tree over the chain hashes."""

    seq: int
    header: bytes
    leaf: str


class AuditReader(Protocol):
    """Read access to the audit trail."""

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """Yield events in chain order: of one fix or of all, of these kinds only, after number ``after``.

        ``since`` (an RFC 3339 time, UTC if it names no zone): from the first event recorded at that time or
        later. All events after that one are yielded whatever their dates, since clocks may be set back: a
        caller that sums up a day may count too much, never too little.
        """
        ...


class HeaderReader(Protocol):
    """The chain without its payloads, for checkpoints."""

    def tip(self) -> tuple[int, Digest]:
        """Return number and leaf of the last event; (0, GENESIS) if there is none."""
        ...

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Yield headers in chain order after number ``after``, up to number ``upto`` if given."""
        ...


class AppendGuard(Protocol):
    """A check of each append, made inside its write transaction, so across all writers of a store."""

    def admit(self, record: Record, seq: int, recorded: "TrailReader") -> tuple[AuditEvent, ...]:
        """Admit ``record`` as event ``seq``, and return the events to append right after it (flags).

        ``recorded`` is a new object for each transaction, so that a guard can tell transactions apart.
        Raises ContractError if the event is refused: then nothing of the transaction is recorded.
        """
        ...

    def appended(self, event: StoredEvent) -> None:
        """Note that this event is durable now."""
        ...


class TrailReader(Protocol):
    """What a guard may read inside the transaction."""

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Yield the events of one fix after number ``after``, with those that this transaction adds."""
        ...


class AuditStore(AuditReader, HeaderReader, Protocol):
    """Append-only, hash-chained event store. Appends return only when the events are durable."""

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable. Raises AuditStoreError: then nothing was recorded."""
        ...

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make several events durable at once, in this order: all of them, or none (AuditStoreError)."""
        ...

    def close(self) -> None:
        """Release the store. Idempotent."""
        ...


class Segment(NamedTuple):
    """The oldest events, moved to a sealed file (ADR-0036). ``statement``: what was signed about them."""

    number: int
    first_seq: int
    last_seq: int
    statement: bytes


class KeepableStore(AuditStore, Protocol):
    """Maintenance of an audit trail. Each step and the event that records it are one transaction: there is
    no action without its evidence. Raises AuditStoreError: then nothing was done.
    """

    def segments(self) -> list[bytes]:
        """Return all segments' statements, in order. Events start after the last one's ``last_seq``."""
        ...

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Replace the payload of event ``seq`` with ``tombstone``, once; append ``record`` (its
        PayloadRedacted); then ``scrub``.
        """
        ...

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Append ``record`` (its SegmentSealed), store the statement, delete the events up to ``last_seq``,
        then ``scrub``. They must begin after the last segment; ``record`` itself always stays.
        """
        ...

    def scrub(self) -> None:
        """Remove replaced and deleted bytes from the store's own files. Both steps above do so; call it
        again if they raised AuditStoreError because of a reader.
        """
        ...


class EvidenceStore(Protocol):
    """Content-addressed bytes outside the chain, found by SHA-256."""

    def put(self, content: bytes) -> Digest:
        """Store durably, mode 0600, and return the digest. Raises EvidenceError if over the size cap."""
        ...

    def get(self, digest: Digest) -> bytes:
        """Return the content. Raises EvidenceError if it is missing or no longer matches the digest."""
        ...
