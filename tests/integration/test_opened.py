"""An open fix: what an engine holds between two steps (ADR-0086)."""

from dataclasses import replace
from pathlib import Path

import pytest

from fallback_audit.errors import OvertakenError
from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.errors import HeldError
from fallback_tier.fix import Fixer
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_scenario import CrashScenario

FIX = "fix-of-an-engine"
GIVEN = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))

#: What only a fix that was interrupted has on record.
RESUMED = ("FixResumed", "SandboxDisabled")


def _take(scenario: CrashScenario, limit: int | None = None) -> list[str]:
    """Open it and take up to so many steps; without a limit all of them, and deliver."""
    taken: list[str] = []
    with (
        scenario.services() as services,
        Fixer(services).open(GIVEN, scenario.repo, fix_id=FIX) as fix,
    ):
        while limit != len(taken) and (key := fix.next()) is not None:
            fix.step(key)
            taken.append(key.name)
        if fix.next() is None and limit is None:
            assert fix.deliver().delivery.delivered
    return taken


def _kinds(scenario: CrashScenario) -> list[str]:
    return [event.kind for event in scenario.events if event.kind not in RESUMED]


@pytest.fixture
def whole(tmp_path: Path) -> CrashScenario:
    """What the plain loop leaves."""
    scenario = CrashScenario(tmp_path / "whole")
    assert scenario.fix() == 0
    return scenario


def test_steps_taken_by_an_engine_leave_the_plain_loops_trail(
    tmp_path: Path, whole: CrashScenario
) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    assert _take(scenario)[:3] == ["attempt", "isolate", "gate:applies"]
    assert [event.kind for event in scenario.events] == [event.kind for event in whole.events]
    scenario.check()


def test_it_can_be_closed_and_opened_between_any_two_steps(
    tmp_path: Path, whole: CrashScenario
) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    names = []
    # The worktree is made anew each time it is opened: two steps at once get further than one.
    while (taken := _take(scenario, 2)) and taken != [] and "FixVerified" not in _kinds(scenario):
        names += taken
    assert _take(scenario) == []
    assert _kinds(scenario) == _kinds(whole)
    assert scenario.kinds["FixResumed"] > 3
    scenario.check()


def test_one_that_is_open_is_nobody_elses(tmp_path: Path) -> None:
    scenario = CrashScenario(tmp_path / "scenario")
    with (
        scenario.services() as services,
        Fixer(services).open(GIVEN, scenario.repo, fix_id=FIX),
        pytest.raises(HeldError),
    ):
        _take(scenario)
    assert _take(scenario)
    scenario.check()


def test_another_machine_goes_on_and_the_first_has_nothing_more_to_say(
    tmp_path: Path, whole: CrashScenario
) -> None:
    """No lock file holds across two of them: the record does."""
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    with (
        scenario.services() as here,
        Fixer(here).open(GIVEN, scenario.repo, fix_id=FIX) as given_up,
    ):
        for _ in range(3):
            key = given_up.next()
            assert key is not None
            given_up.step(key)
        with scenario.services() as there:
            place = there.configuration.model_copy(update={"state_dir": tmp_path / "there"})
            fixer = Fixer(replace(there, configuration=place))
            with fixer.open(GIVEN, scenario.repo, fix_id=FIX) as fix:
                recorded = len(scenario.events)
                key = given_up.next()
                assert key is not None
                with pytest.raises(OvertakenError):
                    given_up.step(key)
                assert len(scenario.events) == recorded
                fix.to_the_end()
    assert _kinds(scenario) == _kinds(whole)
