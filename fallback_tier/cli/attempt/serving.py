"""``fallback-tier attempt --serve``: a request a line, an answer a line, without a start for each.

This process imports what an attempt by recipe needs, once, and holds nothing else: each attempt runs in a
child of it, with stores, plugins and clients of its own (ADR-0082).
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

from pydantic import TypeAdapter

from fallback_tier.cli import exit_codes
from fallback_tier.cli.attempt.forked import in_a_child
from fallback_tier.cli.attempt.request import (
    MAX_INPUT_BYTES,
    Identifier,
    ServedRequest,
    attempted,
    check_size,
    read_request,
)
from fallback_tier.cli.attempt.warming import warm
from fallback_tier.cli.options import configuration
from fallback_tier.cli.output import as_object
from fallback_tier.cli.unexplained import explained
from fallback_tier.errors import FallbackError
from fallback_tier.files.inputs import parse_json
from fallback_tier.wiring import Configuration

#: What one attempt may take, where nobody says: a model's three answers and its judge's, each slow.
TIME_LIMIT_S = 900.0

_identifiers: TypeAdapter[Identifier] = TypeAdapter(Identifier)


class _Stop(BaseException):
    """Control flow: told to end while waiting for a line."""


def serve(arguments: argparse.Namespace) -> int:
    """Answer line by line until the input ends, or SIGTERM: then after the attempt in hand.

    Raises ConfigurationError for options that can't be; what is wrong with one line is that line's answer.
    """
    configured = configuration(arguments)
    limit = TIME_LIMIT_S if arguments.time_limit is None else arguments.time_limit
    warm()
    ending = _Ending()
    with ending.watched(), suppress(_Stop):
        for number, line in ending.lines(sys.stdin.buffer):
            sys.stdout.buffer.write(answer(line, number, configured, time_limit_s=limit))
            sys.stdout.buffer.flush()
    return exit_codes.OK


def answer(line: bytes, number: int, configured: Configuration, *, time_limit_s: float) -> bytes:
    """One line of JSON: ``id``, ``line``, and either ``application`` or ``error``. Raises nothing of the
    request's."""
    identifier: Identifier = None
    try:
        check_size(line)
        identifier = _identifier(line)
        member = in_a_child(lambda: _attempt(line, configured), time_limit_s=time_limit_s)
    except Exception as error:  # noqa: BLE001 (a line's error is that line's answer)
        member = _error(error)
    head = json.dumps({"id": identifier, "line": number})
    return head.removesuffix("}").encode() + b", " + member + b"}\n"


def _attempt(line: bytes, configured: Configuration) -> bytes:
    """In the child: the member of the answer that tells how it went."""
    try:
        application = attempted(read_request(line, ServedRequest), configured)
    except Exception as error:  # noqa: BLE001 (told in one form)
        return _error(error)
    return b'"application": ' + application.model_dump_json().encode()


def _error(error: Exception) -> bytes:
    reported = error if isinstance(error, FallbackError) else explained(error)
    return b'"error": ' + json.dumps(as_object(reported)).encode()


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
