"""Posting lists answer as FTS5 does."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.index.word_index import build_words
from fallback_plugins.solved_examples.search import lexical
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from tests.unit.solved_examples.index.posting_stores import (
    COMMON,
    RARE,
    assert_same,
    both,
    fill,
    prose,
)

pytest.importorskip("numpy", reason="the extra `embeddings` is not installed")


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    made = fill(tmp_path, *prose())
    assert build_words(made, min_chunks=1)
    return made


@pytest.mark.parametrize(
    "asked",
    [
        ["path"],
        ["rare1"],
        ["rare1", "rare2", "nowhere"],
        ["path", "merge", "query", "the", "rare3"],
        ["nowhere"],
        [],
        [*COMMON, *RARE],
    ],
)
def test_answers_are_those_of_fts5(store: ExampleStore, asked: list[str]) -> None:
    found, known = both(store, *asked)
    assert_same(found, known)
    if asked not in (["nowhere"], []):
        assert found


def test_the_best_few_are_the_head_of_all(store: ExampleStore) -> None:
    every, _ = both(store, "path", "merge", "rare5", limit=100)
    few, _ = both(store, "path", "merge", "rare5", limit=7)
    assert few == every[:7]


def test_few_chunks_of_many_are_added_up_alone(tmp_path: Path) -> None:
    store = fill(tmp_path, *["filler words"] * 60, "needle", "needle haystack", "haystack needle")
    assert build_words(store, min_chunks=1)
    found, known = both(store, "needle", "haystack")
    assert_same(found, known)
    # Among equals the lower id, on both ways.
    assert [hit.chunk for hit in found] == [62, 63, 61] == [hit.chunk for hit in known]


WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]) | st.sampled_from("abAB_- 1é"),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.lists(WORD, max_size=6), min_size=1, max_size=6),
    other=WORD,
    shown=st.integers(1, 3),
)
def test_any_text_is_cut_as_fts5_cuts_it(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], other: str, shown: int
) -> None:
    store = fill(tmp_path_factory.mktemp("words"), *(" ".join([*text, "x"]) for text in texts))
    assert build_words(store, min_chunks=1)
    question = " ".join(text[0] for text in texts[:shown] if text)
    found, known = both(store, *lexical.terms(f"{question} {other} x y"))
    assert_same(found, known)


def test_a_word_that_fts5_folds_otherwise_is_left_to_fts5(tmp_path: Path) -> None:
    # Python makes two characters of it, the second no letter; FTS5 keeps one.
    store = fill(tmp_path, "İstanbul bridge", "bridge", "other words")
    assert build_words(store, min_chunks=1)
    for asked in (("İstanbul", "bridge"), ("İSTANBUL",), ("ISTANBUL",)):
        assert_same(*both(store, *asked))
    assert both(store, "İstanbul")[0]


def test_a_chunk_of_no_word_counts(tmp_path: Path) -> None:
    store = fill(tmp_path, "---", "path path", "merge")
    assert build_words(store, min_chunks=1)
    assert_same(*both(store, "path"))


def test_a_store_of_no_word_at_all(tmp_path: Path) -> None:
    store = fill(tmp_path, "---")
    with store.writing() as connection:
        connection.execute("UPDATE chunks SET context = '', text = '-'")
    assert build_words(store, min_chunks=1)
    assert both(store, "path", "merge") == ([], [])
