"""Retention: ``fallback-tier audit redact``, ``seal``, ``retire``, ``evidence check`` and ``evidence gc``.

Each removal is recorded in the audit trail.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

from rich.console import Console

from fallback_audit.checkpoints.checkpoint import SignedCheckpoint
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.evidence.checking import EvidenceReport, check_evidence
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.retention.collect import Collection, Collector, Limits
from fallback_audit.retention.history import History
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import Choice, SealableStore, Sealed, Sealer
from fallback_audit.stores.appending import utc_now
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.progress import PlanProgress
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.review import Signature, check_signature
from fallback_tier.wiring.trail import (
    RecordSettings,
    keys_dir,
    open_evidence,
    open_trail,
    read_trail,
    segment_dir,
)


@dataclass(frozen=True)
class _Keeping:
    """The opened audit trail. ``covered``: the checkpoint over all earlier events; None in a dry run."""

    store: SealableStore
    evidence: FileEvidenceStore
    segments: Path
    keyring: Keyring
    covered: SignedCheckpoint | None

    @property
    def history(self) -> History:
        """Sealed segments, and the events in the store."""
        return History(self.store, self.segments, self.keyring.verifiers())


@contextmanager
def _keeping(arguments: argparse.Namespace, *, dry_run: bool = False) -> Iterator[_Keeping]:
    """Sign every event before anything is removed, and afterwards the events of the removal.

    ``dry_run``: the audit trail is opened for reading, so that nothing can be signed or made. Raises
    InputError for an empty name or reason, AuditStoreError if there is no trail yet; CheckpointError,
    KeyringError.
    """
    check_signature(Signature(by=arguments.by, because=arguments.because))
    settings, folder = record(arguments), state_dir(arguments)
    # Only an existing trail is opened: a wrong path makes no new record.
    with closing(read_trail(folder, settings)) as reader:
        if dry_run:
            yield _kept(reader, folder, settings, None)
            return
    with closing(open_trail(folder, settings)) as trail:
        covered = trail.checkpoint()
    # Opened again: the checkpoint may have made the first key, which the store has to trust.
    with closing(open_trail(folder, settings)) as trail:
        yield _kept(trail.store, folder, settings, covered)
        trail.checkpoint()


def _kept(
    store: object, folder: Path, settings: RecordSettings, covered: SignedCheckpoint | None
) -> _Keeping:
    return _Keeping(
        # Every store can do this; a reader can show what would be done.
        store=cast("SealableStore", store),
        evidence=open_evidence(folder),
        segments=segment_dir(folder),
        keyring=Keyring.load(keys_dir(settings)),
        covered=covered,
    )


def redact(arguments: argparse.Namespace) -> int:
    """Remove text from one event. Raises AuditStoreError."""
    with _keeping(arguments) as keeping:
        signers = keeping.keyring.signers()
        redacted = Redactor(keeping.store, keeping.evidence, signers, clock=utc_now).redact(
            arguments.seq,
            arguments.field,
            by=arguments.by,
            reason=arguments.because,
            with_evidence=arguments.with_evidence,
        )
    state = "was redacted before" if redacted.finished else "is redacted"
    return print_result(
        arguments,
        redacted,
        f"event {redacted.seq} ({redacted.kind} of {safe(redacted.fix_id)}) {state}:",
        f"  taken out   {safe(', '.join(redacted.fields))}",
        f"  on record   event {redacted.by_event}",
        *(f"  deleted     evidence {digest}" for digest in redacted.evidence),
        "  copies      earlier back-ups and exports still have the words",
    )


def seal(arguments: argparse.Namespace) -> int:
    """Move old events to a file. Raises AuditStoreError, AuditIntegrityError, CheckpointError."""
    dry_run = arguments.dry_run
    with (
        PlanProgress(Console(stderr=True)) as shown,
        _keeping(arguments, dry_run=dry_run) as keeping,
    ):
        sealer = _sealer(keeping, shown)
        sealed, choice = None, sealer.choose(arguments.before)
        if not dry_run:
            sealed = sealer.seal(
                arguments.before, keeping.covered, by=arguments.by, reason=arguments.because
            )
            choice = sealed.choice if sealed else choice
    document = {
        "sealed": sealed.model_dump(mode="json", exclude={"choice"}) if sealed else None,
        "choice": choice.model_dump(mode="json"),
    }
    return print_result(arguments, document, *_sealed(keeping, sealed, choice), *_held(choice))


def _sealed(keeping: _Keeping, sealed: Sealed | None, choice: Choice) -> Iterator[str]:
    if sealed:
        yield f"events {sealed.first_seq} to {sealed.last_seq} are sealed: segment {sealed.number}"
        yield f"  file        {safe(str(keeping.segments / sealed.file))}"
        yield f"  SHA-256     {sealed.sha256}"
        yield f"  on record   event {sealed.by_event}"
    elif choice.last_seq > choice.base:
        yield f"events {choice.base + 1} to {choice.last_seq} would be sealed"
    else:
        yield "nothing can be sealed"


def retire(arguments: argparse.Namespace) -> int:
    """Delete a sealed file. Raises AuditStoreError, AuditIntegrityError."""
    with _keeping(arguments) as keeping:
        retired = _sealer(keeping).retire(
            arguments.segment, by=arguments.by, reason=arguments.because
        )
    return print_result(
        arguments,
        retired,
        f"segment {retired.number} (events {retired.first_seq} to {retired.last_seq}) is retired:",
        f"  deleted     {safe(str(keeping.segments / retired.file))}",
        f"  on record   event {retired.by_event}",
        "  its evidence goes with the next `fallback-tier audit evidence gc`",
    )


def _sealer(keeping: _Keeping, shown: PlanProgress | None = None) -> Sealer:
    def report(seq: int) -> None:
        if shown is not None and seq % 1_000 == 0:
            shown(f"sealing: event {seq:,}")

    return Sealer(keeping.store, keeping.segments, keeping.keyring, clock=utc_now, progress=report)


def _held(choice: Choice) -> Iterator[str]:
    if choice.last_seq == choice.old:
        return
    yield f"  old enough  up to event {choice.old}; held back by:"
    for held in choice.held_by:
        fix_id = safe(held.fix_id)
        why = (
            "it ended too recently"
            if held.over
            else f"it has not ended: `fallback-tier resume {fix_id}`, "
            f"`fallback-tier review show {fix_id}`, or `fallback-tier abandon {fix_id} --reason TEXT`"
        )
        yield f"    {fix_id}, from event {held.first_seq}: {why}"


def check(arguments: argparse.Namespace) -> int:
    """Check all evidence that events name. Return TRAIL_BROKEN if something is missing or altered."""
    settings, folder = record(arguments), state_dir(arguments)
    evidence = open_evidence(folder)
    with (
        PlanProgress(Console(stderr=True)) as shown,
        closing(read_trail(folder, settings)) as reader,
    ):
        report = check_evidence(reader, evidence, progress=_progress_of(shown, "checking"))
    print_result(arguments, report, *_found(report))
    return exit_codes.OK if report.ok else exit_codes.TRAIL_BROKEN


def _found(report: EvidenceReport) -> Iterator[str]:
    yield f"evidence    {report.files:,} files, {report.bytes:,} bytes"
    yield f"  named     {report.named:,} by events, {report.private:,} of them private"
    if report.removed:
        yield f"  removed   {report.removed:,}: their retention was over, which is on record"
    if report.locked:
        yield f"  locked    {report.locked:,}: an earlier release encrypted them"
    for machine, count in report.elsewhere.items():
        yield f"  elsewhere {count:,} on another machine, {safe(machine)}: check them there"
    if report.parts:
        yield f"  parts     {report.parts:,} of files that were never whole"
    for bad in report.bad:
        yield f"  [red]bad[/]       event {bad.seq} of {safe(bad.fix_id)}: {safe(bad.problem)}"
    if report.bad_count > len(report.bad):
        yield f"  … and {report.bad_count - len(report.bad):,} more"
    yield "all of it is there" if report.ok else f"[red]{report.bad_count:,} bad[/]"


def gc(arguments: argparse.Namespace) -> int:
    """Delete evidence whose retention is over. Raises InputError, AuditStoreError, EvidenceError."""
    if arguments.older_than is None and arguments.max_bytes is None:
        raise InputError(
            "Nothing says what may be deleted.",
            next_step="Give --older-than DAYS, --max-bytes N, or both.",
        )
    now = utc_now()
    try:
        days = arguments.older_than
        older_than = None if days is None else now - timedelta(days=days)
    except OverflowError as error:
        raise InputError(
            f"--older-than {days}: that is before the calendar begins.",
            next_step="Give fewer days.",
        ) from error
    limits = Limits(older_than=older_than, max_bytes=arguments.max_bytes)
    dry_run = arguments.dry_run
    with (
        PlanProgress(Console(stderr=True)) as shown,
        _keeping(arguments, dry_run=dry_run) as keeping,
    ):
        collected = Collector(
            keeping.store,
            keeping.history,
            keeping.evidence,
            clock=lambda: now,
            progress=_progress_of(shown, "collecting"),
        ).collect(limits, by=arguments.by, reason=arguments.because, dry_run=dry_run)
    return print_result(arguments, collected, *_collected(collected, arguments.max_bytes))


def _collected(collected: Collection, max_bytes: int | None) -> Iterator[str]:
    verb = "would go" if collected.dry_run else "deleted"
    yield (
        f"{verb}: {collected.expired:,} of ended fixes, {collected.orphans:,} that no event names, "
        f"{collected.parts:,} parts; {collected.removed_bytes:,} bytes"
    )
    if collected.spared:
        yield f"  spared      {collected.spared:,}: put or named again meanwhile"
    yield f"  kept        {collected.kept:,} files, {collected.kept_bytes:,} bytes"
    if max_bytes is not None and collected.kept_bytes > max_bytes:
        yield "  over        the rest is of open fixes, or too young to be deleted"
    if collected.seqs:
        yield f"  on record   event {', '.join(map(str, collected.seqs))}"


def _progress_of(shown: PlanProgress, what: str) -> Callable[[int], None]:
    def report(count: int) -> None:
        if count % 100 == 0:
            shown(f"{what}: {count:,} files")

    return report
