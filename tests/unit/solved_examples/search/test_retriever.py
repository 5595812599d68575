"""Asking the memory: identity first, floors, and honest words where it can't answer."""

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.interfaces import (
    Candidate,
    EmbeddingError,
    ExampleStoreError,
    Question,
)
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.outcome import SearchReplace
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import (
    RagDegraded,
    RagHit,
    RagMiss,
    RetrievalAccount,
    example_text,
)
from tests.fakes.repository import context
from tests.unit.solved_examples.builders import example, store_at

TEXT = "Tarball extraction follows symlinks, allowing traversal outside destination directories"
NEAR = "Symlinks in a tarball extraction allow traversal"
FAR = "Quadratic regular expression in the header parser"
CODE = "import tarfile\n"

#: For tests that are about anything else than floors.
OPEN = RetrievalSettings(floors=())


def advisory(text: str, package: str = "thing", ecosystem: str = "PyPI") -> Advisory:
    record = {
        "id": "TEST-1",
        "summary": text,
        "affected": [{"package": {"ecosystem": ecosystem, "name": package}}],
    }
    return parse_advisory(json.dumps(record).encode(), "test")


def fix(example_id: str, text: str, **fields: object) -> object:
    edits = (SearchReplace(path="a.py", old="x", new=f"y{example_id}"),)
    return example(example_id, **{"advisory_text": text, "edits": edits, **fields})


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    return store_at(tmp_path / "examples.db")


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return context(tmp_path / "repo", {"a.py": CODE})


def ids(answer: object) -> list[str]:
    assert isinstance(answer, RagHit | RagDegraded)
    return [shot.example.example_id for shot in answer.examples]


def account(answer: RagHit | RagDegraded | RagMiss) -> RetrievalAccount:
    assert answer.account is not None
    return answer.account


def test_similar_text_is_a_hit_best_first(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix("far", FAR), fix("near", NEAR), fix("same", TEXT)])
    answer = SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)
    assert ids(answer)[:2] == ["same", "near"]
    assert isinstance(answer, RagHit)
    assert {"bm25", "family", "language", "fused", "probability"} <= set(answer.examples[0].scores)
    assert answer.examples[0].text == TEXT
    assert "no vectors" in answer.evidence
    reported = account(answer)
    assert reported.mode == "lexical"
    assert reported.returned[:2] == ("same", "near")
    assert reported.manifest_sha256


def test_a_record_is_found_by_its_fixs_summary_and_shows_it(
    store: ExampleStore, repo: RepoContext
) -> None:
    store.ingest([fix("told", "Security fix", fix_summary=NEAR), fix("far", FAR)])
    answer = SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)
    assert isinstance(answer, RagHit)
    first = answer.examples[0]
    assert first.example.example_id == "told"
    assert first.scores["bm25"] > 0
    assert first.scores["family"] > 0
    shown = example_text(first.example, first.text, first.edits)
    assert f"\nwhat the fix does: {NEAR}\n" in shown
    other = example_text(fix("far", FAR), FAR, ())
    assert "what the fix does" not in other


def test_another_language_comes_later(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest(
        [
            fix("a js", TEXT, language="javascript", ecosystem="npm"),
            fix("b py", TEXT, language="python"),
        ]
    )
    index = SolvedExampleIndex(store, settings=OPEN)
    assert ids(index.query(advisory(TEXT), repo)) == ["b py", "a js"]
    assert ids(index.query(advisory(TEXT, ecosystem="npm"), repo)) == ["a js", "b py"]
    only = RetrievalSettings.model_validate({"ecosystem": "filter", "floors": ()})
    assert ids(SolvedExampleIndex(store, settings=only).query(advisory(TEXT), repo)) == ["b py"]


def test_identical_code_comes_first_and_needs_no_similarity(
    store: ExampleStore, repo: RepoContext
) -> None:
    same = {"a.py": hashlib.sha256(CODE.encode()).hexdigest()}
    store.ingest(
        [
            fix("text", TEXT),
            fix("code", "words of no kin", package="Thing", file_sha256=same),
            fix("package", FAR, package="thing"),
            fix("elsewhere", FAR, package="no", file_sha256=same),
            fix("no files", FAR, package="thing", file_sha256={}),
        ]
    )
    index = SolvedExampleIndex(store, settings=OPEN)
    answer = index.query(advisory(TEXT), repo)
    assert ids(answer)[:2] == ["code", "text"]
    assert isinstance(answer, RagHit)
    assert [shot.identical for shot in answer.examples][:2] == [True, False]
    assert ids(index.query(advisory(""), repo)) == ["code"]


def test_the_same_fix_is_shown_once(store: ExampleStore, repo: RepoContext) -> None:
    edits = (SearchReplace(path="a.py", old="x", new="y"),)
    store.ingest([fix("one", TEXT, edits=edits), fix("two", TEXT + " again", edits=edits)])
    answer = SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)
    assert ids(answer) == ["one"]
    (dropped,) = account(answer).dropped
    assert (dropped.example_id, dropped.reason) == ("two", "the same fix as one")


