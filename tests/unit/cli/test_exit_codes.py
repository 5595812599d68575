"""One table of exit codes: what commands return is in it, and every help text prints it."""

import ast
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.exit_codes import MEANING, epilog
from fallback_tier.cli.main import build_parser

CLI = Path(exit_codes.__file__).parent
SOURCES = [path for path in sorted(CLI.rglob("*.py")) if path.name != "exit_codes.py"]


def test_each_code_has_a_meaning_and_is_there_once() -> None:
    names = {
        name: value
        for name, value in vars(exit_codes).items()
        if name.isupper() and type(value) is int
    }
    assert sorted(names.values()) == sorted(MEANING)
    assert sorted(MEANING) == [*MEANING], "in order"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CLI)))
def test_no_command_has_codes_of_its_own(path: Path) -> None:
    """A handler returns a name of the table, never a number; and no module prints another table."""
    tree = ast.parse(path.read_text())
    numbers = [
        node.value.value
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name in HANDLERS
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Constant)
        and type(node.value.value) is int
    ]
    assert not numbers
    assert "exit codes:" not in path.read_text()


def _handlers() -> set[str]:
    """The names of functions that a parser calls, as they stand in the sources."""
    found = {"main"}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
                found.add(node.value.rpartition(":")[2])
    return {name for name in found if name.isidentifier()}


HANDLERS = _handlers()


@pytest.mark.parametrize("command", [[], ["fix"], ["plan"], ["resume"], ["attempt"]])
def test_help_has_the_table(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([*command, "--help"])
    assert epilog() in capsys.readouterr().out


def test_a_part_of_the_table_has_its_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["doctor", "--help"])
    shown = capsys.readouterr().out.partition("exit codes:\n")[2]
    codes = {int(line.split()[0]) for line in shown.splitlines() if line.strip()}
    assert codes == {exit_codes.OK, exit_codes.BAD_INPUT, exit_codes.ENVIRONMENT}
