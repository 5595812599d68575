"""Verifying an export as a store is verified, from a temporary database; and importing it.

A file or a pipe is read once, front to back, but verification reads the rows in two orders: so they are
unpacked to a database, which also keeps memory constant. An export that verifies can become a new store,
whole or not at all.
"""

import base64
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import TOMBSTONE_START, StoredRow, read_row
from fallback_audit.checkpoints.checkpoint import open_checkpoint
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    EvidenceError,
    FallbackError,
    RequestError,
)
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.format import (
    Base,
    CheckpointLine,
    EventLine,
    EvidenceLine,
    Head,
    InclusionProof,
    SegmentLine,
    read_lines,
    row_of,
)
from fallback_audit.files import FILE_MODE, make_private_directory, sync_directory
from fallback_audit.showing.describe import WORDS, shown
from fallback_audit.statements import open_segment
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.stores.sqlite_connection import explained, store_error
from fallback_audit.verifying.report import MAX_LISTED
from fallback_audit.verifying.sources import GivenCheckpoints, KeptNote
from fallback_audit.verifying.verify import verify
from fallback_audit.verifying.walk import Progress

_SCHEMA = """
CREATE TABLE event (seq INTEGER PRIMARY KEY, header BLOB, leaf TEXT, payload BLOB,
  fix_id TEXT, gate_transition_id TEXT, proof TEXT);
CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, note TEXT);
CREATE TABLE segment (number INTEGER PRIMARY KEY, statement BLOB);
"""
_ROWS = "SELECT seq, header, leaf, payload FROM event"


