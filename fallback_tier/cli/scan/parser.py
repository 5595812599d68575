"""The options of ``scan``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import (
    add_ages,
    add_allow_host,
    add_json,
    add_offline,
    add_prefer,
    add_scan_rules,
)
from fallback_tier.cli.exit_codes import epilog


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``scan`` takes."""
    parser.description = (
        "Ask an OSV database which packages of REPO are affected, and show for each advisory\n"
        "its severity, how the package comes in, and the step that fixes it. Locks that are\n"
        "in step are read; otherwise the project's own client resolves. Nothing is written\n"
        "to REPO or to the audit trail."
    )
    parser.epilog = epilog()
    parser.add_argument(
        "repository",
        nargs="?",
        default=".",
        metavar="REPO",
        help="a clean git checkout, or a folder in it (default: .)",
    )
    add_scan_rules(parser)
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
        "--config",
        metavar="FILE",
        help="TOML with [tool.fallback-tier], instead of the base commit's own",
    )
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="as for fix; a scan keeps only the database's answers there",
    )
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.scan.command:run")
