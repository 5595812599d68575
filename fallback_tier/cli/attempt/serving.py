"""``fallback-tier attempt --serve``: a request a line, an answer a line, without a start for each.

One process makes the attempts, one after the other, each with its own stores, plugins and clients, which
are closed at its end (ADR-0126). Standard input and output belong to the protocol alone.
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
from typing import IO

from pydantic import TypeAdapter

from fallback_tier.cli import exit_codes
from fallback_tier.cli.attempt.request import (
    MAX_INPUT_BYTES,
    Identifier,
    ServedRequest,
    attempted,
    check_size,
    read_request,
)
from fallback_tier.cli.options import configuration
from fallback_tier.cli.output import as_object
from fallback_tier.cli.unexplained import explained
from fallback_tier.errors import FallbackError
from fallback_tier.files.inputs import parse_json
from fallback_tier.wiring import Configuration

_identifiers: TypeAdapter[Identifier] = TypeAdapter(Identifier)

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class _Stop(BaseException):
    """Control flow: told to end while waiting for a line."""


def serve(arguments: argparse.Namespace) -> int:
    """Answer line by line until the input ends, or SIGTERM: then after the attempt in hand.

    Raises ConfigurationError for options that can't be; what is wrong with one line is that line's answer.
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
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), _STDIN)
        os.dup2(_STDERR, _STDOUT)
        try:
            yield requests, answers
        finally:
            sys.stdout.flush()
            os.dup2(requests.fileno(), _STDIN)
            os.dup2(answers.fileno(), _STDOUT)


def answer(line: bytes, number: int, configured: Configuration) -> bytes:
    """Return one line of JSON: ``id``, ``line``, and either ``application`` or ``error``.

    Raises nothing of the request's.
    """
    identifier: Identifier = None
    try:
        check_size(line)
        identifier = _identifier(line)
        application = attempted(read_request(line, ServedRequest), configured)
        member = b'"application": ' + application.model_dump_json().encode()
    except Exception as error:  # noqa: BLE001 (a line's error is that line's answer)
        reported = error if isinstance(error, FallbackError) else explained(error)
        member = b'"error": ' + json.dumps(as_object(reported)).encode()
    head = json.dumps({"id": identifier, "line": number})
    return head.removesuffix("}").encode() + b", " + member + b"}\n"


def _identifier(line: bytes) -> Identifier:
    """The request's own id; None where it has none, or none that can be given back."""
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
    """SIGTERM: no further line is read, and the attempt in hand is answered."""

    def __init__(self) -> None:
        self._told = False
        self._waiting = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts the signal is ours."""
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
        """Each line that is not blank, and its number; of one too long as much as shows that it is."""
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
    """The next line; the rest of one that is too long is read and forgotten."""
    line = stream.readline(MAX_INPUT_BYTES + 2)  # the line's end, and one byte too many
    rest = line
    while len(rest) > MAX_INPUT_BYTES and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_INPUT_BYTES + 2)
    return line
