"""The options of ``mcp``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import add_allow_host, add_offline, add_record


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What an agent may do is decided here, by the person who starts the server."""
    parser.description = (
        "Serve scan, plan, fix, and reading of reviews and of the audit trail as tools for a\n"
        "coding agent (Model Context Protocol, over standard input and output). An agent\n"
        "starts it. Models, budgets and keys are those of your settings, as for `fix`; an agent\n"
        "can't change them. It needs the extra: pip install 'fallback-tier[mcp]'"
    )
    parser.add_argument(
        "--root",
        action="append",
        metavar="DIR",
        help="a folder; only repositories and advisory files in it may be named (default: the current "
        "folder; can be given again)",
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="let the tool fix put a proved patch on the working tree, if an agent asks for it; without, "
        "every fix is a dry run",
    )
    parser.add_argument(
        "--advisory-url",
        metavar="URL",
        help="the OSV API to query (or FALLBACK_TIER_ADVISORY_URL; default: the public one)",
    )
    add_offline(parser)
    add_allow_host(parser)
    add_record(parser)
    parser.set_defaults(handler="fallback_tier.cli.mcp.command:run")
