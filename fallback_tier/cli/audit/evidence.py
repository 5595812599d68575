"""``fallback-tier audit evidence``: is it all there, and what may go."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

from rich.console import Console

from fallback_audit.evidence.checking import EvidenceReport, check_evidence
from fallback_audit.retention.collect import Collection, Collector, Limits
from fallback_audit.stores.appending import utc_now
from fallback_tier.cli import exit_codes
from fallback_tier.cli.audit.keeping import keeping
from fallback_tier.cli.options import record, state_dir
from fallback_tier.cli.progress import PlanProgress
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.errors import InputError
from fallback_tier.wiring.trail import open_evidence, read_trail


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
    with PlanProgress(Console(stderr=True)) as shown, keeping(arguments, dry_run=dry_run) as kept:
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
