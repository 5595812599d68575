"""The shape of an attempt's graph says what a retry can't reach; what it runs is in the behaviour suite."""

from pathlib import Path

import pytest

from fallback_audit.vocabulary import Tier
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.advisory import parse_advisory
from fallback_tier.attempt.task import TierEvent
from fallback_tier.engines.langgraph.attempt import AttemptGraph, attempt_graph
from fallback_tier.outcome import Applied
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    PLAN,
    FallbackTierCallable,
    failed,
)


def reached_from(node: str) -> set[str]:
    """Every node that some path leads to."""
    edges = attempt_graph().get_graph().edges
    found, frontier = set[str](), {node}
    while frontier:
        frontier = {edge.target for edge in edges if edge.source in frontier} - found
        found |= frontier
    return found


def test_no_path_leads_a_retry_to_the_memory_or_to_a_recipe() -> None:
    assert {"recipe", "rag"}.isdisjoint(reached_from("fresh_context"))
    assert "llm" in reached_from("fresh_context")


def test_a_first_attempt_comes_to_the_memory_by_the_recipe_alone() -> None:
    edges = attempt_graph().get_graph().edges
    assert {edge.source for edge in edges if edge.target == "rag"} == {"recipe"}
    assert {edge.source for edge in edges if edge.target == "recipe"} == {"start"}
    by_condition = {edge.target: edge.conditional for edge in edges if edge.source == "start"}
    assert by_condition == {"fresh_context": True, "recipe": True, "refuse": True}


def test_who_watches_is_told_each_event_once_it_is_durable(tmp_path: Path) -> None:
    case = FallbackTierCallable(tmp_path)
    graph = AttemptGraph(case.build(ScriptedModel((PLAN,))))
    told: list[TierEvent] = []

    def observe(event: TierEvent) -> None:
        told.append(event)
        assert event.kind == case.audit.kinds[-1] or event.kind.startswith("Draft")

    advisory, repo = parse_advisory(ADVISORY, "test"), context(tmp_path, FILES)
    made = graph.run(advisory, repo, NO_RECIPE, prior_attempts=[failed(1)], observe=observe)
    assert isinstance(made, Applied)
    assert made.tier is Tier.LLM
    recorded = [event.kind for event in told if not event.kind.startswith("Draft")]
    assert recorded == case.audit.kinds
    assert recorded[:2] == ["AttemptStarted", "RagSkippedOnRetry"]


def test_a_consumer_that_goes_away_leaves_evidence(tmp_path: Path) -> None:
    """Ctrl-C, as in a drained stream."""
    case = FallbackTierCallable(tmp_path)
    graph = AttemptGraph(case.build(ScriptedModel((PLAN,))))

    def leave(event: TierEvent) -> None:
        if event.kind == "RecipeEvaluated":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph.run(
            parse_advisory(ADVISORY, "test"), context(tmp_path, FILES), NO_RECIPE, observe=leave
        )
    assert case.audit.kinds == ["AttemptStarted", "RecipeEvaluated", "ConsumerLeft"]
