"""``fallback-tier attempt``: one ``FallbackTier.run``, JSON in and out; with ``--serve`` one per line.

A serving process makes the attempts one after the other, each with its own stores, plugins and clients,
which are closed at its end (ADR-0126). Standard input and output belong to the protocol alone.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import explained
from fallback_tier.cli.options import configuration
from fallback_tier.cli.output import as_object
from fallback_tier.errors import InputError, first_fault
from fallback_tier.files.inputs import DuplicateKeyError, check_keys, parse_json
from fallback_tier.limits import MAX_ADVISORY_BYTES
from fallback_tier.outcome import Applied, AttemptSummary, RecipeApplication
from fallback_tier.wiring import Configuration, open_services

#: Most characters of a request's own id: a UUID with a prefix, not a text to store.
MAX_ID_CHARACTERS = 200

#: Most bytes of a request: the advisory, three summaries, and room for foreign spellings of them.
MAX_INPUT_BYTES = 2 * MAX_ADVISORY_BYTES

#: A text of bounded length, or an integer that every JSON parser reads exactly.
_Identifier = (
    Annotated[str, Field(strict=True, max_length=MAX_ID_CHARACTERS)]
    | Annotated[int, Field(strict=True, gt=-(2**53), lt=2**53)]
    | None
)

_identifiers: TypeAdapter[_Identifier] = TypeAdapter(_Identifier)

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class AttemptRequest(Frozen):
    """What an orchestrator sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    advisory: dict[str, Any]
    repository: Path
    prior_attempts: tuple[AttemptSummary, ...] = ()
    fix_id: str | None = None
    gate_transition_id: str | None = None


class ServedRequest(AttemptRequest):
    """One of many on one standard input; ``id`` is given back with its answer."""

    id: _Identifier = None


def _read_request(data: bytes, kind: type[AttemptRequest] = AttemptRequest) -> AttemptRequest:
    """Parse and validate a request. Raises InputError naming the first fault."""
    _check_size(data)
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


def _check_size(data: bytes) -> None:
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"The request is larger than {MAX_INPUT_BYTES:,} bytes.",
            next_step="Send one advisory and distilled summaries, not logs.",
        )


def _attempted(request: AttemptRequest, configuration: Configuration) -> RecipeApplication:
    """Make one attempt with separate stores, plugins and clients, which are closed at its end.

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


def run(arguments: argparse.Namespace) -> int:
    """Read the request, make one attempt, print the application; with ``--serve`` one per line."""
    if arguments.serve:
        return serve(arguments)
    request = _read_request(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1))
    application = _attempted(request, configuration(arguments))
    sys.stdout.write(application.model_dump_json() + "\n")
    if isinstance(application, Applied):
        return exit_codes.OK
    return exit_codes.of_refusal(application.reason)


class _Stop(BaseException):
    """Control flow: the process has to end while it waits for a line."""


def serve(arguments: argparse.Namespace) -> int:
    """Answer line by line until the input ends, or SIGTERM: then after the attempt in hand.

    Raises ConfigurationError for options that are not valid; a fault of one line is that line's answer.
    """
    configured = configuration(arguments)
    ending = _Ending()
    with protocol_streams() as (requests, answers), ending.watched(), suppress(_Stop):
        for number, line in ending.lines(requests):
            answers.write(answer(line, number, configured))
            answers.flush()
    return exit_codes.OK


@contextmanager
def protocol_streams() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield this process' standard input and output under other descriptors, which no child inherits.

    Meanwhile standard input is empty, and what a plugin or a program prints goes to standard error: neither
    can take a request or forge an answer.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(_STDIN), "rb") as requests, os.fdopen(os.dup(_STDOUT), "wb") as answers:
        with Path(os.devnull).open("rb") as empty_input:
            os.dup2(empty_input.fileno(), _STDIN)
        os.dup2(_STDERR, _STDOUT)
        try:
            yield requests, answers
        finally:
            sys.stdout.flush()
            os.dup2(requests.fileno(), _STDIN)
            os.dup2(answers.fileno(), _STDOUT)


def answer(line: bytes, number: int, configured: Configuration) -> bytes:
    """Return one line of JSON: ``id``, ``line``, and either ``application`` or ``error``.

    Raises no error of the request.
    """
    identifier: _Identifier = None
    try:
        _check_size(line)
        identifier = _identifier(line)
        application = _attempted(_read_request(line, ServedRequest), configured)
        member = b'"application": ' + application.model_dump_json().encode()
    except Exception as error:  # noqa: BLE001 (a line's error is that line's answer)
        known_error = explained(error)
        member = b'"error": ' + json.dumps(as_object(known_error)).encode()
    head = json.dumps({"id": identifier, "line": number})
    return head.removesuffix("}").encode() + b", " + member + b"}\n"


def _identifier(line: bytes) -> _Identifier:
    """Return the request's own id, or None if it has none, or none that can be returned."""
    try:
        document = parse_json(line)
        return _identifiers.validate_python(document.get("id"))
    except (
        ValueError,
        AttributeError,
        RecursionError,
    ):  # no object with an id that can be given back
        return None


class _Ending:
    """Handling of SIGTERM: no further line is read, and the attempt in hand is answered."""

    def __init__(self) -> None:
        self._told = False
        self._waiting = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = signal.signal(signal.SIGTERM, self._tell)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _tell(self, _signal: int, _frame: FrameType | None) -> None:
        self._told = True
        if self._waiting:
            raise _Stop

    def lines(self, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        number = 0
        while not self._told:
            self._waiting = True
            line = _line(stream)
            self._waiting = False
            if not line:
                return
            number += 1
            if line.strip():
                yield number, line.removesuffix(b"\n")


def _line(stream: IO[bytes]) -> bytes:
    """Return the next line; the rest of one that is too long is read and dropped."""
    line = stream.readline(MAX_INPUT_BYTES + 2)  # the line's end, and one byte too many
    rest = line
    while len(rest) > MAX_INPUT_BYTES and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_INPUT_BYTES + 2)
    return line
