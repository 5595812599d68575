"""Where plugin and evaluation meet: data, stores, the learned ranker's folds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fallback_eval.retrieval.data import Task
from fallback_eval.retrieval.fixed_size import FixedSizeSplitter
from fallback_eval.retrieval.golden import load_golden
from fallback_eval.retrieval.learned import (
    FOLDS,
    Judged,
    fold_coefficients,
    judged_by,
    judged_rows,
    of_query,
)
from fallback_eval.retrieval.results import EvaluationError
from fallback_eval.retrieval.stores import Remembering, Stores, chunker_of
from fallback_eval.retrieval.variants import (
    DEFAULT,
    Chunking,
    alternatives,
    code_defaults,
    flat,
    variants,
)
from fallback_plugins.solved_examples.interfaces import Candidate, ChunkKind, Question
from fallback_plugins.solved_examples.search.ranking import Coefficients, Ranking
from fallback_tier.advisory.osv import advisory_from
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample
from tests.fixtures.examples import WRITTEN
from tests.kinds import OfKind
from tests.unit.evaluation.planted import records, write


def example(name: str) -> SolvedExample:
    return SolvedExample(
        example_id=name,
        advisory_id=name,
        advisory_text=f"Path traversal in {name}.\n\nA name with dots leaves the folder.",
        ecosystem="PyPI",
        package=f"package-{name}",
        language="python",
        edits=(SearchReplace(path="a.py", old="open(name)", new=f"open(safe(name))  # {name}"),),
        file_sha256={},
        provenance=WRITTEN,
        licence="MIT",
    )


class Counting:
    """An embedder that counts what it is asked to embed."""

    model, sha256, dimension = "counting", "0" * 64, 3

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += texts
        return np.array([[len(text), 1, 0] for text in texts], np.float32)

    def token_vectors(self, text: str) -> NDArray[np.float32]:
        return np.ones((1, 3), np.float32)


# --- Embedding once -------------------------------------------------------------------------------


def test_no_text_is_embedded_twice_not_even_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "vectors.npz"
    inner = Counting()
    first = Remembering(inner, file).embed(["a", "bb", "a"])
    assert inner.embedded == ["a", "bb"]
    again = Remembering(inner, file).embed(["bb", "a", "a"])
    assert inner.embedded == ["a", "bb"]
    assert np.array_equal(again, first[[1, 0, 0]])
    assert [path.name for path in file.parent.iterdir()] == ["vectors.npz"]


def test_a_broken_cache_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "vectors.npz"
    for broken in (b"", b"no archive", b"PK\x03\x04"):
        file.write_bytes(broken)
        inner = Counting()
        assert Remembering(inner, file).embed(["a"]).shape == (1, 3)
        assert inner.embedded == ["a"]


def test_it_is_the_embedder_in_all_else(tmp_path: Path) -> None:
    one = Remembering(Counting(), tmp_path / "vectors.npz")
    assert (one.model, one.sha256, one.dimension) == ("counting", "0" * 64, 3)
    assert one.token_vectors("a").shape == (1, 3)


# --- Stores ---------------------------------------------------------------------------------------


def test_a_store_for_each_way_of_cutting(tmp_path: Path) -> None:
    messages: list[str] = []
    stores = Stores(tmp_path, [example("a")], None, lambda what, *_: messages.append(what))
    one = stores.of(Chunking(), vectors=True)
    assert stores.of(Chunking(), vectors=False) is one
    other = stores.of(Chunking(code=False), vectors=False)
    assert other is not one
    assert messages == ["reading the corpus", "reading the corpus"]
    assert one.count() == other.count() == 1


def test_vectors_are_made_when_they_are_first_asked_for(tmp_path: Path) -> None:
    inner = Counting()
    stores = Stores(tmp_path, [example("a")], inner)
    stores.of(Chunking(), vectors=False)
    assert inner.embedded == []
    stores.of(Chunking(), vectors=True)
    stores.of(Chunking(), vectors=True)
    assert len(inner.embedded) == len(set(inner.embedded)) > 0


def test_the_chunkers_that_variants_name() -> None:
    assert isinstance(chunker_of(Chunking("fixed", 128)), FixedSizeSplitter)
    both, advisory = chunker_of(Chunking()), chunker_of(Chunking(code=False))
    kinds = {chunk.kind for chunk in both.chunks(example("a"))}
    assert kinds == {ChunkKind.ADVISORY, ChunkKind.CODE}
    assert {chunk.kind for chunk in advisory.chunks(example("a"))} == {ChunkKind.ADVISORY}
    assert both.version != advisory.version
    bare = example("a").model_copy(update={"advisory_text": ""})
    assert advisory.chunks(bare)


# --- The learned ranker ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    golden = load_golden(write(tmp_path_factory.mktemp("golden")))
    advisory = advisory_from(
        {"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "p"}}]}, "X"
    )
    corpus = tuple(example(name) for name in ("e0", "e1", "e2", "e3"))
    return Task(golden, corpus, dict.fromkeys(golden.queries, advisory), records())


def candidate(name: str, **scores: float) -> Candidate:
    return Candidate(example(name), "0" * 64, scores)


def found(_: Question) -> Ranking:
    good, unjudged, bad = (
        candidate(name, bm25=s) for name, s in (("e0", 0.9), ("e3", 0.5), ("e2", 0.1))
    )
    return Ranking("lexical", (good, unjudged, bad))


def test_only_judged_candidates_of_dev_queries_are_learned_from(task: Task) -> None:
    rows = judged_rows(task, found)
    dev = {query.query for query in task.golden.of("dev")}
    assert {row.question for row in rows} == dev
    assert len(rows) == 2 * len(dev)
    assert {row.group for row in rows} == {f"owner/REC-{name}" for name in dev}


def test_a_query_is_judged_by_coefficients_that_never_saw_its_repository(task: Task) -> None:
    rows = judged_rows(task, found)
    honest = fold_coefficients(task, rows, ("bm25",))
    assert set(honest) == {query.query for query in task.golden.of("dev")}
    assert len({id(one) for one in honest.values()}) == FOLDS
    # Turn one query's rows round: every coefficient changes but its own fold's.
    turned = [
        replace(row, relevant=not row.relevant) if row.question == "q0" else row for row in rows
    ]
    changed = fold_coefficients(task, turned, ("bm25",))
    own = [query for query in honest if honest[query] is honest["q0"]]
    assert [query for query in honest if changed[query] == honest[query]] == own


def test_nothing_to_learn_from_is_an_error(task: Task) -> None:
    rows = [Judged("q0", "owner/REC-q0", {"bm25": 1.0}, relevant=True)]
    with pytest.raises(EvaluationError, check=OfKind("not_cross_validated")):
        fold_coefficients(task, rows, ("bm25",))


def test_a_ranking_is_judged_again_by_other_coefficients() -> None:
    ranking = found(Question(""))
    by = Coefficients(bias=0.0, weights={"bm25": 10.0}, provenance="")
    again = judged_by(ranking, by)
    assert [one.scores["probability"] for one in again.candidates] == sorted(
        (by.probability(one.scores) for one in ranking.candidates), reverse=True
    )
    assert again.routing == by.probability({"bm25": 0.9})
    assert judged_by(ranking, None) is ranking
    assert judged_by(Ranking("lexical"), by).routing == 0


def test_the_reserved_queries_are_judged_as_shipped(task: Task) -> None:
    by = Coefficients(bias=0.0, weights={}, provenance="")
    folds = {"hybrid": {"q0": by}}
    queries = task.golden.queries
    assert of_query(queries["q0"], "hybrid", folds) is by
    assert of_query(queries["q0"], "lexical", folds) is None
    assert of_query(queries["q1"], "hybrid", folds) is None


def test_a_written_query_is_a_group_of_its_own(task: Task) -> None:
    written = task.golden.queries["q0"].model_copy(update={"record": None})
    assert task.group(written) == "q0"


# --- Variants -------------------------------------------------------------------------------------


def test_each_variant_differs_from_the_default() -> None:
    defaults = code_defaults()
    floors = {"no-floors"} if not DEFAULT.settings.floors else set()
    same = {spec.name for spec in variants() if flat(spec) == defaults}
    assert same == {"default"} | floors


def test_alternatives_differ_in_nothing_else() -> None:
    defaults = code_defaults()
    by_name = {spec.name: flat(spec) for spec in variants()}
    sizes = alternatives("chunking.max_tokens")
    assert sizes
    for name in sizes:
        changed = {key for key, value in by_name[name].items() if value != defaults[key]}
        assert changed == {"chunking.max_tokens"}
    assert alternatives("no.such.setting") == ()
