"""What a command came to, printed: an object for programs with ``--json``, else lines for a person."""

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
    """``lines``: rich's markup; what is not ours in them went through ``safe``. Returns OK."""
    return print_shown(arguments, document, partial(_print_lines, lines))


def print_plain(
    arguments: argparse.Namespace, document: Mapping[str, Any] | BaseModel, lines: Iterable[str]
) -> int:
    """As ``print_result``, without markup: each line is made safe here."""
    safe = (f"{visible(one)}\n" for one in lines)
    return print_shown(arguments, document, partial(sys.stdout.writelines, safe))


def print_shown(
    arguments: argparse.Namespace,
    document: Mapping[str, Any] | BaseModel,
    show: Callable[[], object],
    code: int = exit_codes.OK,
) -> int:
    """As ``print_result``, where ``show`` puts on the terminal what a person sees. Returns ``code``."""
    if arguments.json:
        if isinstance(document, BaseModel):
            document = document.model_dump(mode="json")
        print_json(document)
    else:
        show()
    return code


def _print_lines(lines: Iterable[str]) -> None:
    console = Console()
    for one in lines:
        line(console, one)
