"""One pass over the sealed files and the stored bytes: the chain, and the Merkle tree at every checkpoint.

Memory is that of one block and of the tree's frontier. A block is checked as a whole by a few joined
comparisons; only if that fails, it is checked row by row, to report which row is wrong and why.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path

from fallback_audit.canonical import GENESIS, HEADER_DOMAIN, PAYLOAD_DOMAIN
from fallback_audit.chain import TOMBSTONE_START, StoredRow, broken_link, read_row
from fallback_audit.checkpoints.checkpoint import Checkpoint, Span
from fallback_audit.checkpoints.log import CheckedCheckpoint
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.contract.trail import Trail
from fallback_audit.errors import AuditIntegrityError, TrailFault
from fallback_audit.events import AuditEvent, FixResumed, SegmentRetired, SegmentSealed
from fallback_audit.exporting.format import rows_of_file
from fallback_audit.ports import MAINTENANCE
from fallback_audit.statements import SegmentStatement, open_segment
from fallback_audit.verifying.report import COVER, KEEP, Listed, Problem, VerifiedState
from fallback_audit.verifying.sources import CheckpointSource

#: Ranges of events that a note names.
MAX_RANGES = 5

_NO_KEY = "Name the folder of this deployment's keys with --keys, or its public key with --trust."
_ROLLED_BACK = (
    "Stop what writes to the store, keep a copy of both, and verify it again. Only if that says the same, "
    "restore the store that was signed."
)

#: Rows that are checked at once: enough to make a block's overhead small, with little memory.
_BLOCK_ROWS = 256

#: Called with the number of the last event that was checked.
Progress = Callable[[int], None]

_LEAF, _NODE = b"\x00", b"\x01"  # RFC 6962 §2.1

# The last members of a header, in canonical order. The time always has the same length (``timestamp``), and
# the version after it one or two digits: so the members before it are at a known offset from the end.
_CLAIM = ('"payload_sha256":"', "", '","previous_leaf":"', "", '","recorded_at":"')
_CLAIM_BYTES = sum(map(len, _CLAIM)) + 2 * 64
_TIME = len('2026-01-01T00:00:00.000000Z","schema_version":')
_VERSION_DIGITS = 2

_OF_MAINTENANCE = f'{{"fix_id":"{MAINTENANCE.fix_id}","gate_transition_id"'.encode()


class Interruptions:
    """Runs that the audit trail shows were interrupted before their events were signed.

    ``found``: the events that a signer found and had not written itself.
    """

    def __init__(self, found: Sequence[Span]) -> None:
        self._found = found
        self._listed = Listed[str]()
        self.events = 0

    def trail(self, trail: Trail) -> None:
        """Note the interruption that explains this gate transition's found events, if there is one."""
        if not self._found or not trail.of_a_fix:
            return
        seqs = [seq for seq, _ in trail.everything if self._is_found(seq)]
        if not seqs:
            return
        fix_id, last = trail.scope.fix_id, seqs[-1]
        later = (
            seq for seq, event in trail.entries if seq > last and isinstance(event, FixResumed)
        )
        if (resumed := next(later, None)) is not None:
            reason = f"the run of {fix_id} was interrupted after event {last:,}, and {resumed:,} resumed it"
        elif trail.abandonments and trail.abandonments[0].seq > last:
            at = trail.abandonments[0].seq
            reason = (
                f"the run of {fix_id} was interrupted after event {last:,}, and {at:,} abandoned it"
            )
        elif trail.is_open and trail.entries[-1].seq == last:
            reason = (
                f"the run of {fix_id} was interrupted after event {last:,}, and is not resumed yet"
            )
        else:
            return
        self.events += len(seqs)
        self._listed.add(reason)

    def reasons(self) -> Iterator[str]:
        """Yield one phrase per interruption, at most MAX_RANGES."""
        yield from self._listed.items[:MAX_RANGES]
        if (more := self._listed.count - MAX_RANGES) > 0:
            yield f"{more:,} more runs were interrupted"

    def _is_found(self, seq: int) -> bool:
        at = bisect_right(self._found, seq, key=lambda span: span.first) - 1
        return at >= 0 and seq <= self._found[at].last


def signed_later(events: str, count: int, interruptions: Interruptions) -> str:
    """Return a note on ``count`` events that another run signed than wrote, with the known causes."""
    causes = [*interruptions.reasons()]
    if (unexplained := count - interruptions.events) > 0:
        rest = f"for {unexplained:,} of them " if causes else ""
        causes.append(
            f"{rest}the trail does not say why: a run was killed after its end, several wrote at once, or "
            "someone with access to the store added them"
        )
    return f"{events} were signed by a run that had not written them: {'; '.join(causes)}."


