"""The export format: a part of the chain as a text file that proves itself (ADR-0034).

JSON Lines, UTF-8, a line feed after each line, the keys of each object sorted, no spaces. The same format
serves for a whole trail, for one fix, and for a sealed segment. Lines, in this order:

1. one ``head``: format, version, the log's origin (that of its checkpoints), which fix if only one, the
   first and last event's number, and the ``base``: how many events are before the first, the leaf of
   the last of them, and the frontier of the Merkle tree over them (RFC 6962 hashes of the complete
   subtrees, largest first; empty if the export begins with event 1);
2. ``segment`` lines: the signed statement of each segment that was sealed before the first event;
3. one ``event`` per line, in chain order: header and payload exactly as stored (their UTF-8 bytes were
   hashed; a redacted payload is its signed tombstone), the leaf, ``shown``: what a reader of ``audit show``
   sees, and, if one fix is exported, the inclusion proof to the checkpoint of ``tree_size`` events; none if
   no checkpoint covers the event;
4. ``evidence`` lines, if requested: a digest, and its bytes in base64;
5. ``checkpoint`` lines: signed notes (C2SP tlog-checkpoint), by size;
6. one ``end``: how many lines of each sort, and the SHA-256 of all bytes before this line, so that a
   cut-off file is noticed. It protects against accidents only: the checkpoints prove the content.

``shown`` is for people and proves nothing. If it is not what the line's bytes say, that is a problem,
provided that ``words`` of the head is the reader's version (``showing.describe.WORDS``).
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from fallback_audit.canonical import UNSAFE_INTEGER
from fallback_audit.chain import StoredRow, read_row
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, NotAnExportError
from fallback_audit.event_types import Digest
from fallback_audit.events import AuditEvent
from fallback_audit.frozen import Frozen
from fallback_audit.showing.describe import shown

FORMAT: Literal["fallback-tier/audit/export"] = "fallback-tier/audit/export"

#: Readers refuse a higher version. Raise it for a change that an older reader would misread.
VERSION = 1

#: Longest line that a reader accepts: evidence is at most 16 MiB, a third more in base64.
MAX_LINE_BYTES = 24 * 1024 * 1024

Count = Annotated[int, Field(ge=0)]

#: A number as in headers: canonical JSON has no larger integer, and SQLite can store it.
Size = Annotated[int, Field(ge=1, lt=UNSAFE_INTEGER)]

#: The order of the sorts of lines.
ORDER = ("head", "segment", "event", "evidence", "checkpoint", "end")

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode

#: The first bytes of an export, by which it is recognised: keys are sorted.
MAGIC = b'{"base":{'

_CUT = "Get a whole copy of it: the last line says what belongs in it."


class Base(Frozen):
    """What precedes the first event: ``seq`` events, the last one's leaf, the tree over them."""

    seq: Count
    leaf: Digest
    frontier: tuple[Digest, ...] = ()


class Head(Frozen):
    """The first line. ``fix_id``: the only exported fix, whose events have proofs."""

    line: Literal["head"] = "head"
    format: Literal["fallback-tier/audit/export"] = FORMAT
    version: int = VERSION
    words: Size
    origin: str | None
    fix_id: str | None = None
    first_seq: Count
    last_seq: Count
    base: Base


class SegmentLine(Frozen):
    """A signed statement about events that are not in this file."""

    line: Literal["segment"] = "segment"
    statement: str


class InclusionProof(Frozen):
    """From this event to the root of the checkpoint over ``tree_size`` events (RFC 6962 §2.1.1)."""

    tree_size: Size
    path: tuple[Digest, ...]


class EventLine(Frozen):
    """One event, byte for byte."""

    line: Literal["event"] = "event"
    seq: Size
    header: str
    leaf: str
    payload: str
    shown: str
    proof: InclusionProof | None = None


class EvidenceLine(Frozen):
    """A file of the evidence store, found by the digest of its bytes."""

    line: Literal["evidence"] = "evidence"
    digest: Digest
    base64: str


class CheckpointLine(Frozen):
    """A signed note."""

    line: Literal["checkpoint"] = "checkpoint"
    note: str


class End(Frozen):
    """The last line."""

    line: Literal["end"] = "end"
    segments: Count
    events: Count
    evidence: Count
    checkpoints: Count
    sha256: Digest


Line = Annotated[
    Head | SegmentLine | EventLine | EvidenceLine | CheckpointLine | End,
    Field(discriminator="line"),
]

_line_adapter: TypeAdapter[Line] = TypeAdapter(Line)


class Written(NamedTuple):
    """The last line, and the SHA-256 of the whole file, its last line included."""

    end: End
    sha256: str


