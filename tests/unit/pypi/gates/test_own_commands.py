"""How a project's own test command is run, and what its log tells."""

import subprocess
from pathlib import Path

import pytest

from fallback_plugins.pypi.gates.testing import Line, command_summary
from fallback_plugins.pypi.probes.observed import SHIMS, add_shims, read_suite
from fallback_plugins.shared.gates.test_commands import CommandKind, suites_of
from fallback_plugins.shared.gates.test_commands import TestCommand as Command


@pytest.mark.parametrize(
    ("written", "run"),
    [
        ("pytest -x -vv --cov=src --cov-report xml -n auto tests", "pytest tests"),
        ("pytest --cov tests", "pytest"),
        ("pytest --cov -p no:warnings", "pytest -p no:warnings"),
        ("pytest -xvs -k 'a and not (b)'", "pytest -s -k 'a and not (b)'"),
        ("python3.8 -W error -m pytest --maxfail=2 --ds=app", "python -W error -m pytest --ds=app"),
        ("uv run --group test pytest --reruns 3 -m 'not slow'", "uv run --group test pytest -m 'not slow'"),
        ("coverage run --source app -p -m pytest -q", "python -m pytest"),
        ("python -m coverage run --branch manage.py test", "python manage.py test"),
        ("./manage.py test --parallel", "python ./manage.py test --parallel"),
        ("MODE=ci env DEBUG=1 python -m unittest -v", "python -m unittest -v"),
        ("python -m unittest -x", "python -m unittest -x"),
        ("pytest tests/*.py -x", "pytest tests/*.py -x"),
        ("cd src && pytest -x", "cd src && pytest -x"),
        ("pytest 'unbalanced", "pytest 'unbalanced"),
    ],
)  # fmt: skip
def test_what_makes_a_run_unlike_another_is_left_out(written: str, run: str) -> None:
    assert Line.of(written).text == run


def test_variables_that_a_line_sets() -> None:
    assert Line.of("MODE=ci env DEBUG=1 pytest").env == {"MODE": "ci", "DEBUG": "1"}


@pytest.mark.parametrize(
    ("log", "figures", "ran", "failed"),
    [
        ("=== 2 passed in 0.1s ===\n...\nRan 3 tests in 0.1s\n\nFAILED (failures=1)\n", None, 5, 1),
        ("= 9 passed in 0.1s =\n= 2 failed, 1 passed in 0.1s =\n", (3, 2), 3, 2),
        ("= 9 passed in 0.1s =\n= 2 failed, 1 passed in 0.1s =\n", (12, 2), 12, 2),
        ("= 2 passed in 0.1s =\n", (9, 0), 2, 0),
        ("Ran 3 tests in 0.01s\n\nPASSED (skips=1, successes=2)\n", None, 2, 0),
        ("  Ran 4 tests with 1 failures, 1 errors, 0 skipped in 0.1 seconds.\n", None, 4, 2),
        ("2 features passed\n3 scenarios passed, 1 failed, 2 skipped\n", None, 4, 1),
        ("3 tests, 2 passed, 1 failed\n4 tests, 3 passed, 1 failed\n", None, 4, 1),
        ("Ran: 5 tests in 0.02 sec.\n - Passed: 4\n - Skipped: 0\n - Failed: 1\n", None, 5, 1),
        ("nothing of the kind\n", (7, 1), 7, 1),
    ],
)
def test_what_a_commands_log_tells(
    log: str, figures: tuple[int, int] | None, ran: int, failed: int
) -> None:
    found = command_summary(log, figures)
    assert found is not None
    assert (found.ran, found.failed) == (ran, failed)


def test_a_log_without_any_summary_tells_nothing() -> None:
    assert command_summary("done\n", None) is None
    assert command_summary("done\n", (0, 0)) is None


def test_commands_of_one_job_are_one_suite_and_anothers_are_left_out() -> None:
    commands = [
        Command("pytest unit", "ci", group="job"),
        Command("ruff check", "ci", kind=CommandKind.LINT, group="job"),
        Command("pytest integration", "ci", group="job"),
        Command("npm test", "ci", group="web", runtime="node"),
        Command("make test", "Makefile"),
        Command("pytest", "tox.ini", folder="lib"),
        Command("pytest lib/tests", "tox.ini", group="tox"),
        Command("pytest library my/lib", "tox.ini", group="others"),
    ]
    found = [[it.line for it in group] for group in suites_of(commands, ".", "python")]
    assert found[:2] == [["pytest unit", "pytest integration"], ["make test"]]
    found = [[it.line for it in group] for group in suites_of(commands, "lib", "python")]
    assert found == [["pytest"], ["pytest lib/tests"]]
    found = [[it.line for it in group] for group in suites_of(commands, "web", "node", "web")]
    assert [group for group in found if group[0] != "pytest"][1:3] == [["npm test"], ["make test"]]


RECORD = ["here", "began 7 1", "tested 7 passed a", "tested 7 failed b", "ended 7 2 2 1"]


def record(*lines: str, header: str = "head") -> str:
    return "".join(f"{line}\n" for line in (header, *map(ascii, lines)))


def test_a_record_has_figures_if_each_process_reached_its_end() -> None:
    report, others = read_suite(record(*RECORD), "head")
    assert report is not None
    assert (report.figures, report.failed, [*report.passed]) == ((2, 1), ("b",), ["a"])
    assert others == record("here")
    both, _ = read_suite(record(*RECORD, "began 8", "tested 8 passed c", "ended 8 1 1 0"), "head")
    assert both is not None
    assert both.figures == (3, 1)


def test_what_a_runners_own_child_reports_is_the_runners() -> None:
    child = ["began 8 1 7", "tested 8 passed a", "tested 8 passed only here"]
    report, _ = read_suite(record(*RECORD, *child), "head")
    assert report is not None
    assert (report.figures, [*report.passed]) == ((2, 1), ["a"])


@pytest.mark.parametrize(
    "lines",
    [
        RECORD[:-1],
        [*RECORD, "began 8"],
        [*RECORD, "tested 7 passed c"],
        [*RECORD[:-1], "ended 9 2 2 1"],
    ],
)
def test_a_record_that_is_not_whole_has_no_figures(lines: list[str]) -> None:
    report, _ = read_suite(record(*lines), "head")
    assert report is not None
    assert report.figures is None


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", record(*RECORD, header="other"), record(*RECORD) + "x\n"),
        *(record(*RECORD, "ended 7 2 2 0"), record(*RECORD, "began 7")),
    ],
)
def test_a_damaged_record_is_none(text: str | None) -> None:
    assert read_suite(text, "head")[0] is None


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("poetry run echo a b", "a b"),
        ("uv run --frozen --group test --with x echo a", "a"),
        ("uv --project . run -- echo a", "a"),
        ("hatch run test:echo a", "a"),
        ("pip install -r requirements.txt", ""),
        ("poetry install --with dev", ""),
    ],
)
def test_a_clients_command_runs_in_the_environment(
    tmp_path: Path, words: str, printed: str
) -> None:
    add_shims(tmp_path)
    program, *arguments = words.split()
    done = subprocess.run(
        [str(tmp_path / SHIMS / program), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == printed
