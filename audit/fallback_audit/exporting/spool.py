"""An export, unpacked to a temporary database, so that it is verified as a store is: in flat memory.

A file, or what comes in on a pipe, is read once, front to back; the rows must be read in two orders.
"""

import base64
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, read_row
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import AuditIntegrityError, AuditStoreError, EvidenceError, FallbackError
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.format import (
    Base,
    CheckpointLine,
    EventLine,
    EvidenceLine,
    Head,
    InclusionProof,
    SegmentLine,
)
from fallback_audit.exporting.reading import read_lines, row_of
from fallback_audit.segment import open_segment
from fallback_audit.showing.shown import WORDS, shown
from fallback_audit.verifying.report import MAX_LISTED
from fallback_audit.verifying.sources import KeptNote

_SCHEMA = """
CREATE TABLE event (seq INTEGER PRIMARY KEY, header BLOB, leaf TEXT, payload BLOB,
  fix_id TEXT, gate_transition_id TEXT, proof TEXT);
CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, note TEXT);
CREATE TABLE segment (number INTEGER PRIMARY KEY, statement BLOB);
"""
_ROWS = "SELECT seq, header, leaf, payload FROM event"


class Spool:
    """A ``VerifiableStore`` over one export. A context manager: what it unpacked goes with it.

    Raises AuditIntegrityError for a file that is cut, or no export; AuditStoreError where there is no
    room for it.
    """

    def __init__(self, file: BinaryIO, name: str, verifiers: tuple[Verifier, ...]) -> None:
        self.name = name
        self.verifiers = verifiers
        self._problems: list[str] = []
        # What can't be removed from a failing disk must not hide why.
        self._place = tempfile.TemporaryDirectory(
            prefix="fallback-audit-", ignore_cleanup_errors=True
        )
        folder = Path(self._place.name)
        self.evidence = FileEvidenceStore(folder / "evidence")
        self.has_evidence = False
        try:
            self._db = sqlite3.connect(folder / "spool.db", isolation_level=None)
        except sqlite3.Error as error:
            self._place.cleanup()
            raise self._failed(error) from error
        try:
            self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            self._db.execute("BEGIN")
            self.head = self._load(file)
            self._db.execute("CREATE INDEX trail ON event (fix_id, gate_transition_id, seq)")
            self._db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise self._failed(error) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was unpacked."""
        self._db.close()
        self._place.cleanup()

    @contextmanager
    def snapshot(self) -> Iterator["Spool"]:
        """As it is: nobody changes it."""
        yield self

    def schema_problems(self) -> list[str]:
        """What is wrong with the file though its bytes are whole."""
        return self._problems

    def index_problems(self) -> list[str]:
        """None: the index was made from the file just now."""
        return []

    def segments(self) -> list[bytes]:
        """The statements of what was sealed before."""
        return [row[0] for row in self._found("SELECT statement FROM segment ORDER BY number")]

    def tombstones(self) -> None:
        """They stand in the payloads alone."""
        return

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Every event behind ``after``."""
        found = self._found(f"{_ROWS} WHERE seq > ? ORDER BY seq", (after,))
        return map(StoredRow._make, found)

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Gate transition by gate transition; of all fixes, or of these."""
        if fix_ids is None:
            sql = f"{_ROWS} ORDER BY fix_id, gate_transition_id, seq"
            return map(StoredRow._make, self._found(sql))
        sql = f"{_ROWS} WHERE fix_id = ? ORDER BY gate_transition_id, seq"
        found = (self._found(sql, (fix_id,)) for fix_id in sorted(fix_ids))
        return map(StoredRow._make, chain.from_iterable(found))

    def notes(self) -> Iterator[KeptNote]:
        """Its checkpoints."""
        found = self._found("SELECT number, note FROM checkpoint ORDER BY number")
        for number, note in found:
            yield KeptNote(Path(f"{self.name}, checkpoint {number}"), note.encode())

    def proof(self, seq: int) -> InclusionProof | None:
        """The inclusion proof that stands with an event."""
        ((text,),) = self._found("SELECT proof FROM event WHERE seq = ?", (seq,))
        return None if text is None else InclusionProof.model_validate_json(text)

    def remarks(self) -> tuple[str, ...]:
        """What a reader of a report about it should know."""
        if self.head.words == WORDS:
            return ()
        remark = (
            f"What it shows of its events was not compared with them: it is in words of version "
            f"{self.head.words}, this program has {WORDS}. `audit import`, then `audit show`."
        )
        return (remark,)

    def _found(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of what was unpacked. Raises AuditStoreError."""
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FallbackError:
        """Where it came from, or where it is unpacked to: the disks of both may fail."""
        what = f"{self.name} can't be unpacked in {self._place.name}"
        unfit = AuditStoreError(
            f"{what}: {error}.", next_step="Free some space there, or set TMPDIR."
        )
        return blamed(error, what, unfit)

    def _load(self, file: BinaryIO) -> Head:
        head: Head | None = None
        first = last = 0
        for line in read_lines(file, self.name):
            match line:
                case Head():
                    head = line
                case SegmentLine(statement=text):
                    self._db.execute("INSERT INTO segment (statement) VALUES (?)", (text.encode(),))
                case EventLine():
                    if line.seq <= last:
                        raise _unfit(self.name, f"event {line.seq} is after event {last}")
                    first, last = first or line.seq, line.seq
                    self._event(line, head)
                case EvidenceLine():
                    self._put(line)
                case CheckpointLine(note=text):
                    self._db.execute("INSERT INTO checkpoint (note) VALUES (?)", (text,))
                case _:
                    pass
        if head is None:
            raise _unfit(self.name, "it has no first line")
        self._check_head(head, first, last)
        return head

    def _event(self, line: EventLine, head: Head | None) -> None:
        row = row_of(line)
        fix_id, transition = _scope(row.header)
        proof = None if line.proof is None else line.proof.model_dump_json()
        values = (*row, fix_id, transition, proof)
        self._db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        if head is not None and head.fix_id is not None and fix_id != head.fix_id:
            self._problem(f"event {row.seq} is not of fix {head.fix_id}")
        if head is not None and head.words == WORDS:
            try:
                message = shown(read_row(row, self.verifiers).payload)
            except AuditIntegrityError:
                return  # the walk says what is wrong with it
            if message != line.shown:
                self._problem(f"what it shows of event {row.seq} is not what that event says")

    def _put(self, line: EvidenceLine) -> None:
        self.has_evidence = True
        try:
            content = base64.b64decode(line.base64, validate=True)
            if hashlib.sha256(content).hexdigest() == line.digest:
                self.evidence.put(content)
                return
        except (ValueError, EvidenceError):  # no base64, no ASCII, too large
            pass
        self._problem(f"evidence {line.digest} is not what its digest says")

    def _check_head(self, head: Head, first: int, last: int) -> None:
        """Nothing rests on the head: it must say what is found."""
        names = {verifier.name for verifier in self.verifiers}
        if head.origin is not None and names and head.origin not in names:
            self._problem(f"its first line says that it is of the log {head.origin}")
        base = Base(seq=0, leaf=GENESIS)
        statements = self.segments()
        if statements:
            try:
                sealed = open_segment(statements[-1], self.verifiers)
            except AuditIntegrityError:
                return  # verification says so
            base = Base(seq=sealed.last_seq, leaf=sealed.tip, frontier=sealed.frontier)
        if head.base != base:
            self._problem("its first line says another beginning than the statements in it")
        if last and (head.first_seq, head.last_seq) != (first, last):
            self._problem(
                f"it has events {first} to {last}, its first line says {head.first_seq} to"
                f" {head.last_seq}"
            )

    def _problem(self, reason: str) -> None:
        if len(self._problems) < MAX_LISTED:
            self._problems.append(f"{self.name}: {reason}")


def _scope(header: bytes | None) -> tuple[str, str]:
    try:
        reported = json.loads(header or b"")
        return str(reported["fix_id"]), str(reported["gate_transition_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _unfit(name: str, reason: str) -> AuditIntegrityError:
    return AuditIntegrityError(f"{name}: {reason}.", next_step="Get a whole copy of it.")
