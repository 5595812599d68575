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
        """What was sealed, and what is in the store."""
        return History(self.store, self.segments, self.keyring.verifiers())


@contextmanager
def _keeping(arguments: argparse.Namespace, *, dry_run: bool = False) -> Iterator[_Keeping]:
    """Sign every event before anything is removed, and the events of the removal after it.

    ``dry_run``: the audit trail is opened for reading, so that nothing can be signed or made. Raises
    InputError for an empty name or reason, AuditStoreError if there is no trail yet; CheckpointError,
    KeyringError.
    """
    check_signature(Signature(by=arguments.by, because=arguments.because))
    settings, folder = record(arguments), state_dir(arguments)
    # There is one already: a wrong path makes no new record.
    with closing(read_trail(folder, settings)) as reader:
        if dry_run:
            yield _kept(reader, folder, settings, None)
            return
    with closing(open_trail(folder, settings)) as trail:
        covered = trail.checkpoint()
    # Opened again: this may have made the first key, which the store has to trust.
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
    """Take words out of one event. Raises AuditStoreError."""
    with _keeping(arguments) as kept:
        signers = kept.keyring.signers()
        done = Redactor(kept.store, kept.evidence, signers, clock=utc_now).redact(
            arguments.seq,
            arguments.field,
            by=arguments.by,
            reason=arguments.because,
            with_evidence=arguments.with_evidence,
        )
    was = "was redacted before" if done.finished else "is redacted"
    return print_result(
        arguments,
        done,
        f"event {done.seq} ({done.kind} of {safe(done.fix_id)}) {was}:",
        f"  taken out   {safe(', '.join(done.fields))}",
        f"  on record   event {done.by_event}",
        *(f"  deleted     evidence {digest}" for digest in done.evidence),
        "  copies      earlier back-ups and exports still have the words",
    )


def seal(arguments: argparse.Namespace) -> int:
    """Move old events to a file. Raises AuditStoreError, AuditIntegrityError, CheckpointError."""
    dry_run = arguments.dry_run
    with PlanProgress(Console(stderr=True)) as shown, _keeping(arguments, dry_run=dry_run) as kept:
        sealer = _sealer(kept, shown)
        done, choice = None, sealer.choose(arguments.before)
        if not dry_run:
            done = sealer.seal(
                arguments.before, kept.covered, by=arguments.by, reason=arguments.because
            )
            choice = done.choice if done else choice
    document = {
        "sealed": done.model_dump(mode="json", exclude={"choice"}) if done else None,
        "choice": choice.model_dump(mode="json"),
    }
    return print_result(arguments, document, *_sealed(kept, done, choice), *_held(choice))


def _sealed(kept: _Keeping, done: Sealed | None, choice: Choice) -> Iterator[str]:
    if done:
        yield f"events {done.first_seq} to {done.last_seq} are sealed: segment {done.number}"
        yield f"  file        {safe(str(kept.segments / done.file))}"
        yield f"  SHA-256     {done.sha256}"
        yield f"  on record   event {done.by_event}"
    elif choice.last_seq > choice.base:
        yield f"events {choice.base + 1} to {choice.last_seq} would be sealed"
    else:
        yield "nothing can be sealed"


def retire(arguments: argparse.Namespace) -> int:
    """Delete a sealed file. Raises AuditStoreError, AuditIntegrityError."""
    with _keeping(arguments) as kept:
        done = _sealer(kept).retire(arguments.segment, by=arguments.by, reason=arguments.because)
    return print_result(
        arguments,
        done,
        f"segment {done.number} (events {done.first_seq} to {done.last_seq}) is retired:",
        f"  deleted     {safe(str(kept.segments / done.file))}",
        f"  on record   event {done.by_event}",
        "  its evidence goes with the next `fallback-tier audit evidence gc`",
    )


def _sealer(kept: _Keeping, shown: PlanProgress | None = None) -> Sealer:
    def report(seq: int) -> None:
        if shown is not None and seq % 1_000 == 0:
            shown(f"sealing: event {seq:,}")

    return Sealer(kept.store, kept.segments, kept.keyring, clock=utc_now, progress=report)


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
    """Everything that events name. Exit code TRAIL_BROKEN where something is missing or altered."""
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
    """Delete what retention lets go. Raises InputError, AuditStoreError, EvidenceError."""
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
    with PlanProgress(Console(stderr=True)) as shown, _keeping(arguments, dry_run=dry_run) as kept:
        done = Collector(
            kept.store,
            kept.history,
            kept.evidence,
            clock=lambda: now,
            progress=_progress_of(shown, "collecting"),
        ).collect(limits, by=arguments.by, reason=arguments.because, dry_run=dry_run)
    return print_result(arguments, done, *_collected(done, arguments.max_bytes))


def _collected(done: Collection, max_bytes: int | None) -> Iterator[str]:
    went = "would go" if done.dry_run else "deleted"
    yield (
        f"{went}: {done.expired:,} of ended fixes, {done.orphans:,} that no event names, "
        f"{done.parts:,} parts; {done.removed_bytes:,} bytes"
    )
    if done.spared:
        yield f"  spared      {done.spared:,}: put or named again meanwhile"
    yield f"  kept        {done.kept:,} files, {done.kept_bytes:,} bytes"
    if max_bytes is not None and done.kept_bytes > max_bytes:
        yield "  over        the rest is of open fixes, or too young to be deleted"
    if done.seqs:
        yield f"  on record   event {', '.join(map(str, done.seqs))}"


def _progress_of(shown: PlanProgress, what: str) -> Callable[[int], None]:
    def report(count: int) -> None:
        if count % 100 == 0:
            shown(f"{what}: {count:,} files")

    return report
