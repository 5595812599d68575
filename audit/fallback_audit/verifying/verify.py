"""``verify``: is the audit trail intact, is it the one that was signed, does every verdict have its action?

1. Chain and checkpoints, in one pass (``walk``): each stored header and payload is hashed as stored, and
   must be linked; at the size of each checkpoint the Merkle tree must have the signed root.
2. Contract, gate transition by gate transition, then between those of a fix (``trails``).
3. Evidence, if a store is given: what the events rely on exists, unaltered, or its removal is recorded.

Everything streams: a block of rows, then one gate transition, is in memory at a time. The report lists at
most MAX_LISTED findings of each kind, and counts all.
"""

from collections.abc import Iterator
from pathlib import Path

from fallback_audit.canonical import leaf_digest
from fallback_audit.chain import StoredRow
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, TrailFault
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import MAINTENANCE
from fallback_audit.verifying.report import (
    END_UNKNOWN,
    NOT_ASKED,
    Listed,
    Problem,
    UncoveredFix,
    VerificationReport,
    VerifiedState,
    believed,
    uncovered_fixes,
)
from fallback_audit.verifying.sources import CheckpointSource, Snapshot, VerifiableStore
from fallback_audit.verifying.trails import EvidenceCheck, Trails
from fallback_audit.verifying.walk import (
    Covering,
    Interruptions,
    Position,
    Progress,
    Sealed,
    Walk,
    fix_id_of,
    maintenance_events,
)

_MAINTENANCE = frozenset({MAINTENANCE.fix_id})


