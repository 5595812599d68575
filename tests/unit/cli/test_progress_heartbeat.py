"""No command is silent for long: what runs is named while it runs, on standard error."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from fallback_plugins.shared.gates.suite_run import report_in
from fallback_tier.cli.progress import FixProgress, OnTerminal, PlanProgress
from fallback_tier.files.tree import FileTree
from fallback_tier.fix.steps import StepKey
from fallback_tier.limits import HEARTBEAT_S
from fallback_tier.sandbox.process import run_bounded, running_programs

BECOMES = 'PATH="$1:$PATH"; export PATH; shift; exec "$@"'


def sleep(folder: Path, seconds: str, *, shown: tuple[str, ...]) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    run_bounded(
        ["sleep", seconds],
        cwd=folder,
        env=environment,
        timeout_s=30,
        max_output_bytes=100,
        shown=shown,
    )


def text_of(written: io.StringIO) -> list[str]:
    return [line for line in written.getvalue().splitlines() if "waiting" in line]


def test_plan_names_the_client_that_runs(tmp_path: Path) -> None:
    written = io.StringIO()
    with PlanProgress(Console(file=written, width=200), every_s=0.2) as progress:
        progress("npm: 3 advisories together")
        sleep(tmp_path, "1", shown=("npm", "install", "--package-lock-only"))
    beats = text_of(written)
    assert beats
    named = [beat for beat in beats if "npm install --package-lock-only: " in beat]
    assert named, "the last one may come after its end"
    assert named[-1].startswith("  waiting    npm: 3 advisories together: ")
    assert named[-1].endswith(" s of at most 30 s")
    assert running_programs() == ()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("npm", "test"), "npm test"),
        (
            (
                "sh",
                "-c",
                'PATH="$1:$PATH"; export PATH; shift; exec "$@"',
                "sh",
                "/x/bin",
                "yarn",
                "test",
            ),
            "yarn test",
        ),
        (
            (
                "/v/bin/python",
                "-c",
                "import sys\nrun()",
                "/t/.fallback-tier-0a",
                "unittest",
                "discover",
            ),
            "python unittest discover",
        ),
        (("python", "-c", "print(1)"), "python -c print(1)"),
    ],
)
def test_a_command_is_shown_as_a_person_knows_it(
    tmp_path: Path, command: tuple[str, ...], shown: str
) -> None:
    written = io.StringIO()
    with PlanProgress(Console(file=written, width=200), every_s=0.1):
        sleep(tmp_path, "0.5", shown=command)
    assert f"; {shown}: " in text_of(written)[-1]


def test_tests_that_ran_are_counted(tmp_path: Path) -> None:
    written = io.StringIO()
    with (
        report_in(FileTree(root=tmp_path)) as report,
        PlanProgress(Console(file=written, width=200), every_s=0.2),
    ):
        Path(report.path).write_text('{"test": "a", "was": "passed"}\n' * 1_412)
        time.sleep(0.5)
    assert text_of(written)[-1].endswith("; 1,412 tests so far")


def test_an_event_is_a_line_in_a_pipe() -> None:
    written = io.StringIO()
    with FixProgress(Console(file=written, width=40)) as progress:
        progress.report("a sentence that is much longer than forty columns are wide")
    assert written.getvalue().count("\n") == 1


def test_fix_names_the_step_also_if_no_program_runs() -> None:
    written = io.StringIO()
    with FixProgress(Console(file=written, width=200), every_s=0.2) as progress:
        progress(StepKey(attempt=1, name="tests"))
        time.sleep(1)
    assert text_of(written)[0].startswith("  waiting    tests: ")


def test_quick_work_has_no_heartbeat(tmp_path: Path) -> None:
    written = io.StringIO()
    with PlanProgress(Console(file=written, width=200)):
        sleep(tmp_path, "0.1", shown=("npm",))
    assert written.getvalue() == ""
    assert HEARTBEAT_S < 20


def test_with_json_it_goes_to_standard_error_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with PlanProgress(Console(quiet=True), OnTerminal(quiet=True)._beats, every_s=0.2):
        sleep(tmp_path, "1", shown=("uv", "lock"))
    out, err = capsys.readouterr()
    assert out == ""
    assert "uv lock: " in err
