"""What CI runs in its two stages of tests: nothing that has tests is in neither."""

import subprocess
import sys

import pytest

from tests.unit.test_layout import ROOT, committed

#: pytest's exit codes: tests were collected; none were.
FOUND, NONE = 0, 5


@pytest.mark.parametrize(("marked", "code"), [("campaign", FOUND), ("not campaign", NONE)])
def test_tests_of_campaigns_are_for_the_stage_of_campaigns(marked: str, code: int) -> None:
    small = "tests/campaigns/hostile/test_campaigns.py"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marked, small]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr


def test_the_stages_leave_out_what_the_other_runs() -> None:
    targets = (ROOT / "Makefile").read_text().split("\n\n")
    commands = {
        name: next(text for text in targets if f"\n{name}: setup" in text)
        for name in ("test", "test-campaign", "test-all")
    }
    assert "--ignore=tests/campaigns " in commands["test"]
    assert " -m campaign " in commands["test-campaign"]
    assert "--ignore" not in commands["test-campaign"] + commands["test-all"]
    stages = (ROOT / ".ci" / "run").read_text()
    assert all(f"\nmake {name} " in stages for name in ("test", "test-campaign"))


def test_every_campaign_is_on_the_page_of_campaigns() -> None:
    page = (ROOT / "tests/campaigns/README.md").read_text()
    folders = {
        path.split("/")[2]
        for path in committed()
        if path.startswith("tests/campaigns/") and path.count("/") > 2
    }
    assert len(folders) > 10
    assert {name for name in folders if f"{name}/" not in page} == set()
