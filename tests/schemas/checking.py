"""Every ``--json`` output of a test is checked against its schema, in the helpers that run commands."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache, wraps
from io import StringIO
from pathlib import Path
from typing import Any

from jsonschema import ValidationError

from fallback_tier.cli import main as command_line
from tests.schemas.files import SHAPES, name_of, validator
from tests.schemas.outputs import OUTPUTS

#: Names a folder in which each schema that an output was checked against leaves a file: test processes have
#: it in common.
LEDGER = "FALLBACK_TIER_TEST_OUTPUTS"


def check_output(words: Sequence[str], text: str) -> None:
    """Fail if a command was to print JSON and what it printed is not as its schema says.

    An empty output, as of an interrupted command, is not looked at.
    """
    command = command_of(tuple(words))
    if command is None or not text.strip():
        return
    if command != "attempt" and "--json" not in words:
        return
    if command == "attempt" and "--serve" in words:
        for line in text.splitlines():
            _check("attempt-serve", json.loads(line))
    elif text.lstrip().startswith("{"):
        _check(name_of(command), json.loads(text))


def check_called() -> None:
    """From now on also check what a test gets that calls ``main`` itself."""
    if not hasattr(command_line.main, "__wrapped__"):
        command_line.main = _checked(command_line.main)


def _checked(main: Callable[..., int]) -> Callable[..., int]:
    @wraps(main)
    def called(arguments: Sequence[str] | None = None) -> int:
        if arguments is None or "--json" not in arguments:
            return main(arguments)
        copy = _Copying(sys.stdout)
        with redirect_stdout(copy):
            code = main(arguments)
        check_output(arguments, copy.written.getvalue())
        return code

    return called


class _Copying:
    """A stream that keeps what is written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.written = StringIO()

    def write(self, text: str) -> int:
        self.written.write(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@cache
def command_of(words: tuple[str, ...]) -> str | None:
    """Return the command of a line that has a schema."""
    return next((it for n in (3, 2, 1) if (it := " ".join(words[:n])) in OUTPUTS), None)


def _check(name: str, document: Any) -> None:
    name = "error" if set(document) == {"error"} else name
    errors = [*validator(name).iter_errors(document)]
    assert not errors, f"{name}: {_nearest(errors[0])}"
    if folder := os.environ.get(LEDGER):
        (Path(folder) / name).touch()


def _nearest(error: ValidationError) -> str:
    """Return where and what: of several kinds of object, of the one that fits best."""
    while error.context:
        kinds: dict[Any, list[ValidationError]] = {}
        for one in error.context:
            kinds.setdefault(one.relative_schema_path[0], []).append(one)
        error = min(kinds.values(), key=len)[0]
    return f"{error.json_path}: {error.message[:2000]}"


def unchecked(folder: Path) -> list[str]:
    """Return the schemas that no output was checked against."""
    return sorted(SHAPES.keys() - {it.name for it in folder.iterdir()})
