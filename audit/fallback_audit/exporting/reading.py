"""Reading an export: line by line, in order, to a whole end. What it says is proved elsewhere."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from fallback_audit.chain import StoredRow
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, NotAnExportError
from fallback_audit.exporting.format import (
    FORMAT,
    MAX_LINE_BYTES,
    ORDER,
    VERSION,
    End,
    EventLine,
    Head,
    Line,
    line_adapter,
)

#: How an export begins: keys are sorted, so that its first bytes tell it from anything else.
MAGIC = b'{"base":{'

_CUT = "Get a whole copy of it: the last line says what belongs in it."


def read_lines(file: BinaryIO, name: str) -> Iterator[Line]:
    """Every line, in the order that the format asks for, the ``end`` last, its counts and digest right.

    Raises AuditIntegrityError naming ``name`` and the line: cut, malformed; NotAnExportError where already
    the first is none of ours, or of a newer version.
    """
    digest = hashlib.sha256()
    counts = dict.fromkeys(ORDER, 0)
    place = 0
    for number, text in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
        if number == 1 and not text.startswith(MAGIC):
            raise _foreign(name, kind="not_an_export")
        line = _parsed(text, name, number)
        if place == len(ORDER):
            raise _unfit(name, number, "there is something after its end")
        if (number == 1) != isinstance(line, Head) or ORDER.index(line.line) < place:
            raise _unfit(name, number, f"a line of the sort {line.line!r} does not belong here")
        place = ORDER.index(line.line)
        if isinstance(line, End):
            reported = (line.segments, line.events, line.evidence, line.checkpoints)
            if reported != tuple(counts[sort] for sort in ORDER[1:-1]):
                raise _unfit(
                    name,
                    number,
                    "there are not as many lines as its end says",
                    kind="lines_missing",
                )
            if line.sha256 != digest.hexdigest():
                raise _unfit(name, number, "its bytes are not those that its end says")
            place = len(ORDER)
        counts[line.line] += 1
        digest.update(text)
        yield line
    if not sum(counts.values()):
        raise _foreign(name)
    if place != len(ORDER):
        raise _unfit(name, sum(counts.values()) + 1, "it is cut off at the end", kind="cut_off")


def rows_of_file(path: Path, *, sha256: str) -> Iterator[StoredRow]:
    """The events of a sealed file, whose bytes must have this digest: said by a signed statement.

    Rows are given before the whole digest is known. Raises AuditIntegrityError, AuditStoreError.
    """
    try:
        with path.open("rb") as file:
            for line in read_lines(file, str(path)):
                if isinstance(line, EventLine):
                    yield row_of(line)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise AuditStoreError(
            f"{path}: {error.strerror or error}.", next_step="Check its owner and mode."
        ) from error
    if found != sha256:
        raise AuditIntegrityError(
            f"{path} has the SHA-256 {found}, its signed statement says {sha256}.",
            next_step="Restore it from a copy, and find out who wrote to it.",
        )


def row_of(line: EventLine) -> StoredRow:
    """The event as a store has it."""
    return StoredRow(line.seq, line.header.encode(), line.leaf, line.payload.encode())


def _parsed(text: bytes, name: str, number: int) -> Line:
    if len(text) > MAX_LINE_BYTES:
        raise _unfit(name, number, f"it is longer than {MAX_LINE_BYTES:,} bytes")
    if not text.endswith(b"\n"):
        raise _unfit(name, number, "it is cut off at the end")
    try:
        line = line_adapter.validate_json(text)
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


def _foreign(name: str, *, kind: str = "") -> NotAnExportError:
    return NotAnExportError(
        f"{name} is no export: line 1 does not begin as one.",
        next_step="Name a file that `fallback-tier audit export` wrote.",
        kind=kind,
    )


def _unfit(name: str, number: int, reason: str, *, kind: str = "") -> AuditIntegrityError:
    return AuditIntegrityError(f"{name}, line {number}: {reason}.", next_step=_CUT, kind=kind)