class Spool:
    """A ``VerifiableStore`` over one export. A context manager, which removes the unpacked files.

    Raises AuditIntegrityError: the file is cut off, or not an export; AuditStoreError: it can't be
    unpacked.
    """

    def __init__(self, file: BinaryIO, name: str, verifiers: tuple[Verifier, ...]) -> None:
        self.name = name
        self.verifiers = verifiers
        self._problems: list[str] = []
        # If a failing disk keeps files from being removed, that must not hide the first error.
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
        """Remove the unpacked files."""
        self._db.close()
        self._place.cleanup()

    @contextmanager
    def snapshot(self) -> Iterator["Spool"]:
        """Yield itself: nothing changes it."""
        yield self

    def schema_problems(self) -> list[str]:
        """Return what is wrong with the file's content, though its bytes are intact."""
        return self._problems

    def index_problems(self) -> list[str]:
        """Return none: the index was just made from the file."""
        return []

    def segments(self) -> list[bytes]:
        """Return the statements of the segments that were sealed before."""
        return [row[0] for row in self._found("SELECT statement FROM segment ORDER BY number")]

    def tombstones(self) -> None:
        """Return None: an export has tombstones only in the payloads."""
        return

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Yield every event after number ``after``."""
        rows = self._found(f"{_ROWS} WHERE seq > ? ORDER BY seq", (after,))
        return map(StoredRow._make, rows)

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Yield the rows, grouped by gate transition; of all fixes, or of these."""
        if fix_ids is None:
            sql = f"{_ROWS} ORDER BY fix_id, gate_transition_id, seq"
            return map(StoredRow._make, self._found(sql))
        sql = f"{_ROWS} WHERE fix_id = ? ORDER BY gate_transition_id, seq"
        rows_by_fix = (self._found(sql, (fix_id,)) for fix_id in sorted(fix_ids))
        return map(StoredRow._make, chain.from_iterable(rows_by_fix))

    def notes(self) -> Iterator[KeptNote]:
        """Yield its checkpoints."""
        rows = self._found("SELECT number, note FROM checkpoint ORDER BY number")
        for number, note in rows:
            yield KeptNote(Path(f"{self.name}, checkpoint {number}"), note.encode())

    def proof(self, seq: int) -> InclusionProof | None:
        """Return the inclusion proof of an event, or None if the export has none."""
        ((text,),) = self._found("SELECT proof FROM event WHERE seq = ?", (seq,))
        return None if text is None else InclusionProof.model_validate_json(text)

    def remarks(self) -> tuple[str, ...]:
        """Return remarks for a report on the export."""
        if self.head.words == WORDS:
            return ()
        remark = (
            f"What it shows of its events was not compared with them: it is in words of version "
            f"{self.head.words}, this program has {WORDS}. `audit import`, then `audit show`."
        )
        return (remark,)

    def _found(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Query the temporary database. Raises AuditStoreError, DiskError."""
        try:
            yield from self._db.execute(sql, values)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FallbackError:
        """Return the error to raise, naming the export and the folder: the disk of either may fail."""
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
                expected = shown(read_row(row, self.verifiers).payload)
            except AuditIntegrityError:
                return  # the walk reports what is wrong with it
            if expected != line.shown:
                self._problem(f"what it shows of event {row.seq} is not what that event says")

    def _put(self, line: EvidenceLine) -> None:
        self.has_evidence = True
        try:
            content = base64.b64decode(line.base64, validate=True)
            if hashlib.sha256(content).hexdigest() == line.digest:
                self.evidence.put(content)
                return
        except (ValueError, EvidenceError):  # not base64, not ASCII, too large
            pass
        self._problem(f"evidence {line.digest} is not what its digest says")

    def _check_head(self, head: Head, first: int, last: int) -> None:
        """Check the head against the content: its claims are not used otherwise."""
        names = {verifier.name for verifier in self.verifiers}
        if head.origin is not None and names and head.origin not in names:
            self._problem(f"its first line says that it is of the log {head.origin}")
        base = Base(seq=0, leaf=GENESIS)
        statements = self.segments()
        if statements:
            try:
                sealed = open_segment(statements[-1], self.verifiers)
            except AuditIntegrityError:
                return  # verification reports it
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
        document = json.loads(header or b"")
        return str(document["fix_id"]), str(document["gate_transition_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _unfit(name: str, reason: str) -> AuditIntegrityError:
    return AuditIntegrityError(f"{name}: {reason}.", next_step="Get a whole copy of it.")


class Target(NamedTuple):
    """Target of an import: a database that does not exist yet, its checkpoints, its evidence."""

    database: Path
    log: CheckpointLog
    evidence: FileEvidenceStore


class Imported(NamedTuple):
    """Counts of what was imported."""

    events: int
    checkpoints: int
    evidence: int


def import_export(
    spool: Spool, source: GivenCheckpoints, target: Target, progress: Progress | None = None
) -> Imported:
    """Verify the export, then make the store. The database appears last: the import is done once it exists.

    Raises AuditIntegrityError if the export does not verify, RequestError if there is a store already, or
    the export is of one fix only.
    """
    _check_target(spool, target)
    evidence = spool.evidence if spool.has_evidence else None
    report = verify(spool, checkpoints=source, progress=progress)
    if not report.ok:
        why = report.first_bad.reason.rstrip(".") if report.first_bad else "nothing says why"
        raise AuditIntegrityError(
            f"{spool.name} does not verify, and nothing was imported: {why}.",
            next_step=f"`fallback-tier audit verify {spool.name}` lists all that is wrong with it.",
            kind="not_verified",
        )
    notes = [checkpoint.note for checkpoint in source.notes]
    evidence_count = 0
    make_private_directory(target.database.parent)
    with tempfile.TemporaryDirectory(dir=target.database.parent, prefix=".import-") as folder:
        new_database = Path(folder) / "audit.db"
        with explained(new_database):
            _fill(new_database, spool)
        for file in evidence.files() if evidence is not None else ():
            target.evidence.put((evidence or target.evidence).get(file.digest or ""))
            evidence_count += 1
        with target.log.locked():
            _check_target(spool, target)
            for note in notes:
                target.log.add(open_checkpoint(note, source.verifiers()))
            try:
                os.link(new_database, target.database)
            except FileExistsError as error:
                raise _there(target.database) from error
            except OSError as error:
                raise store_error(target.database, error) from error
        sync_directory(target.database.parent)
    return Imported(report.events - report.sealed_events, len(notes), evidence_count)


def _check_target(spool: Spool, target: Target) -> None:
    """Raise RequestError if the target has other files than those of an interrupted import of this."""
    if spool.head.fix_id is not None:
        raise RequestError(
            f"{spool.name} has the events of one fix only: a store is a whole chain.",
            next_step="Import an export without --fix; `audit verify FILE` reads this one.",
            kind="one_fix_only",
        )
    if target.database.exists():
        raise _there(target.database, kind="store_exists")
    own_notes = {checkpoint.note for checkpoint in spool.notes()}
    for size in target.log.sizes():
        if target.log.path(size).read_bytes() not in own_notes:
            raise RequestError(
                f"{target.log.path(size)} is a checkpoint of another record.",
                next_step="Name an empty folder with --checkpoints, or a new --state-dir.",
                kind="another_record",
            )


def _there(path: Path, *, kind: str = "") -> RequestError:
    return RequestError(
        f"There is an audit store at {path} already.",
        next_step="Name a new --state-dir: a record is never mixed with another.",
        kind=kind,
    )


def _fill(path: Path, spool: Spool) -> None:
    """Make a database with the rows unchanged.

    Its triggers are dropped meanwhile: they let events in only one by one at the end, and segments only as
    events are dropped.
    """
    SqliteAuditStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN")
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for number, statement in enumerate(spool.segments(), start=1):
            segment = open_segment(statement, spool.verifiers)
            values = (number, segment.first_seq, segment.last_seq, statement)
            db.execute("INSERT INTO audit_segment VALUES (?, ?, ?, ?)", values)
        for row in spool.rows():
            db.execute("INSERT INTO audit_payload VALUES (?, ?)", (row.seq, row.payload))
            if (row.payload or b"").startswith(TOMBSTONE_START):
                db.execute("INSERT INTO audit_tombstone VALUES (?, ?)", (row.seq, row.payload))
            db.execute("INSERT INTO audit_header VALUES (?, ?, ?)", row[:3])
        for _, sql in triggers:
            db.execute(sql)
        db.execute("COMMIT")
    path.chmod(FILE_MODE)
