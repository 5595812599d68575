"""A proved patch on a branch, and processes that end anywhere: committed once, recorded once."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import PatchDelivered
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.advisory import AdvisorySet
from fallback_tier.fix import Delivery, Fixer, OneFix
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix_result import WithPatch
from tests.fakes.crashing import Kill
from tests.fakes.repository import git
from tests.integration.crash_scenario import CrashScenario

BRANCH = "fix/it"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CrashScenario:
    scenario = CrashScenario(tmp_path_factory.mktemp("whole") / "scenario")
    git(scenario.repo, "config", "user.name", "A Person")
    git(scenario.repo, "config", "user.email", "person@example.invalid")
    (scenario.untouched / ".git" / "config").write_bytes(
        (scenario.repo / ".git" / "config").read_bytes()
    )
    assert scenario.fix(commit=BRANCH) == 0
    return scenario


@contextmanager
def killed_at(whole: CrashScenario, root: Path, kill: Kill) -> Iterator[CrashScenario]:
    scenario = CrashScenario(root, like=whole)
    assert scenario.fix(kill, commit=BRANCH) is None
    yield scenario
    assert git(scenario.repo, "status", "--porcelain") == ""
    scenario.check()


def said(scenario: CrashScenario) -> Any:
    return json.loads((scenario.root / "said").read_text())


def deliveries(scenario: CrashScenario) -> list[PatchDelivered]:
    return [event for event in scenario.events if isinstance(event, PatchDelivered)]


def test_a_commit_that_had_been_made_is_put_on_record(whole: CrashScenario, tmp_path: Path) -> None:
    with killed_at(whole, tmp_path / "scenario", Kill(len(whole.events), before=True)) as scenario:
        made = git(scenario.repo, "rev-parse", BRANCH).strip()
        assert scenario.resume() == 0
        assert git(scenario.repo, "rev-parse", BRANCH).strip() == made
        (delivered,) = deliveries(scenario)
        assert delivered.place is DeliveryPlace.BRANCH
        assert delivered.reference == f"{BRANCH} {made}"


def test_a_branch_that_a_person_removed_is_not_made_again(
    whole: CrashScenario, tmp_path: Path
) -> None:
    with killed_at(whole, tmp_path / "scenario", Kill(len(whole.events), before=False)) as scenario:
        made = git(scenario.repo, "rev-parse", BRANCH).strip()
        git(scenario.repo, "branch", "-D", BRANCH)
        assert scenario.resume() == 0
        assert git(scenario.repo, "branch", "--list", BRANCH) == ""
        assert said(scenario)["commit"] == {"branch": BRANCH, "commit": made, "existed": False}
        assert len(deliveries(scenario)) == 1


def test_it_is_told_where_the_record_says_that_it_is(whole: CrashScenario, tmp_path: Path) -> None:
    """`fix --resume` without --commit, or with another, does not move what was delivered."""
    with (
        killed_at(whole, tmp_path / "scenario", Kill(len(whole.events), before=False)) as scenario,
        scenario.services() as services,
    ):
        inputs = RecordedFix(services.audit, services.evidence, scenario.fix_id).inputs
        for commit in (None, "other"):
            report = tmp_path / f"report-{commit}"
            fixed = Fixer(services).resume(
                scenario.fix_id,
                given=AdvisorySet(advisories=(inputs.advisory,)),
                repository=inputs.repository,
                delivery=Delivery(commit=commit, report=report),
            )
            assert isinstance(fixed, OneFix)
            assert isinstance(fixed.result, WithPatch)
            assert fixed.delivery.committed is not None
            assert fixed.delivery.committed.branch == BRANCH
        assert git(scenario.repo, "branch", "--list", "other") == ""
        body = (report / "pull-request.md").read_text()
        assert "**Without a sandbox**" in body  # another process did: the record says so
        assert len(deliveries(scenario)) == 1


def test_a_dry_run_commits_nothing(whole: CrashScenario, tmp_path: Path) -> None:
    with (
        killed_at(
            whole, tmp_path / "scenario", Kill(len(whole.events) - 1, before=False)
        ) as scenario,
        scenario.services() as services,
    ):
        inputs = RecordedFix(services.audit, services.evidence, scenario.fix_id).inputs
        assert inputs.setup.commit == BRANCH
        fixed = Fixer(services).resume(scenario.fix_id, delivery=Delivery(dry_run=True))
        assert isinstance(fixed, OneFix)
        assert isinstance(fixed.result, WithPatch)
        assert not fixed.delivery.delivered
        assert git(scenario.repo, "branch", "--list", BRANCH) == ""
        assert deliveries(scenario) == []
