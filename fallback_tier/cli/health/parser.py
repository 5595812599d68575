"""The options of ``health`` and ``doctor``, added when one of them is called."""

import argparse

from fallback_tier.cli.arguments import add_allow_host, add_json, add_record
from fallback_tier.cli.exit_codes import BAD_INPUT, ENVIRONMENT, MEANING, OK, epilog

_EXIT_CODES = {
    OK: "ready; what is degraded is listed",
    BAD_INPUT: MEANING[BAD_INPUT],
    ENVIRONMENT: "not ready: no fix should be begun",
}


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What is looked at: the same parts that a fix with these options would use."""
    parser.description = (
        "Look at what a fix needs, without beginning one: the store, the checkpoints, the\n"
        "keys, the disk, the sandbox, the model and its judge. Each is shown with its reason\n"
        "and, where something is wrong, the next step. Nothing is written, and no model is\n"
        "asked: only whether its server answers and takes the key."
    )
    _add_parts(parser)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a service's file (`serve --config`): state folder, record and model are the service's",
    )
    parser.set_defaults(handler="fallback_tier.cli.health.command:run")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """What `health` looks at, and this machine."""
    parser.description = (
        "Look at all that a fix needs, without beginning one: what `health` looks at, and\n"
        "whether REPO is a clean checkout, git and the package clients with their versions,\n"
        "the registries that they may ask, proxies, the clock, and folders that must be\n"
        "written. Each is shown with its reason and, where something is wrong, the next\n"
        "step. Nothing is written. Each registry is asked for one page; with --offline none."
    )
    parser.add_argument(
        "repository",
        nargs="?",
        metavar="REPO",
        help="the checkout to be fixed: its ecosystems alone are looked at (default: all)",
    )
    _add_parts(parser)
    parser.add_argument("--offline", action="store_true", help="ask no registry")
    add_allow_host(parser)
    parser.set_defaults(handler="fallback_tier.cli.health.command:diagnose")


def _add_parts(parser: argparse.ArgumentParser) -> None:
    parser.epilog = epilog(_EXIT_CODES)
    parser.add_argument("--model", metavar="NAME", help="as for fix")
    parser.add_argument("--base-url", metavar="URL", help="as for fix")
    parser.add_argument("--judge-model", metavar="NAME", help="as for fix")
    parser.add_argument("--judge-base-url", metavar="URL", help="as for fix")
    parser.add_argument(
        "--no-sandbox", action="store_true", help="as for fix: the sandbox is not tried"
    )
    add_record(parser)
    add_json(parser)
