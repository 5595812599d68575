"""``fallback-tier audit``: read the trail, show a fix, verify everything."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.showing.judging_stats import KINDS, judging_stats
from fallback_audit.showing.render import Renderer, fix_json, log_json
from fallback_audit.stores.sqlite import SqliteAuditReader, open_readonly
from fallback_audit.verifying.verify import verify as verify_store
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import state_dir
from fallback_tier.cli.output import print_json
from fallback_tier.cli.remediation import line, safe
from fallback_tier.errors import InputError
from fallback_tier.wiring import audit_db, evidence_dir


@contextmanager
def _reader(arguments: argparse.Namespace) -> Iterator[SqliteAuditReader]:
    reader = open_readonly(audit_db(state_dir(arguments)))
    try:
        yield reader
    finally:
        reader.close()


def log(arguments: argparse.Namespace) -> int:
    """One row a gate transition."""
    with _reader(arguments) as reader:
        if arguments.json:
            print_json({"fixes": log_json(reader.events())})
        else:
            Renderer(Console()).render_log(reader.events())
    return exit_codes.OK


def show(arguments: argparse.Namespace) -> int:
    """One fix, event by event. Raises InputError for a fix that is not on record."""
    with _reader(arguments) as reader:
        events = list(reader.events(arguments.fix_id))
        if not events:
            raise InputError(
                f"There is no fix {arguments.fix_id!r} in the audit trail.",
                next_step="`fallback-tier audit log` lists those on record.",
            )
        evidence = FileEvidenceStore(evidence_dir(state_dir(arguments)))
        if arguments.json:
            print_json(fix_json(events, evidence))
        else:
            Renderer(Console()).render_fix(events, evidence)
    return exit_codes.OK


def verify(arguments: argparse.Namespace) -> int:
    """The chain, the evidence, the trace contract. Exit code TRAIL_BROKEN where one fails."""
    folder = evidence_dir(state_dir(arguments))
    evidence = FileEvidenceStore(folder)
    with _reader(arguments) as reader:
        report = verify_store(reader, evidence=evidence)
    if arguments.json:
        print_json(report.model_dump(mode="json"))
    else:
        Renderer(Console()).render_report(report)
    return exit_codes.OK if report.ok else exit_codes.TRAIL_BROKEN


def stats(arguments: argparse.Namespace) -> int:
    """How often a judge changed something, and what that added to an attempt."""
    with _reader(arguments) as reader:
        counted = judging_stats(reader.events(kinds=KINDS))
    if arguments.json:
        print_json(counted.model_dump(mode="json"))
        return exit_codes.OK
    console = Console()
    line(console, f"plans proposed by a model   {counted.proposed}")
    line(console, f"  judged                    {counted.judged}")
    line(
        console,
        f"  regenerated               {counted.regenerated}{_share(counted.regeneration_rate)}",
    )
    line(console, f"  handed on with a flag     {counted.flagged}{_share(counted.flag_rate)}")
    if counted.added_ms_p50 is not None:
        line(console, f"  added by the judge        {counted.added_ms_p50 / 1_000:.1f} s (median)")
    if counted.regeneration_ms_p50 is not None:
        line(
            console,
            f"  a regeneration            {counted.regeneration_ms_p50 / 1_000:.1f} s (median)",
        )
    for reason, count in sorted(counted.not_evaluated.items()):
        line(console, f"  not evaluated             {count}: {safe(reason)}")
    return exit_codes.OK


def _share(rate: float | None) -> str:
    return "" if rate is None else f" ({rate:.0%} of those judged)"
