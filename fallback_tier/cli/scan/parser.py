"""The options of ``scan``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import (
    add_ages,
    add_allow_host,
    add_budget,
    add_config,
    add_delivery,
    add_json,
    add_no_sandbox,
    add_offline,
    add_on_violation,
    add_paths,
    add_prefer,
    add_record,
    add_scan_rules,
    add_test_limits,
    add_tests,
    add_verbosity,
)
from fallback_tier.cli.exit_codes import epilog
from fallback_tier.cli.model_options import add_model


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``scan`` takes: what it shows, and what ``fix`` takes but for what is about one advisory (a
    proof, whose code it is, the fix that is resumed)."""
    parser.description = (
        "Ask an OSV database which packages of REPO are affected, and show for each advisory\n"
        "its severity, how the package comes in, and the step that fixes it. Locks that are\n"
        "in step are read; otherwise the project's own client resolves. Nothing is written\n"
        "to REPO or to the audit trail. With --fix, what is shown is fixed as by `fix`."
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
    add_paths(parser)
    add_prefer(parser)
    add_offline(parser)
    add_allow_host(parser)
    add_ages(parser)
    add_config(parser)
    parser.add_argument(
        "--fix",
        action="store_true",
        help="make one patch for the advisories that are shown, prove it, and put it on the working tree, "
        "as `fix --advisory` with each of them; exit codes are those of fix, and 0 if there are none",
    )
    fix = parser.add_argument_group("with --fix, as for fix")
    add_delivery(fix)
    add_no_sandbox(fix)
    add_tests(fix)
    add_test_limits(fix)
    add_model(parser)
    add_budget(parser)
    add_record(parser)
    add_on_violation(parser)
    add_verbosity(parser)
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.scan.command:run")
