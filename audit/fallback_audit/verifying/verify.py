"""``verify``: is the record intact, and does every recorded verdict have its action?

1. Integrity, in chain order: each stored header and payload is hashed as it stands, and linked.
2. Contract, gate transition by gate transition, then between those of a fix: ``contract.table``.
3. Evidence, where a store is given: what the events rely on is there, and unaltered.

Everything streams: one row, then one gate transition, is in memory at a time, and the report lists
at most MAX_LISTED findings of a sort (and counts all).
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from pydantic import ValidationError, computed_field

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, broken_bytes, broken_link, unreadable
from fallback_audit.contract.links import FixLinks, link_of
from fallback_audit.contract.table import Violation, link_violations, violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.errors import AuditIntegrityError, EvidenceError
from fallback_audit.events import AuditEvent, Digest, RetrievalQueried, event_adapter
from fallback_audit.evidence.account import read_account
from fallback_audit.evidence.kept import kept_digests
from fallback_audit.frozen import Frozen
from fallback_audit.ports import EvidenceStore, Scope

#: Findings of a sort that a report lists. More help nobody, and memory stays flat.
MAX_LISTED = 100

#: What verification can't promise yet, in words for the reader of every report.
NO_CHECKPOINTS = (
    "There are no checkpoints yet: events removed from the end, and a chain rewritten as a whole, "
    "are not detectable. Note the tip outside this machine and compare it next time."
)


class Snapshot(Protocol):
    """The stored bytes at one moment."""

    def schema_problems(self) -> list[str]:
        """Tables, index and append-only safeguards that are not as they were made."""
        ...

    def rows(self) -> Iterator[StoredRow]:
        """Every row in chain order, then payloads without a header."""
        ...

    def rows_by_trail(self) -> Iterator[StoredRow]:
        """Complete rows, gate transition by gate transition."""
        ...


class VerifiableStore(Protocol):
    """A store that can show its bytes."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Raises AuditIntegrityError where the store itself is damaged, else AuditStoreError."""
        ...


class Problem(Frozen):
    """Something stored is not what was written. ``seq`` None: the store as a whole."""

    seq: int | None
    fix_id: str | None
    reason: str


class OpenFix(Frozen):
    """A gate transition without a terminal event: running, or interrupted."""

    fix_id: str
    gate_transition_id: str
    last_seq: int
    last_kind: str


class VerificationReport(Frozen):
    """What ``verify`` found. ``tip`` is the last leaf: it stands for everything before it."""

    events: int
    gate_transitions: int
    tip: Digest
    first_bad: Problem | None
    integrity_problems: tuple[Problem, ...]
    integrity_problem_count: int
    contract_violations: tuple[Violation, ...]
    contract_violation_count: int
    evidence_problems: tuple[Problem, ...]
    evidence_problem_count: int
    evidence_checked: int | None
    open_fixes: tuple[OpenFix, ...]
    open_fix_count: int
    uncovered_events: int
    note: str = NO_CHECKPOINTS

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Nothing bad was found. An open fix is not bad."""
        return not (
            self.integrity_problem_count
            or self.contract_violation_count
            or self.evidence_problem_count
        )


def verify(store: VerifiableStore, *, evidence: EvidenceStore | None = None) -> VerificationReport:
    """Check the whole store. Raises AuditStoreError only where it can't be read at all."""
    check = _Check(evidence)
    try:
        with store.snapshot() as snapshot:
            for problem in snapshot.schema_problems():
                check.integrity.add(Problem(seq=None, fix_id=None, reason=problem))
            check.chain(snapshot.rows())
            check.trails(snapshot.rows_by_trail())
    except AuditIntegrityError as error:
        check.integrity.add(Problem(seq=None, fix_id=None, reason=error.problem))
    return check.report()


# The adapter's own core: half the time of its wrapper, and this is called once an event.
parse_event = event_adapter.validator.validate_json

ItemT = TypeVar("ItemT")


class _Listed(Generic[ItemT]):
    """Counts everything, keeps the first MAX_LISTED."""

    def __init__(self) -> None:
        self.items: list[ItemT] = []
        self.count = 0

    def add(self, item: ItemT) -> None:
        self.count += 1
        if self.count <= MAX_LISTED:
            self.items.append(item)


