"""Writing an export, line by line, to any binary file; see ``exporting.format``."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple

from fallback_audit.chain import StoredRow, read_row
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.events import AuditEvent
from fallback_audit.exporting.format import (
    CheckpointLine,
    End,
    EventLine,
    EvidenceLine,
    Head,
    InclusionProof,
    Line,
    SegmentLine,
)
from fallback_audit.showing.shown import shown

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


class Written(NamedTuple):
    """The last line, and the SHA-256 of the whole file, its last line included."""

    end: End
    sha256: str


class ExportWriter:
    """The lines must be given in the order of the format; ``close`` writes the last one."""

    def __init__(self, file: BinaryIO, head: Head, *, verifiers: Sequence[Verifier] = ()) -> None:
        self._file = file
        self._verifiers = verifiers
        self._digest = hashlib.sha256()
        self._counts = {"segments": 0, "events": 0, "evidence": 0, "checkpoints": 0}
        self._put(head)

    def segments(self, statements: Iterable[bytes]) -> None:
        """The signed statements about what was sealed before."""
        for statement in statements:
            self._count("segments", SegmentLine(statement=statement.decode()))

    def event(self, row: StoredRow, proof: InclusionProof | None = None) -> AuditEvent:
        """One event, and what it says. Raises AuditIntegrityError where its bytes can't be trusted."""
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
        """A file of the evidence store."""
        line = EvidenceLine(digest=digest, base64=base64.b64encode(content).decode())
        self._count("evidence", line)

    def checkpoint(self, note: bytes) -> None:
        """A signed checkpoint."""
        self._count("checkpoints", CheckpointLine(note=note.decode()))

    def close(self) -> Written:
        """The end."""
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
