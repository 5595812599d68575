"""Every verb names a function that is there: it is looked up only when the verb is given."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

import pytest

from fallback_tier.cli.main import build_parser


def verbs(
    parser: argparse.ArgumentParser, name: str, line: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Each command that can be given in full, with its parser and its line in ``--help``."""
    with suppress(SystemExit):
        parser.parse_known_args(["--no-such-option"])  # a command's own verbs are added then
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not below:
        yield name, parser, line
    for action in below:
        lines = {one.dest: one.help or "" for one in action._choices_actions}
        for word, child in action.choices.items():
            yield from verbs(child, f"{name} {word}", lines.get(word, ""))


def test_every_verb_is_carried_out_by_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    found = {name: parser for name, parser, _ in verbs(build_parser(), "fallback-tier")}
    capsys.readouterr()
    assert {"fallback-tier fix", "fallback-tier audit show", "fallback-tier review approve"} <= {
        *found
    }
    for name, parser in found.items():
        handler = parser.get_default("handler")
        assert handler, name
        module, _, function = handler.partition(":")
        assert callable(getattr(import_module(module), function, None)), (name, handler)
