"""Sealing, which moves the oldest events unchanged to a verifiable file; and retiring such files.

The file is written, read back and compared first. Then, as one step of the store, the event
``SegmentSealed`` is appended, the signed statement stored, and the rows dropped. If a run dies before that,
it leaves at most a file, which the next one removes. Nothing is ever edited (ADR-0036).
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from fallback_audit.chain import StoredRow, broken_link
from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    CheckpointError,
    RequestError,
)
from fallback_audit.events import SegmentRetired, SegmentSealed
from fallback_audit.exporting.format import Base, ExportWriter, Head, rows_of_file
from fallback_audit.files import FILE_MODE, make_private_directory, sync_directory
from fallback_audit.frozen import Frozen
from fallback_audit.ports import MAINTENANCE, HeaderReader, KeepableStore, Record, Segment
from fallback_audit.retention.ended import ended_fixes
from fallback_audit.retention.history import file_digest, retired_in, sealed_events
from fallback_audit.showing.describe import WORDS
from fallback_audit.statements import (
    SEGMENT_DOMAIN,
    SegmentStatement,
    Start,
    open_segment,
    sign_statement,
)
from fallback_audit.stores.appending import Clock, timestamp
from fallback_audit.verifying.sources import VerifiableStore
from fallback_audit.verifying.walk import Progress

#: Most fixes that a refusal names; there may be thousands.
_MAX_NAMED = 5

_NEXT = "Run `fallback-tier audit verify`; a record that is not whole is not sealed."


class Held(Frozen):
    """A fix that keeps events from being sealed: not over, or with an event that is too young."""

    fix_id: str
    first_seq: int
    over: bool


class Choice(Frozen):
    """``last_seq``: seal up to here; equal to ``base``: nothing. ``old``: so far everything is old enough.

    ``held_by``: fixes that began up to ``old`` and did not end there, the first few.
    """

    base: int
    last_seq: int
    old: int
    held_by: tuple[Held, ...]


def choose(store: HeaderReader, ended: Mapping[str, str], *, base: int, before: datetime) -> Choice:
    """Return the last event after ``base`` that can be sealed with all before it."""
    limit = timestamp(before)
    old = tip = base
    young = False
    firsts: dict[str, int] = {}
    lasts: dict[str, int] = {}
    for seq, fix_id, recorded_at in _headers(store, base):
        tip = seq
        young = young or recorded_at >= limit
        old = old if young else seq
        if fix_id != MAINTENANCE.fix_id and (not young or fix_id in firsts):
            firsts.setdefault(fix_id, seq)
            lasts[fix_id] = seq
    # A fix that is not over continues after the last event.
    ends = {fix_id: last if fix_id in ended else tip + 1 for fix_id, last in lasts.items()}
    best = reached = base
    for fix_id, first in firsts.items():  # in the order of their first events
        if first > reached and reached <= old:
            best = max(best, min(old, first - 1))
        reached = max(reached, ends[fix_id])
    if reached <= old:
        best = old
    holding = [
        Held(fix_id=fix_id, first_seq=first, over=fix_id in ended)
        for fix_id, first in firsts.items()
        if ends[fix_id] > old
    ]
    return Choice(base=base, last_seq=best, old=old, held_by=tuple(holding[:_MAX_NAMED]))


def _headers(store: HeaderReader, base: int) -> Iterator[tuple[int, str, str]]:
    for row in store.headers(after=base):
        try:
            header = json.loads(row.header)
            fields = row.seq, str(header["fix_id"]), str(header["recorded_at"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AuditIntegrityError(
                f"Nothing is sealed: the header of event {row.seq} is not one of ours.",
                next_step=_NEXT,
                kind="bad_header",
            ) from error
        yield fields


class _Content(NamedTuple):
    """A segment's content: rows up to ``last_seq``, what precedes them, the checkpoint over them."""

    origin: str
    start: Start
    last_seq: int
    rows: Iterable[StoredRow]
    statements: Sequence[bytes]
    checkpoint: bytes


class _WrittenSegment(NamedTuple):
    """A written file, and the chain and the tree up to its last event."""

    path: Path
    sha256: str
    tip: str
    frontier: Frontier


def _file_name(number: int, first_seq: int, last_seq: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:06}-{first_seq}-{last_seq}.jsonl"


