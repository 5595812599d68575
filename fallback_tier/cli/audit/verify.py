"""``fallback-tier audit verify``, ``export``, ``import``, ``prove``: the audit trail verified, and as
files."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from fallback_audit.checkpoints.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.checkpoints.proofs import (
    INCLUSION_HEADER,
    ConsistencyProof,
    InclusionProof,
    prove_consistency,
    prove_inclusion,
)
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import (
    AuditIntegrityError,
    AuditStoreError,
    CheckpointError,
    KeyringError,
    NotAnExportError,
)
from fallback_audit.events import FixStarted
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.exporting.export import Exporter
from fallback_audit.exporting.format import MAGIC, Written
from fallback_audit.exporting.proved import verify_fix
from fallback_audit.exporting.spool import Spool, Target, import_export
from fallback_audit.files import made_whole
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader
from fallback_audit.showing.render_report import render_report
from fallback_audit.statements import Start
from fallback_audit.stores.sqlite import is_database, open_readonly
from fallback_audit.verifying.report import VerificationReport, read_state, write_state
from fallback_audit.verifying.sources import CheckpointSource, KeptNote
from fallback_audit.verifying.verify import verify as verify_store
from fallback_tier.advisory.vulnerability import Vulnerability, as_lines
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.progress import counting_bar
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result, print_shown
from fallback_tier.cli.suggesting import completed
from fallback_tier.errors import ConfigurationError, FallbackError, InputError
from fallback_tier.files.inputs import open_named
from fallback_tier.files.whole import write_whole
from fallback_tier.fix.journal.inputs import recorded_vulnerabilities
from fallback_tier.wiring.trail import (
    ReadOnlyTrail,
    audit_db,
    checkpoint_dir,
    evidence_dir,
    exported_checkpoints,
    keys_dir,
    open_evidence,
    read_checkpoints,
    read_trail,
    segment_dir,
)

STANDARD_INPUT = "-"


def verify(arguments: argparse.Namespace) -> int:
    """Print the report. Return TRAIL_BROKEN if anything is bad."""
    target = arguments.target
    if target is None:
        report = _record(arguments)
    elif target == STANDARD_INPUT or _is_export(Path(target)):
        report = _export(arguments, target)
    else:
        report = _copy(arguments, Path(target))
    if arguments.since_state and report.state is not None:
        write_state(Path(arguments.since_state), report.state)
    code = exit_codes.OK if report.ok else exit_codes.TRAIL_BROKEN
    return print_shown(arguments, report, lambda: render_report(report, Console(), completed), code)


def trusted(arguments: argparse.Namespace) -> Keyring:
    """Return the keys of --trust, otherwise the audit trail's own. Raises InputError, KeyringError."""
    if not arguments.trust:
        return Keyring.load(keys_dir(record(arguments)))
    keys: list[Verifier] = []
    for value in arguments.trust:
        path = Path(value)
        lines = (
            read_file("--trust", path).decode(errors="replace").split()
            if path.is_file()
            else [value]
        )
        keys += (_key(value, text) for text in lines)
    return Keyring(Path("--trust"), None, None, tuple(dict.fromkeys(keys)), ())


def _key(value: str, text: str) -> Verifier:
    try:
        return Verifier.parse(text)
    except KeyringError as error:
        raise InputError(
            f"--trust {value}: {error.problem}",
            next_step="Give the line that `fallback-tier audit keygen` prints, or a file of such lines.",
        ) from error


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Yield the file, or standard input. Raises InputError."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = open_named(Path(name))
    except OSError as error:
        raise _unreadable(name, error, "Check the path.") from error
    with file:
        yield file


@contextmanager
def unpacked(name: str, keyring: Keyring) -> Iterator[Spool]:
    """Yield the export in this file, or on standard input. Raises InputError if it is not an export, and
    AuditIntegrityError if it is cut or malformed."""
    shown = "standard input" if name == STANDARD_INPUT else name
    with opened(name) as file:
        try:
            spool = Spool(file, shown, keyring.verifiers())
        except NotAnExportError as error:
            raise InputError(error.problem, next_step=error.next_step, kind=error.kind) from error
        with spool:
            yield spool


