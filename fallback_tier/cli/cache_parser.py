"""The verbs of ``fallback-tier cache``."""

from fallback_tier.cli.arguments import add_json, add_state
from fallback_tier.cli.audit.parser_retention import number

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    import argparse


def add_verbs(parser: "argparse.ArgumentParser") -> None:
    """list, clear."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    shown = verbs.add_parser(
        "list",
        help="each entry: its kind, size, last use, and whether a run has it now",
        description="What projects declare, installed, and base commits, checked out. Both are made once,\n"
        "used by every fix that needs the same, checked when they are taken, and bounded.",
    )
    _finish(shown, "show_list")
    clear = verbs.add_parser(
        "clear",
        help="remove entries that no run uses",
        description="Remove what no run uses now. The next fix that needs it makes it again; the audit\n"
        "trail and the evidence stay as they are.",
    )
    clear.add_argument(
        "--older-than",
        type=number,
        metavar="DAYS",
        help="only what was last used so many days ago or earlier (at least 1)",
    )
    _finish(clear, "clear")


def _finish(parser: "argparse.ArgumentParser", handler: str) -> None:
    add_state(parser)
    add_json(parser)
    parser.set_defaults(handler=f"fallback_tier.cli.cache:{handler}")
