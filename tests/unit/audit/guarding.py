"""A guard over events in memory: what a store does with one, without the store."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.events import SCHEMA_VERSION, AppendFlagged, AuditEvent
from fallback_audit.ports import Record, Scope, StoredEvent
from tests.unit.audit.generated import Line
from tests.unit.audit.trails import SCOPE, digest


def stored(seq: int, scope: Scope, event: AuditEvent) -> StoredEvent:
    return StoredEvent(
        seq=seq,
        scope=scope,
        kind=event.kind,
        schema_version=SCHEMA_VERSION,
        recorded_at="2026-01-01T00:00:00.000000Z",
        payload_sha256=digest("payload"),
        previous_leaf=digest("before"),
        leaf=digest(f"leaf {seq}"),
        payload=event,
    )


class Table:
    """Implements TrailReader over a list, asked for ``reads`` events in all; ``bad`` can't be read."""

    def __init__(self) -> None:
        self.rows: list[StoredEvent] = []
        self.asked = self.reads = 0
        self.bad: int | None = None

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        self.asked += 1
        for row in self.rows:
            if row.scope.fix_id == fix_id and row.seq > after:
                if row.seq == self.bad:
                    raise AuditIntegrityError(
                        f"Event {row.seq} can't be trusted.", next_step="Find out who wrote."
                    )
                self.reads += 1
                yield row

    @property
    def next(self) -> int:
        return self.rows[-1].seq + 1 if self.rows else 1

    def add(self, scope: Scope, *events: AuditEvent) -> list[StoredEvent]:
        """Another process's, or what no guard was asked about."""
        added = []
        for event in events:
            added.append(stored(self.next, scope, event))
            self.rows.append(added[-1])
        return added


class Transaction:
    """A store's open one: a new object each time."""

    def __init__(self, table: Table) -> None:
        self.trail = table.trail


class Guarded(Table):
    """With a guard asked as a store asks it: one transaction an ``append_all``."""

    def __init__(self, guard: ContractGuard) -> None:
        super().__init__()
        self.guard = guard

    def append(self, event: AuditEvent, scope: Scope = SCOPE, seq: int | None = None) -> None:
        self.append_all([Record(scope, event)], seq)

    def append_all(self, records: Sequence[Record], seq: int | None = None) -> None:
        before, transaction = len(self.rows), Transaction(self)
        try:
            for record in records:
                at = seq or self.next
                flags = self.guard.admit(record, at, transaction)
                self.rows.append(stored(at, record.scope, record.event))
                self.add(record.scope, *flags)
        except BaseException:
            del self.rows[before:]
            raise
        for row in self.rows[before:]:
            self.guard.appended(row)

    @property
    def flags(self) -> set[tuple[str, int]]:
        found = (row.payload for row in self.rows)
        return {(flag.rule, flag.at) for flag in found if isinstance(flag, AppendFlagged)}


def first_refused(
    lines: Iterable[Line], *, tolerated: AbstractSet[str] = frozenset()
) -> tuple[int, set[str]] | None:
    """How many lines there are up to the first that a guard flags for another rule; and those rules."""
    guarded = Guarded(ContractGuard("flag"))
    for count, (seq, scope, event) in enumerate(lines, start=1):
        flags = guarded.guard.admit(Record(scope, event), seq, Transaction(guarded))
        rules = {flag.rule for flag in flags if isinstance(flag, AppendFlagged)} - tolerated
        if rules:
            return count, rules
        guarded.rows.append(stored(seq, scope, event))
        guarded.guard.appended(guarded.rows[-1])
    return None