@contextmanager
def counting(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, on a terminal only. Its callback gets the number of hashed events."""
    with counting_bar() as bar:
        task = bar.add_task("events hashed", total=total)
        yield lambda hashed: bar.update(task, completed=hashed)


def _record(arguments: argparse.Namespace) -> VerificationReport:
    settings, state = record(arguments), state_dir(arguments)
    source = read_checkpoints(state, settings, keyring=trusted(arguments), extra=_kept(arguments))
    with closing(read_trail(state, settings)) as reader:
        return _verified(arguments, reader, source)


def _copy(arguments: argparse.Namespace, path: Path) -> VerificationReport:
    """Verify a copy of a store's file; its checkpoints are where the options say."""
    settings, state = record(arguments), state_dir(arguments)
    keyring = trusted(arguments)
    source = read_checkpoints(state, settings, keyring=keyring, extra=_kept(arguments))
    with closing(open_readonly(path, verifiers=keyring.verifiers())) as reader:
        return _verified(arguments, reader, source)


def _verified(
    arguments: argparse.Namespace, reader: ReadOnlyTrail, source: CheckpointSource
) -> VerificationReport:
    state = state_dir(arguments)
    # Next to a copy from elsewhere there may be no evidence: the report says that none was read.
    reads_evidence = not arguments.no_evidence and (
        not arguments.target or evidence_dir(state).is_dir()
    )
    evidence = open_evidence(state) if reads_evidence else None
    since = read_state(Path(arguments.since_state)) if arguments.since_state else None
    with counting(reader.tip()[0]) as progress:
        return verify_store(
            reader,
            checkpoints=source,
            evidence=evidence,
            since=since,
            sealed=segment_dir(state),
            progress=progress,
        )


def _export(arguments: argparse.Namespace, name: str) -> VerificationReport:
    if arguments.since_state:
        raise ConfigurationError(
            "--since-state belongs to a store: an export is verified as a whole.",
            next_step="Leave it out.",
        )
    keyring = trusted(arguments)
    with unpacked(name, keyring) as spool:
        source = exported_checkpoints(
            record(arguments), keyring, *spool.notes(), extra=_kept(arguments)
        )
        if spool.head.fix_id is not None:
            return verify_fix(spool, source, with_evidence=not arguments.no_evidence)
        evidence = spool.evidence if spool.has_evidence and not arguments.no_evidence else None
        with counting(spool.head.last_seq) as progress:
            report = verify_store(
                spool,
                checkpoints=source,
                evidence=evidence,
                complete_evidence=False,
                progress=progress,
            )
        return report.model_copy(update={"notes": (*report.notes, *spool.remarks())})


def _kept(arguments: argparse.Namespace) -> tuple[KeptNote, ...]:
    paths = map(Path, arguments.checkpoint)
    return tuple(KeptNote(path, read_file("--checkpoint", path)) for path in paths)


def _is_export(path: Path) -> bool:
    """Return whether the file is an export. A store is not opened: that would drop the locks on it."""
    try:
        path.stat()
        if is_database(path):
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except FileNotFoundError as error:
        raise AuditStoreError(
            f"{path}: there is no such file.",
            next_step="Name a store's file, or an export.",
            kind="no_such_file",
        ) from error
    except OSError as error:
        raise _unreadable(str(path), error, "Name a store's file, or an export.") from error


def read_file(option: str, name: str | Path) -> bytes:
    """Return the content of a file that an option names; errors name it as it was typed. Raises InputError,
    or the error of a failing disk."""
    try:
        with open_named(Path(name)) as file:
            return file.read()
    except OSError as error:
        raise _unreadable(f"{option} {name}", error, "Check the path.") from error


def _unreadable(what: str, error: OSError, next_step: str) -> FallbackError:
    unreadable = InputError(f"{what}: {error.strerror or error}.", next_step=next_step)
    return blamed(error, what, unreadable)


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
        *(
            f"  {safe(text)}"
            for vulnerability in vulnerabilities
            for text in as_lines(vulnerability)
        ),
    )


def _vulnerabilities(
    fix_id: str | None, reader: AuditReader, evidence: FileEvidenceStore
) -> tuple[Vulnerability, ...]:
    """Return the vulnerabilities of the exported fix; of a whole trail none are printed."""
    stored = reader.events(fix_id, kinds=frozenset({FixStarted.__name__})) if fix_id else ()
    for started in (event.payload for event in stored):
        if isinstance(started, FixStarted):
            return recorded_vulnerabilities(started.inputs_sha256, evidence)
    return ()


