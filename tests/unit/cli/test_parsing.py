"""A command line: the usual options first, and a wrong word is answered with the nearest one."""

import json

import pytest

from fallback_tier.cli.exit_codes import BAD_INPUT
from fallback_tier.cli.main import build_parser

#: What fits on a screen (lines).
SCREEN = 60


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "its"), [("fix", "--advisory"), ("plan", "--advisory"), ("scan", "--fix")]
)
def test_help_shows_the_usual_options_and_where_the_rest_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, its: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short = printed(capsys, command, "--help")
    whole = printed(capsys, command, "--help-all")
    assert len(short.splitlines()) <= SCREEN < len(whole.splitlines())
    assert {its, "--offline", "--help-all"} <= {*short.split()}
    assert "--release-age" in whole
    assert "--release-age" not in short
    assert printed(capsys, command, "--help-all") == whole


@pytest.mark.parametrize(
    ("line", "named", "nearest"),
    [
        ("fix . --advsory x", "--advsory", "--advisory"),
        ("fix . --advsory=x", "--advsory", "--advisory"),
        ("plan . --advisory x --no-resolv-e", "--no-resolv-e", "--no-resolve"),
        ("review show --jsn", "--jsn", "--json"),
        ("fxi", "fxi", "fix"),
        ("fxi r --advisory x", "fxi", "fix"),
        ("audit shw", "shw", "show"),
        ("fix . --advisory x --effort hihg", "hihg", "high"),
        ("fix . --advisory x --zzzzzzzz", "--zzzzzzzz", ""),
        ("fix . another --advisory x", "another", ""),
        ("fix", "--advisory", ""),
        ("fix . --advisory x --max-usd much", "much", ""),
    ],
)
def test_a_wrong_word_is_named_with_the_nearest(
    capsys: pytest.CaptureFixture[str], line: str, named: str, nearest: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(line.split())
    problem, next_step = capsys.readouterr().err.splitlines()
    assert ended.value.code == BAD_INPUT
    assert named in problem
    assert (f"{nearest}?" in next_step.split()) == bool(nearest)


def test_a_machine_gets_it_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["fix", ".", "--json", "--advsory", "x"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert ended.value.code == BAD_INPUT
    assert error["code"] == "input"
    assert "--advsory" in error["problem"]


def test_the_beginning_of_an_option_stands_for_it() -> None:
    assert build_parser().parse_args(["fix", ".", "--advisory", "x", "--dry"]).dry_run
