"""What an orchestrator sends, and the attempt that it asks for."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import InputError, first_fault
from fallback_tier.files.inputs import DuplicateKeyError, check_keys
from fallback_tier.limits import MAX_ADVISORY_BYTES
from fallback_tier.outcome import AttemptSummary, RecipeApplication
from fallback_tier.wiring import Configuration, open_services

#: Of a request's own id: a UUID with a prefix, and not a text to keep.
MAX_ID_CHARACTERS = 200

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


#: A text of some length, or an integer that every JSON reader has exactly.
Identifier = (
    Annotated[str, Field(strict=True, max_length=MAX_ID_CHARACTERS)]
    | Annotated[int, Field(strict=True, gt=-(2**53), lt=2**53)]
    | None
)


class ServedRequest(AttemptRequest):
    """One of many on one standard input; ``id`` is given back with its answer."""

    id: Identifier = None


def read_request(data: bytes, kind: type[AttemptRequest] = AttemptRequest) -> AttemptRequest:
    """Parse and validate. Raises InputError naming the first thing that is wrong."""
    check_size(data)
    try:
        check_keys(data)
    except DuplicateKeyError as error:
        raise InputError(
            f"The request on standard input is ambiguous: {error}.",
            next_step="Send each key of an object once.",
        ) from error
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise InputError(
            f"The request on standard input is not valid: {first_fault(error, 'the request')}.",
            next_step='Send {"advisory": {…OSV…}, "repository": "PATH", "prior_attempts": []}.',
        ) from error


def check_size(data: bytes) -> None:
    """Raises InputError for a request of more than ``MAX_INPUT_BYTES``."""
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"The request is larger than {MAX_INPUT_BYTES:,} bytes.",
            next_step="Send one advisory and distilled summaries, not logs.",
        )


def attempted(request: AttemptRequest, configuration: Configuration) -> RecipeApplication:
    """One attempt with parts of its own, which are closed at its end.

    Raises FallbackError: bad input, a repository that can't be used, a store that failed.
    """
    advisory = parse_advisory(json.dumps(request.advisory).encode(), "standard input")
    with open_services(configuration, ecosystems=advisory.ecosystems) as services:
        inputs = services.inputs(
            advisory,
            request.repository,
            fix_id=request.fix_id,
            gate_transition_id=request.gate_transition_id,
        )
        return services.tier.run(
            inputs.advisory,
            inputs.repo_ctx,
            inputs.recipe_selection,
            prior_attempts=request.prior_attempts,
        )