class Covering:
    """Comparison with the checkpoints: call ``reached`` at each ``next_size``, and ``ended`` at last."""

    def __init__(self, source: CheckpointSource, problems: Listed[Problem], *, after: int) -> None:
        self._problems = problems
        self._latest = source.latest_size()
        self._checked: Iterator[CheckedCheckpoint] = source.checked(after=after)
        self._waiting: Checkpoint | None = None
        self._note = b""
        self._max_uncovered = source.max_uncovered
        self._untrusted = KEEP if source.verifiers() else _NO_KEY
        self._contradicted = False
        self._found: list[Span] = []
        self.checked = 0
        self.covered_to = after
        #: The state at the last covered event: the tree, the leaf, and the signed note.
        self.proved: VerifiedState | None = None
        self._advance(after)

    @property
    def next_size(self) -> int | None:
        """Return the size at which to compare the tree next, or None if there is no further checkpoint."""
        return None if self._waiting is None else self._waiting.size

    def reached(self, frontier: Frontier, tip: str) -> None:
        """Compare the tree, which has ``next_size`` entries now, with the checkpoint."""
        signed = self._waiting
        if signed is None:
            return
        is_same_root = frontier.size == signed.size and frontier.root() == signed.root
        if is_same_root:
            self._found += signed.found
        if is_same_root and signed.tip in {None, tip}:
            self.covered_to = signed.size
            self.proved = VerifiedState(
                size=signed.size,
                tip=tip,
                frontier=tuple(digest.hex() for digest in frontier.hashes),
                checkpoint=self._note.decode(),
                open_fixes=(),
            )
        elif not self._contradicted:  # all later roots differ too: report it once
            self._contradicted = True
            first = self.covered_to + 1
            reason = (
                f"events {first} to {signed.size} are not those that were signed: their Merkle root is "
                f"not that of checkpoint {signed.size} (altered, removed, reordered, or re-chained)"
            )
            self._problem(TrailFault("another_root", reason), seq=first)
        self._advance(signed.size)

    @property
    def found(self) -> Sequence[Span]:
        """Return the events that a signer found and had not written itself."""
        return self._found

    def notes(self, interruptions: Interruptions) -> Iterator[str]:
        """Yield a note on the covered events that another run signed than wrote, if there are any."""
        if self._found:
            count = sum(span.last - span.first + 1 for span in self._found)
            ranges = [f"{span.first:,} to {span.last:,}" for span in self._found[:MAX_RANGES]]
            more = ", …" if len(self._found) > MAX_RANGES else ""
            yield signed_later(
                f"{count:,} events ({', '.join(ranges)}{more})", count, interruptions
            )

    def skip(self, size: int) -> None:
        """Skip checkpoints below ``size``: the sealed file with their events is missing."""
        while self._waiting is not None and self._waiting.size < size:
            self._advance(self._waiting.size)

    def ended(self, events: int) -> None:
        """Finish: the remaining checkpoints were signed over events that are missing."""
        lost: int | None = None
        while self._waiting is not None:
            lost = self._waiting.size
            self._advance(lost)
        if lost is not None:
            fault = TrailFault(
                "cut_short",
                f"the store ends at event {events}, but checkpoint {lost} covers {lost}: it was "
                "truncated, or rolled back to an older copy",
            )
            self._problem(fault, seq=events + 1, next_step=_ROLLED_BACK)
        uncovered = events - self.covered_to
        if events and not self.checked and not self.covered_to:
            missing = TrailFault("no_checkpoint", "there are events, and no valid checkpoint")
            self._problem(missing, next_step=COVER)
        elif self._max_uncovered is not None and uncovered > self._max_uncovered:
            fault = TrailFault(
                "uncovered",
                f"{uncovered:,} events have no checkpoint, {self._max_uncovered:,} may be without one: "
                "checkpoints are missing from the end of the log, or their writer fails",
            )
            self._problem(fault, seq=self.covered_to + 1, next_step=COVER)

    def _advance(self, size: int) -> None:
        """Go to the next checkpoint that can be trusted, and report the faults of the others."""
        self._waiting = None
        for checked in self._checked:
            if checked.size > self._latest:
                return
            if checked.fault is not None:
                self._problem(checked.fault, next_step=self._untrusted)
            if checked.signed is None:
                continue
            self.checked += 1
            checkpoint = checked.signed.checkpoint
            if checkpoint.size >= size and checkpoint.size > 0:
                self._waiting, self._note = checkpoint, checked.signed.note
                return

    def _problem(self, fault: TrailFault, *, seq: int | None = None, next_step: str = KEEP) -> None:
        self._problems.add(Problem.reporting(fault, seq=seq, next_step=next_step))


@dataclass
class Position:
    """A place in the chain: the number of events, the last leaf, and the tree (None: not computed)."""

    seq: int = 0
    tip: str = GENESIS
    frontier: Frontier | None = field(default_factory=Frontier)