class ExportWriter:
    """Writer of an export. Call it in the order of the format; ``close`` writes the last line."""

    def __init__(self, file: BinaryIO, head: Head, *, verifiers: Sequence[Verifier] = ()) -> None:
        self._file = file
        self._verifiers = verifiers
        self._digest = hashlib.sha256()
        self._counts = {"segments": 0, "events": 0, "evidence": 0, "checkpoints": 0}
        self._put(head)

    def segments(self, statements: Iterable[bytes]) -> None:
        """Write the signed statements of the segments that were sealed before."""
        for statement in statements:
            self._count("segments", SegmentLine(statement=statement.decode()))

    def event(self, row: StoredRow, proof: InclusionProof | None = None) -> AuditEvent:
        """Write an event and return it. Raises AuditIntegrityError if its bytes can't be trusted."""
        stored = read_row(row, self._verifiers)
        self._count(
            "events",
            EventLine(
                seq=row.seq,
                header=(row.header or b"").decode(),
                leaf=stored.leaf,
                payload=(row.payload or b"").decode(),
                shown=shown(stored.payload),
                proof=proof,
            ),
        )
        return stored.payload

    def evidence(self, digest: str, content: bytes) -> None:
        """Write a file of the evidence store."""
        line = EvidenceLine(digest=digest, base64=base64.b64encode(content).decode())
        self._count("evidence", line)

    def checkpoint(self, note: bytes) -> None:
        """Write a signed checkpoint."""
        self._count("checkpoints", CheckpointLine(note=note.decode()))

    def close(self) -> Written:
        """Write the last line and return it with the file's digest."""
        end = End.model_validate({**self._counts, "sha256": self._digest.hexdigest()})
        self._put(end)
        return Written(end, self._digest.hexdigest())

    def _count(self, sort: str, line: Line) -> None:
        self._counts[sort] += 1
        self._put(line)

    def _put(self, line: Line) -> None:
        text = _encode(line.model_dump(mode="json")).encode() + b"\n"
        self._digest.update(text)
        self._file.write(text)


def read_lines(file: BinaryIO, name: str) -> Iterator[Line]:
    """Yield all lines, checking their order, and the counts and digest of the ``end``.

    Raises AuditIntegrityError naming ``name`` and the line: cut off, malformed; NotAnExportError if the
    first line is not an export's, or of a newer version.
    """
    digest = hashlib.sha256()
    counts = dict.fromkeys(ORDER, 0)
    sort_index = 0
    for number, text in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
        if number == 1 and not text.startswith(MAGIC):
            raise _foreign(name)
        line = _parsed(text, name, number)
        if sort_index == len(ORDER):
            raise _unfit(name, number, "there is something after its end")
        if (number == 1) != isinstance(line, Head) or ORDER.index(line.line) < sort_index:
            raise _unfit(name, number, f"a line of the sort {line.line!r} does not belong here")
        sort_index = ORDER.index(line.line)
        if isinstance(line, End):
            claimed = (line.segments, line.events, line.evidence, line.checkpoints)
            if claimed != tuple(counts[sort] for sort in ORDER[1:-1]):
                raise _unfit(
                    name,
                    number,
                    "there are not as many lines as its end says",
                    kind="lines_missing",
                )
            if line.sha256 != digest.hexdigest():
                raise _unfit(name, number, "its bytes are not those that its end says")
            sort_index = len(ORDER)
        counts[line.line] += 1
        digest.update(text)
        yield line
    if not sum(counts.values()):
        raise _foreign(name)
    if sort_index != len(ORDER):
        raise _unfit(name, sum(counts.values()) + 1, "it is cut off at the end", kind="cut_off")


def rows_of_file(path: Path, *, sha256: str) -> Iterator[StoredRow]:
    """Yield the events of a sealed file, whose bytes must have this digest from its signed statement.

    Rows are yielded before the digest is checked. Raises AuditIntegrityError, AuditStoreError.
    """
    try:
        with path.open("rb") as file:
            for line in read_lines(file, str(path)):
                if isinstance(line, EventLine):
                    yield row_of(line)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise AuditStoreError(
            f"{path}: {error.strerror or error}.", next_step="Check its owner and mode."
        ) from error
    if digest != sha256:
        raise AuditIntegrityError(
            f"{path} has the SHA-256 {digest}, its signed statement says {sha256}.",
            next_step="Restore it from a copy, and find out who wrote to it.",
            kind="another_digest",
        )


def row_of(line: EventLine) -> StoredRow:
    """Return the event as a store's row."""
    return StoredRow(line.seq, line.header.encode(), line.leaf, line.payload.encode())


def _parsed(text: bytes, name: str, number: int) -> Line:
    if len(text) > MAX_LINE_BYTES:
        raise _unfit(name, number, f"it is longer than {MAX_LINE_BYTES:,} bytes")
    if not text.endswith(b"\n"):
        raise _unfit(name, number, "it is cut off at the end")
    try:
        line = _line_adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise _unfit(
            name, number, f"it is no line of {FORMAT}: {where}{first['msg']}", kind="malformed_line"
        ) from error
    if isinstance(line, Head) and line.version > VERSION:
        raise NotAnExportError(
            f"{name} is of version {line.version} of its format, this program reads up to {VERSION}.",
            next_step="Upgrade fallback-tier.",
            kind="newer_version",
        )
    return line


def _foreign(name: str) -> NotAnExportError:
    return NotAnExportError(
        f"{name} is no export: line 1 does not begin as one.",
        next_step="Name a file that `fallback-tier audit export` wrote.",
        kind="not_an_export",
    )


def _unfit(name: str, number: int, reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(f"{name}, line {number}: {reason}.", next_step=_CUT, kind=kind)
