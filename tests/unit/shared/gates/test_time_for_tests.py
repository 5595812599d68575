"""How long a project's tests may take: as long as they go on, twice as long as at the base commit, and no
longer than an hour."""

from dataclasses import replace
from pathlib import Path

import pytest

from fallback_plugins.shared.gates.base_runs import (
    BaseRuns,
    limited,
    patient,
    place_of,
    time_of,
)
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_tier.gate_ports import GateContext, SuiteTime
from fallback_tier.limits import MAX_TESTS_S
from tests.unit.shared.gates.test_flaky import Project, context, run
from tests.unit.shared.gates.test_suites_by_name import late


def with_settings(place: Path, stated_s: float | None = None) -> GateContext:
    found: GateContext = context(place)
    settings = found.repo.settings.model_copy(update={"test_timeout_s": stated_s})
    repo = found.repo.model_copy(update={"settings": settings})
    return replace(found, repo=repo)


def took(seconds: float, ended: SuiteRun) -> SuiteRun:
    result = ended.result.model_copy(update={"duration_ms": int(seconds * 1000)})
    return replace(ended, result=result)


def test_tests_have_an_hour_while_they_go_on_and_other_commands_their_own_time(
    tmp_path: Path,
) -> None:
    found = patient(with_settings(tmp_path))
    assert time_of(found) == SuiteTime(limit_s=MAX_TESTS_S, silent_s=60)
    assert found.timeout_s == 60
    assert time_of(with_settings(tmp_path)) == SuiteTime(limit_s=60)


@pytest.mark.parametrize("stated_s", [20, 90])
def test_a_person_may_state_the_time(tmp_path: Path, stated_s: float) -> None:
    assert time_of(patient(with_settings(tmp_path, stated_s))) == SuiteTime(stated_s, silent_s=60)


@pytest.mark.parametrize(
    ("base", "stated_s", "limit_s"),
    [
        (took(1, run(3)), None, 60),
        (took(100, run(3)), None, 200),
        (took(3000, run(3)), None, MAX_TESTS_S),
        (took(100, run(3)), 90, 90),
        (took(700, late(a="passed")), None, 700),
    ],
)
def test_the_patch_has_twice_what_the_base_commit_took(
    tmp_path: Path, base: SuiteRun, stated_s: float | None, limit_s: float
) -> None:
    found = patient(with_settings(tmp_path, stated_s))
    runs = BaseRuns(found, "tests", ".", Project([base], [base]), lambda: "it")
    assert time_of(limited(found, runs)).limit_s == limit_s


def test_what_was_seen_at_the_base_commit_serves_with_any_time(tmp_path: Path) -> None:
    found = with_settings(tmp_path)
    asked = ("tests", ".", "it")
    assert place_of(patient(found), *asked) == place_of(found, *asked)
    assert place_of(replace(found, sandbox=object()), *asked) != place_of(found, *asked)


def test_a_time_that_ended_both_runs_tells_how_many_tests_were_as_before(tmp_path: Path) -> None:
    names = {f"t{number}": "passed" for number in range(1_500)}
    ours = late(**dict([*names.items()][:1_412]))
    found = patient(with_settings(tmp_path))
    project = Project([ours], [took(3600, late(**names))])
    verdict = judge_tests("tests", found, ".", project, lambda: "it")
    assert (
        "1,412 of the 1,500 that passed in time there passed here, none fails anew"
        in verdict.detail
    )
