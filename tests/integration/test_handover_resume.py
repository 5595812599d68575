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
from tests.integration.crash_house import CrashHouse

BRANCH = "fix/it"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CrashHouse:
    house = CrashHouse(tmp_path_factory.mktemp("whole") / "house")
    git(house.repo, "config", "user.name", "A Person")
    git(house.repo, "config", "user.email", "person@example.invalid")
    (house.untouched / ".git" / "config").write_bytes((house.repo / ".git" / "config").read_bytes())
    assert house.fix(commit=BRANCH) == 0
    return house


@contextmanager
def killed_at(whole: CrashHouse, root: Path, kill: Kill) -> Iterator[CrashHouse]:
    house = CrashHouse(root, like=whole)
    assert house.fix(kill, commit=BRANCH) is None
    yield house
    assert git(house.repo, "status", "--porcelain") == ""
    house.check()


def said(house: CrashHouse) -> Any:
    return json.loads((house.root / "said").read_text())


def deliveries(house: CrashHouse) -> list[PatchDelivered]:
    return [event for event in house.events if isinstance(event, PatchDelivered)]


def test_a_commit_that_had_been_made_is_put_on_record(whole: CrashHouse, tmp_path: Path) -> None:
    with killed_at(whole, tmp_path / "house", Kill(len(whole.events), before=True)) as house:
        made = git(house.repo, "rev-parse", BRANCH).strip()
        assert house.resume() == 0
        assert git(house.repo, "rev-parse", BRANCH).strip() == made
        (delivered,) = deliveries(house)
        assert delivered.place is DeliveryPlace.BRANCH
        assert delivered.reference == f"{BRANCH} {made}"


def test_a_branch_that_a_person_removed_is_not_made_again(
    whole: CrashHouse, tmp_path: Path
) -> None:
    with killed_at(whole, tmp_path / "house", Kill(len(whole.events), before=False)) as house:
        made = git(house.repo, "rev-parse", BRANCH).strip()
        git(house.repo, "branch", "-D", BRANCH)
        assert house.resume() == 0
        assert git(house.repo, "branch", "--list", BRANCH) == ""
        assert said(house)["commit"] == {"branch": BRANCH, "commit": made, "existed": False}
        assert len(deliveries(house)) == 1


def test_it_is_told_where_the_record_says_that_it_is(whole: CrashHouse, tmp_path: Path) -> None:
    """`fix --resume` without --commit, or with another, does not move what was delivered."""
    with (
        killed_at(whole, tmp_path / "house", Kill(len(whole.events), before=False)) as house,
        house.services() as services,
    ):
        inputs = inputs_of(services.audit, services.evidence, house.fix_id)
        for commit in (None, "other"):
            setup = inputs.setup.model_copy(
                update={"commit": commit, "report": str(tmp_path / "report")}
            )
            fixed = resume_one(
                *(house.fix_id, inputs.advisory, inputs.repository, services, setup, UNWATCHED)
            )
            assert isinstance(fixed.result, WithPatch)
            assert fixed.delivery.committed is not None
            assert fixed.delivery.committed.branch == BRANCH
        assert git(house.repo, "branch", "--list", "other") == ""
        body = (tmp_path / "report" / "pull-request.md").read_text()
        assert "**Without a sandbox**" in body  # another process did: the record says so
        assert len(deliveries(house)) == 1


def test_a_dry_run_commits_nothing(whole: CrashHouse, tmp_path: Path) -> None:
    with (
        killed_at(whole, tmp_path / "house", Kill(len(whole.events) - 1, before=False)) as house,
        house.services() as services,
    ):
        inputs = inputs_of(services.audit, services.evidence, house.fix_id)
        assert inputs.setup.commit == BRANCH
        setup = inputs.setup.model_copy(update={"dry_run": True})
        fixed = resume_one(
            *(house.fix_id, inputs.advisory, inputs.repository, services, setup, UNWATCHED)
        )
        assert isinstance(fixed.result, WithPatch)
        assert not fixed.delivery.delivered
        assert git(house.repo, "branch", "--list", BRANCH) == ""
        assert deliveries(house) == []
