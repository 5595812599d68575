"""Check of the trace contract and the evidence, with one gate transition in memory at a time."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from operator import contains
from typing import Any

from pydantic import ValidationError

from fallback_audit.chain import (
    TOMBSTONE_START,
    StoredRow,
    broken_bytes,
    read_row,
    unreadable,
)
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.contract.rule import Rule
from fallback_audit.contract.table import RULES, Violation, link_violations, violations
from fallback_audit.contract.trail import AnyEntry, Entry, FixLinks, Trail, link_of
from fallback_audit.errors import (
    AuditIntegrityError,
    EvidenceError,
    TrailFault,
    UnreadEvidenceError,
)
from fallback_audit.event_types import StartedOn
from fallback_audit.events import (
    KINDS,
    AppendFlagged,
    AuditEvent,
    PayloadRedacted,
    RetrievalQueried,
    event_adapter,
)
from fallback_audit.evidence.account import read_account
from fallback_audit.evidence.checking import (
    Finding,
    collected_in,
    examine,
    kept_digests,
    private_digests,
)
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.verifying.report import (
    Flag,
    Listed,
    OpenFix,
    Problem,
    VerificationReport,
    first_bad,
)
from fallback_audit.verifying.walk import Interruptions, fix_id_of

# The adapter's core takes half the time of its wrapper, and this is called once per event.
parse_event = event_adapter.validator.validate_json

_BEHIND_SCOPE = b',"kind":"'

# The member by which a header names its event's kind.
_NAMED: dict[type[AuditEvent], bytes] = {
    kind: b',"kind":"%b",' % kind.__name__.encode() for kind in KINDS
}

# ``Entry._make`` without its Python frame, as for ``StoredRow`` in the store.
_as_entry: Callable[[tuple[int, AuditEvent]], AnyEntry] = partial(tuple.__new__, Entry)


class EvidenceCheck:
    """Check of the evidence that events rely on. ``maintenance``: the events of maintenance.

    Not ``complete``: an export, which leaves private evidence out; then missing evidence is only counted.
    """

    def __init__(
        self,
        evidence: FileEvidenceStore,
        maintenance: Iterable[AuditEvent],
        *,
        complete: bool = True,
    ) -> None:
        self.problems = Listed[Problem]()
        self.checked = self.removed = self.locked = self.absent = 0
        self.elsewhere = Counter[str]()
        self._complete = complete
        self._evidence = evidence
        self._maintenance = tuple(maintenance)
        self._collected: frozenset[bytes] | None = None

    def trail(self, trail: Trail) -> None:
        """Check the evidence that the events of one gate transition name, each piece once."""
        first_named = {
            (digest, getattr(event, "example_ids", ())): (seq, event)
            for seq, event in reversed(trail.everything)
            for digest in kept_digests(event)
        }
        for (digest, _), (seq, event) in first_named.items():
            if not self._complete and self._evidence.find(digest) is None:
                self.absent += 1
                continue
            self.checked += 1
            fault = self._fault(digest, event, _started_on(trail, seq))
            if fault is not None:
                next_step = "Restore it from a copy of the evidence, and find out who removed it."
                fix_id = trail.scope.fix_id
                self.problems.add(
                    Problem.reporting(fault, seq=seq, fix_id=fix_id, next_step=next_step)
                )

    def _fault(
        self, digest: str, event: AuditEvent, started_on: StartedOn | None
    ) -> TrailFault | None:
        try:
            if isinstance(event, RetrievalQueried):
                read_account(event, self._evidence)
            else:
                self._evidence.get(digest)
        except UnreadEvidenceError:
            raise  # no verdict: a failing disk does not mean that the evidence was damaged
        except EvidenceError as error:
            if self._collected is None:  # read when first needed: usually nothing is missing
                self._collected = collected_in(self._maintenance, self._evidence)
            is_private = digest in private_digests(event)
            finding = examine(
                self._evidence, digest, self._collected, started_on, is_private=is_private
            )
            if finding is not None and finding[0] is not Finding.BAD:
                self.removed += finding[0] is Finding.REMOVED
                self.locked += finding[0] is Finding.LOCKED
                if finding[0] is Finding.ELSEWHERE:
                    self.elsewhere[finding[1]] += 1
                return None
            return TrailFault.of(error)
        return None


def _started_on(trail: Trail, seq: int) -> StartedOn | None:
    """Return the event with which the process began that recorded event ``seq``."""
    before = (event for at, event in reversed(trail.everything) if at <= seq)
    return next((event for event in before if isinstance(event, StartedOn)), None)


@dataclass(eq=False)
class Trails:
    """The running state. ``base``: number of the last sealed event."""

    problems: Listed[Problem]
    _: KW_ONLY
    base: int
    verifiers: Sequence[Verifier] = ()
    evidence: EvidenceCheck | None = None
    interruptions: Interruptions = field(default_factory=lambda: Interruptions(()))
    contract: Listed[Violation] = field(default_factory=Listed[Violation], init=False)
    flags: Listed[Flag] = field(default_factory=Listed[Flag], init=False)
    open: Listed[OpenFix] = field(default_factory=Listed[OpenFix], init=False)
    #: All open fixes, for the state of the next run; the report lists some.
    open_fixes: list[OpenFix] = field(default_factory=list, init=False)
    transitions: int = field(default=0, init=False)
    redacted: int = field(default=0, init=False)
    seen: int = field(default=0, init=False)

    def judge(self, rows: Iterable[StoredRow]) -> None:
        """Judge rows that are grouped by gate transition. One with an unreadable event is only reported."""
        fix = FixLinks("")
        for scope_bytes, group in groupby(rows, key=_scope_bytes):
            members = list(group)
            self.seen += len(members)
            entries = self._entries(members)
            scope = _scope(scope_bytes)
            if scope is not None and scope.fix_id != fix.fix_id:
                self._links(fix)
                fix = FixLinks(scope.fix_id)
            if scope is not None and len(entries) == len(members):
                trail = Trail(scope, entries, base=self.base)
                self._trail(trail, members)
                fix.links.append(link_of(trail))
                fix.whole = fix.whole and not trail.is_cut
            else:
                fix.whole = False
        self._links(fix)

    def report(self, checkpoints: Listed[Problem], **more: Any) -> VerificationReport:
        """Return the report of these findings and of ``checkpoints``; ``more``: all other fields."""
        evidence = self.evidence
        evidence_problems = Listed[Problem]() if evidence is None else evidence.problems
        return VerificationReport(
            gate_transitions=self.transitions,
            redacted_events=self.redacted,
            first_bad=first_bad(self.problems, checkpoints, evidence_problems, self.contract),
            integrity_problems=tuple(self.problems.items),
            integrity_problem_count=self.problems.count,
            checkpoint_problems=tuple(checkpoints.items),
            checkpoint_problem_count=checkpoints.count,
            contract_violations=tuple(self.contract.items),
            contract_violation_count=self.contract.count,
            evidence_problems=tuple(evidence_problems.items),
            evidence_problem_count=evidence_problems.count,
            evidence_checked=None if evidence is None else evidence.checked,
            evidence_removed=0 if evidence is None else evidence.removed,
            flags=tuple(self.flags.items),
            flag_count=self.flags.count,
            open_fixes=tuple(self.open.items),
            open_fix_count=self.open.count,
            **more,
        )

    def _links(self, fix: FixLinks) -> None:
        for violation in link_violations(fix.fix_id, fix.links) if fix.whole else ():
            self.contract.add(violation)

    def _entries(self, rows: Sequence[StoredRow]) -> list[AnyEntry]:
        """Return the readable events. On an error read them one by one, to report which is wrong."""
        seqs, headers, _, payloads = zip(*rows, strict=True)
        try:
            events = [parse_event(payload) for payload in payloads]
            if all(map(contains, headers, [_NAMED[type(event)] for event in events])):
                return list(map(_as_entry, zip(seqs, events, strict=True)))
        except (ValidationError, TypeError):  # TypeError: no header
            pass
        return [entry for entry in map(self._entry, rows) if entry is not None]

    def _entry(self, row: StoredRow) -> AnyEntry | None:
        seq, header, _, payload = row
        try:
            event = parse_event(payload or b"")
        except ValidationError:
            if payload is not None and payload.startswith(TOMBSTONE_START):
                return self._redacted(row)
            fault = unreadable(header or b"")
        else:
            if _NAMED[type(event)] in (header or b""):
                return Entry(seq, event)
            fault = TrailFault(
                "event_misplaced", "header and payload name different kinds of event"
            )
        if broken_bytes(row) is None:  # otherwise the walk has reported it
            self.problems.add(Problem.reporting(fault, seq=seq, fix_id=fix_id_of(row)))
        return None

    def _redacted(self, row: StoredRow) -> AnyEntry | None:
        """Return what a tombstone left of the event, or None if the tombstone can't be trusted."""
        try:
            event = read_row(row, self.verifiers).payload
        except AuditIntegrityError as error:
            if broken_bytes(row, self.verifiers) is None:
                fix_id = fix_id_of(row)
                self.problems.add(
                    Problem.reporting(TrailFault.of(error), seq=row.seq, fix_id=fix_id)
                )
            return None
        return Entry(row.seq, event)

    def _trail(self, trail: Trail, rows: Sequence[StoredRow]) -> None:
        for violation in violations(trail, rules_for(trail)):
            self.contract.add(violation)
        if trail.of_a_fix:
            self.transitions += 1
            if trail.is_open and trail.entries:
                self._is_open(trail)
        self.interruptions.trail(trail)
        self._redactions(trail, rows)
        for _, event in trail.notes:
            if isinstance(event, AppendFlagged):
                flag = Flag(seq=event.at, fix_id=trail.scope.fix_id, rule=event.rule)
                self.flags.add(flag)
        if self.evidence is not None:
            self.evidence.trail(trail)

    def _is_open(self, trail: Trail) -> None:
        last = trail.entries[-1]
        open_fix = OpenFix(
            fix_id=trail.scope.fix_id,
            gate_transition_id=trail.scope.gate_transition_id,
            last_seq=last.seq,
            last_kind=last.event.kind,
        )
        self.open.add(open_fix)
        self.open_fixes.append(open_fix)

    def _redactions(self, trail: Trail, rows: Sequence[StoredRow]) -> None:
        """Report tombstones that no event names, and named events that have no tombstone."""
        tombstones_by_seq = {
            event.seq: event.tombstone_sha256
            for _, event in trail.notes
            if isinstance(event, PayloadRedacted)
        }
        for seq, _, _, payload in rows:
            is_stone = payload is not None and payload.startswith(TOMBSTONE_START)
            self.redacted += is_stone
            if not is_stone and seq not in tombstones_by_seq:
                continue
            digest = hashlib.sha256(payload or b"").hexdigest()
            if is_stone and tombstones_by_seq.get(seq) != digest:
                fault = TrailFault(
                    "tombstone_not_named",
                    "it was redacted, and no PayloadRedacted names this tombstone",
                )
            elif not is_stone:
                fault = TrailFault(
                    "not_redacted", "a PayloadRedacted names it, but its words still stand there"
                )
            else:
                continue
            self.problems.add(Problem.reporting(fault, seq=seq, fix_id=trail.scope.fix_id))


def rules_for(trail: Trail) -> tuple[Rule, ...]:
    """Return the rules that events of these kinds can break: e.g. none on judges for a fix by recipe."""
    return _rules_that_see(frozenset([type(entry.event) for entry in trail.everything]))


@lru_cache(maxsize=1_000)
def _rules_that_see(kinds: frozenset[type]) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if rule.sees is None or not rule.sees.isdisjoint(kinds))


def _scope_bytes(row: StoredRow) -> bytes:
    """Return the header up to its kind: in canonical order exactly the scope, so nothing is parsed."""
    return (row[1] or b"").partition(_BEHIND_SCOPE)[0]


def _scope(scope_bytes: bytes) -> Scope | None:
    try:
        return Scope.model_validate_json(scope_bytes + b"}")
    except ValidationError:
        return None
