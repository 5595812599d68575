"""The verbs of ``fleet`` and the options of ``worker``, added when one of them is called."""

import argparse

from fallback_tier.cli import arguments
from fallback_tier.cli.arguments import RECORD, add
from fallback_tier.cli.exit_codes import epilog

#: Fixes that a worker runs at once, by default: each runs a test suite.
_FIXES = 2


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Add the verbs about campaigns (docs/fleet.md)."""
    parser.description = (
        "Fix many advisories in many repositories: a campaign is a file, planned once into a\n"
        "list of fixes, which go on wherever they were when this command is given again."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    run = _verb(verbs, "run", "run a campaign, or go on with it where it was", "run_command:run")
    run.add_argument("file", metavar="CAMPAIGN.toml", help="docs/fleet.md has an example")
    run.add_argument(
        "--dry-run", action="store_true", help="show the plan; nothing is kept or started"
    )
    add(run, *RECORD)
    _add_store(run)
    add(run, "--json")
    example = verbs.add_parser("example", help="make a folder with a small campaign to try")
    example.add_argument("folder", metavar="DIR", help="a folder that is not there yet")
    example.set_defaults(handler="fallback_tier.demo.campaign:run")
    dev = verbs.add_parser(
        "dev",
        help="start a Temporal server on this machine, to try the engine (loopback, one file)",
        epilog=epilog(),
    )
    dev.add_argument("--port", type=int, default=7233, metavar="N", help="default: 7233")
    add(dev, "--state-dir")
    dev.set_defaults(handler="fallback_tier.cli.fleet.working:dev")
    status = _verb(verbs, "status", "show campaigns, or one with its fixes", "commands:status")
    status.add_argument("campaign", nargs="?", metavar="NAME", help="default: a line for each")
    status.add_argument("--follow", action="store_true", help="until it is over, or Ctrl-C")
    _add_common(status)
    _state_verb(verbs, "pause", "start nothing more; what runs goes on to its end")
    resume = _state_verb(
        verbs, "resume", "start again what was paused, and have failed fixes go on"
    )
    resume.description = (
        "A paused campaign starts fixes again. Failed and cancelled fixes of it are queued again, and go\n"
        "on by what is on record. `fleet run` must be at work, or be started."
    )
    _state_verb(verbs, "cancel", "start nothing more, and end what runs in good order")
    report = _verb(
        verbs, "report", "write what came of a campaign, as HTML and JSON", "commands:report"
    )
    report.add_argument("campaign", metavar="NAME", help="of the campaign")
    report.add_argument("--html", metavar="FILE", help="one page that needs no other file")
    _add_common(report)


def _verb(verbs: "arguments.Verbs", name: str, what: str, handler: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=what, epilog=epilog())
    module, _, function = handler.partition(":")
    parser.set_defaults(handler=f"fallback_tier.cli.fleet.{module}:{function}")
    return parser


def _state_verb(verbs: "arguments.Verbs", name: str, what: str) -> argparse.ArgumentParser:
    parser = _verb(verbs, name, what, f"commands:{name}")
    parser.add_argument("campaign", metavar="NAME", help="of the campaign")
    _add_common(parser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir", metavar="DIR", help="as for fleet run: where list and record are"
    )
    parser.add_argument(
        "--audit-store", metavar="URL", help="the record in PostgreSQL, as for fleet run"
    )
    _add_store(parser)
    add(parser, "--json")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fleet-store",
        metavar="URL",
        help="the list of campaigns in PostgreSQL, for several machines (default: SQLite in the "
        "state folder, or FALLBACK_TIER_FLEET_STORE)",
    )


def add_worker(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``worker`` (docs/fleet.md)."""
    parser.description = (
        "Take fixes of campaigns whose engine is temporal, a process a fix, until a signal ends it:\n"
        "then open fixes end in good order, and another worker goes on with them from the record.\n"
        "It needs the extra: pip install 'fallback-tier[temporal]'"
    )
    parser.epilog = epilog()
    _add_cluster(parser)
    parser.add_argument(
        "--fixes", type=int, default=_FIXES, metavar="N", help="at once (default: 2)"
    )
    parser.add_argument(
        "--host",
        default="",
        metavar="NAME",
        help="of this worker, no other's (default: by host and state folder)",
    )
    parser.add_argument(
        "--build",
        metavar="NAME",
        help="of this version: a fix that began under one is only taken by workers of it",
    )
    add(parser, *RECORD)
    parser.add_argument(
        "--fleet-store", metavar="URL", help="where provider limits are shared (as for fleet run)"
    )
    parser.set_defaults(handler="fallback_tier.cli.fleet.working:run")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--temporal",
        default="127.0.0.1:7233",
        metavar="HOST:PORT",
        help="the cluster (default: the one of `fallback-tier fleet dev`)",
    )
    parser.add_argument("--namespace", default="default", metavar="NAME", help="default: default")
    parser.add_argument("--tls-ca", metavar="FILE", help="who vouches for the cluster (PEM)")
    parser.add_argument("--tls-cert", metavar="FILE", help="this client's certificate (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key (PEM)")
