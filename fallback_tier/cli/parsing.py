"""How a command line is read: the usual options are shown first, and a wrong word is answered in one line
with the one that it is nearest to.

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

#: Columns of a help text that goes to no terminal (as in shutil.get_terminal_size).
_NO_TERMINAL = 80

#: What argparse says of a value that is none of several.
_CHOICE = re.compile(
    r"argument (?P<name>.+?): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)"
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Asks for the terminal's width itself: argparse imports shutil and its compressors to do so."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class _WholeHelp(argparse.Action):
    """``--help-all``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, Parser)  # noqa: S101 (it is added by one)
        parser.print_help_of_all()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Every command's parser is of this class.

    ``verbs`` adds a command's own commands when it is given: the others don't pay for many of them.
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
        """``--help`` shows these options alone, below a usage line of their own; ``--help-all`` shows the
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
        """As argparse's, once the verbs are there; a word that is left over is an error here, where the
        options are known that it may stand for."""
        self.add_all()
        self._given = () if args is None else tuple(args)
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def format_help(self) -> str:
        """The usual options, if there are such; else all."""
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
        """As ``print_help``, with every option."""
        sys.stdout.write(super().format_help())

    def error(self, message: str) -> "NoReturn":
        """Print what is wrong and what it may have been meant for, and exit with 2."""
        from fallback_tier.cli.ending import ended
        from fallback_tier.errors import InputError

        problem, nearest = self._explained(message)
        meant = f"Did you mean {nearest}? " if nearest else ""
        wrong = InputError(problem, next_step=f"{meant}`{self.prog} --help` says more.")
        self.exit(ended(wrong, as_json="--json" in self._given))

    def _is_rare(self, action: argparse.Action) -> bool:
        names = action.option_strings
        return bool(names) and self._usual.isdisjoint(names) and not {"-h", "--help-all"} & {*names}

    def _explained(self, message: str) -> tuple[str, str]:
        """Return the problem as a sentence, and the nearest valid word (empty: none is near)."""
        if choice := _CHOICE.fullmatch(message):
            known = re.findall(r"'([^']*)'", choice["known"]) or choice["known"].split(", ")
            near = _nearest(choice["given"], known)
            if choice["name"] in {"COMMAND", "VERB"}:  # whose options are not known here
                return f"`{self.prog}` has no command {choice['given']!r}.", near
            among = ", ".join(known)
            return f"{choice['name']}: {choice['given']!r} is none of {among}.", near
        for name in self._unknown():
            return f"`{self.prog}` has no option {name}.", _nearest(
                name, self._option_string_actions
            )
        said, _, words = message.partition(": ")
        match said:
            case "the following arguments are required":
                return f"`{self.prog}` needs {words}.", ""
            case "unrecognized arguments":
                return f"`{self.prog}` takes no {words!r}.", ""
        problem = message.removeprefix("argument ").rstrip(".")
        return f"`{self.prog}`: {problem}.", ""

    def _unknown(self) -> list[str]:
        """Return the options that were given and are none, nor the beginning of one."""
        known = tuple(self._option_string_actions)
        given = (word.partition("=")[0] for word in self._given[: _end_of_options(self._given)])
        return [
            name
            for name in given
            if name.startswith("--") and not any(one.startswith(name) for one in known)
        ]


def _end_of_options(words: Sequence[str]) -> int:
    return words.index("--") if "--" in words else len(words)


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), "")


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size().columns or _NO_TERMINAL
    except OSError:
        return _NO_TERMINAL
