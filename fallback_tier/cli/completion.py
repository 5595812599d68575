"""``fallback-tier completion``: a script that completes commands, options and their values in a shell.

shtab makes it from the parser itself, so it names only what exists. The script is static: a key press
starts no Python.
"""

import argparse
import sys
from collections.abc import Iterable

import shtab

from fallback_tier.cli import exit_codes
from fallback_tier.cli.parsing import Parser

#: Kinds of values, by their names in the help: the shell completes paths.
_PATHS = {"FILE": shtab.FILE, "DB": shtab.FILE, "DIR": shtab.DIRECTORY, "REPO": shtab.DIRECTORY}


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    parser: Parser = arguments.parser()
    for command in _all_of(parser):
        for action in command._actions:
            # argparse has no such attribute; shtab reads it.
            if kind := _PATHS.get(str(action.metavar)):
                action.complete = kind  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, arguments.shell) + "\n")
    return exit_codes.OK


def _all_of(parser: Parser) -> Iterable[Parser]:
    """Yield each parser of the tree, with the commands that a command adds on demand."""
    yield parser
    for command in parser.commands():
        yield from _all_of(command)
