"""What the commands print: results on standard output, progress and errors on standard error."""

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
    """One JSON object, one line: what ``--json`` promises. What a terminal could act on, or no encoding
    has, is escaped as JSON does it, so that a reader gets it back. Suggested commands are completed."""
    text = json.dumps(_suggesting(document), ensure_ascii=False, sort_keys=True)
    sys.stdout.write(_NOT_ASCII.sub(_escaped, text) + "\n")


def _suggesting(value: Any) -> Any:
    """The same document, the commands of each ``next_step`` and ``next_steps`` completed."""
    if isinstance(value, list | tuple):
        return [_suggesting(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _suggesting(item) for name, item in value.items()}
    if isinstance(step := found.get("next_step"), str):
        found["next_step"] = completed(step)
    if isinstance(steps := found.get("next_steps"), list):
        found["next_steps"] = [command(one) if isinstance(one, str) else one for one in steps]
    return found


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if is_unsafe(found[0]) else found[0]


def say(line: str) -> None:
    """Print a line at once: the process that started this one waits for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_patch(diff: str) -> None:
    """A terminal may be told anything by a patch: it is neutralised there. A pipe gets every byte."""
    sys.stdout.write(visible(diff, lines=True) if sys.stdout.isatty() else diff)


def print_error(error: Exception) -> None:
    """The problem and the next step, what was noted on its way among them (``notes_of``), on standard
    error."""
    reported = as_object(error)
    # They may name what an advisory, a file or a client says.
    sys.stderr.write(f"fallback-tier: {visible(reported['problem'], lines=True)}\n")
    if reported["next_step"]:
        sys.stderr.write(f"  next: {visible(reported['next_step'], lines=True)}\n")


def print_error_json(error: Exception) -> None:
    """The same as an object on standard output."""
    print_json({"error": as_object(error)})


def as_object(error: Exception) -> dict[str, str]:
    """An error for machines: ``code``, ``problem``, ``next_step``; ``kind`` if the error has one."""
    if not isinstance(error, FallbackError):
        problem, next_step, code, kind = str(error), "", "error", ""
    else:
        problem, next_step, code, kind = error.problem, error.next_step, error.code, error.kind
    next_step = " ".join(filter(None, (next_step, *notes_of(error))))
    document = {"code": code, "problem": completed(problem), "next_step": completed(next_step)}
    return {**document, "kind": kind} if kind else document


def notes_of(error: BaseException) -> tuple[str, ...]:
    """What was added on the way (PEP 678), such as how a fix that it stopped goes on."""
    return tuple(getattr(error, "__notes__", ()))