@dataclass(eq=False)
class Walk:
    """A walk along the chain from ``at``, which it updates. ``covering`` None: compare no checkpoints.

    ``tombstones``: the events in the store's table of tombstones; None: an export, which has none.
    """

    at: Position
    problems: Listed[Problem]
    _: KW_ONLY
    covering: Covering | None = None
    verifiers: Sequence[Verifier] = ()
    tombstones: Container[int] | None = None
    progress: Progress | None = None
    complete: int = field(default=0, init=False)

    def rows(self, rows: Iterable[StoredRow]) -> None:
        """Check all rows. A link after a bad one is checked against what the bad one claims."""
        stream = iter(rows)
        while block := list(islice(stream, self._rows_to_next_checkpoint())):
            if self._is_sound(block):
                self.complete += len(block)
            else:
                for row in block:
                    self._judge(row)
            self._compare()
            if self.progress is not None:
                self.progress(self.at.seq)

    def _rows_to_next_checkpoint(self) -> int:
        """Return the block's size. It ends at the next checkpoint, where a root is computed."""
        next_size = self.covering.next_size if self.covering else None
        return (
            _BLOCK_ROWS if next_size is None else min(_BLOCK_ROWS, max(1, next_size - self.at.seq))
        )

    def _is_sound(self, block: Sequence[StoredRow]) -> bool:
        """Return whether each row is the next link. If so, move the position to the last one."""
        at, count = self.at, len(block)
        seqs, headers, leaves, payloads = zip(*block, strict=True)
        first, last = at.seq + 1, at.seq + count
        if seqs != tuple(range(first, last + 1)) or None in headers or None in payloads:
            return False
        hashed = [sha256(HEADER_DOMAIN + header).hexdigest() for header in headers]
        digests = [sha256(PAYLOAD_DOMAIN + payload).hexdigest() for payload in payloads]
        if tuple(hashed) != leaves or not _claim(headers, first, digests, [at.tip, *hashed[:-1]]):
            return False
        at.seq, at.tip = last, hashed[-1]
        if at.frontier is not None:
            _extend(at.frontier, headers)
        return True

    def _judge(self, row: StoredRow) -> None:
        at = self.at
        fault = broken_link(row, seq=at.seq + 1, previous_leaf=at.tip, verifiers=self.verifiers)
        if fault is None and self._is_lost(row):
            reason = "it was redacted, and its row of audit_tombstone is gone (lost, or removed)"
            fault = TrailFault("tombstone_lost", reason)
        if fault is not None:
            self.problems.add(Problem.reporting(fault, seq=row.seq, fix_id=fix_id_of(row)))
        if row.header is not None and row.leaf is not None:
            self.complete += row.payload is not None
            at.seq, at.tip = row.seq, row.leaf
            if at.frontier is not None:
                at.frontier.append(row.header)
            self._compare()

    def _is_lost(self, row: StoredRow) -> bool:
        """Return whether its payload is a tombstone that the store's table of tombstones lacks."""
        redacted = row.payload is not None and row.payload.startswith(TOMBSTONE_START)
        return redacted and self.tombstones is not None and row.seq not in self.tombstones

    def _compare(self) -> None:
        covering, at = self.covering, self.at
        if covering is not None and at.frontier is not None:
            while covering.next_size is not None and covering.next_size <= at.seq:
                covering.reached(at.frontier, at.tip)


def _claim(
    headers: Sequence[bytes], first: int, digests: Sequence[str], previous: Sequence[str]
) -> bool:
    """Return whether each header has its payload's digest, the leaf before it and its number, in place.

    Joined slices are compared at once. They have equal lengths, so they are equal only one by one.
    """
    digits = len(str(first))
    if len(str(first + len(headers) - 1)) != digits:  # the offsets shift within the block
        return all(
            _claim((header,), first + offset, (digest,), (leaf,))
            for offset, (header, digest, leaf) in enumerate(
                zip(headers, digests, previous, strict=True)
            )
        )
    tail = len(',"seq":}') + digits
    before = len(headers[0]) - tail
    version = before - 1 - headers[0].rfind(b":", 0, before)
    claim_end = tail + _TIME + min(version, _VERSION_DIGITS)
    claim_start = claim_end + _CLAIM_BYTES
    claimed = [*_CLAIM] * len(headers)
    claimed[1::5], claimed[3::5] = digests, previous
    numbers = [',"seq":', "", "}"] * len(headers)
    numbers[1::3] = map(str, range(first, first + len(headers)))
    return "".join(claimed).encode() == b"".join(
        [header[-claim_start:-claim_end] for header in headers]
    ) and "".join(numbers).encode() == b"".join([header[-tail:] for header in headers])


