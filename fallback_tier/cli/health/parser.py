"""The options of ``health``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import add_json, add_record


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What is looked at: the same parts that a fix with these options would use."""
    parser.description = (
        "Look at what a fix needs, without beginning one: the store, the checkpoints, the\n"
        "keys, the disk, the sandbox, the model and its judge. Each is shown with its reason\n"
        "and, where something is wrong, the next step. Nothing is written, and no model is\n"
        "asked: only whether its server answers and takes the key."
    )
    parser.epilog = (
        "exit codes:\n  0  ready; what is degraded is listed\n  2  bad input\n"
        "  6  not ready: no fix should be begun"
    )
    parser.add_argument("--model", metavar="NAME", help="as for fix")
    parser.add_argument("--base-url", metavar="URL", help="as for fix")
    parser.add_argument("--judge-model", metavar="NAME", help="as for fix")
    parser.add_argument("--judge-base-url", metavar="URL", help="as for fix")
    parser.add_argument(
        "--no-sandbox", action="store_true", help="as for fix: the sandbox is not tried"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a service's file (`serve --config`): state folder, record and model are the service's",
    )
    add_record(parser)
    add_json(parser)
    parser.set_defaults(handler="fallback_tier.cli.health.command:run")
