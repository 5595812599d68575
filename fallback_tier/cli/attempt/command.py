"""``fallback-tier attempt``: one ``FallbackTier.run``, JSON in and out."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.options import configuration
from fallback_tier.errors import InputError, first_fault
from fallback_tier.limits import MAX_ADVISORY_BYTES
from fallback_tier.outcome import Applied, AttemptSummary
from fallback_tier.wiring import open_services

#: The advisory, three summaries, and room for a foreign orchestrator's spelling of them.
MAX_INPUT_BYTES = 2 * MAX_ADVISORY_BYTES


class AttemptRequest(Frozen):
    """What an orchestrator sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    advisory: dict[str, Any]
    repository: Path
    prior_attempts: tuple[AttemptSummary, ...] = ()
    fix_id: str | None = None
    gate_transition_id: str | None = None


def run(arguments: argparse.Namespace) -> int:
    """Read the request, run one attempt, print the application."""
    request = read_request(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1))
    advisory = parse_advisory(json.dumps(request.advisory).encode(), "standard input")
    with open_services(configuration(arguments), ecosystems=advisory.ecosystems) as services:
        inputs = services.inputs(
            advisory,
            request.repository,
            fix_id=request.fix_id,
            gate_transition_id=request.gate_transition_id,
        )
        application = services.tier.run(
            inputs.advisory,
            inputs.repo_ctx,
            inputs.recipe_selection,
            prior_attempts=request.prior_attempts,
        )
    sys.stdout.write(application.model_dump_json() + "\n")
    if isinstance(application, Applied):
        return exit_codes.OK
    return exit_codes.of_refusal(application.reason)


def read_request(data: bytes) -> AttemptRequest:
    """Parse and validate. Raises InputError naming the first thing that is wrong."""
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"The request is larger than {MAX_INPUT_BYTES:,} bytes.",
            next_step="Send one advisory and distilled summaries, not logs.",
        )
    try:
        return AttemptRequest.model_validate_json(data)
    except ValidationError as error:
        raise InputError(
            f"The request on standard input is not valid: {first_fault(error, 'the request')}.",
            next_step='Send {"advisory": {…OSV…}, "repository": "PATH", "prior_attempts": []}.',
        ) from error
