"""A command that may take long is ended if it is silent, and not while it prints or reports tests."""

import time
from pathlib import Path

from fallback_tier.execution import CommandResult, counted
from fallback_tier.sandbox.process import run_bounded

#: What a command that hangs would take, were it not for its silence.
_LONG_S = 60.0


def ran(folder: Path, script: str, silent_s: float | None) -> CommandResult:
    return run_bounded(
        ["sh", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        timeout_s=_LONG_S,
        silent_s=silent_s,
        max_output_bytes=1_000,
    )


def test_one_that_prints_goes_on(tmp_path: Path) -> None:
    result = ran(tmp_path, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done", 1.5)
    assert (result.ok, result.output.split()[-1]) == (True, "6")


def test_one_that_is_silent_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    result = ran(tmp_path, "echo begun; sleep 50", 1.0)
    assert (result.timed_out, result.output) == (True, "begun\n")
    assert time.monotonic() - began < _LONG_S / 2


def test_one_whose_tests_are_reported_goes_on(tmp_path: Path) -> None:
    report = tmp_path / "report"
    script = "for i in 1 2 3 4 5 6; do echo x >> report; sleep 0.5; done"
    with counted(lambda: report.read_text().count("x") if report.exists() else 0):
        assert ran(tmp_path, script, 1.0).ok
        assert ran(tmp_path, "sleep 50", 1.0).timed_out


def test_without_a_limit_silence_is_fine(tmp_path: Path) -> None:
    assert ran(tmp_path, "sleep 1", None).ok
