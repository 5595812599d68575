"""Sealing: the oldest events move, as they stand, to a file that proves itself; and its retirement.

The file is written, read back and compared first. Then, as one step of the store, the event
``SegmentSealed`` is appended, the signed statement kept, and the rows dropped. A run that dies before
that leaves at most a file that the next one removes. Nothing is ever edited (ADR-0036).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.statement import SEGMENT_DOMAIN, sign_statement
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    CheckpointError,
    RequestError,
)
from fallback_audit.events import SegmentRetired, SegmentSealed
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, KeepableStore, Record, Segment
from fallback_audit.retention.choosing import Choice, choose
from fallback_audit.retention.ended import ended_fixes
from fallback_audit.retention.history import file_digest, retired_in, sealed_events
from fallback_audit.retention.segment_file import (
    Content,
    Start,
    WrittenSegment,
    delete_segment,
    file_name,
    write_segment,
)
from fallback_audit.segment import SegmentStatement, open_segment
from fallback_audit.stores.appending import Clock, timestamp
from fallback_audit.verifying.verify import Snapshot
from fallback_audit.verifying.walk import Progress


class SealableStore(KeepableStore, Protocol):
    """A store whose rows can be read as they stand."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Raises AuditStoreError."""
        ...


class Sealed(Frozen):
    """What was sealed. ``by_event``: the SegmentSealed that tells of it."""

    number: int
    first_seq: int
    last_seq: int
    file: str
    sha256: str
    by_event: int
    choice: Choice


class Retired(Frozen):
    """What was deleted; ``finished``: an earlier run had it on record."""

    number: int
    first_seq: int
    last_seq: int
    file: str
    by_event: int
    finished: bool


