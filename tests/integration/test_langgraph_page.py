"""The examples of docs/langgraph.md are run as they stand there."""

import re
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.fix import Fixer
from tests.e2e.command import osv, repository
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_scenario import CrashScenario

PAGE = Path(__file__).parents[2] / "docs" / "langgraph.md"
ATTEMPT, FIX = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(example, names)
    return names


def test_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "advisory.json").write_text(osv("left"))
    repository(tmp_path / "repo", {"requirements.txt": "left==1.0.0\n"})
    names = run(ATTEMPT)
    names["tier"].close()
    assert names["made"].outcome == "applied"
    assert "+left==2.0.0" in names["made"].diff


def test_a_whole_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = CrashScenario(tmp_path / "scenario")
    given = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))
    names = run(FIX)
    with scenario.services() as services:
        end = names["fix"](Fixer(services), given, scenario.repo, "fix-of-a-host")
    names["saver"].conn.close()
    assert (end.outcome, end.delivered, end.waits) == ("verified", True, False)
    scenario.check()
