"""The export format: a part of the chain as a text file that proves itself (ADR-0034).

JSON Lines, UTF-8, a line feed after each line, the keys of each object sorted, no spaces. The same format
serves for a whole trail, for one fix, and for a sealed segment. Lines, in this order:

1. one ``head``: format, version, the log's origin (that of its checkpoints), which fix if only one, the
   first and last event's number, and the ``base``: how many events stand before the first, the leaf of
   the last of them, and the frontier of the Merkle tree over them (RFC 6962 hashes of the complete
   subtrees, largest first; empty where the export begins with event 1);
2. ``segment`` lines: the signed statement of each segment that was sealed before the first event;
3. one ``event`` a line, in chain order: header and payload exactly as stored (their UTF-8 bytes are
   what was hashed; a redacted payload is its signed tombstone), the leaf, ``shown``: what a reader of
   ``audit show`` sees, and, where one fix is exported, the inclusion proof to the checkpoint of
   ``tree_size`` events; none where no checkpoint covers the event;
4. ``evidence`` lines, where asked for: a digest, and the bytes it is of in base64;
5. ``checkpoint`` lines: signed notes (C2SP tlog-checkpoint), by size;
6. one ``end``: how many lines of each sort, and the SHA-256 of all bytes before this line, so that a cut
   file is noticed. It protects against accidents only: what proves the content are the checkpoints.

``shown`` is for people and proves nothing; a line whose ``shown`` is not what its bytes say is a problem
wherever the ``words`` of the head are those of the reader (``showing.shown.WORDS``).
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from fallback_audit.canonical import UNSAFE_INTEGER
from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen

FORMAT: Literal["fallback-tier/audit/export"] = "fallback-tier/audit/export"

#: Readers refuse a higher one. A change that an older reader would misread raises it.
VERSION = 1

#: Longest line that a reader takes: evidence is at most 16 MiB, in base64 a third more.
MAX_LINE_BYTES = 24 * 1024 * 1024

Count = Annotated[int, Field(ge=0)]
#: As a header says it: canonical JSON has no larger integer, and SQLite has room for it.
Size = Annotated[int, Field(ge=1, lt=UNSAFE_INTEGER)]


class Base(Frozen):
    """What stands before the first event: ``seq`` events, the last one's leaf, the tree over them."""

    seq: Count
    leaf: Digest
    frontier: tuple[Digest, ...] = ()


class Head(Frozen):
    """The first line. ``fix_id``: only this fix; its events are proved one by one."""

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

line_adapter: TypeAdapter[Line] = TypeAdapter(Line)

#: The order in which sorts of lines stand.
ORDER = ("head", "segment", "event", "evidence", "checkpoint", "end")
