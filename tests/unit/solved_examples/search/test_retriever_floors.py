"""Floors: what is below is kept out, and nothing else."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.selection import BELOW_ROUTING_FLOOR
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import Floor, RagMiss
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import store_at
from tests.unit.solved_examples.search.test_retriever import (
    CODE,
    FAR,
    OPEN,
    TEXT,
    account,
    advisory,
    fix,
    ids,
)


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return store_at(tmp_path / "examples.db")


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path / "repo", {"a.py": CODE})


def floors(routing: float, chunk: float) -> RetrievalSettings:
    return RetrievalSettings(
        floors=(
            Floor(name="routing", score="bm25", mode="lexical", value=routing),
            Floor(name="chunk", score="bm25", mode="lexical", value=chunk),
            Floor(name="routing", score="cosine", mode="hybrid", value=1.0),
        )
    )


def test_floors_keep_out_what_is_below_and_only_that(
    store: ExampleStore, repo: RepoContext
) -> None:
    store.ingest([fix("same", TEXT), fix("near", "symlinks somewhere"), fix("far", FAR)])
    ranking = SolvedExampleIndex(store, settings=OPEN).search(Question(TEXT))
    scores = {c.example.example_id: c.scores["bm25"] for c in ranking.candidates}
    assert scores["same"] > scores["near"] > 0
    at = SolvedExampleIndex(store, settings=floors(scores["same"], scores["near"]))
    assert ids(at.query(advisory(TEXT), repo)) == ["same", "near"]
    above = SolvedExampleIndex(store, settings=floors(0.0, scores["near"] + 1e-6))
    answer = above.query(advisory(TEXT), repo)
    assert ids(answer) == ["same"]
    assert [drop.reason for drop in account(answer).dropped] == ["bm25 is below the chunk floor"]
    closed = SolvedExampleIndex(store, settings=floors(scores["same"] + 1e-6, 0.0))
    missed = closed.query(advisory(TEXT), repo)
    assert isinstance(missed, RagMiss)
    assert "routing floor" in missed.evidence
    reported = account(missed)
    assert reported.returned == ()
    assert {drop.reason for drop in reported.dropped} == {"below the routing floor, as everything"}
    assert {floor.mode for floor in reported.floors} == {"lexical"}


def test_a_stricter_routing_floor_leaves_the_other_floors(
    store: ExampleStore, repo: RepoContext
) -> None:
    store.ingest([fix("near", "symlinks somewhere")])
    given = RetrievalSettings()
    strict = given.with_routing_floor(0.9)
    for mode in ("hybrid", "lexical"):
        routing, before = strict.floor("routing", mode), given.floor("routing", mode)
        assert routing is not None
        assert before is not None
        assert (routing.score, routing.value) == (before.score, 0.9)
        assert strict.floor("chunk", mode) == given.floor("chunk", mode)
    index = SolvedExampleIndex(store, settings=given.with_routing_floor(0.0))
    (found,) = index.search(Question(TEXT)).candidates
    at = found.scores["probability"]
    assert index.search(Question(TEXT)).routing == at
    reached, missed = (
        SolvedExampleIndex(store, settings=given.with_routing_floor(value))
        for value in (at, at + 1e-6)
    )
    assert isinstance(missed.query(advisory(TEXT), repo), RagMiss)
    assert BELOW_ROUTING_FLOOR in str(account(missed.query(advisory(TEXT), repo)).dropped)
    assert BELOW_ROUTING_FLOOR not in str(account(reached.query(advisory(TEXT), repo)))


def test_a_floor_is_named_once() -> None:
    floor = Floor(name="chunk", score="bm25", mode="lexical", value=0.1)
    with pytest.raises(ValidationError) as caught:
        RetrievalSettings(floors=(floor, floor))
    assert [error["type"] for error in caught.value.errors()] == ["value_error"]
