"""The README tells what the program does: its commands parse, its help and its table are the real ones.

``pytest tests/integration/test_cli_readme.py --refresh-readme`` rewrites the help block.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_tier.cli.exit_codes import MEANING
from fallback_tier.cli.main import build_parser
from tests.e2e.command import osv, repository, run

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

HELP = re.compile(
    r"(<!-- help: fallback-tier (?P<command>[a-z ]+) -->\n```text\n)(.*?)(```\n)", re.DOTALL
)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every line of a shell block, as the shell would split it."""
    lines = [line for block in blocks("sh", README.read_text()) for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


OURS = [words[1:] for words in commands() if words[0] == "fallback-tier"]


def test_there_are_commands() -> None:
    assert len(OURS) >= 6
    assert {words[0] for words in commands()} <= {"fallback-tier", "make", "pip"}


@pytest.mark.parametrize("arguments", OURS, ids=" ".join)
def test_a_command_of_the_readme_parses(arguments: list[str]) -> None:
    assert build_parser().parse_args(arguments).handler


def test_a_command_that_does_not_exist_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["fix", "REPO", "--advisory", "FILE", "--yes"])
    assert "--yes" in capsys.readouterr().err


def test_the_help_is_the_real_one(pytestconfig: pytest.Config) -> None:
    text = README.read_text()
    assert HELP.search(text)
    real = HELP.sub(lambda found: found[1] + _help(found["command"].split()) + found[4], text)
    if pytestconfig.getoption("refresh_readme"):
        README.write_text(real)
    assert real == text, "run this test with --refresh-readme"


def _help(command: list[str]) -> str:
    ended = run(*command, "--help", env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert ended.code == 0
    return ended.out


def test_the_exit_codes_are_the_real_ones() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", README.read_text(), re.MULTILINE)
    assert {int(code): meaning.replace("`", "") for code, meaning in rows} == MEANING


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page: str) -> None:
    named = set(
        re.findall(r"\bmake ([a-z]+)\b(?=`|\s{2,}|$)", (ROOT / page).read_text(), re.MULTILINE)
    )
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_every_link_to_a_file_leads_there() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), (page.name, target)


def test_the_python_example_runs(tmp_path: Path) -> None:
    """As it stands, but for the state folder."""
    (example,) = blocks("python", README.read_text())
    assert "/var/lib/fixer" in example
    (tmp_path / "advisory.json").write_text(osv("left"))
    repository(tmp_path / "path" / "to" / "repository", {"requirements.txt": "left==1.0.0\n"})
    run("audit", "keygen")  # else the first run says that it made a key
    program = example.replace("/var/lib/fixer", str(tmp_path / "state"))
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint(application.outcome)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("applied\n", "")
