"""``fallback-tier audit export`` and ``import``: the record as a file, and back."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.disk_errors import blamed
from fallback_audit.events import FixStarted
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.export import Exporter
from fallback_audit.exporting.format import Written
from fallback_audit.exporting.spool import Target, import_export
from fallback_audit.files import made_whole
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader
from fallback_tier.advisory.vulnerability import Vulnerability, as_lines
from fallback_tier.cli import exit_codes
from fallback_tier.cli.audit.verify import counting, trusted, unpacked
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import ConfigurationError, InputError
from fallback_tier.fix.journal.inputs import recorded_vulnerabilities
from fallback_tier.wiring.trail import (
    audit_db,
    checkpoint_dir,
    exported_checkpoints,
    open_evidence,
    read_checkpoints,
    read_trail,
)


class ExportDone(Frozen):
    """What ``audit export --json`` prints: how much the file has; of one fix, its vulnerabilities."""

    file: str
    file_sha256: str
    events: int
    segments: int
    evidence: int
    checkpoints: int
    vulnerabilities: tuple[Vulnerability, ...]


class ImportDone(Frozen):
    """What ``audit import --json`` prints: how much came into the new store."""

    database: str
    events: int
    checkpoints: int
    evidence: int


def export_(arguments: argparse.Namespace) -> int:
    """Write the export. Raises InputError, AuditIntegrityError, AuditStoreError; no file is left then."""
    if arguments.json and not arguments.out:
        raise ConfigurationError(
            "--json prints what was written; the export itself would stand there, too.",
            next_step="Name a file with --out.",
        )
    settings, state = record(arguments), state_dir(arguments)
    checkpoints = read_checkpoints(state, settings)
    evidence = open_evidence(state) if arguments.with_evidence else None
    with (
        closing(read_trail(state, settings)) as reader,
        counting(reader.tip()[0]) as progress,
        reader.snapshot() as snapshot,
        _output(arguments.out) as file,
    ):
        exporter = Exporter(
            snapshot,
            checkpoints,
            origin=checkpoints.keyring.origin_if_any,
            evidence=evidence,
            progress=progress,
        )
        written = exporter.fix(file, arguments.fix) if arguments.fix else exporter.trail(file)
        vulnerabilities = _vulnerabilities(arguments.fix, reader, open_evidence(state))
    if not arguments.out:
        return exit_codes.OK
    counts = _counts(written)
    shown = ", ".join(f"{count:,} {sort}" for sort, count in counts.items() if count)
    return print_result(
        arguments,
        ExportDone(
            file=arguments.out,
            file_sha256=written.sha256,
            **counts,
            vulnerabilities=vulnerabilities,
        ),
        f"{safe(arguments.out)}: {shown}; SHA-256 {written.sha256}",
        *(f"  {safe(text)}" for one in vulnerabilities for text in as_lines(one)),
    )


def _vulnerabilities(
    fix_id: str | None, reader: AuditReader, evidence: FileEvidenceStore
) -> tuple[Vulnerability, ...]:
    """What the exported fix is about; of a whole trail nothing is printed."""
    stored = reader.events(fix_id, kinds=frozenset({FixStarted.__name__})) if fix_id else ()
    for started in (one.payload for one in stored):
        if isinstance(started, FixStarted):
            return recorded_vulnerabilities(started.inputs_sha256, evidence)
    return ()


def import_(arguments: argparse.Namespace) -> int:
    """Make a store of an export that verifies. Raises InputError for what is no export,
    AuditIntegrityError, AuditStoreError."""
    settings, state = record(arguments), state_dir(arguments)
    if settings.database is not None:
        raise ConfigurationError(
            "An export is imported to a new SQLite store, not to PostgreSQL.",
            next_step="Leave --audit-store out, and name a new --state-dir.",
        )
    keyring = trusted(arguments)
    target = Target(
        audit_db(state),
        CheckpointLog(checkpoint_dir(state, settings)),
        open_evidence(state),
    )
    with unpacked(arguments.file, keyring) as spool:
        source = exported_checkpoints(settings, keyring, *spool.notes())
        with counting(spool.head.last_seq) as progress:
            done = import_export(spool, source, target, progress)
    return print_result(
        arguments,
        ImportDone(database=str(target.database), **done._asdict()),
        f"{safe(str(target.database))}: {done.events:,} events, {done.checkpoints:,} checkpoints, "
        f"{done.evidence:,} evidence files",
    )


@contextmanager
def _output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a new file, mode 0600, which appears when it is whole."""
    if name is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name).absolute()
    there = InputError(f"--out {name}: it exists.", next_step="Name a new file.", kind="exists")
    if path.exists():
        raise there
    try:
        # Not where there is one: it may be an export that is kept.
        with made_whole(path, f".{path.name}.", put=os.link) as file:
            yield file
    except FileExistsError as error:
        raise there from error
    except OSError as error:
        unwritable = InputError(
            f"--out {name}: {error.strerror or error}.",
            next_step="Name a file in a folder that you may write to.",
        )
        raise blamed(error, f"--out {name}", unwritable) from error


def _counts(written: Written) -> dict[str, int]:
    end = written.end
    return {
        "events": end.events,
        "segments": end.segments,
        "evidence": end.evidence,
        "checkpoints": end.checkpoints,
    }
