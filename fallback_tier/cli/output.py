"""Output of the commands: results on standard output, progress and errors on standard error."""

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from fallback_audit.errors import FallbackError
from fallback_audit.showing.describe import is_unsafe, visible
from fallback_tier.cli.suggesting import command, completed

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on one line, as ``--json`` promises. Characters that a terminal could act on,
    or that no encoding has, are escaped as in JSON, so that a reader gets them back. Suggested commands are
    completed."""
    text = json.dumps(_suggesting(document), ensure_ascii=False, sort_keys=True)
    sys.stdout.write(_NOT_ASCII.sub(_escaped, text) + "\n")


def _suggesting(value: Any) -> Any:
    """Return the same document, with the commands of each ``next_step`` and ``next_steps`` completed."""
    if isinstance(value, list | tuple):
        return [_suggesting(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    result = {name: _suggesting(item) for name, item in value.items()}
    if isinstance(step := result.get("next_step"), str):
        result["next_step"] = completed(step)
    if isinstance(steps := result.get("next_steps"), list):
        result["next_steps"] = [command(step) if isinstance(step, str) else step for step in steps]
    return result


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if is_unsafe(match[0]) else match[0]


def say(line: str) -> None:
    """Print a line at once: the parent process waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_patch(diff: str) -> None:
    """Print a patch: neutralised on a terminal, since it may have control characters; unchanged to a
    pipe."""
    sys.stdout.write(visible(diff, lines=True) if sys.stdout.isatty() else diff)


def print_error(error: Exception) -> None:
    """Print the problem and the next step on standard error, with the error's notes (``notes_of``)."""
    document = as_object(error)
    # They may quote an advisory, a file or a client.
    sys.stderr.write(f"fallback-tier: {visible(document['problem'], lines=True)}\n")
    if document["next_step"]:
        sys.stderr.write(f"  next: {visible(document['next_step'], lines=True)}\n")


def print_error_json(error: Exception) -> None:
    """Print the same as an object on standard output."""
    print_json({"error": as_object(error)})


def as_object(error: Exception) -> dict[str, str]:
    """Return an error for machines: ``code``, ``problem``, ``next_step``; ``kind`` if the error has one."""
    if not isinstance(error, FallbackError):
        problem, next_step, code, kind = str(error), "", "error", ""
    else:
        problem, next_step, code, kind = error.problem, error.next_step, error.code, error.kind
    next_step = " ".join(filter(None, (next_step, *notes_of(error))))
    document = {"code": code, "problem": completed(problem), "next_step": completed(next_step)}
    return {**document, "kind": kind} if kind else document


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the error's notes (PEP 678), such as how to continue a fix that it stopped."""
    return tuple(getattr(error, "__notes__", ()))
