"""The verbs of ``fallback-tier cache``."""

import argparse

from fallback_tier.cli.arguments import finish, whole_number


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Add the verbs ``list`` and ``clear``."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    shown = verbs.add_parser(
        "list",
        help="each entry: its kind, size, last use, and whether a run has it now",
        description="What projects declare, installed, and base commits, checked out. Both are made once,\n"
        "used by every fix that needs the same, checked when they are taken, and bounded.",
    )
    finish(shown, "cache:show_list", on_record=False)
    clear = verbs.add_parser(
        "clear",
        help="remove entries that no run uses",
        description="Remove what no run uses now. The next fix that needs it makes it again; the audit\n"
        "trail and the evidence stay as they are.",
    )
    clear.add_argument(
        "--older-than",
        type=whole_number,
        metavar="DAYS",
        help="only what was last used so many days ago or earlier (at least 1)",
    )
    finish(clear, "cache:clear", on_record=False)
