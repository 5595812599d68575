"""Words: what is asked, within which bound, and that the scores are BM25."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.search.lexical import MAX_TERMS, LexicalHit, search, terms
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from tests.unit.solved_examples.builders import example
from tests.unit.solved_examples.one_chunk import one_chunk_store


def store_of(path: Path, *texts: str, ecosystem: str = "PyPI") -> ExampleStore:
    """One record a text."""
    store = one_chunk_store(path / "examples.db")
    store.ingest(
        example(
            f"{ecosystem}-{n}",
            advisory_id=f"GHSA-{n}",  # the same content would be one record
            advisory_text=text,
            ecosystem=ecosystem,
        )
        for n, text in enumerate(texts)
    )
    return store


@contextmanager
def opened(path: Path, *texts: str) -> Iterator[Connection]:
    with store_of(path, *texts).reading() as connection:
        yield connection


def bm25(words: list[str], documents: list[list[str]], place: int) -> float:
    """Robertson's, as FTS5 documents it."""
    mean = sum(map(len, documents)) / len(documents)
    document = documents[place]
    score = 0.0
    for word in words:
        have = sum(word in other for other in documents)
        weight = max(1e-6, math.log((len(documents) - have + 0.5) / (have + 0.5)))
        times = document.count(word)
        score += weight * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(document) / mean))
    return score


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Path traversal in the Path", ("path", "traversal")),
        ("x-forwarded-for, __proto__ and 2.31.0", ("forwarded", "proto")),
        ("CVE-2024-1234", ("cve",)),
        ("innerHTML snake_case", ("innerhtml", "snake", "case")),
        ('"OR" NEAR(x) * ^ {} \x00 ', ("near",)),
        ("Überlauf в коде", ("überlauf", "коде")),
        ("a" * 41, ("a" * 40,)),
        ("", ()),
    ],
)
def test_terms(text: str, expected: tuple[str, ...]) -> None:
    assert terms(text) == expected


TEXTS = (
    "path traversal in tar extraction",
    "path traversal through symbolic links and traversal again",
    "prototype pollution in merge",
    "sql injection",
)


def test_scores_are_bm25_and_higher_is_better(tmp_path: Path) -> None:
    asked = ["traversal", "tar", "merge"]
    with opened(tmp_path, *TEXTS) as connection:
        hits = search(connection, asked, limit=9)
    documents = [text.split() for text in TEXTS]
    expected = {n + 1: bm25(asked, documents, n) for n in range(3)}
    assert {hit.chunk: hit.bm25 for hit in hits} == pytest.approx(expected)
    assert [hit.chunk for hit in hits] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert [hit.chunk for hit in search_limit(tmp_path, asked, 1)] == [hits[0].chunk]


def search_limit(path: Path, asked: list[str], limit: int) -> list[LexicalHit]:
    with one_chunk_store(path / "examples.db").reading() as connection:
        return search(connection, asked, limit=limit)


def test_the_share_falls_with_words_that_nothing_has(tmp_path: Path) -> None:
    with opened(tmp_path, *TEXTS) as connection:
        (whole,) = search(connection, ["sql", "injection"], limit=1)
        (half,) = search(connection, ["sql", "injection", "nowhere", "neither"], limit=1)
    assert 0.9 < whole.share <= 1
    assert 0 < half.share < 0.5
    assert half.bm25 == whole.bm25


def test_words_of_most_chunks_give_no_share(tmp_path: Path) -> None:
    with opened(tmp_path, *["flaw"] * 9) as connection:
        (hit,) = search(connection, ["flaw"], limit=1)
    assert hit.share < 0.01


def test_the_same_score_is_in_the_order_of_ids(tmp_path: Path) -> None:
    with opened(tmp_path, *["same words"] * 5, *["others"] * 9) as connection:
        assert [hit.chunk for hit in search(connection, ["same"], limit=3)] == [1, 2, 3]


def test_only_records_of_an_ecosystem(tmp_path: Path) -> None:
    store_of(tmp_path, "traversal one", "traversal two", *["else"] * 5)
    store = store_of(tmp_path, "traversal three", ecosystem="npm")
    with store.reading() as connection:
        found = {
            ecosystems: len(search(connection, ["traversal"], limit=9, ecosystems=ecosystems))
            for ecosystems in ((), ("npm",), ("PyPI", "npm"), ("Go",))
        }
    assert found == {(): 3, ("npm",): 1, ("PyPI", "npm"): 3, ("Go",): 0}


def test_the_rarest_words_are_asked_as_far_as_the_bound_goes(tmp_path: Path) -> None:
    texts = [f"common often{n % 3} " + "rare" * (n == 7) for n in range(30)]
    with opened(tmp_path, *texts) as connection:
        reads: list[str] = []
        connection.set_trace_callback(reads.append)
        hits = search(connection, ["common", "often1", "rare"], limit=30, max_postings=12)
        ranked = next(sql for sql in reads if "bm25(chunks_fts)" in sql)
    assert '"rare" OR "often1"' in ranked
    assert "common" not in ranked
    assert len(hits) == 10
    assert hits[0].chunk == 8
    # Counting stops one past the bound: even that reads what it counts.
    assert sum("LIMIT 13" in sql for sql in reads) == 3


def test_words_that_are_all_too_common_are_asked_together(tmp_path: Path) -> None:
    texts = [f"common often {'both' if n % 2 else 'else'}" for n in range(30)]
    with opened(tmp_path, *texts) as connection:
        hits = search(connection, ["common", "both"], limit=30, max_postings=5)
    assert len(hits) == 15


@pytest.mark.parametrize("asked", [[], ["nowhere"]])
def test_nothing_to_ask_is_no_answer(tmp_path: Path, asked: list[str]) -> None:
    with opened(tmp_path, *TEXTS) as connection:
        assert search(connection, asked, limit=4) == []


def test_further_words_than_the_bound_are_not_looked_at(tmp_path: Path) -> None:
    with opened(tmp_path, *TEXTS) as connection:
        before = [f"w{n}" for n in range(MAX_TERMS)]
        assert search(connection, [*before, "traversal"], limit=4) == []
        assert search(connection, [*before[1:], "traversal"], limit=4)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120))
def test_no_text_breaks_the_query(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with opened(tmp_path_factory.mktemp("lexical"), text or "x", *TEXTS) as connection:
        asked = terms(text)
        hits = search(connection, asked, limit=4)
        assert all(0 <= hit.share <= 1 for hit in hits)
        search(connection, ['quote"inside', "a AND", "*"], limit=4)