@dataclass(frozen=True)
class Sealer:
    """Seals and retires segments of one store, whose files are in ``folder``."""

    store: SealableStore
    folder: Path
    keyring: Keyring
    _: KW_ONLY
    clock: Clock
    progress: Progress | None = None

    def choose(self, before: datetime) -> Choice:
        """What ``seal`` would do. Raises RequestError for a time of today, or to come."""
        midnight = self.clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if before > midnight:
            raise RequestError(
                f"Events since {timestamp(midnight)} are not sealed: a day's budget is counted by them.",
                next_step="Name this day (UTC), or an earlier time.",
                kind="too_recent",
            )
        base = Start.behind(self._last()).seq
        return choose(self.store, ended_fixes(self.store), base=base, before=before)

    def seal(
        self, before: datetime, covered: SignedCheckpoint | None, *, by: str, reason: str
    ) -> Sealed | None:
        """Seal what is older than ``before``. None: nothing can be (``choose`` says what holds it back).

        ``covered``: the latest checkpoint; it must cover what is sealed. Raises AuditStoreError,
        AuditIntegrityError, CheckpointError, KeyringError.
        """
        if self.store.segments():
            self.store.scrub()  # what a run that died, or met a reader, left in the store's files
            self._restate()
        choice = self.choose(before)
        if choice.last_seq == choice.base:
            return None
        if covered is None or covered.checkpoint.size < choice.last_seq:
            raise CheckpointError(
                f"Events up to {choice.last_seq} are to be sealed, but no checkpoint covers them.",
                next_step="Run `fallback-tier audit checkpoint` first.",
                kind="not_covered",
            )
        sealed = self._seal(choice, covered, by=by, reason=reason)
        self._restate()
        return sealed

    def retire(self, number: int, *, by: str, reason: str) -> Retired:
        """Delete the file of a sealed segment, on record first. The oldest goes first.

        Raises RequestError: no such segment, another one first, already retired;
        AuditIntegrityError: the file is missing or altered, which a retirement would hide.
        """
        self._restate()
        statements = self._statements()
        retired = retired_in(self.store.events(kinds=frozenset({"SegmentRetired"})))
        segment = next((one for one in statements if one.number == number), None)
        if segment is None:
            raise RequestError(
                f"There is no sealed segment {number}.",
                next_step=f"There are {len(statements)}, numbered from 1.",
                kind="no_such_segment",
            )
        first = next((one for one in statements if one.sha256 not in retired), None)
        if first is not None and first.number < number:
            raise RequestError(
                f"Segment {number} is younger than segment {first.number}, which is not retired.",
                next_step=f"Retire segment {first.number} first.",
                kind="older_first",
            )
        path = self.folder / segment.file
        reported = retired.get(segment.sha256)
        if reported is not None and not path.exists():
            raise RequestError(
                f"Segment {number} was retired: event {reported} says by whom.",
                next_step="There is nothing left to do.",
                kind="retired_before",
            )
        if reported is None:
            _check_file(path, segment)
            event = SegmentRetired(
                first_seq=segment.first_seq,
                last_seq=segment.last_seq,
                sha256=segment.sha256,
                by=by,
                reason=reason,
            )
            by_event = self.store.append(MAINTENANCE, event).seq
        else:
            by_event = reported
        delete_segment(path)
        return Retired(
            number=number,
            first_seq=segment.first_seq,
            last_seq=segment.last_seq,
            file=segment.file,
            by_event=by_event,
            finished=reported is not None,
        )

    def _seal(self, choice: Choice, covered: SignedCheckpoint, *, by: str, reason: str) -> Sealed:
        start = Start.behind(self._last())
        number, first = len(self.store.segments()) + 1, start.seq + 1
        for left in self._leftovers(number):
            delete_segment(left)
        seen = self.store.tip()[0]
        path = self.folder / file_name(number, first, choice.last_seq)
        written = self._write(path, start, choice.last_seq, covered)
        try:
            self._check_unchanged(seen, choice)
        except AuditStoreError:
            delete_segment(path)
            raise
        statement = self._signed(number, first, start.tip, written, by=by, reason=reason)
        event = SegmentSealed(
            first_seq=first,
            last_seq=choice.last_seq,
            sha256=written.sha256,
            by=by,
            reason=reason,
        )
        segment = Segment(number, first, choice.last_seq, statement)
        reported = self.store.add_segment(segment, Record(MAINTENANCE, event))
        return Sealed(
            number=number,
            first_seq=first,
            last_seq=choice.last_seq,
            file=path.name,
            sha256=written.sha256,
            by_event=reported.seq,
            choice=choice,
        )

    def _write(
        self, path: Path, start: Start, last_seq: int, covered: SignedCheckpoint
    ) -> WrittenSegment:
        """A method of its own: a cursor that outlives it would be a reader in the way of ``scrub``."""
        with self.store.snapshot() as snapshot:
            content = Content(
                origin=self.keyring.origin,
                start=start,
                last_seq=last_seq,
                rows=snapshot.rows(after=start.seq),
                statements=self.store.segments(),
                checkpoint=covered.note,
            )
            return write_segment(
                path, content, verifiers=self.keyring.verifiers(), progress=self.progress
            )

    def _signed(
        self,
        number: int,
        first: int,
        previous_leaf: str,
        written: WrittenSegment,
        *,
        by: str,
        reason: str,
    ) -> bytes:
        reported = SegmentStatement(
            number=number,
            first_seq=first,
            last_seq=written.frontier.size,
            previous_leaf=previous_leaf,
            tip=written.tip,
            frontier=tuple(one.hex() for one in written.frontier.hashes),
            root=written.frontier.root().hex(),
            file=written.path.name,
            sha256=written.sha256,
            sealed_at=timestamp(self.clock()),
            by=by,
            reason=reason,
        )
        return sign_statement(SEGMENT_DOMAIN, reported.model_dump(), self.keyring.signers())

    def _check_unchanged(self, seen: int, choice: Choice) -> None:
        """Nobody resumed a fix meanwhile whose events are in the file."""
        later = {stored.scope.fix_id for stored in self.store.events(after=seen)}
        for fix_id in sorted(later - {MAINTENANCE.fix_id}):
            first = next(self.store.events(fix_id))
            if first.seq <= choice.last_seq:
                raise AuditStoreError(
                    f"{fix_id} continued while it was being sealed; nothing was sealed.",
                    next_step="Seal again when it has ended.",
                    kind="continued_meanwhile",
                )

    def _restate(self) -> None:
        """A retirement whose event was itself sealed is said again: verification starts behind it."""
        last = self._last()
        if last is None or not (self.folder / last.file).is_file():
            return
        live = retired_in(self.store.events(kinds=frozenset({"SegmentRetired"})))
        verifiers = self.keyring.verifiers()
        for stored in sealed_events(self.folder / last.file, last.sha256, verifiers):
            event = stored.payload
            if isinstance(event, SegmentRetired) and event.sha256 not in live:
                live[event.sha256] = self.store.append(MAINTENANCE, event).seq

    def _statements(self) -> list[SegmentStatement]:
        verifiers = self.keyring.verifiers()
        return [open_segment(one, verifiers) for one in self.store.segments()]

    def _last(self) -> SegmentStatement | None:
        statements: Sequence[bytes] = self.store.segments()
        return open_segment(statements[-1], self.keyring.verifiers()) if statements else None

    def _leftovers(self, number: int) -> Iterator[Path]:
        """Files of segments that were never sealed: their events are in the store."""
        yield from self.folder.glob(f"{number:06}-*.jsonl")


def _check_file(path: Path, segment: SegmentStatement) -> None:
    if file_digest(path) != segment.sha256:
        raise AuditIntegrityError(
            f"Segment {path} is missing, or not what its signed statement says.",
            next_step="Restore it from a copy: a retirement would hide that somebody changed it.",
            kind="segment_altered",
        )
