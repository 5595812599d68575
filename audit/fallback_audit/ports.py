"""What the rest of the house needs of an audit store and an evidence store."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fallback_audit.events import AuditEvent, Digest
from fallback_audit.frozen import Frozen


class Scope(Frozen):
    """Which fix, and which gate transition of it, an event belongs to."""

    fix_id: str
    gate_transition_id: str


#: Where events stand that are about the record as a whole (``events.maintenance``), not about one fix.
MAINTENANCE = Scope(fix_id="audit", gate_transition_id="upkeep")


class Record(NamedTuple):
    """An event to append, and where it belongs."""

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


class HeaderReader(Protocol):
    """The chain without its payloads, for checkpoints."""

    def tip(self) -> tuple[int, Digest]:
        """Number and leaf of the last event; (0, GENESIS) where there is none."""
        ...

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Headers in chain order behind number ``after``, to number ``upto`` where one is given."""
        ...


class AppendGuard(Protocol):
    """Asked inside the write transaction of each append, so across all writers of a store."""

    def admit(self, record: Record, seq: int, recorded: "TrailReader") -> tuple[AuditEvent, ...]:
        """May this become event ``seq``? Returns what is to be appended right behind it (flags).

        ``recorded`` is a new object for each transaction, so that a guard knows one from the next.
        Raises ContractError: then nothing of the transaction is recorded.
        """
        ...

    def appended(self, event: StoredEvent) -> None:
        """This one is durable now."""
        ...


class TrailReader(Protocol):
    """What a guard may read, inside the transaction."""

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """The events of one fix behind number ``after``, with those that this transaction adds."""
        ...


class AuditStore(AuditReader, HeaderReader, Protocol):
    """Append-only, hash-chained event store. Appends return only when the events are durable."""

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable. Raises AuditStoreError; then nothing was recorded."""
        ...

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make some events durable at once, in this order: all of them, or none (AuditStoreError)."""
        ...

    def close(self) -> None:
        """Release the store. Idempotent."""
        ...


class Segment(NamedTuple):
    """The oldest events, moved to a sealed file. ``statement``: what was signed about them (ADR-0036)."""

    number: int
    first_seq: int
    last_seq: int
    statement: bytes


class KeepableStore(AuditStore, Protocol):
    """What the keepers of a record may do to it. Each step and the event that tells of it are one
    transaction: there is no action without its evidence. Raises AuditStoreError; then nothing was done.
    """

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order. Events start behind the last one's ``last_seq``."""
        ...

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Put ``tombstone`` where the payload of event ``seq`` stood, once; append ``record`` (its
        PayloadRedacted); then ``scrub``.
        """
        ...

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Append ``record`` (its SegmentSealed), keep the statement, delete the events up to
        ``last_seq``. They must begin behind the last segment; ``record`` itself always stays. Then
        ``scrub``.
        """
        ...

    def scrub(self) -> None:
        """Leave nothing of replaced and deleted bytes in the store's own files. Both steps above do
        it; call it again where they raised AuditStoreError that a reader was in the way.
        """
        ...


class EvidenceStore(Protocol):
    """Content-addressed bytes outside the chain, found by SHA-256."""

    def put(self, content: bytes) -> Digest:
        """Store durably, mode 0600, and return the digest. Raises EvidenceError over the cap."""
        ...

    def get(self, digest: Digest) -> bytes:
        """Raises EvidenceError where missing, or where the bytes no longer match the digest."""
        ...
