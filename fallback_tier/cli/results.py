"""What a command came to, printed: an object for programs with ``--json``, else lines for a person."""

import argparse
import sys
from collections.abc import Iterable, Mapping
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
    if arguments.json:
        _print_document(document)
    else:
        console = Console()
        for one in lines:
            line(console, one)
    return exit_codes.OK


def print_plain(
    arguments: argparse.Namespace, document: Mapping[str, Any] | BaseModel, lines: Iterable[str]
) -> int:
    """As ``print_result``, without markup: each line is made safe here."""
    if arguments.json:
        _print_document(document)
    else:
        sys.stdout.writelines(f"{visible(one)}\n" for one in lines)
    return exit_codes.OK


def _print_document(document: Mapping[str, Any] | BaseModel) -> None:
    print_json(document.model_dump(mode="json") if isinstance(document, BaseModel) else document)
