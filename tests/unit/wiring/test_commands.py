"""Suggested commands: completed with locations, as a shell reads them; each in our sources parses."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
from pydantic import SecretStr

from fallback_tier.cli.main import build_parser
from fallback_tier.files.folders import users_folder
from fallback_tier.wiring.commands import TAKES, command, completed, locations
from fallback_tier.wiring.trail import RecordSettings
from tests.unit.test_layout import ROOT, committed

LOCATIONS = {"--state-dir", "--audit-store", "--checkpoints", "--keys", "--fleet-store", "--store"}
OPTIONS = {name: f"/{name[2:]}" for name in sorted(LOCATIONS)}

#: What stands for a value in a message: one that a parser accepts.
_VALUES = {"N": "1"}

#: Parts that a message puts in.
_INSIDE = {"{signed}": "X --by NAME --because TEXT", "{self._called}": ""}

#: Named in a sentence without what they require: what it is about, and no command to paste.
_NAMED = {
    *(
        "fix",
        "attempt",
        "audit",
        "fleet",
        "review",
        "resume",
        "fleet run",
        "keys new",
        "keys person",
        "examples ingest",
    ),
    *("audit import", "audit retire", "audit show", "audit evidence gc"),
}


def leaves() -> dict[str, set[str]]:
    """Each command, and its options."""
    found: dict[str, set[str]] = {}

    def walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> None:
        add = getattr(parser, "_verbs", None)
        if add is not None:
            parser._verbs = None  # type: ignore[attr-defined]
            add(parser)
        verbs = [it for it in parser._actions if isinstance(it, argparse._SubParsersAction)]
        for it in verbs:
            for name, below in it.choices.items():
                walk(below, (*path, name))
        if not verbs:
            options = {name for it in parser._actions for name in it.option_strings}
            found[" ".join(path)] = options & LOCATIONS

    walk(build_parser(), ())
    return found


@pytest.mark.parametrize(("words", "options"), sorted(leaves().items()))
def test_the_table_is_what_the_parsers_take(words: str, options: set[str]) -> None:
    parts = words.split()
    if parts[0] in {"eval", "demo", "local-model"}:
        return
    suggested = command(f"fallback-tier {words} X", OPTIONS).split()
    assert {one for one in suggested if one in LOCATIONS} == options, TAKES


def suggested() -> list[str]:
    """Every command between backticks, or after ``next:``, in our sources."""
    found = set()
    for path in committed():
        if not path.startswith(
            ("fallback_tier/", "plugins/fallback_plugins/", "audit/fallback_audit/")
        ):
            continue
        if not path.endswith(".py"):
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        text = re.sub(r'"\n\s*f?"', "", text)
        text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
        found.update(re.findall(r"`(fallback-tier [^`\n]+)`", text))
        found.update(re.findall(r'"(fallback-tier [a-z][^"`\n]+)"', text))
    return sorted(found)


@pytest.mark.parametrize("words", suggested())
def test_every_suggested_command_parses(words: str) -> None:
    for name, text in _INSIDE.items():
        words = words.replace(name, text)
    words = re.sub(r"\{[^{}]*\}", "X", words)
    parts = [_VALUES.get(word, word) for word in shlex.split(words)[1:]]
    if " ".join(parts) in _NAMED or "--help" in parts:
        return
    words = command(" ".join(["fallback-tier", *parts]), OPTIONS)
    assert build_parser().parse_args(shlex.split(words)[1:])


def test_sources_do_suggest_commands() -> None:
    assert len(suggested()) > 40


@pytest.mark.parametrize(
    "name", ["plain", "two words", "it's", "a$HOME;`rm`", "ünïcode", "[red]x[/]"]
)
def test_a_location_is_read_by_a_shell_as_it_was_given(tmp_path: Path, name: str) -> None:
    record = RecordSettings(checkpoints=tmp_path / name, keys=tmp_path / "keys of mine")
    words = command("fallback-tier resume fix-1", locations(tmp_path / name, record))
    assert shlex.split(words) == [
        *("fallback-tier", "resume", "fix-1", "--state-dir", str(tmp_path / name)),
        *("--checkpoints", str(tmp_path / name), "--keys", str(tmp_path / "keys of mine")),
    ]


def test_the_default_is_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert locations(users_folder("state"), RecordSettings()) == {}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me@host/db?schema=a&port=1", "'postgresql://me@host/db?schema=a&port=1'"),
        ("postgresql://me:s3cr3t@host/db", "URL"),
        ("postgresql://host/db?password=s3cr3t", "URL"),
        ("s3cr3t", "URL"),
    ],
)
def test_a_database_is_named_without_a_password(tmp_path: Path, url: str, shown: str) -> None:
    found = locations(tmp_path, RecordSettings(database=SecretStr(url)))
    assert found["--audit-store"] == shown


def test_what_a_command_has_is_not_given_twice() -> None:
    words = "fallback-tier audit show X --state-dir elsewhere"
    assert command(words, {"--state-dir": "/state"}) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See `fallback-tier audit log`.", "See `fallback-tier audit log --state-dir /state`."),
        ("`fallback-tier fix` again", "`fallback-tier fix` again"),
        ("`fallback-tier serve --help`", "`fallback-tier serve --help`"),
        ("`fallback-tier demo`, `git diff`", "`fallback-tier demo`, `git diff`"),
        ("fallback-tier audit log", "fallback-tier audit log"),
    ],
)
def test_commands_of_a_sentence_are_completed(text: str, expected: str) -> None:
    assert completed(text, {"--state-dir": "/state"}) == expected