def _extend(frontier: Frontier, entries: Sequence[bytes]) -> None:
    """Append entries in the largest subtrees that fit: half the calls of appending one by one."""
    hashes = [sha256(_LEAF + entry).digest() for entry in entries]
    start = 0
    while start < len(hashes):
        largest = 1 << ((len(hashes) - start).bit_length() - 1)
        aligned = frontier.size & -frontier.size
        count = min(largest, aligned) if aligned else largest
        level = hashes[start : start + count]
        while len(level) > 1:
            pairs = iter(level)
            level = [
                sha256(_NODE + left + right).digest()
                for left, right in zip(pairs, pairs, strict=True)
            ]
        frontier.add(count, level[0])
        start += count


def fix_id_of(row: StoredRow) -> str | None:
    """Return the id of the event's fix, or None if an altered header lacks it."""
    try:
        fix_id = json.loads(row.header or b"")["fix_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return fix_id if isinstance(fix_id, str) else None


class Sealed:
    """The segments of one store. ``folder``: that of the sealed files; None: don't look for them."""

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
        """Return the number of the last sealed event; 0 if there is none."""
        return self.segments[-1].last_seq if self.segments else 0

    def walk(
        self,
        maintenance: Iterable[AuditEvent],
        covering: Covering | None,
        *,
        tree: bool,
        progress: Progress | None,
    ) -> Position:
        """Check each file that exists, and compare checkpoints. Return the position after all segments."""
        events = list(maintenance)
        if self.segments and not _names(events, SegmentSealed, self.segments[-1]):
            self._problem(
                self.segments[-1],
                TrailFault("segment_not_named", "no SegmentSealed of the chain names it"),
            )
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
        """Yield notes on events that could not be read, and why."""
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
        """Accept missing files that were retired, by an event here or in a later retired segment."""
        missing, self._absent = self._absent, []
        for segment in reversed(missing):
            if self._retired or _names(events, SegmentRetired, segment):
                self._retired.append(segment)
                continue
            self._absent.append(segment)
            if self._folder is not None:
                path = self._folder / segment.file
                reason = f"{path} is missing, and no SegmentRetired says why"
                self._problem(segment, TrailFault("segment_missing", reason))

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
            self._problem(segment, TrailFault.of(error))
            return
        root = at.frontier.root().hex() if at.frontier is not None else segment.root
        if (at.seq, at.tip, root) != (segment.last_seq, segment.tip, segment.root):
            reason = f"{path} does not end where the statement says"
            self._problem(segment, TrailFault("segment_ends_elsewhere", reason))

    def _noting(self, rows: Iterable[StoredRow], events: list[AuditEvent]) -> Iterator[StoredRow]:
        """Yield the rows, and add events of maintenance among them to ``events``."""
        for row in rows:
            if row.header is not None and row.header.startswith(_OF_MAINTENANCE):
                events += maintenance_events((row,), self._verifiers)
            yield row

    def _opened(self, statements: Sequence[bytes]) -> list[SegmentStatement]:
        """Open the statements, each of which must follow the last; report those that can't be trusted."""
        opened: list[SegmentStatement] = []
        last_seq, tip = 0, GENESIS
        for number, statement in enumerate(statements, start=1):
            try:
                segment = open_segment(statement, self._verifiers)
                tree = Frontier(segment.last_seq, map(bytes.fromhex, segment.frontier))
            except (AuditIntegrityError, ValueError) as error:
                kind = getattr(error, "kind", "malformed")
                reason = getattr(error, "problem", str(error))
                self._add(TrailFault(kind, f"sealed segment {number}: {reason}"))
                continue
            actual_start = (segment.number, segment.first_seq, segment.previous_leaf)
            if actual_start != (number, last_seq + 1, tip) or segment.last_seq < segment.first_seq:
                misplaced = "its statement does not go on where the one before it ended"
                self._problem(segment, TrailFault("segment_out_of_place", misplaced))
            if tree.root().hex() != segment.root:
                other_root = "its statement's tree does not have the root that it says"
                self._problem(segment, TrailFault("another_root", other_root))
            opened.append(segment)
            last_seq, tip = segment.last_seq, segment.tip
        return opened

    def _problem(self, segment: SegmentStatement, fault: TrailFault) -> None:
        subject = (
            f"sealed segment {segment.number} (events {segment.first_seq} to {segment.last_seq})"
        )
        self._add(TrailFault(fault.kind, f"{subject}: {fault.reason}"))

    def _add(self, fault: TrailFault) -> None:
        self._problems.add(Problem.reporting(fault))


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
    """Yield the events of maintenance among these rows. Skip unreadable rows, which others report."""
    for row in rows:
        try:
            stored = read_row(row, verifiers)
        except AuditIntegrityError:
            continue
        if stored.scope == MAINTENANCE:
            yield stored.payload
