"""What all stores share: appending events in one transaction, and finding the first event since a time.

An append calls the guard, chains the links, and passes them to the transaction. The chain is in the order
of recording, its times only nearly so, since clocks may be set back. The first event since a time is found
by bisection, which reads some thousand headers and no payload; an index would slow down each append.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Protocol

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import Link, make_link
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import Digest
from fallback_audit.ports import AppendGuard, Record, StoredEvent, TrailReader

Clock = Callable[[], datetime]

#: How far clocks may have been set back: more than any time zone mistake, leap second or correction.
CLOCK_STEP = timedelta(days=1)

#: Number of consecutive events that must all be old before the events ahead of them count as old: a single
#: event may have been written with a wrong clock.
PROBE_ROWS = 64

#: The first and the last possible time.
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Return the current time in UTC: the clock used in production."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339, in UTC with microseconds: of constant length, so that it sorts as text."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class Transaction(TrailReader, Protocol):
    """A store's open write transaction: the only writer until it ends."""

    def tip(self) -> tuple[int, Digest]:
        """Return number and leaf of the last event; (0, GENESIS) if there is none."""
        ...

    def insert(self, links: Sequence[Link]) -> None:
        """Insert these links after the tip, in this order."""
        ...


def tip_of(
    rows: Sequence[tuple[int, Digest]], segments: Callable[[], list[bytes]]
) -> tuple[int, Digest]:
    """Return the last event's row; (0, GENESIS) if there never was one. Raises AuditIntegrityError."""
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


def append_in(
    transaction: Transaction,
    records: Sequence[Record],
    *,
    guard: AppendGuard | None,
    clock: Clock,
) -> tuple[tuple[StoredEvent, ...], tuple[StoredEvent, ...]]:
    """Chain ``records`` to the tip and insert them. The caller commits, then calls ``guard.appended``.

    Return one event per record, in their order, and all events, including those that the guard added.

    Raises AuditStoreError (ContractError among them): then the caller rolls back.
    """
    batch = _Batch(transaction, guard, clock)
    recorded = tuple(map(batch.add, records))
    transaction.insert(batch.links)
    return recorded, tuple(link.event for link in batch.links)


class _Batch:
    """Links that are not inserted yet. A ``TrailReader``: a guard sees them after the stored events."""

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
        """Return the events of one fix after number ``after``, with those of this batch."""
        added = (event for event in self._added.get(fix_id, ()) if event.seq > after)
        if after >= self._stored:  # usual if one process writes: then nothing need be read
            return added
        if (fix_id, after) not in self._read:  # no other process writes meanwhile: read once
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


#: Runs a query that returns an integer or None. The query has a ``?`` for each value.
Ask = Callable[..., int | None]

_NEWEST = "SELECT max(seq) FROM audit_header"

# An event whose header has no time counts as recorded at any time.
_REACHED = (
    "SELECT count(*) FROM (SELECT recorded_at FROM audit_header WHERE seq >= ?"
    " ORDER BY seq LIMIT ?) AS probed WHERE coalesce(recorded_at >= ?, TRUE)"
)
_FIRST_SINCE = (
    "SELECT min(seq) FROM (SELECT seq FROM audit_header WHERE seq > ?"
    " AND coalesce(recorded_at >= ?, TRUE) ORDER BY seq LIMIT 1) AS found"
)


def last_before(ask: Ask, since: str) -> int:
    """Return the number of the last event that is certainly older than ``since``; 0 if there is none.

    The event after it is the first one dated ``since`` or later. All later events count as later whatever
    their dates: older dates among them mean that a clock was set back. An event dated ``since`` or later is
    missed only if PROBE_ROWS consecutive events after it are all dated more than CLOCK_STEP before
    ``since``: then its own clock was ahead. Raises AuditStoreError if ``since`` is not a time.
    """
    moment, old = _bounds(since)
    low, high = 0, ask(_NEWEST) or 0
    newest = high
    while high - low > 2 * PROBE_ROWS:
        middle = (low + high) // 2
        if ask(_REACHED, middle, PROBE_ROWS, old):
            high = middle
        else:
            low = middle
    first = ask(_FIRST_SINCE, low, moment)
    return newest if first is None else first - 1


def moment_of(since: str) -> datetime:
    """Parse an RFC 3339 time; without a zone it is in UTC. Raises AuditStoreError."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise AuditStoreError(
            f"{since!r} is no time: {error}.",
            next_step="Give an RFC 3339 time, e.g. 2026-01-02T00:00:00Z.",
            kind="not_a_time",
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # less than a day before the first year or after the last
        return _FIRST if moment.year == _FIRST.year else _LAST


def _bounds(since: str) -> tuple[str, str]:
    moment = moment_of(since)
    old = moment - CLOCK_STEP if moment - _FIRST > CLOCK_STEP else _FIRST
    return timestamp(moment), timestamp(old)
