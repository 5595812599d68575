"""Writing the file of a sealed segment: the oldest events as they stand, whole and checked, or none."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, broken_link
from fallback_audit.checkpoints.merkle import Frontier
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.exporting.format import Base, Head
from fallback_audit.exporting.reading import rows_of_file
from fallback_audit.exporting.writing import ExportWriter
from fallback_audit.files import FILE_MODE, make_private_directory, sync_directory
from fallback_audit.segment import SegmentStatement
from fallback_audit.showing.shown import WORDS
from fallback_audit.verifying.walk import Progress

_NEXT = "Run `fallback-tier audit verify`; a record that is not whole is not sealed."


class Start(NamedTuple):
    """Behind which event a segment begins."""

    seq: int
    tip: str
    frontier: Frontier

    @classmethod
    def behind(cls, last: SegmentStatement | None) -> "Start":
        """Behind the last segment, or nothing."""
        if last is None:
            return cls(0, GENESIS, Frontier())
        return cls(
            last.last_seq, last.tip, Frontier(last.last_seq, map(bytes.fromhex, last.frontier))
        )


class Content(NamedTuple):
    """What goes into a file: rows to number ``last_seq``, what stands before, what covers it."""

    origin: str
    start: Start
    last_seq: int
    rows: Iterable[StoredRow]
    statements: Sequence[bytes]
    checkpoint: bytes


class WrittenSegment(NamedTuple):
    """The file, and the chain and the tree up to its last event."""

    path: Path
    sha256: str
    tip: str
    frontier: Frontier


def file_name(number: int, first_seq: int, last_seq: int) -> str:
    """What the file of a segment is called."""
    return f"{number:06}-{first_seq}-{last_seq}.jsonl"


def write_segment(
    path: Path, content: Content, *, verifiers: Sequence[Verifier], progress: Progress | None
) -> WrittenSegment:
    """Write it durably, then read it back and compare.

    Raises AuditIntegrityError where the chain is broken, or the file is not what was written;
    AuditStoreError where the disk refuses. There is no file then.
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
    """Durably; one that is not there is fine. Raises AuditStoreError."""
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise AuditStoreError(
            f"Segment {path} can't be deleted: {error.strerror or error}.",
            next_step="Check the folder's owner and mode.",
        ) from error


def _written(
    part: Path, content: Content, verifiers: Sequence[Verifier], progress: Progress | None
) -> WrittenSegment:
    seq, tip, start = content.start
    frontier = start.copy()
    head = Head(
        words=WORDS,
        origin=content.origin,
        first_seq=seq + 1,
        last_seq=content.last_seq,
        base=Base(seq=seq, leaf=tip, frontier=tuple(one.hex() for one in start.hashes)),
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
    return WrittenSegment(part, sha256, tip, frontier)


def _chained(content: Content, verifiers: Sequence[Verifier]) -> Iterator[StoredRow]:
    """The rows to seal, each the next link: nothing broken is signed as sealed."""
    seq, tip, _ = content.start
    for row in content.rows:
        if row.seq > content.last_seq:
            return
        reason = broken_link(row, seq=seq + 1, previous_leaf=tip, verifiers=verifiers)
        if reason is not None:
            raise AuditIntegrityError(
                f"Event {row.seq} can't be sealed: {reason}.", next_step=_NEXT, kind="event_altered"
            )
        yield row
        seq, tip = row.seq, row.leaf or ""


def _check(
    part: Path, content: Content, written: WrittenSegment, verifiers: Sequence[Verifier]
) -> None:
    """What was read back is the same chain to the same end: the rows in the store are dropped for it."""
    read = content._replace(rows=rows_of_file(part, sha256=written.sha256))
    seq, tip, start = content.start
    frontier = start.copy()
    for row in _chained(read, verifiers):
        frontier.append(row.header or b"")
        seq, tip = row.seq, row.leaf or ""
    if (seq, tip, frontier.root()) != (content.last_seq, written.tip, written.frontier.root()):
        raise AuditIntegrityError(
            f"Segment {part} was read back as something else than was written.",
            next_step="Check the disk, then seal again.",
        )