class _Check:
    """The running state of one verification."""

    def __init__(self, evidence: EvidenceStore | None) -> None:
        self.integrity = _Listed[Problem]()
        self._contract = _Listed[Violation]()
        self._evidence_problems = _Listed[Problem]()
        self._open = _Listed[OpenFix]()
        self._evidence = evidence
        self._evidence_checked = 0
        self._events = 0
        self._complete = 0
        self._transitions = 0
        self._tip = GENESIS

    def chain(self, rows: Iterator[StoredRow]) -> None:
        """Step 1. After a bad link the next one is judged by what the bad one claims."""
        expected = 1
        for row in rows:
            reason = broken_link(row, seq=expected, previous_leaf=self._tip)
            if reason is not None:
                self.integrity.add(Problem(seq=row.seq, fix_id=_fix_id(row), reason=reason))
            if row.header is not None and row.leaf is not None:
                self._events += 1
                self._complete += row.payload is not None
                self._tip = row.leaf
                expected = row.seq + 1

    def trails(self, rows: Iterator[StoredRow]) -> None:
        """Steps 2 and 3. A transition with an unreadable event is not judged: it is reported."""
        seen = 0
        fix = FixLinks("")
        for scope_bytes, group in groupby(rows, key=_scope_bytes):
            members = list(group)
            seen += len(members)
            self._transitions += 1
            entries = [entry for entry in map(self._entry, members) if entry is not None]
            scope = _scope(scope_bytes)
            if scope is not None and scope.fix_id != fix.fix_id:
                self._links(fix)
                fix = FixLinks(scope.fix_id)
            if scope is not None and len(entries) == len(members):
                trail = Trail(scope, entries)
                self._trail(trail)
                fix.links.append(link_of(trail))
            else:
                fix.whole = False
        self._links(fix)
        if seen != self._complete:
            reason = f"the index of trails lists {seen} events of {self._complete}"
            self.integrity.add(Problem(seq=None, fix_id=None, reason=reason))

    def _links(self, fix: FixLinks) -> None:
        for violation in link_violations(fix.fix_id, fix.links) if fix.whole else ():
            self._contract.add(violation)

    def _entry(self, row: StoredRow) -> Entry[AuditEvent] | None:
        header, payload = row.header or b"", row.payload or b""
        try:
            event = parse_event(payload)
        except ValidationError:
            reason = unreadable(header)
        else:
            if b',"kind":"%b",' % event.kind.encode() in header:
                return Entry(row.seq, event)
            reason = "header and payload name different kinds of event"
        if broken_bytes(row) is None:  # else step 1 has said so
            self.integrity.add(Problem(seq=row.seq, fix_id=_fix_id(row), reason=reason))
        return None

    def _trail(self, trail: Trail) -> None:
        for violation in violations(trail):
            self._contract.add(violation)
        if trail.terminal is None:
            last = trail.entries[-1]
            self._open.add(
                OpenFix(
                    fix_id=trail.scope.fix_id,
                    gate_transition_id=trail.scope.gate_transition_id,
                    last_seq=last.seq,
                    last_kind=last.event.kind,
                )
            )
        if self._evidence is not None:
            self._check_evidence(self._evidence, trail)

    def _check_evidence(self, evidence: EvidenceStore, trail: Trail) -> None:
        first_named = {
            (digest, getattr(event, "example_ids", ())): (seq, event)
            for seq, event in reversed(trail.entries)
            for digest in kept_digests(event)
        }
        for (digest, _), (seq, event) in first_named.items():
            self._evidence_checked += 1
            try:
                if isinstance(event, RetrievalQueried):
                    read_account(event, evidence)
                else:
                    evidence.get(digest)
            except EvidenceError as error:
                self._evidence_problems.add(
                    Problem(seq=seq, fix_id=trail.scope.fix_id, reason=error.problem)
                )

    def report(self) -> VerificationReport:
        """Everything found."""
        return VerificationReport(
            events=self._events,
            gate_transitions=self._transitions,
            tip=self._tip,
            first_bad=self._first_bad(),
            integrity_problems=tuple(self.integrity.items),
            integrity_problem_count=self.integrity.count,
            contract_violations=tuple(self._contract.items),
            contract_violation_count=self._contract.count,
            evidence_problems=tuple(self._evidence_problems.items),
            evidence_problem_count=self._evidence_problems.count,
            evidence_checked=None if self._evidence is None else self._evidence_checked,
            open_fixes=tuple(self._open.items),
            open_fix_count=self._open.count,
            uncovered_events=self._events,
        )

    def _first_bad(self) -> Problem | None:
        """The earliest bad event: of integrity, if that is broken, since all else rests on it."""
        broken_rules = (
            Problem(seq=v.seq, fix_id=v.fix_id, reason=f"{v.rule}: {v.detail}")
            for v in self._contract.items
        )
        found = self.integrity.items or [*self._evidence_problems.items, *broken_rules]
        return min(found, key=lambda problem: problem.seq or 0, default=None)


def _scope_bytes(row: StoredRow) -> bytes:
    """The header up to its kind: in canonical order exactly the scope, so nothing is parsed."""
    return (row.header or b"").partition(b',"kind":"')[0]


def _scope(scope_bytes: bytes) -> Scope | None:
    try:
        return Scope.model_validate_json(scope_bytes + b"}")
    except ValidationError:
        return None


def _fix_id(row: StoredRow) -> str | None:
    """Whose event it is, as far as an altered header still says."""
    try:
        fix_id = json.loads(row.header or b"")["fix_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return fix_id if isinstance(fix_id, str) else None
