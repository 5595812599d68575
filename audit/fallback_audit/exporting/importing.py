"""``import``: an export that verifies becomes a new store, whole or not at all."""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fallback_audit.chain import TOMBSTONE_START
from fallback_audit.checkpoints.checkpoint import open_checkpoint
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditIntegrityError, RequestError
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.spool import Spool
from fallback_audit.files import FILE_MODE, make_private_directory, sync_directory
from fallback_audit.segment import open_segment
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.stores.sqlite_errors import explained, store_error
from fallback_audit.verifying.sources import GivenCheckpoints
from fallback_audit.verifying.verify import verify
from fallback_audit.verifying.walk import Progress


class Target(NamedTuple):
    """Where an import goes: a database that is not there yet, its checkpoints, its evidence."""

    database: Path
    log: CheckpointLog
    evidence: FileEvidenceStore


class Imported(NamedTuple):
    """What came in."""

    events: int
    checkpoints: int
    evidence: int


def import_export(
    spool: Spool, source: GivenCheckpoints, target: Target, progress: Progress | None = None
) -> Imported:
    """Verify the export, then make the store. The database appears last: without it nothing happened.

    Raises AuditIntegrityError where the export does not verify, RequestError where there is a store
    already, or the export is of one fix only.
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
    notes = [kept.note for kept in source.notes]
    kept = 0
    make_private_directory(target.database.parent)
    with tempfile.TemporaryDirectory(dir=target.database.parent, prefix=".import-") as folder:
        made = Path(folder) / "audit.db"
        with explained(made):
            _fill(made, spool)
        for file in evidence.files() if evidence is not None else ():
            target.evidence.put((evidence or target.evidence).get(file.digest or ""))
            kept += 1
        with target.log.locked():
            _check_target(spool, target)
            for note in notes:
                target.log.add(open_checkpoint(note, source.verifiers()))
            try:
                os.link(made, target.database)
            except FileExistsError as error:
                raise _there(target.database) from error
            except OSError as error:
                raise store_error(target.database, error) from error
        sync_directory(target.database.parent)
    return Imported(report.events - report.sealed_events, len(notes), kept)


def _check_target(spool: Spool, target: Target) -> None:
    """Nothing there that this could mix with; checkpoints of an interrupted import are its own."""
    if spool.head.fix_id is not None:
        raise RequestError(
            f"{spool.name} has the events of one fix only: a store is a whole chain.",
            next_step="Import an export without --fix; `audit verify FILE` reads this one.",
            kind="one_fix_only",
        )
    if target.database.exists():
        raise _there(target.database, kind="store_exists")
    known = {kept.note for kept in spool.notes()}
    for size in target.log.sizes():
        if target.log.path(size).read_bytes() not in known:
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
    """A new database with the rows as they stood. Its safeguards are off meanwhile: they let events in
    one by one at the end, and segments only when events are dropped."""
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
            one = open_segment(statement, spool.verifiers)
            values = (number, one.first_seq, one.last_seq, statement)
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
