"""``fallback-tier review``: a person's answers to what a fix asked."""

import argparse
from contextlib import closing

from rich.console import Console

from fallback_audit.events import BudgetRaised
from fallback_audit.sqlite_store import SqliteAuditStore, open_readonly
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import state_dir
from fallback_tier.cli.output import print_json
from fallback_tier.cli.remediation import line, safe
from fallback_tier.gates.resume import raise_budget as record_raise
from fallback_tier.gates.resume import resuming
from fallback_tier.wiring import audit_db


def raise_budget(arguments: argparse.Namespace) -> int:
    """Record who raised a cap, and why. Raises InputError where there is nothing to raise."""
    place = audit_db(state_dir(arguments))
    open_readonly(place).close()  # a store that is not there is an error here, not a new store
    raised = BudgetRaised(
        by=arguments.by,
        reason=arguments.because,
        usd_per_fix=arguments.max_usd,
        tokens_per_fix=arguments.max_tokens,
    )
    # Held as a fix that goes on holds it: what is raised now must stand before its next attempt.
    with (
        resuming(state_dir(arguments), arguments.fix_id),
        closing(SqliteAuditStore(place)) as audit,
    ):
        reached = record_raise(audit, arguments.fix_id, raised)
    if arguments.json:
        print_json({"fix_id": arguments.fix_id, "limit": reached.limit, **raised.model_dump()})
    else:
        console = Console()
        line(console, f"[bold]raised[/]  {safe(arguments.fix_id)} ({reached.limit})")
        line(
            console,
            "  next: fallback-tier fix REPO --advisory FILE --resume "
            f"{safe(arguments.fix_id)}, with the options as before",
        )
    return exit_codes.OK
