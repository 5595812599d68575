"""Sealed segments: where the live events begin, and the sealed files that are still there."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, read_row
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.events import AuditEvent, SegmentRetired, SegmentSealed
from fallback_audit.exporting.reading import rows_of_file
from fallback_audit.ports import MAINTENANCE
from fallback_audit.segment import SegmentStatement, open_segment
from fallback_audit.verifying.covering import Covering
from fallback_audit.verifying.report import Listed, Problem
from fallback_audit.verifying.walk import Position, Progress, Walk

_OF_MAINTENANCE = f'{{"fix_id":"{MAINTENANCE.fix_id}","gate_transition_id"'.encode()


class Sealed:
    """The segments of one store. ``folder``: where sealed files are kept; None: not looked for."""

    def __init__(
        self,
        statements: Sequence[bytes],
        verifiers: Sequence[Verifier],
        problems: Listed[Problem],
        *,
        folder: Path | None,
    ) -> None:
        self._problems = problems
        self._verifiers = verifiers
        self._folder = folder
        self.segments = self._opened(statements)
        self._absent: list[SegmentStatement] = []
        self._retired: list[SegmentStatement] = []

    @property
    def last_seq(self) -> int:
        """The number of the last sealed event."""
        return self.segments[-1].last_seq if self.segments else 0

    def walk(
        self,
        maintenance: Iterable[AuditEvent],
        covering: Covering | None,
        *,
        tree: bool,
        progress: Progress | None,
    ) -> Position:
        """Through each file that is there, comparing checkpoints on the way; the position behind all."""
        events = list(maintenance)
        if self.segments and not _names(events, SegmentSealed, self.segments[-1]):
            self._problem(self.segments[-1], "no SegmentSealed of the chain names it")
        at = Position(frontier=Frontier() if tree else None)
        for segment in self.segments:
            path = self._folder / segment.file if self._folder is not None else None
            if path is not None and path.is_file():
                self._walk_file(path, segment, at, events, covering, progress)
            else:
                self._absent.append(segment)
            if covering is not None:
                covering.skip(segment.last_seq)
            at = _behind(segment, tree=tree)
            if covering is not None and covering.next_size == segment.last_seq and at.frontier:
                covering.reached(at.frontier, at.tip)
        self._excuse(events)
        return at

    def notes(self) -> Iterator[str]:
        """Which events could not be read, and why."""
        if self._retired:
            first, last = self._retired[-1].first_seq, self._retired[0].last_seq
            yield (
                f"{len(self._retired):,} sealed segments (events {first:,} to {last:,}) were retired: "
                "deleted on record, their retention over. `fallback-tier audit show audit` shows by "
                "whom, and why."
            )
        if self._absent:
            yield f"{len(self._absent):,} sealed segments are not here: nothing in them was read."

    def _excuse(self, events: Sequence[AuditEvent]) -> None:
        """A missing file was retired, on record; the event may have gone with a later one that was."""
        missing, self._absent = self._absent, []
        for segment in reversed(missing):
            if self._retired or _names(events, SegmentRetired, segment):
                self._retired.append(segment)
                continue
            self._absent.append(segment)
            if self._folder is not None:
                path = self._folder / segment.file
                self._problem(segment, f"{path} is missing, and no SegmentRetired says why")

    def _walk_file(
        self,
        path: Path,
        segment: SegmentStatement,
        at: Position,
        events: list[AuditEvent],
        covering: Covering | None,
        progress: Progress | None,
    ) -> None:
        try:
            walk = Walk(
                at,
                self._problems,
                covering=covering,
                verifiers=self._verifiers,
                progress=progress,
            )
            walk.rows(self._noting(rows_of_file(path, sha256=segment.sha256), events))
        except AuditIntegrityError as error:
            self._problem(segment, error.problem)
            return
        root = at.frontier.root().hex() if at.frontier is not None else segment.root
        if (at.seq, at.tip, root) != (segment.last_seq, segment.tip, segment.root):
            self._problem(segment, f"{path} does not end where the statement says")

    def _noting(self, rows: Iterable[StoredRow], events: list[AuditEvent]) -> Iterator[StoredRow]:
        """Pass them on, keeping the record's own events among them."""
        for row in rows:
            if row.header is not None and row.header.startswith(_OF_MAINTENANCE):
                events += maintenance_events((row,), self._verifiers)
            yield row

    def _opened(self, statements: Sequence[bytes]) -> list[SegmentStatement]:
        """In order, each behind the one before it; what can't be trusted is a problem."""
        found: list[SegmentStatement] = []
        behind, leaf = 0, GENESIS
        for number, statement in enumerate(statements, start=1):
            try:
                segment = open_segment(statement, self._verifiers)
                tree = Frontier(segment.last_seq, map(bytes.fromhex, segment.frontier))
            except (AuditIntegrityError, ValueError) as error:
                reason = getattr(error, "problem", str(error))
                self._add(f"sealed segment {number}: {reason}")
                continue
            place = (segment.number, segment.first_seq, segment.previous_leaf)
            if place != (number, behind + 1, leaf) or segment.last_seq < segment.first_seq:
                self._problem(segment, "its statement does not go on where the one before it ended")
            if tree.root().hex() != segment.root:
                self._problem(segment, "its statement's tree does not have the root that it says")
            found.append(segment)
            behind, leaf = segment.last_seq, segment.tip
        return found

    def _problem(self, segment: SegmentStatement, reason: str) -> None:
        place = (
            f"sealed segment {segment.number} (events {segment.first_seq} to {segment.last_seq})"
        )
        self._add(f"{place}: {reason}")

    def _add(self, reason: str) -> None:
        self._problems.add(Problem(seq=None, fix_id=None, reason=reason))


def _names(
    events: Iterable[AuditEvent],
    kind: type[SegmentSealed] | type[SegmentRetired],
    segment: SegmentStatement,
) -> bool:
    return any(isinstance(event, kind) and event.sha256 == segment.sha256 for event in events)


def _behind(segment: SegmentStatement, *, tree: bool) -> Position:
    frontier = Frontier(segment.last_seq, map(bytes.fromhex, segment.frontier)) if tree else None
    return Position(segment.last_seq, segment.tip, frontier)


def maintenance_events(
    rows: Iterable[StoredRow], verifiers: Sequence[Verifier]
) -> Iterator[AuditEvent]:
    """The record's own events among these rows; what can't be read is passed over: others report it."""
    for row in rows:
        try:
            stored = read_row(row, verifiers)
        except AuditIntegrityError:
            continue
        if stored.scope == MAINTENANCE:
            yield stored.payload
