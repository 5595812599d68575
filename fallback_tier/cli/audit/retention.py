"""``fallback-tier audit redact``, ``seal`` and ``retire``: what keepers take away, on record."""

import argparse
from collections.abc import Iterator

from rich.console import Console

from fallback_audit.retention.choosing import Choice
from fallback_audit.retention.redact import Redactor
from fallback_audit.retention.seal import Sealed, Sealer
from fallback_audit.stores.appending import utc_now
from fallback_tier.cli.audit.keeping import Keeping, keeping
from fallback_tier.cli.progress import PlanProgress
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result


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
    with PlanProgress(Console(stderr=True)) as shown, keeping(arguments, dry_run=dry_run) as kept:
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


def _sealed(kept: Keeping, done: Sealed | None, choice: Choice) -> Iterator[str]:
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
    with keeping(arguments) as kept:
        done = _sealer(kept).retire(arguments.segment, by=arguments.by, reason=arguments.because)
    return print_result(
        arguments,
        done,
        f"segment {done.number} (events {done.first_seq} to {done.last_seq}) is retired:",
        f"  deleted     {safe(str(kept.segments / done.file))}",
        f"  on record   event {done.by_event}",
        "  its evidence goes with the next `fallback-tier audit evidence gc`",
    )


def _sealer(kept: Keeping, shown: PlanProgress | None = None) -> Sealer:
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
