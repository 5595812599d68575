"""Asking a memory that has vectors: hybrid, and by words alone where the model or the file fails."""

from pathlib import Path
from typing import Any

import pytest

from fallback_plugins.solved_examples.index.indexing import build_index
from fallback_plugins.solved_examples.interfaces import Embedder, EmbeddingError, Question
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import Aggregation, RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import RagDegraded, RagHit
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import store_at
from tests.unit.solved_examples.search.test_retriever import FAR, TEXT, advisory, fix
from tests.unit.solved_examples.toy_embedder import ToyEmbedder

pytest.importorskip("numpy")

OPEN = RetrievalSettings(floors=())


class Broken(ToyEmbedder):
    """The right model, which fails when it is asked."""

    def embed(self, texts: Any) -> Any:
        raise EmbeddingError("The model can't be run.", next_step="Install it again.")


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    store = store_at(tmp_path / "examples.db")
    store.ingest([fix("same", TEXT), fix("far", FAR)])
    return store


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path / "repo", {"a.py": "x"})


def test_vectors_and_model_make_it_hybrid(store: ExampleStore, repo: RepoContext) -> None:
    build_index(store, ToyEmbedder())
    answer = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=OPEN).query(
        advisory(TEXT), repo
    )
    assert isinstance(answer, RagHit)
    assert answer.examples[0].example.example_id == "same"
    assert answer.examples[0].scores["cosine"] == pytest.approx(1, abs=1e-5)
    assert answer.account is not None
    assert answer.account.mode == "hybrid"


def test_meaning_finds_what_words_do_not(store: ExampleStore) -> None:
    build_index(store, ToyEmbedder())
    index = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=OPEN)
    ranking = index.search(Question("zzz qqq"))
    assert {c.example.example_id for c in ranking.candidates} == {"same", "far"}
    assert all(c.scores["bm25"] == 0 for c in ranking.candidates)


@pytest.mark.parametrize("how", Aggregation)
def test_a_record_is_as_near_as_its_chunks(store: ExampleStore, how: Aggregation) -> None:
    build_index(store, ToyEmbedder())
    chosen = RetrievalSettings(aggregation=how, floors=())
    ranking = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=chosen).search(
        Question(TEXT)
    )
    best = ranking.candidates[0].scores["cosine"]
    assert (best > 0.999) == (how is Aggregation.MAX)


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [
        (None, "the extra `embeddings` is not installed"),
        (ToyEmbedder("another"), "another"),
        (Broken(), "The model can't be run."),
    ],
)
def test_without_the_model_it_degrades_to_words(
    store: ExampleStore, repo: RepoContext, embedder: Embedder | None, reason: str
) -> None:
    build_index(store, ToyEmbedder())
    answer = SolvedExampleIndex(store, embedder=embedder, settings=OPEN).query(advisory(TEXT), repo)
    assert isinstance(answer, RagDegraded)
    assert answer.examples[0].example.example_id == "same"
    assert reason in answer.evidence
    assert answer.account is not None
    assert answer.account.mode == "lexical"


def test_a_damaged_vector_file_degrades_to_words(store: ExampleStore, repo: RepoContext) -> None:
    build_index(store, ToyEmbedder())
    (vectors,) = store.path.parent.glob(f"{store.vectors_path.name}.*")
    vectors.write_bytes(b"junk")
    answer = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=OPEN).query(
        advisory(TEXT), repo
    )
    assert isinstance(answer, RagDegraded)
    assert answer.examples
    assert str(vectors) in answer.evidence


def test_no_vectors_is_plain_words_unless_hybrid_was_asked(
    store: ExampleStore, repo: RepoContext
) -> None:
    plain = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=OPEN)
    assert isinstance(plain.query(advisory(TEXT), repo), RagHit)
    wanted = RetrievalSettings(mode="hybrid", floors=())
    asked = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=wanted)
    answer = asked.query(advisory(TEXT), repo)
    assert isinstance(answer, RagDegraded)
    assert "examples index" in answer.evidence


def test_lexical_never_touches_the_model(store: ExampleStore, repo: RepoContext) -> None:
    build_index(store, ToyEmbedder())
    words = RetrievalSettings(mode="lexical", floors=())
    answer = SolvedExampleIndex(store, embedder=Broken(), settings=words).query(
        advisory(TEXT), repo
    )
    assert isinstance(answer, RagHit)


def test_dead_vectors_are_masked_and_new_records_found(
    store: ExampleStore, repo: RepoContext
) -> None:
    build_index(store, ToyEmbedder())
    store.withdraw("same", reason="wrong", by="somebody")
    store.ingest([fix("new", TEXT + " anew")])
    index = SolvedExampleIndex(store, embedder=ToyEmbedder(), settings=OPEN)
    ranking = index.search(Question(TEXT))
    assert [c.example.example_id for c in ranking.candidates] == ["new", "far"]
    assert ranking.candidates[0].scores["cosine"] == 0.0, "not embedded yet: found by words"
