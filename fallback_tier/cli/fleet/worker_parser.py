"""The options of ``worker``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import add_record
from fallback_tier.cli.exit_codes import epilog

#: Fixes that a worker has open at once, by default: each is a test suite that runs.
FIXES = 2


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``worker`` is told (docs/fleet.md)."""
    parser.description = (
        "Take fixes of campaigns whose engine is temporal, a process a fix, until a signal ends it:\n"
        "then open fixes end in good order, and another worker goes on with them from the record.\n"
        "It needs the extra: pip install 'fallback-tier[temporal]'"
    )
    parser.epilog = epilog()
    add_cluster(parser)
    parser.add_argument(
        "--fixes", type=int, default=FIXES, metavar="N", help="at once (default: 2)"
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
    add_record(parser)
    parser.add_argument(
        "--fleet-store", metavar="URL", help="where provider limits are shared (as for fleet run)"
    )
    parser.set_defaults(handler="fallback_tier.cli.fleet.working:run")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Where Temporal is."""
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
