"""``fallback-tier audit verify``: the record itself, a copy of it, or an export."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.note import Verifier
from fallback_audit.disk_errors import blamed
from fallback_audit.errors import AuditStoreError, KeyringError, NotAnExportError
from fallback_audit.exporting.format import MAGIC
from fallback_audit.exporting.proved import verify_fix
from fallback_audit.exporting.spool import Spool
from fallback_audit.showing.render_report import render_report
from fallback_audit.stores.sqlite import is_database, open_readonly
from fallback_audit.verifying.report import VerificationReport, read_state, write_state
from fallback_audit.verifying.sources import CheckpointSource, KeptNote
from fallback_audit.verifying.verify import verify as verify_store
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.results import print_shown
from fallback_tier.cli.suggesting import completed
from fallback_tier.errors import ConfigurationError, FallbackError, InputError
from fallback_tier.files.inputs import open_named
from fallback_tier.wiring.trail import (
    ReadOnlyTrail,
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
    """Print the report. Exit code TRAIL_BROKEN where anything is bad."""
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
    """The keys of --trust, else those of the record. Raises InputError, KeyringError."""
    if not arguments.trust:
        return Keyring.load(keys_dir(record(arguments)))
    keys: list[Verifier] = []
    for given in arguments.trust:
        path = Path(given)
        lines = (
            read_file("--trust", path).decode(errors="replace").split()
            if path.is_file()
            else [given]
        )
        keys += (_key(given, text) for text in lines)
    return Keyring(Path("--trust"), None, None, tuple(dict.fromkeys(keys)), ())


def _key(given: str, text: str) -> Verifier:
    try:
        return Verifier.parse(text)
    except KeyringError as error:
        raise InputError(
            f"--trust {given}: {error.problem}",
            next_step="Give the line that `fallback-tier audit keygen` prints, or a file of such lines.",
        ) from error


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """The file, or standard input. Raises InputError."""
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
    """The export in this file, or on standard input. Raises InputError: it is none; AuditIntegrityError:
    it is cut or malformed."""
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
    """Show a bar on standard error, on a terminal only. Yield its callback: how many events are hashed."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
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
    # Beside a copy that was carried elsewhere there may be none: the report says that it was not read.
    asked = not arguments.no_evidence and (not arguments.target or evidence_dir(state).is_dir())
    evidence = open_evidence(state) if asked else None
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
    """What an option names, called as it was typed. Raises InputError, or what a disk failed with."""
    try:
        with open_named(Path(name)) as file:
            return file.read()
    except OSError as error:
        raise _unreadable(f"{option} {name}", error, "Check the path.") from error


def _unreadable(what: str, error: OSError, next_step: str) -> FallbackError:
    unreadable = InputError(f"{what}: {error.strerror or error}.", next_step=next_step)
    return blamed(error, what, unreadable)
