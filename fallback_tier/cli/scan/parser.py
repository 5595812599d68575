"""The options of ``scan``, added when it is called."""

import argparse
from datetime import date

from fallback_tier.cli.arguments import (
    add_ages,
    add_allow_host,
    add_json,
    add_offline,
    add_prefer,
)
from fallback_tier.cli.exit_codes import epilog

#: What ``--severity`` takes, the lowest first.
LEVELS = ("low", "medium", "high", "critical")


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``scan`` takes."""
    parser.description = (
        "Ask an OSV database which packages of REPO are affected, and show for each advisory\n"
        "its severity, how the package comes in, and the step that fixes it. Locks that are\n"
        "in step are read; otherwise the project's own client resolves. Nothing is written\n"
        "to REPO or to the audit trail."
    )
    parser.epilog = epilog()
    parser.add_argument("repository", metavar="REPO", help="a clean git checkout")
    parser.add_argument(
        "--severity",
        choices=LEVELS,
        help="show this severity and higher ones, and those that no database states",
    )
    parser.add_argument(
        "--production",
        action="store_true",
        help="leave out what is installed for development alone",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=ignored,
        metavar="ID,DATE,REASON",
        help="leave this advisory until the end of DATE (2026-12-31), and say so; may be repeated",
    )
    parser.add_argument(
        "--advisory-url",
        metavar="URL",
        help="the OSV API to ask (or FALLBACK_TIER_ADVISORY_URL; default: the public one)",
    )
    parser.add_argument(
        "--no-resolve",
        action="store_true",
        help="predict the steps from the files alone; what is installed is read or resolved all the same",
    )
    add_prefer(parser)
    add_offline(parser)
    add_allow_host(parser)
    add_ages(parser)
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="as for fix; a scan keeps only the database's answers there",
    )
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.scan.command:run")


def ignored(text: str) -> tuple[str, date, str]:
    """``ID,DATE,REASON``. Raises ArgumentTypeError: a part is missing, or the date is none."""
    name, _, rest = text.partition(",")
    day, _, reason = rest.partition(",")
    try:
        until = date.fromisoformat(day.strip())
    except ValueError:
        until = None
    if not name.strip() or until is None or not reason.strip():
        message = f"{text!r} is not ID,DATE,REASON (GHSA-…,2026-12-31,no untrusted input)"
        raise argparse.ArgumentTypeError(message)
    return name.strip(), until, reason.strip()