def import_(arguments: argparse.Namespace) -> int:
    """Make a store from an export that verifies. Raises InputError if it is not an export,
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
            counts = import_export(spool, source, target, progress)
    return print_result(
        arguments,
        ImportDone(database=str(target.database), **counts._asdict()),
        f"{safe(str(target.database))}: {counts.events:,} events, {counts.checkpoints:,} checkpoints, "
        f"{counts.evidence:,} evidence files",
    )


@contextmanager
def _output(name: str | None) -> Iterator[BinaryIO]:
    """Yield standard output, or a new file with mode 0600, which appears once it is complete."""
    if name is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name).absolute()
    exists_error = InputError(
        f"--out {name}: it exists.", next_step="Name a new file.", kind="exists"
    )
    if path.exists():
        raise exists_error
    try:
        # An existing file is not replaced: it may be an export that is kept.
        with made_whole(path, f".{path.name}.", put=os.link) as file:
            yield file
    except FileExistsError as error:
        raise exists_error from error
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


Proof = InclusionProof | ConsistencyProof


def prove(arguments: argparse.Namespace) -> int:
    """Make a proof, or check one. Raises InputError, CheckpointError, AuditIntegrityError."""
    if arguments.check is not None:
        return _check(arguments)
    if (arguments.seq is None) == (arguments.old is None):
        raise InputError(
            "Name the event to prove, or --from with an old checkpoint: one of them.",
            next_step="`fallback-tier audit show FIX` prints the numbers of events.",
        )
    proof, signed = _make(arguments)
    if arguments.output:
        _write(Path(arguments.output), proof.text())
    elif not arguments.json:
        sys.stdout.write(proof.text().decode())
        return exit_codes.OK
    return print_result(
        arguments,
        {**_statement(proof, signed), "proof": proof.text().decode()},
        f"{safe(arguments.output or '')}: {_sentence(proof, signed)}",
    )


def _make(arguments: argparse.Namespace) -> tuple[Proof, SignedCheckpoint]:
    settings, folder = record(arguments), state_dir(arguments)
    keyring = Keyring.load(keys_dir(settings))
    log = CheckpointLog(checkpoint_dir(folder, settings))
    signed = log.latest(keyring)
    if signed is None:
        raise CheckpointError(
            f"There is no checkpoint in {log.folder}, so nothing can be proved.",
            next_step="Make one with `fallback-tier audit checkpoint`.",
            kind="no_checkpoint",
        )
    keys = keyring.verifiers()
    old = _old(arguments, keys)
    with closing(read_trail(folder, settings)) as reader:
        base = Start.of(reader.segments(), keys).frontier
        if old is not None:
            return prove_consistency(old, reader, signed, keys, base), signed
        return prove_inclusion(arguments.seq, reader, signed, keys, base), signed


def _check(arguments: argparse.Namespace) -> int:
    """Check a proof, without a store: only the file, the keys, and for consistency the old checkpoint."""
    if arguments.seq is not None or arguments.output:
        raise InputError(
            "--check takes neither an event nor --output.",
            next_step="Give the proof alone; --from names the old checkpoint of a consistency proof.",
        )
    keys = _trusted(arguments)
    data = read_file("--check", arguments.check)
    with _named("--check", arguments.check):
        proof, signed = _checked(arguments, data, keys)
    document = {"ok": True, **_statement(proof, signed)}
    return print_result(arguments, document, f"it holds: {_sentence(proof, signed)}")


def _checked(
    arguments: argparse.Namespace, data: bytes, keys: Collection[Verifier]
) -> tuple[Proof, SignedCheckpoint]:
    if data.startswith(INCLUSION_HEADER.encode()):
        proof = InclusionProof.parse(data)
        return proof, proof.checked(keys)
    consistency = ConsistencyProof.parse(data)
    old = _old(arguments, keys)
    if old is None:
        raise InputError(
            f"--check {arguments.check}: this proves that a log continues from an old checkpoint.",
            next_step="Name the old checkpoint that you kept, with --from.",
        )
    return consistency, consistency.checked(old, keys)


@contextmanager
def _named(option: str, name: str) -> Iterator[None]:
    try:
        yield
    except AuditIntegrityError as error:
        if error.problem.startswith("--"):
            raise
        raise AuditIntegrityError(
            f"{option} {name}: {error.problem}", next_step=error.next_step
        ) from error


def _trusted(arguments: argparse.Namespace) -> tuple[Verifier, ...]:
    keyring = trusted(arguments)
    keys = keyring.verifiers()
    if not keys:
        raise InputError(
            f"There is no trusted key in {keyring.folder}, so nothing can be checked.",
            next_step="Give the line that `audit keygen` printed there, with --trust.",
            kind="no_trusted_key",
        )
    return keys


def _old(arguments: argparse.Namespace, keys: Collection[Verifier]) -> Checkpoint | None:
    if arguments.old is None:
        return None
    note = read_file("--from", arguments.old)
    with _named("--from", arguments.old):
        return open_checkpoint(note, keys).checkpoint


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        unwritable = InputError(
            f"--output {path}: {error.strerror or error}.",
            next_step="Name a file that can be made.",
        )
        raise blamed(error, f"--output {path}", unwritable) from error


def _statement(proof: Proof, signed: SignedCheckpoint) -> dict[str, Any]:
    statement: dict[str, Any] = {
        "origin": signed.checkpoint.origin,
        "size": signed.checkpoint.size,
        "root": signed.checkpoint.root.hex(),
        "hashes": [digest.hex() for digest in proof.hashes],
        "signed_by": [key.vkey for key in signed.signed_by],
    }
    if isinstance(proof, InclusionProof):
        return statement | {"seq": proof.index + 1, "header": _header(proof)}
    return statement | {"old_size": proof.old}


def _header(proof: InclusionProof) -> Any:
    try:
        return json.loads(proof.header)
    except (ValueError, RecursionError):
        return None


def _sentence(proof: Proof, signed: SignedCheckpoint) -> str:
    log = f"{safe(signed.checkpoint.origin)}, {signed.checkpoint.size} events"
    if isinstance(proof, ConsistencyProof):
        return f"the first {proof.old} events are the same in the log {log}"
    header = _header(proof)
    event = header if isinstance(header, dict) else {}
    description = safe(
        f"{event.get('kind')} of {event.get('fix_id')} at {event.get('recorded_at')}"
    )
    return f"event {proof.index + 1} ({description}) is in the log {log}"
