"""kill -9 at events of a fix: whoever resumes comes to the same end, and pays for nothing twice.

In the suite at some, with ``make test-all`` at every other. All boundaries, pairs of kills and a longer
story: ``python -m tests.campaigns.hostile.resume``.
"""

import shutil
from pathlib import Path

import pytest

from tests.choice import a_choice
from tests.fakes.crashing import Kill
from tests.integration.crash_scenario import CrashScenario, Ended, check_killed

#: Before these something has happened that the record doesn't have yet: an answer was paid for, the patch
#: is on the working tree, the run ended. Elsewhere nothing lies between an event and the next.
UNRECORDED = {"FixStarted", "ModelAnswered", "PatchDelivered"}

Whole = tuple[CrashScenario, Ended]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The fix that nobody interrupts."""
    scenario = CrashScenario(tmp_path_factory.mktemp("whole") / "scenario")
    return scenario, scenario.ended(scenario.fix())


def test_the_story_is_the_one_that_is_told(whole: Whole) -> None:
    scenario, ended = whole
    assert (ended.code, ended.document["attempts"]) == (0, 2)
    assert scenario.requests == scenario.kinds["ModelAnswered"] == 2
    assert ended.document["delivered"]


def test_killed_where_something_happened_that_is_not_on_record(
    whole: Whole, tmp_path: Path
) -> None:
    kinds = [event.kind for event in whole[0].events]
    check_each(
        whole, tmp_path, [Kill(n, True) for n, kind in enumerate(kinds, 1) if kind in UNRECORDED]
    )


# The third share: after a patch, a failed attempt, a question to the model, a gate.
@pytest.mark.parametrize("share", a_choice((2, 0, 1), step=3))
def test_killed_anywhere_a_fix_comes_to_the_same_end(
    whole: Whole, tmp_path: Path, share: int
) -> None:
    numbers = range(1, len(whole[0].events) + 1, 2)
    check_each(whole, tmp_path, [Kill(number, False) for number in numbers[share::3]])


def check_each(whole: Whole, tmp_path: Path, kills: list[Kill]) -> None:
    assert kills
    for kill in kills:
        check_killed(*whole, tmp_path / kill.label, kill)
        shutil.rmtree(tmp_path / kill.label)


def test_killed_again_while_it_resumes(whole: Whole, tmp_path: Path) -> None:
    late = len(whole[0].events) - 4
    check_killed(
        *whole, tmp_path / "scenario", Kill(6, before=True), Kill(8, False), Kill(late, False)
    )
