"""The options of ``resume``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import (
    add_allow_host,
    add_fix_id,
    add_json,
    add_on_violation,
    add_record,
    add_verbosity,
    count,
    dollars,
)
from fallback_tier.cli.exit_codes import epilog


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``resume`` is told: which fix, and what is different now."""
    parser.description = (
        "Continue a fix where its record ends: after a crash, after `review raise-budget`, or\n"
        "after `review reopen`. REPO, advisory, model and gates are those that it began with\n"
        "(keys are read from the environment). No gate that gave a verdict is run again, and no\n"
        "answer is paid twice. After `review reopen --gates-again` only the gates are run, and no\n"
        "model is asked."
    )
    parser.epilog = epilog()
    add_fix_id(parser, "audit log")
    parser.add_argument(
        "repository", metavar="REPO", nargs="?", help="where the checkout is now, if it was moved"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="prove the patch and print it; leave REPO as it is"
    )
    parser.add_argument("--output", metavar="FILE", help="write the proved patch to FILE as well")
    different = parser.add_argument_group("what is different now (default: as the fix began)")
    for option, metavar in (
        ("--model", "NAME"),
        ("--base-url", "URL"),
        ("--script", "FILE"),
        ("--judge-model", "NAME"),
        ("--judge-base-url", "URL"),
        ("--judge-script", "FILE"),
        ("--examples", "DB"),
        ("--price", "IN:OUT"),
    ):
        different.add_argument(option, metavar=metavar, help=f"as `fix {option}`")
    different.add_argument(
        "--no-sandbox", action="store_true", help="as for `fix`; recorded in the audit trail"
    )
    different.add_argument("--max-usd-per-day", type=dollars, metavar="N", help="as for `fix`")
    different.add_argument("--max-tokens-per-day", type=count, metavar="N", help="as for `fix`")
    add_allow_host(different)
    add_record(parser)
    add_on_violation(parser)
    add_verbosity(parser)
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.fix.resume:run")
