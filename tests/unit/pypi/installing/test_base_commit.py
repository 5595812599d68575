"""What git says of the base commit: asked once a run, and of each commit by itself."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fallback_plugins.pypi.installing.environment import day_of_old, newest_tag
from fallback_tier.gate_ports import GateContext
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import GIT_ENV, commit_all, git
from tests.integration.gate_setup import repository
from tests.unit.shared.gates.test_flaky import context


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateContext:
    monkeypatch.setitem(GIT_ENV, "GIT_COMMITTER_DATE", "2001-02-03T12:00:00Z")
    repo = repository(tmp_path / "repo", {"app.py": ""})
    git(repo.root, "tag", "v1.0.0")
    made: GateContext = replace(context(tmp_path), repo=repo, clients=SubprocessClients())
    return made


def test_both_trees_are_told_one_tag_and_the_next_run_another(found: GateContext) -> None:
    assert newest_tag(found) == "v1.0.0"
    git(found.repo.root, "tag", "-d", "v1.0.0")
    git(found.repo.root, "tag", "v1.0.1")
    assert newest_tag(found) == "v1.0.0"
    assert newest_tag(replace(found, clients=SubprocessClients())) == "v1.0.1"


@pytest.mark.parametrize(
    ("committed", "day"),
    [("2002-02-03T12:00:00Z", "2002-02-03"), (datetime.now(UTC).isoformat(), "")],
    ids=["long ago", "today"],
)
def test_another_commit_has_a_day_and_a_tag_of_its_own(
    found: GateContext, monkeypatch: pytest.MonkeyPatch, committed: str, day: str
) -> None:
    assert (day_of_old(found), newest_tag(found)) == (
        "2001-02-03",
        "v1.0.0",
    )
    monkeypatch.setitem(GIT_ENV, "GIT_COMMITTER_DATE", committed)
    git(found.repo.root, "checkout", "-q", "--orphan", "another")
    repo = found.repo.model_copy(update={"base_commit": commit_all(found.repo.root)})
    another = replace(found, repo=repo)
    assert (day_of_old(another), newest_tag(another)) == (day, "")
