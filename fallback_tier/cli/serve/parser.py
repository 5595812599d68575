"""The options of ``serve``, added when it is called."""

import argparse

from fallback_tier.cli.arguments import add_record
from fallback_tier.cli.exit_codes import epilog


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """What ``serve`` is told; an option counts before the same setting of the file."""
    parser.description = (
        "Serve fixes over HTTP: submit, follow, decide, audit. It listens on this machine alone\n"
        "unless TLS or a trusted proxy is configured. The first start makes an admin's API key\n"
        "and prints it once. It needs the extra: pip install 'fallback-tier[serve]'"
    )
    parser.epilog = epilog()
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML: repositories, limits, models (docs/service-configuration.md)",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="listen there (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="default: 8765; 0: any free one")
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
    parser.set_defaults(handler="fallback_tier.cli.serve.command:run")
    parser.add_argument(
        "--demo",
        action="store_const",
        dest="handler",
        const="fallback_tier.demo.served:run",
        help="make a record with questions to decide (real fixes, a scripted model), and serve it",
    )
    add_record(parser)
