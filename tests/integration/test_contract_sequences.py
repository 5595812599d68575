"""Some hundreds of attempt sequences; ten thousand of them are a campaign (``make hostile-audit``)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import ContractError
from fallback_audit.events import AuditEvent, RagSkippedOnRetry
from fallback_audit.ports import Scope, StoredEvent
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import FILES
from tests.integration import contract_foreign as foreign
from tests.integration import contract_scenario
from tests.integration import contract_sequences as sequences
from tests.integration.contract_model import FOLLOWS

STORIES, FOREIGN = 48, 80


def test_fixes_end_as_the_model_says_and_the_guard_refuses_none_of_ours() -> None:
    ends = sequences.main(STORIES)
    assert sum(ends.values()) == STORIES
    assert {"verified", "retry_cap_reached", "same_failure_repeated"} <= set(ends)
    assert any(end.startswith("reopened, ") for end in ends)
    assert {"gates again, verified", "gates again, gates_failed_again"} <= set(ends)


def test_a_foreign_orchestrator_that_breaks_a_rule_is_refused_and_can_go_on() -> None:
    refused = foreign.main(FOREIGN)
    assert sum(refused.values()) == FOREIGN
    assert set(refused) == set(foreign.BREACHES)


def test_every_sort_of_story_is_told() -> None:
    stories = [contract_scenario.told(seed) for seed in range(STORIES)]
    assert {story.recipe for story in stories} == {"selected", "declined"}
    assert {story.memory for story in stories} == {None, 0, 1, 3, -1}
    assert {bool(story.leaves) for story in stories} == {True, False}
    assert {story.case.judge is None for story in stories} == {True, False}


def test_the_model_knows_every_event_of_a_fix() -> None:
    assert set().union(*FOLLOWS.values()) <= set(FOLLOWS) | {"SandboxDisabled"}


# --- Without the action, the alarm ---


class Forgetful(contract_scenario.Watched):
    """Says that RagSkippedOnRetry is on record, and does not put it there."""

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        if isinstance(event, RagSkippedOnRetry):
            return next(iter(self.store.events()))
        return self.store.append(scope, event)


@pytest.fixture
def stories() -> Iterator[contract_scenario.Story]:
    return (
        story
        for story in map(contract_scenario.told, range(STORIES))
        if not story.leaves and story.recipe == "selected" and story.gate[0] == "fails"
    )


def test_a_tier_that_forgets_the_skip_is_stopped_before_it_asks(
    tmp_path: Path, stories: Iterator[contract_scenario.Story]
) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db", guard=ContractGuard())) as store:
        repo = context(tmp_path / "repo", FILES)
        fix = contract_scenario.ContractScenario(
            next(stories), Forgetful(store), repo, tmp_path / "state"
        )
        with pytest.raises(ContractError, match="rule rag-skip-recorded"):
            fix.run()
        assert not fix.author.heard


def test_a_memory_that_is_asked_on_a_retry_fails_the_story(
    tmp_path: Path, stories: Iterator[contract_scenario.Story]
) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db", guard=ContractGuard())) as store:
        repo = context(tmp_path / "repo", FILES)
        fix = contract_scenario.ContractScenario(
            next(stories), contract_scenario.Watched(store), repo, tmp_path / "state"
        )
        fix.run()
        assert fix.watched.last is not None
        assert fix.watched.last.is_retry
        with pytest.raises(AssertionError, match="touched on a retry"):
            fix.memory.query(fix.advisory, repo)


def test_without_a_guard_a_breach_goes_on_record(tmp_path: Path) -> None:
    repo = context(tmp_path / "repo", FILES)
    with (
        closing(SqliteAuditStore(tmp_path / "audit.db")) as store,
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        foreign.run_story(1, store, repo)
