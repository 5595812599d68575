"""Heavy imports are paid for by the command that needs them, and by no other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.command import osv, repository

HEAVY = {
    "anthropic",
    "fallback_plugins",
    "genai_prices",
    "httpx2",
    "jinja2",
    "pydantic",
    "rich",
    "semantic_version",
    "sqlite_utils",
    "tomlkit",
    "vcr",
}

#: Runs the command in this interpreter, then prints what it has loaded, one line, last.
PROGRAM = """
import sys
{first}
from fallback_tier.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print()
print(code, *sys.modules)
"""


def loaded(*arguments: str | Path, stdin: str = "", first: str = "") -> set[str]:
    """The heavy modules that a command has imported at its end; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0", done
    return HEAVY & {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def request_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fix by recipe: no client is needed for a pin in a requirements file."""
    repo = repository(tmp_path_factory.mktemp("a") / "repo", {"requirements.txt": "left==1.0.0\n"})
    return json.dumps({"advisory": json.loads(osv("left")), "repository": str(repo)})


@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], ["fix", "--help"], ["plan", "--help"]]
)
def test_asking_for_help_loads_nothing(command: list[str]) -> None:
    assert loaded(*command) == set()


def test_a_fix_by_recipe_loads_no_model(state: Path, request_text: str) -> None:
    heavy = loaded("attempt", "--state-dir", state, stdin=request_text)
    assert heavy.isdisjoint({"anthropic", "httpx2", "vcr", "rich", "jinja2"})
    assert heavy >= {"pydantic", "sqlite_utils"}


def test_a_plan_loads_no_model_and_no_store(tmp_path: Path, request_text: str) -> None:
    request = json.loads(request_text)
    advisory = tmp_path / "advisory.json"
    advisory.write_text(json.dumps(request["advisory"]))
    heavy = loaded("plan", request["repository"], "--advisory", advisory, "--offline", "--json")
    assert heavy.isdisjoint({"anthropic", "httpx2", "vcr", "jinja2", "sqlite_utils"})


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_reading_the_trail_loads_no_model_and_no_prompt(
    state: Path, request_text: str, more: list[str]
) -> None:
    loaded("attempt", "--state-dir", state, stdin=request_text)
    heavy = loaded("audit", "log", "--state-dir", state, *more)
    assert heavy.isdisjoint({"anthropic", "httpx2", "vcr", "jinja2"})
    assert heavy >= {"pydantic"}


def test_the_check_can_fail() -> None:
    """Each of these modules exists, and is seen where a command loads it."""
    assert loaded("--version", first=f"import {', '.join(sorted(HEAVY))}") == HEAVY
