"""Parsing of a command line: help shows the usual options first, and a wrong word gets a one-line answer
with the nearest valid one.

This module imports argparse and nothing heavy.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence

TYPE_CHECKING = False  # as in fallback_tier/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

#: Columns of a help text that is not written to a terminal (as in shutil.get_terminal_size).
_NO_TERMINAL = 80

#: argparse's message about a value that is not one of several.
_CHOICE = re.compile(
    r"argument (?P<name>.+?): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)"
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """A formatter that reads the terminal's width itself: argparse would import shutil and compressors."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class _WholeHelp(argparse.Action):
    """The action of ``--help-all``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, Parser)  # noqa: S101 (it is added by one)
        parser.print_help_of_all()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """The parser of every command.

    ``verbs`` adds a command's own commands when it is given, so that other commands don't pay for them.
    """

    def __init__(
        self, *, verbs: "Callable[[argparse.ArgumentParser], None] | None" = None, **options: "Any"
    ) -> None:
        super().__init__(formatter_class=_Help, **options)
        self._verbs = verbs
        self._usual: frozenset[str] = frozenset()
        self._short_usage = ""
        self._given: tuple[str, ...] = ()

    def show_first(self, usage: str, options: Iterable[str]) -> None:
        """Show these options alone in ``--help``, below a separate usage line; ``--help-all`` shows the
        rest as well."""
        self._short_usage, self._usual = usage, frozenset(options)
        self.add_argument(
            "--help-all", action=_WholeHelp, nargs=0, help="show every option and exit"
        )

    def add_all(self) -> None:
        """Add the command's own commands and options, if that was not done yet."""
        verbs, self._verbs = self._verbs, None
        if verbs is not None:
            verbs(self)

    def commands(self) -> "Iterable[Parser]":
        """Yield the parsers of its commands, once each."""
        self.add_all()
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from dict.fromkeys(action.choices.values())

    def parse_known_args(self, args: "Any" = None, namespace: "Any" = None) -> "Any":
        """Parse as argparse does, once the verbs are added. A word that is left over is an error here,
        where the options that it may mean are known."""
        self.add_all()
        self._given = () if args is None else tuple(args)
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed, rest

    def format_help(self) -> str:
        """Return the help of the usual options if there are any, otherwise of all."""
        if not self._usual:
            return super().format_help()
        rare = [action for action in self._actions if self._is_rare(action)]
        texts = [action.help for action in rare]
        before, self.usage = self.usage, self._short_usage
        for action in rare:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            self.usage = before
            for action, text in zip(rare, texts, strict=True):
                action.help = text

    def print_help_of_all(self) -> None:
        """Print help as ``print_help``, with every option."""
        sys.stdout.write(super().format_help())

    def error(self, message: str) -> "NoReturn":
        """Print what is wrong and what was likely meant, and exit with 2."""
        from fallback_tier.cli.ending import ended
        from fallback_tier.errors import InputError

        problem, nearest = self._explained(message)
        hint = f"Did you mean {nearest}? " if nearest else ""
        error = InputError(problem, next_step=f"{hint}`{self.prog} --help` says more.")
        self.exit(ended(error, as_json="--json" in self._given))

    def _is_rare(self, action: argparse.Action) -> bool:
        names = action.option_strings
        return bool(names) and self._usual.isdisjoint(names) and not {"-h", "--help-all"} & {*names}

    def _explained(self, message: str) -> tuple[str, str]:
        """Return the problem as a sentence, and the nearest valid word (empty: none is near)."""
        if choice := _CHOICE.fullmatch(message):
            choices = re.findall(r"'([^']*)'", choice["known"]) or choice["known"].split(", ")
            nearest = _nearest(choice["given"], choices)
            if choice["name"] in {"COMMAND", "VERB"}:  # whose options are not known here
                return f"`{self.prog}` has no command {choice['given']!r}.", nearest
            listed = ", ".join(choices)
            return f"{choice['name']}: {choice['given']!r} is none of {listed}.", nearest
        for name in self._unknown():
            return f"`{self.prog}` has no option {name}.", _nearest(
                name, self._option_string_actions
            )
        kind, _, rest = message.partition(": ")
        match kind:
            case "the following arguments are required":
                return f"`{self.prog}` needs {rest}.", ""
            case "unrecognized arguments":
                return f"`{self.prog}` takes no {rest!r}.", ""
        problem = message.removeprefix("argument ").rstrip(".")
        return f"`{self.prog}`: {problem}.", ""

    def _unknown(self) -> list[str]:
        """Return the given options that are not valid, nor the beginning of a valid one."""
        valid = tuple(self._option_string_actions)
        names = (word.partition("=")[0] for word in self._given[: _end_of_options(self._given)])
        return [
            name
            for name in names
            if name.startswith("--") and not any(option.startswith(name) for option in valid)
        ]


def _end_of_options(words: Sequence[str]) -> int:
    return words.index("--") if "--" in words else len(words)


def _nearest(word: str, choices: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, choices, n=1)), "")


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size().columns or _NO_TERMINAL
    except OSError:
        return _NO_TERMINAL
