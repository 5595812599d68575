"""``fallback-tier abandon``: a fix that was interrupted, and that is not to be resumed, ends for good."""

import argparse

from fallback_tier.cli.options import state_dir, user_name
from fallback_tier.cli.remediation import safe
from fallback_tier.cli.results import print_result
from fallback_tier.cli.review.command import deciding
from fallback_tier.gates.journal.abandonment import abandon
from fallback_tier.gates.journal.review import Signature


def run(arguments: argparse.Namespace) -> int:
    """Record who abandons the fix, and why. Raises InputError if it has ended; HeldError if another process
    runs it."""
    by = user_name() if arguments.by is None else arguments.by
    signature = Signature(by=by, because=arguments.reason)
    with deciding(arguments) as audit:
        event = abandon(audit, state_dir(arguments), arguments.fix_id, signature)
    return print_result(
        arguments,
        {"fix_id": arguments.fix_id, **event.model_dump(mode="json")},
        f"[bold]abandoned[/]  {safe(arguments.fix_id)} by {safe(event.by)}",
    )
