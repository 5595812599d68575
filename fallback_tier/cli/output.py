"""What the commands print: results on standard output, progress and errors on standard error."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from fallback_audit.errors import FallbackError


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON object, one line: what ``--json`` promises."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, sort_keys=True) + "\n")


def print_error(error: Exception, *, as_json: bool) -> None:
    """The problem and the next step. With ``--json`` also as an object on standard output."""
    if not isinstance(error, FallbackError):
        problem, next_step, code = str(error), "", "error"
    else:
        problem, next_step, code = error.problem, error.next_step, error.code
    if as_json:
        print_json({"error": {"code": code, "problem": problem, "next_step": next_step}})
    sys.stderr.write(f"fallback-tier: {problem}\n")
    if next_step:
        sys.stderr.write(f"  next: {next_step}\n")
