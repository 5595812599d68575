"""Asking for more: nothing that was shown comes again, and the account says so."""

import hashlib
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import Floor, RagHit, RagMiss
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import store_at
from tests.unit.solved_examples.search.test_retriever import (
    CODE,
    FAR,
    NEAR,
    OPEN,
    TEXT,
    account,
    advisory,
    fix,
    ids,
)

TWO = OPEN.model_copy(update={"k": 2})


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return store_at(tmp_path / "examples.db")


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path / "repo", {"a.py": CODE})


def test_pages_are_disjoint_and_in_order(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix(f"e{number}", f"{TEXT} {'x ' * number}") for number in range(5)])
    index = SolvedExampleIndex(store, settings=TWO)
    whole = ids(SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo))
    seen: list[str] = []
    while isinstance(answer := index.query(advisory(TEXT), repo, beyond=frozenset(seen)), RagHit):
        assert len(answer.examples) <= 2
        assert not set(seen) & set(ids(answer))
        seen += ids(answer)
    assert len(seen) == 5
    assert seen[: len(whole)] == whole
    assert isinstance(answer, RagMiss)
    assert {one.reason for one in account(answer).dropped} == {"shown before"}


def test_the_fix_that_was_shown_does_not_come_under_another_id(
    store: ExampleStore, repo: RepoContext
) -> None:
    twin = fix("shown", TEXT).model_copy(update={"example_id": "twin", "advisory_id": "GHSA-2"})
    store.ingest([fix("shown", TEXT), twin, fix("other", NEAR)])
    index = SolvedExampleIndex(store, settings=OPEN)
    first = ids(index.query(advisory(TEXT), repo))
    assert len({"shown", "twin"} & set(first)) == 1
    left = index.query(advisory(TEXT), repo, beyond=frozenset({first[0]}))
    assert ids(left) == ["other"]
    reasons = {one.example_id: one.reason for one in account(left).dropped}
    assert set(reasons.values()) == {"shown before", f"the same fix as {first[0]}"}


def test_identical_code_does_not_come_again(store: ExampleStore, repo: RepoContext) -> None:
    same = {"a.py": hashlib.sha256(CODE.encode()).hexdigest()}
    store.ingest([fix("same", TEXT, package="thing", file_sha256=same), fix("near", NEAR)])
    index = SolvedExampleIndex(store, settings=OPEN)
    assert ids(index.query(advisory(TEXT), repo)) == ["same", "near"]
    assert ids(index.query(advisory(TEXT), repo, beyond=frozenset({"same"}))) == ["near"]


def test_a_memory_that_is_believed_stays_so(store: ExampleStore, repo: RepoContext) -> None:
    """The routing floor stands on everything that was found, not on what is left to show."""
    store.ingest([fix("same", TEXT), fix("near", NEAR), fix("far", FAR)])
    ranking = SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)
    assert isinstance(ranking, RagHit)
    best, second = (shot.scores["bm25"] for shot in ranking.examples[:2])
    assert best > second
    floor = Floor(name="routing", score="bm25", mode="lexical", value=(best + second) / 2)
    index = SolvedExampleIndex(store, settings=RetrievalSettings(floors=(floor,)))
    assert "near" in ids(index.query(advisory(TEXT), repo, beyond=frozenset({"same"})))
