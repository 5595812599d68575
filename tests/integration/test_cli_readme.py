"""README, docs/usage.md and docs/cli.md hold: commands parse, help texts and tables are the real ones.

``pytest tests/integration/test_cli_readme.py --refresh-readme`` rewrites help texts and the table.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_tier.cli.exit_codes import MEANING, epilog
from fallback_tier.cli.main import build_parser
from tests.e2e.command import osv, repository, run
from tests.unit.cli.test_handlers import verbs

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CLI = ROOT / "docs" / "cli.md"
USAGE = ROOT / "docs" / "usage.md"

#: Every page whose shell blocks are tested here (docs/audit.md has a test that runs its own).
PAGES = (README, CLI, USAGE, ROOT / "docs" / "postgresql.md")

#: A row of docs/cli.md: where its link leads, and what the command does.
ROW = re.compile(
    r"^\| \[`(?P<command>[a-z -]+)`\]\((?P<link>\S+)\) \| (?P<what>.*) \|$", re.MULTILINE
)

HELP = re.compile(
    r"(<!-- help: fallback-tier (?P<command>[a-z -]+) -->\n```text\n)(.*?)(```\n)", re.DOTALL
)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every line of a shell block, as the shell would split it."""
    text = "\n".join(page.read_text() for page in PAGES)
    lines = [line for block in blocks("sh", text) for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


OURS = [words[1:] for words in commands() if words[0] == "fallback-tier"]


def test_there_are_commands() -> None:
    assert len(OURS) >= 30
    assert {words[0] for words in commands()} <= {"fallback-tier", "make", "pip", "export"}


@pytest.mark.parametrize("arguments", OURS, ids=" ".join)
def test_a_command_of_a_page_parses(arguments: list[str]) -> None:
    assert build_parser().parse_args(arguments).handler


def test_a_command_that_does_not_exist_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["fix", "REPO", "--advisory", "FILE", "--yes"])
    assert "--yes" in capsys.readouterr().err


def _refresh(page: Path, real: str, pytestconfig: pytest.Config) -> None:
    """Compare a page with what it should be, or write that."""
    if pytestconfig.getoption("refresh_readme"):
        page.write_text(real)
    assert real == page.read_text(), "run this test with --refresh-readme"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_help_is_the_real_one(page: Path, pytestconfig: pytest.Config) -> None:
    text = page.read_text()
    real = HELP.sub(lambda found: found[1] + _help(found["command"].split()) + found[4], text)
    _refresh(page, real, pytestconfig)


def test_the_help_of_every_command_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names = [name.partition(" ")[2] for name, _, _ in verbs(build_parser(), "fallback-tier")]
    capsys.readouterr()
    shown = [found["command"] for found in HELP.finditer(CLI.read_text())]
    assert sorted(shown) == sorted(names), "docs/cli.md has the help of each command, and no other"


def test_every_command_has_a_row(
    pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command of the parser, in docs/cli.md, with its own line of ``--help``."""
    found = verbs(build_parser(), "fallback-tier")
    real = {name.partition(" ")[2]: line for name, _, line in found}
    capsys.readouterr()
    rows = [found["command"] for found in ROW.finditer(CLI.read_text())]
    assert sorted(rows) == sorted(real), "docs/cli.md has a row for each command, and no other"
    text = ROW.sub(
        lambda row: f"| [`{row['command']}`]({row['link']}) | {real[row['command']]} |",
        CLI.read_text(),
    )
    _refresh(CLI, text, pytestconfig)


def _help(command: list[str]) -> str:
    """Every option. The exit codes of all commands are there once, with `fix`."""
    env = {"COLUMNS": "80", "NO_COLOR": "1"}
    whole = run(*command, "--help-all", env=env)
    ended = run(*command, "--help", env=env) if whole.code else whole
    assert ended.code == 0
    common = f"\n{epilog()}\n"
    return ended.out if command == ["fix"] else ended.out.replace(common, "")


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
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            leads_to = (page.parent / path) if path else page
            assert leads_to.exists(), (page.name, target)
            assert not anchor or anchor in anchors(leads_to.read_text()), (page.name, target)


def anchors(text: str) -> set[str]:
    """What a link can name in a page: its headings, as GitHub writes them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_an_anchor_that_is_not_there_would_be_found() -> None:
    page = "# A proof, and gates\n```sh\n# not a heading\n```\n## What `fix` does\n"
    assert anchors(page) == {"a-proof-and-gates", "what-fix-does"}


def test_the_python_example_runs(tmp_path: Path) -> None:
    """As it stands, but for the state folder."""
    (example,) = blocks("python", USAGE.read_text())
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