def verify(
    store: VerifiableStore,
    *,
    checkpoints: CheckpointSource | None,
    evidence: FileEvidenceStore | None = None,
    complete_evidence: bool = True,
    since: VerifiedState | None = None,
    sealed: Path | None = None,
    contract: bool = True,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check the store. Raises AuditStoreError only if it can't be read at all.

    ``checkpoints`` None: they are not checked, and the report says so. ``since``: the state of an earlier
    run; see ``verifying.report`` for what is not noticed then. ``sealed``: the folder of sealed segments;
    those in it are verified too. ``complete_evidence`` False: the evidence of an export, which leaves
    private evidence out. ``contract`` False: step 1 only.
    """
    check = _Check(checkpoints, since, sealed, progress)
    try:
        check.begin()
        with store.snapshot() as snapshot:
            faults = [TrailFault("schema", reason) for reason in snapshot.schema_problems()]
            if since is None:
                faults += [TrailFault("index", reason) for reason in snapshot.index_problems()]
            for fault in faults:
                check.integrity.add(Problem.reporting(fault))
            check.chain(snapshot)
            if contract:
                check.trails(snapshot, evidence, complete=complete_evidence)
            check.tail(snapshot)
    except AuditIntegrityError as error:
        check.integrity.add(Problem.reporting(TrailFault.of(error)))
    return check.report()


class _Check:
    """The running state of one verification."""

    def __init__(
        self,
        source: CheckpointSource | None,
        since: VerifiedState | None,
        sealed: Path | None,
        progress: Progress | None,
    ) -> None:
        self.integrity = Listed[Problem]()
        self._checkpoints = Listed[Problem]()
        self._source = source
        self._since = since
        self._folder = sealed
        self._progress = progress
        self._verifiers: tuple[Verifier, ...] = tuple(source.verifiers()) if source else ()
        self._covering: Covering | None = None
        self._resumed_tree = Frontier()
        self._at = Position(frontier=None)
        self._sealed: Sealed | None = None
        self._trails = Trails(self.integrity, base=0)
        self._evidence: EvidenceCheck | None = None
        self._judged = False
        self._uncovered: tuple[UncoveredFix, ...] = ()
        self._new_fixes: set[str] = set()

    def begin(self) -> None:
        """Note the latest checkpoint before the store is read: later ones cover events appended later.

        Raises AuditIntegrityError if the state of an earlier run is forged.
        """
        after = 0
        if self._since is not None:
            self._resumed_tree = believed(self._since, self._verifiers)
            after = self._since.size
        if self._source is not None:
            self._covering = Covering(self._source, self._checkpoints, after=after)

    def chain(self, snapshot: Snapshot) -> None:
        """Run step 1 from the beginning, from the last sealed event, or from the last verified event."""
        tree = self._covering is not None
        maintenance = tuple(
            maintenance_events(snapshot.rows_by_trail(_MAINTENANCE), self._verifiers)
        )
        self._sealed = Sealed(
            snapshot.segments(), self._verifiers, self.integrity, folder=self._folder
        )
        if self._since is not None and self._since.size >= self._sealed.last_seq:
            self._at = self._resumed(snapshot, self._since)
        else:
            self._at = self._sealed.walk(
                maintenance, self._covering, tree=tree, progress=self._progress
            )
        self._nothing_before(snapshot, self._sealed.last_seq)
        walk = Walk(
            self._at,
            self.integrity,
            covering=self._covering,
            verifiers=self._verifiers,
            tombstones=snapshot.tombstones(),
            progress=self._progress,
        )
        rows = snapshot.rows(after=self._at.seq)
        walk.rows(rows if self._since is None else self._noting(rows))
        self._complete = walk.complete
        if self._covering is not None:
            self._covering.ended(self._at.seq)

    def trails(
        self, snapshot: Snapshot, evidence: FileEvidenceStore | None, *, complete: bool
    ) -> None:
        """Run steps 2 and 3; in an incremental run, for the fixes that have new events."""
        if evidence is not None:
            maintenance = maintenance_events(snapshot.rows_by_trail(_MAINTENANCE), self._verifiers)
            self._evidence = EvidenceCheck(evidence, maintenance, complete=complete)
        self._trails = Trails(
            self.integrity,
            base=self._sealed.last_seq if self._sealed else 0,
            verifiers=self._verifiers,
            evidence=self._evidence,
            interruptions=Interruptions(self._covering.found if self._covering else ()),
        )
        self._judged = True
        if self._since is not None:
            self._trails.judge(snapshot.rows_by_trail(frozenset(self._new_fixes)))
            self._carry_open(self._since)
            return
        self._trails.judge(snapshot.rows_by_trail())
        if self._trails.seen != self._complete:
            reason = f"the index of trails lists {self._trails.seen} events of {self._complete}"
            self.integrity.add(Problem.reporting(TrailFault("index", reason)))

    def tail(self, snapshot: Snapshot) -> None:
        """Note the fixes with events that no checkpoint covers yet."""
        if self._covering is not None and self._covering.covered_to < self._at.seq:
            rows = snapshot.rows(after=self._covering.covered_to)
            self._uncovered = uncovered_fixes(rows)

    def report(self) -> VerificationReport:
        """Return the report."""
        covering, frontier = self._covering, self._at.frontier
        report = self._trails.report(
            self._checkpoints,
            events=self._at.seq,
            tip=self._at.tip,
            root=frontier.root().hex() if frontier is not None else None,
            since=self._since.size if self._since is not None else 0,
            sealed_events=self._sealed.last_seq if self._sealed else 0,
            checkpoints_checked=covering.checked if covering else 0,
            covered_to=covering.covered_to if covering else None,
            end_known=self._source.end_known() if self._source else None,
            uncovered_events=self._at.seq - (covering.covered_to if covering else 0),
            uncovered_fixes=self._uncovered,
            contract_judged=self._judged,
            notes=tuple(self._notes()),
        )
        return report.model_copy(update={"state": self._state() if report.ok else None})

    def _state(self) -> VerifiedState | None:
        proved = self._covering.proved if self._covering is not None and self._judged else None
        if proved is None:
            return self._since
        return proved.model_copy(update={"open_fixes": tuple(self._trails.open_fixes)})

    def _notes(self) -> Iterator[str]:
        if self._source is None:
            yield NOT_ASKED
        elif not self._source.end_known():
            yield END_UNKNOWN
        if self._source is not None and (ahead := self._source.ahead()) is not None:
            yield (
                f"This is an older copy: these keys signed a checkpoint of {ahead.size:,} events of the "
                "same audit trail. This copy can't be continued."
            )
        if self._covering is not None:
            yield from self._covering.notes(self._trails.interruptions)
        if self._since is not None:
            yield (
                f"Incremental: events to {self._since.size:,} were verified earlier, and were not read "
                "again, unless their fix has newer ones."
            )
        if self._sealed is not None:
            yield from self._sealed.notes()
        if self._evidence is not None and self._evidence.locked:
            yield (
                f"Evidence that an earlier release encrypted, and that was not checked: "
                f"{self._evidence.locked:,}."
            )
        for machine, count in sorted(self._evidence.elsewhere.items()) if self._evidence else ():
            yield (
                f"Evidence on another machine, {machine}: {count:,}. It was not checked: run "
                "`fallback-tier audit verify` there."
            )
        if self._evidence is not None and self._evidence.absent:
            yield f"Evidence that events name, and that is not in this export: {self._evidence.absent:,}."

    def _resumed(self, snapshot: Snapshot, since: VerifiedState) -> Position:
        """Return the position at which an earlier run ended. Its last event must still be there."""
        base = self._sealed.segments[-1] if self._sealed and self._sealed.segments else None
        row = next(snapshot.rows(after=since.size - 1), None)
        is_stored = row is not None and row.seq == since.size and row.header is not None
        leaf = leaf_digest(row.header) if is_stored and row and row.header else None
        if leaf != since.tip and not (
            base is not None and (base.last_seq, base.tip) == (since.size, since.tip)
        ):
            reason = "it is not the event that was verified before (rolled back, or rewritten)"
            self.integrity.add(
                Problem.reporting(TrailFault("not_as_verified", reason), seq=since.size)
            )
        return Position(since.size, since.tip, self._resumed_tree)

    def _nothing_before(self, snapshot: Snapshot, sealed: int) -> None:
        row = next(snapshot.rows(), None) if sealed else None
        if row is not None and row.seq <= sealed:
            fault = TrailFault("sealed_and_stored", "it was sealed, and still stands in the store")
            self.integrity.add(Problem.reporting(fault, seq=row.seq, fix_id=fix_id_of(row)))

    def _noting(self, rows: Iterator[StoredRow]) -> Iterator[StoredRow]:
        """Yield the rows, noting the ids of their fixes, which are all that stays in memory."""
        for row in rows:
            fix_id = fix_id_of(row)
            if fix_id is not None:
                self._new_fixes.add(fix_id)
            yield row

    def _carry_open(self, since: VerifiedState) -> None:
        for fix in since.open_fixes:
            if fix.fix_id not in self._new_fixes:
                self._trails.open.add(fix)
                self._trails.open_fixes.append(fix)