def test_at_most_k(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix(f"e{n}", f"{TEXT} {n}") for n in range(MAX_EXAMPLES + 3)])
    answer = SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)
    assert len(ids(answer)) == MAX_EXAMPLES
    assert {drop.reason for drop in account(answer).dropped} == {
        f"not among the best {MAX_EXAMPLES}"
    }
    one = RetrievalSettings(k=1, floors=())
    assert len(ids(SolvedExampleIndex(store, settings=one).query(advisory(TEXT), repo))) == 1


@pytest.mark.parametrize("text", ["", "the", "a 1 2 3 2024 99999 !!! -- \U0001f600"])
def test_too_little_text_is_a_miss(store: ExampleStore, repo: RepoContext, text: str) -> None:
    store.ingest([fix("e", TEXT)])
    assert isinstance(SolvedExampleIndex(store).query(advisory(text), repo), RagMiss)


# --- What can't be read ----------------------------------------------------------------------------


def test_a_store_that_can_not_be_read_degrades(store: ExampleStore, repo: RepoContext) -> None:
    index = SolvedExampleIndex(store)
    missing = index.query(advisory(TEXT), repo)
    assert isinstance(missing, RagDegraded)
    assert missing.examples == ()
    assert str(store.path) in missing.evidence
    with pytest.raises(ExampleStoreError):
        index.search(Question(TEXT))
    store.path.write_bytes(b"junk" * 999)
    assert isinstance(index.query(advisory(TEXT), repo), RagDegraded)


def test_an_altered_record_degrades(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix("e", TEXT)])
    db = sqlite3.connect(store.path)
    db.execute("UPDATE examples SET record = replace(record, 'Apache', 'Apathy')")
    db.commit()
    db.close()
    answer = SolvedExampleIndex(store).query(advisory(TEXT), repo)
    assert isinstance(answer, RagDegraded)
    assert "not what was ingested" in answer.evidence


def test_a_withdrawn_record_is_not_found(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix("bad", TEXT), fix("good", NEAR)])
    store.withdraw("bad", reason="wrong", by="somebody")
    assert ids(SolvedExampleIndex(store, settings=OPEN).query(advisory(TEXT), repo)) == ["good"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["tarball", '"', "NEAR(a b)", "OR", "*", "-", "a:b", "(", "'"])).map(
        " ".join
    )
)
def test_no_text_of_an_advisory_is_syntax(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = store_at(folder / "examples.db")
    store.ingest([fix("e", TEXT)])
    ranking = SolvedExampleIndex(store).search(Question(text))
    assert len(ranking.candidates) <= 1


# --- Rewriting and reranking -----------------------------------------------------------------------


class Backwards:
    """A reranker that likes what came last; or one whose model fails."""

    name = "backwards"

    def __init__(self, *, fails: bool = False) -> None:
        self.asked = 0
        self._fails = fails

    def scores(self, question: Question, candidates: list[Candidate]) -> list[float]:
        self.asked = len(candidates)
        if self._fails:
            raise EmbeddingError("The model is gone.", next_step="Get it back.")
        return [float(place) * 100 for place in range(len(candidates))]


def test_a_reranker_looks_at_few_and_is_told_of(store: ExampleStore, repo: RepoContext) -> None:
    store.ingest([fix(f"e{n}", f"{TEXT} {'x ' * n}") for n in range(5)])
    chosen = RetrievalSettings.model_validate(
        {"rerank": 3, "weights": {"rerank": 9.0}, "floors": ()}
    )
    plain = SolvedExampleIndex(store, settings=chosen).search(Question(TEXT))
    reranker = Backwards()
    again = SolvedExampleIndex(store, settings=chosen, reranker=reranker).search(Question(TEXT))
    before = [c.example.example_id for c in plain.candidates]
    after = [c.example.example_id for c in again.candidates]
    assert reranker.asked == 3
    assert after == [*before[2::-1], *before[3:]]
    assert "backwards" in again.candidates[0].scores
    failing = SolvedExampleIndex(store, settings=chosen, reranker=Backwards(fails=True))
    answer = failing.query(advisory(TEXT), repo)
    assert isinstance(answer, RagDegraded)
    assert answer.examples
    assert "The model is gone." in answer.evidence
