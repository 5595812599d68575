"""What the verbs of ``fallback-tier eval`` share: options of a kept report, and its check."""

import argparse
import sys
from collections.abc import Iterable

from fallback_audit.showing.describe import visible
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_json


def add_kept_report(
    parser: argparse.ArgumentParser, folder: str, *, report_help: str, check_help: str
) -> None:
    """Add ``--report``, whose default is ``folder``, ``--check`` and ``--again``."""
    parser.add_argument(
        "--report", metavar="DIR", default=folder, help=f"{report_help} (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help=f"run nothing: {check_help} (no: 6)")
    parser.add_argument(
        "--again", action="store_true", help="run nothing: make the report again from the rows"
    )


def print_check(faults: Iterable[str], *, as_json: bool, if_none: str) -> int:
    """Print the faults of a kept report, or ``if_none``. Return ENVIRONMENT if there is a fault."""
    listed = list(faults)
    if as_json:
        print_json({"faults": listed})
    else:
        for line in listed or [if_none]:
            sys.stdout.write(f"{visible(line)}\n")
    return exit_codes.ENVIRONMENT if listed else exit_codes.OK
