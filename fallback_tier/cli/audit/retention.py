"""``fallback-tier audit redact``, ``seal`` and ``retire``: what keepers take away, on record."""

import argparse

from rich.console import Console

from fallback_audit.retention.choosing import Choice
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import Sealer
from fallback_audit.stores.appending import utc_now
from fallback_tier.cli import exit_codes
from fallback_tier.cli.audit.keeping import Keeping, keeping
from fallback_tier.cli.output import print_json
from fallback_tier.cli.progress import PlanProgress
from fallback_tier.cli.remediation import line, safe


def redact(arguments: argparse.Namespace) -> int:
    """Take words out of one event. Raises AuditStoreError."""
    with keeping(arguments) as kept:
        signers = kept.keyring.signers()
        done = Redactor(kept.store, kept.evidence, signers, clock=utc_now).redact(
            arguments.seq,
            arguments.field,
            by=arguments.by,
            reason=arguments.because,
            with_evidence=arguments.with_evidence,
        )
    if arguments.json:
        print_json(done.model_dump(mode="json"))
        return exit_codes.OK
    console = Console()
    was = "was redacted before" if done.finished else "is redacted"
    line(console, f"event {done.seq} ({done.kind} of {safe(done.fix_id)}) {was}:")
    line(console, f"  taken out   {safe(', '.join(done.fields))}")
    line(console, f"  on record   event {done.by_event}")
    for digest in done.evidence:
        line(console, f"  deleted     evidence {digest}")
    line(console, "  copies      earlier back-ups and exports still have the words")
    return exit_codes.OK


def seal(arguments: argparse.Namespace) -> int:
    """Move old events to a file. Raises AuditStoreError, AuditIntegrityError, CheckpointError."""
    dry_run = arguments.dry_run
    with PlanProgress(Console(stderr=True)) as shown, keeping(arguments, dry_run=dry_run) as kept:
        sealer = _sealer(kept, shown)
        done, choice = None, sealer.choose(arguments.before)
        if not dry_run:
            done = sealer.seal(
                arguments.before, kept.covered, by=arguments.by, reason=arguments.because
            )
            choice = done.choice if done else choice
    if arguments.json:
        print_json(
            {
                "sealed": done.model_dump(mode="json", exclude={"choice"}) if done else None,
                "choice": choice.model_dump(mode="json"),
            }
        )
        return exit_codes.OK
    console = Console()
    if done:
        path = safe(str(kept.segments / done.file))
        line(
            console, f"events {done.first_seq} to {done.last_seq} are sealed: segment {done.number}"
        )
        line(console, f"  file        {path}")
        line(console, f"  SHA-256     {done.sha256}")
        line(console, f"  on record   event {done.by_event}")
    elif choice.last_seq > choice.base:
        line(console, f"events {choice.base + 1} to {choice.last_seq} would be sealed")
    else:
        line(console, "nothing can be sealed")
    _show_held(console, choice)
    return exit_codes.OK


def retire(arguments: argparse.Namespace) -> int:
    """Delete a sealed file. Raises AuditStoreError, AuditIntegrityError."""
    with keeping(arguments) as kept:
        done = _sealer(kept).retire(arguments.segment, by=arguments.by, reason=arguments.because)
    if arguments.json:
        print_json(done.model_dump(mode="json"))
        return exit_codes.OK
    console = Console()
    line(console, f"segment {done.number} (events {done.first_seq} to {done.last_seq}) is retired:")
    line(console, f"  deleted     {safe(str(kept.segments / done.file))}")
    line(console, f"  on record   event {done.by_event}")
    line(console, "  its evidence goes with the next `fallback-tier audit evidence gc`")
    return exit_codes.OK


def _sealer(kept: Keeping, shown: PlanProgress | None = None) -> Sealer:
    def report(seq: int) -> None:
        if shown is not None and seq % 1_000 == 0:
            shown(f"sealing: event {seq:,}")

    return Sealer(kept.store, kept.segments, kept.keyring, clock=utc_now, progress=report)


def _show_held(console: Console, choice: Choice) -> None:
    if choice.last_seq == choice.old:
        return
    line(console, f"  old enough  up to event {choice.old}; held back by:")
    for held in choice.held_by:
        fix_id = safe(held.fix_id)
        why = (
            "it ended too recently"
            if held.over
            else f"it has not ended: `fallback-tier resume {fix_id}`, or `fallback-tier review show "
            f"{fix_id}`"
        )
        line(console, f"    {fix_id}, from event {held.first_seq}: {why}")
