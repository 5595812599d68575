"""The options of ``attempt``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import (
    add_ages,
    add_allow_host,
    add_budget,
    add_offline,
    add_on_violation,
    add_record,
    add_whose_code,
)
from fallback_tier.cli.exit_codes import epilog
from fallback_tier.cli.model_options import add_model


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``attempt`` is told besides its standard input."""
    parser.description = (
        "Read one JSON object from standard input: advisory (OSV), repository (path),\n"
        "and optionally prior_attempts, fix_id, gate_transition_id.\n"
        "Print one RecipeApplication."
    )
    parser.epilog = epilog()
    parser.add_argument(
        "--serve",
        action="store_true",
        help="read one such object a line until the input ends, each with an id of its own if you "
        "like, and print an answer a line (docs/attempt-serve.md): without the cost of a start each",
    )
    add_whose_code(parser)
    add_offline(parser)
    add_allow_host(parser)
    add_ages(parser)
    add_model(parser)
    add_budget(parser)
    add_record(parser)
    add_on_violation(parser)
    parser.set_defaults(handler="fallback_tier.cli.attempt.command:run", json=True)
