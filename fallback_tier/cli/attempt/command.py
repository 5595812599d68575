"""``fallback-tier attempt``: one ``FallbackTier.run``, JSON in and out."""

import argparse
import sys

from fallback_tier.cli import exit_codes
from fallback_tier.cli.attempt.request import MAX_INPUT_BYTES, attempted, read_request
from fallback_tier.cli.options import configuration
from fallback_tier.outcome import Applied


def run(arguments: argparse.Namespace) -> int:
    """Read the request, run one attempt, print the application; with ``--serve`` one a line."""
    if arguments.serve:
        from fallback_tier.cli.attempt.serving import serve

        return serve(arguments)
    request = read_request(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1))
    application = attempted(request, configuration(arguments))
    sys.stdout.write(application.model_dump_json() + "\n")
    if isinstance(application, Applied):
        return exit_codes.OK
    return exit_codes.of_refusal(application.reason)