def _write_segment(
    path: Path, content: _Content, *, verifiers: Sequence[Verifier], progress: Progress | None
) -> _WrittenSegment:
    """Write a segment's file durably, then read it back and compare.

    Raises AuditIntegrityError if the chain is broken, or if the file differs from what was written;
    AuditStoreError if the disk fails. Then there is no file.
    """
    part = path.with_name(f".tmp-{path.name}")
    try:
        make_private_directory(path.parent)
        part.unlink(missing_ok=True)
        written = _written(part, content, verifiers, progress)._replace(path=path)
        _check(part, content, written, verifiers)
        part.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise AuditStoreError(
            f"Segment {path}: {error.strerror or error}.",
            next_step="Check free space, owner and mode of its folder.",
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return written


def delete_segment(path: Path) -> None:
    """Delete a segment's file durably, if it exists. Raises AuditStoreError."""
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise AuditStoreError(
            f"Segment {path} can't be deleted: {error.strerror or error}.",
            next_step="Check the folder's owner and mode.",
        ) from error


def _written(
    part: Path, content: _Content, verifiers: Sequence[Verifier], progress: Progress | None
) -> _WrittenSegment:
    start = content.start
    seq, tip, frontier = start.seq, start.tip, start.frontier.copy()
    head = Head(
        words=WORDS,
        origin=content.origin,
        first_seq=seq + 1,
        last_seq=content.last_seq,
        base=Base(
            seq=seq, leaf=tip, frontier=tuple(digest.hex() for digest in start.frontier.hashes)
        ),
    )
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        writer = ExportWriter(file, head, verifiers=verifiers)
        writer.segments(content.statements)
        for row in _chained(content, verifiers):
            frontier.append(row.header or b"")
            seq, tip = row.seq, row.leaf or ""
            writer.event(row)
            if progress is not None:
                progress(seq)
        writer.checkpoint(content.checkpoint)
        sha256 = writer.close().sha256
        file.flush()
        os.fsync(descriptor)
    if seq != content.last_seq:
        raise AuditIntegrityError(
            f"The chain ends at event {seq}, and {content.last_seq} were to be sealed.",
            next_step=_NEXT,
        )
    return _WrittenSegment(part, sha256, tip, frontier)


def _chained(content: _Content, verifiers: Sequence[Verifier]) -> Iterator[StoredRow]:
    """Yield the rows to seal. Raises AuditIntegrityError unless each is the next link."""
    seq, tip = content.start.seq, content.start.tip
    for row in content.rows:
        if row.seq > content.last_seq:
            return
        fault = broken_link(row, seq=seq + 1, previous_leaf=tip, verifiers=verifiers)
        if fault is not None:
            raise AuditIntegrityError(
                f"Event {row.seq} can't be sealed: {fault.reason}.",
                next_step=_NEXT,
                kind="event_altered",
            )
        yield row
        seq, tip = row.seq, row.leaf or ""


def _check(
    part: Path, content: _Content, written: _WrittenSegment, verifiers: Sequence[Verifier]
) -> None:
    """Check that the file has the same chain up to the same end: it replaces the rows in the store."""
    read = content._replace(rows=rows_of_file(part, sha256=written.sha256))
    start = content.start
    seq, tip, frontier = start.seq, start.tip, start.frontier.copy()
    for row in _chained(read, verifiers):
        frontier.append(row.header or b"")
        seq, tip = row.seq, row.leaf or ""
    if (seq, tip, frontier.root()) != (content.last_seq, written.tip, written.frontier.root()):
        raise AuditIntegrityError(
            f"Segment {part} was read back as something else than was written.",
            next_step="Check the disk, then seal again.",
        )


class SealableStore(KeepableStore, VerifiableStore, Protocol):
    """A store whose rows can be sealed, and read as stored."""


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
    """Sealing and retiring of one store's segments, whose files are in ``folder``."""

    store: SealableStore
    folder: Path
    keyring: Keyring
    _: KW_ONLY
    clock: Clock
    progress: Progress | None = None

    def choose(self, before: datetime) -> Choice:
        """Return what ``seal`` would do. Raises RequestError if ``before`` is after 00:00 UTC of today."""
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
        """Seal events older than ``before``. Return None if none can be sealed; ``choose`` says why.

        ``covered``: the latest checkpoint, which must cover the sealed events. Raises AuditStoreError,
        AuditIntegrityError, CheckpointError, KeyringError.
        """
        if self.store.segments():
            self.store.scrub()  # leftovers in the store's files, of a run that died or met a reader
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
        """Record, then delete the file of a sealed segment. Segments are retired oldest first.

        Raises RequestError: no such segment, an older one is not retired, already retired;
        AuditIntegrityError: the file is missing or altered, which a retirement would hide.
        """
        self._restate()
        statements = self._statements()
        retired = retired_in(self.store.events(kinds=frozenset({"SegmentRetired"})))
        segment = next((statement for statement in statements if statement.number == number), None)
        if segment is None:
            raise RequestError(
                f"There is no sealed segment {number}.",
                next_step=f"There are {len(statements)}, numbered from 1.",
                kind="no_such_segment",
            )
        first = next(
            (statement for statement in statements if statement.sha256 not in retired), None
        )
        if first is not None and first.number < number:
            raise RequestError(
                f"Segment {number} is younger than segment {first.number}, which is not retired.",
                next_step=f"Retire segment {first.number} first.",
                kind="older_first",
            )
        path = self.folder / segment.file
        recorded_by = retired.get(segment.sha256)
        if recorded_by is not None and not path.exists():
            raise RequestError(
                f"Segment {number} was retired: event {recorded_by} says by whom.",
                next_step="There is nothing left to do.",
                kind="retired_before",
            )
        if recorded_by is None:
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
            by_event = recorded_by
        delete_segment(path)
        return Retired(
            number=number,
            first_seq=segment.first_seq,
            last_seq=segment.last_seq,
            file=segment.file,
            by_event=by_event,
            finished=recorded_by is not None,
        )

    def _seal(self, choice: Choice, covered: SignedCheckpoint, *, by: str, reason: str) -> Sealed:
        start = Start.behind(self._last())
        number, first = len(self.store.segments()) + 1, start.seq + 1
        for leftover in self._leftovers(number):
            delete_segment(leftover)
        seen = self.store.tip()[0]
        path = self.folder / _file_name(number, first, choice.last_seq)
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
        stored = self.store.add_segment(segment, Record(MAINTENANCE, event))
        return Sealed(
            number=number,
            first_seq=first,
            last_seq=choice.last_seq,
            file=path.name,
            sha256=written.sha256,
            by_event=stored.seq,
            choice=choice,
        )

    def _write(
        self, path: Path, start: Start, last_seq: int, covered: SignedCheckpoint
    ) -> _WrittenSegment:
        """Write the file. A separate method, so that no cursor outlives it and blocks ``scrub``."""
        with self.store.snapshot() as snapshot:
            content = _Content(
                origin=self.keyring.origin,
                start=start,
                last_seq=last_seq,
                rows=snapshot.rows(after=start.seq),
                statements=self.store.segments(),
                checkpoint=covered.note,
            )
            return _write_segment(
                path, content, verifiers=self.keyring.verifiers(), progress=self.progress
            )

    def _signed(
        self,
        number: int,
        first: int,
        previous_leaf: str,
        written: _WrittenSegment,
        *,
        by: str,
        reason: str,
    ) -> bytes:
        statement = SegmentStatement(
            number=number,
            first_seq=first,
            last_seq=written.frontier.size,
            previous_leaf=previous_leaf,
            tip=written.tip,
            frontier=tuple(digest.hex() for digest in written.frontier.hashes),
            root=written.frontier.root().hex(),
            file=written.path.name,
            sha256=written.sha256,
            sealed_at=timestamp(self.clock()),
            by=by,
            reason=reason,
        )
        return sign_statement(SEGMENT_DOMAIN, statement.model_dump(), self.keyring.signers())

    def _check_unchanged(self, seen: int, choice: Choice) -> None:
        """Raise AuditStoreError if a fix whose events are in the file was resumed meanwhile."""
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
        """Record retirements again whose events are in the last segment: verification starts after that."""
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
        return [open_segment(statement, verifiers) for statement in self.store.segments()]

    def _last(self) -> SegmentStatement | None:
        statements: Sequence[bytes] = self.store.segments()
        return open_segment(statements[-1], self.keyring.verifiers()) if statements else None

    def _leftovers(self, number: int) -> Iterator[Path]:
        """Yield files whose sealing was not completed: their events are in the store."""
        yield from self.folder.glob(f"{number:06}-*.jsonl")


def _check_file(path: Path, segment: SegmentStatement) -> None:
    if file_digest(path) != segment.sha256:
        raise AuditIntegrityError(
            f"Segment {path} is missing, or not what its signed statement says.",
            next_step="Restore it from a copy: a retirement would hide that somebody changed it.",
            kind="segment_altered",
        )
