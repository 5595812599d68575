"""A proved patch on a branch, and processes that end anywhere: committed once, recorded once."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import PatchDelivered
from fallback_audit.vocabulary import DeliveryPlace
from fallback_tier.fix.resuming import resume_one
from fallback_tier.fix.watching import UNWATCHED
from fallback_tier.gates.journal.resume import inputs_of
from fallback_tier.gates.result import WithPatch
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
        inputs = inputs_of(services.audit, services.evidence, scenario.fix_id)
        for commit in (None, "other"):
            setup = inputs.setup.model_copy(
                update={"commit": commit, "report": str(tmp_path / "report")}
            )
            fixed = resume_one(
                *(scenario.fix_id, inputs.advisory, inputs.repository, services, setup, UNWATCHED)
            )
            assert isinstance(fixed.result, WithPatch)
            assert fixed.delivery.committed is not None
            assert fixed.delivery.committed.branch == BRANCH
        assert git(scenario.repo, "branch", "--list", "other") == ""
        body = (tmp_path / "report" / "pull-request.md").read_text()
        assert "**Without a sandbox**" in body  # another process did: the record says so
        assert len(deliveries(scenario)) == 1


def test_a_dry_run_commits_nothing(whole: CrashScenario, tmp_path: Path) -> None:
    with (
        killed_at(
            whole, tmp_path / "scenario", Kill(len(whole.events) - 1, before=False)
        ) as scenario,
        scenario.services() as services,
    ):
        inputs = inputs_of(services.audit, services.evidence, scenario.fix_id)
        assert inputs.setup.commit == BRANCH
        setup = inputs.setup.model_copy(update={"dry_run": True})
        fixed = resume_one(
            *(scenario.fix_id, inputs.advisory, inputs.repository, services, setup, UNWATCHED)
        )
        assert isinstance(fixed.result, WithPatch)
        assert not fixed.delivery.delivered
        assert git(scenario.repo, "branch", "--list", BRANCH) == ""
        assert deliveries(scenario) == []
