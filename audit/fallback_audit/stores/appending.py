"""Appending, as every store does it: ask the guard, chain the links, hand them to one transaction."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple, Protocol

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import Link, make_link
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.events import Digest
from fallback_audit.ports import AppendGuard, Record, StoredEvent, TrailReader

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339, UTC, microseconds, always of the same length: sorts as text."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class Transaction(TrailReader, Protocol):
    """A store's open write transaction: it alone writes until it ends."""

    def tip(self) -> tuple[int, Digest]:
        """Number and leaf of the last event; (0, GENESIS) where there is none."""
        ...

    def insert(self, links: Sequence[Link]) -> None:
        """Add these links behind the tip, in this order."""
        ...


def tip_of(
    rows: Sequence[tuple[int, Digest]], segments: Callable[[], list[bytes]]
) -> tuple[int, Digest]:
    """The row of the last event; (0, GENESIS) where there never was one. Raises AuditIntegrityError."""
    if rows:
        return rows[0]
    if segments():  # a segment never takes the last event
        raise AuditIntegrityError(
            "The audit trail has sealed segments, and none of the events after them.",
            next_step="Stop what writes to it and run `fallback-tier audit verify`. Only if that says the "
            "same, keep this store for analysis and restore a copy.",
            kind="tail_missing",
        )
    return 0, GENESIS


class Appended(NamedTuple):
    """``asked``: one event a record, in their order; ``all``: with what a guard had put behind them."""

    asked: tuple[StoredEvent, ...]
    all: tuple[StoredEvent, ...]


def append_in(
    transaction: Transaction,
    records: Sequence[Record],
    *,
    guard: AppendGuard | None,
    clock: Clock,
) -> Appended:
    """Chain ``records`` behind the tip and insert them. The caller commits, then tells the guard.

    Raises AuditStoreError (ContractError among them): then the caller rolls back.
    """
    batch = _Batch(transaction, guard, clock)
    asked = tuple(map(batch.add, records))
    transaction.insert(batch.links)
    return Appended(asked, tuple(link.event for link in batch.links))


class _Batch:
    """Links not inserted yet. A ``TrailReader``: a guard sees them behind what is stored."""

    def __init__(self, transaction: Transaction, guard: AppendGuard | None, clock: Clock) -> None:
        self.links: list[Link] = []
        self._transaction = transaction
        self._guard = guard
        self._clock = clock
        self._seq, self._leaf = transaction.tip()
        self._stored = self._seq
        self._read: dict[tuple[str, int], tuple[StoredEvent, ...]] = {}
        self._added: dict[str, list[StoredEvent]] = {}

    def add(self, record: Record) -> StoredEvent:
        flags = () if self._guard is None else self._guard.admit(record, self._seq + 1, self)
        stored = self._chain(record)
        for flag in flags:
            self._chain(Record(record.scope, flag))
        return stored

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """The events of one fix behind number ``after``, with those of this batch."""
        added = (event for event in self._added.get(fix_id, ()) if event.seq > after)
        if (
            after >= self._stored
        ):  # as a rule, where one process writes: then there is nothing to ask
            return added
        if (fix_id, after) not in self._read:  # nobody else writes meanwhile: once is enough
            read = tuple(self._transaction.trail(fix_id, after=after))
            self._read[fix_id, after] = read
        return chain(self._read[fix_id, after], added)

    def _chain(self, record: Record) -> StoredEvent:
        link = make_link(
            record.scope,
            record.event,
            seq=self._seq + 1,
            previous_leaf=self._leaf,
            recorded_at=timestamp(self._clock()),
        )
        self._seq, self._leaf = link.event.seq, link.event.leaf
        self.links.append(link)
        if self._guard is not None:
            self._added.setdefault(record.scope.fix_id, []).append(link.event)
        return link.event
