"""Printing of a command's result: an object for programs with ``--json``, otherwise lines for a person."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel
from rich.console import Console

from fallback_audit.showing.describe import visible
from fallback_tier.cli import exit_codes
from fallback_tier.cli.output import print_json
from fallback_tier.cli.remediation import line


def print_result(
    arguments: argparse.Namespace, document: Mapping[str, Any] | BaseModel, *lines: str
) -> int:
    """Print a result and return OK. ``lines``: rich's markup, with foreign text passed through ``safe``."""
    return print_shown(arguments, document, partial(_print_lines, lines))


def print_plain(
    arguments: argparse.Namespace, document: Mapping[str, Any] | BaseModel, lines: Iterable[str]
) -> int:
    """Print a result without markup: each line is made safe here. Return OK."""
    safe_lines = (f"{visible(text)}\n" for text in lines)
    return print_shown(arguments, document, partial(sys.stdout.writelines, safe_lines))


def print_shown(
    arguments: argparse.Namespace,
    document: Mapping[str, Any] | BaseModel,
    show: Callable[[], object],
    code: int = exit_codes.OK,
) -> int:
    """Print a result, which ``show`` writes to the terminal for a person. Return ``code``."""
    if arguments.json:
        if isinstance(document, BaseModel):
            document = document.model_dump(mode="json")
        print_json(document)
    else:
        show()
    return code


def _print_lines(lines: Iterable[str]) -> None:
    console = Console()
    for markup in lines:
        line(console, markup)
