"""Stores with posting lists, and what FTS5 says of the same question."""

import random
from pathlib import Path

import pytest

from fallback_plugins.solved_examples.index.word_index import words_of
from fallback_plugins.solved_examples.search.lexical import LexicalHit, search
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from tests.unit.solved_examples.builders import example
from tests.unit.solved_examples.one_chunk import one_chunk_store

UNBOUNDED = 10**9
COMMON = ("path", "merge", "query", "the")
RARE = tuple(f"rare{n}" for n in range(40))


def fill(path: Path, *texts: str, first: int = 0) -> ExampleStore:
    """One chunk a text."""
    store = one_chunk_store(path / "examples.db")
    store.ingest(
        example(f"e{n}", advisory_id=f"GHSA-{n}", advisory_text=text)
        for n, text in enumerate(texts, start=first)
    )
    return store


def prose(records: int = 60, seed: int = 1) -> list[str]:
    """Chunks of all lengths, with words of all frequencies, many times in some."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices((*COMMON * 6, *RARE), k=draw.randint(1, 30))) for _ in range(records)
    ]


def both(store: ExampleStore, *asked: str, limit: int = 100) -> tuple[list[LexicalHit], ...]:
    """From posting lists, and from FTS5 without a bound."""
    with store.reading() as connection:
        postings = words_of(store, connection).postings
        assert postings is not None
        return (
            search(connection, asked, limit=limit, postings=postings),
            search(connection, asked, limit=limit, max_postings=UNBOUNDED),
        )


def assert_same(found: list[LexicalHit], known: list[LexicalHit]) -> None:
    """float32 sums may order what differs by less than they can tell."""
    assert {hit.chunk: hit.bm25 for hit in found} == pytest.approx(
        {hit.chunk: hit.bm25 for hit in known}, rel=1e-5
    )
    assert {hit.chunk: hit.share for hit in found} == pytest.approx(
        {hit.chunk: hit.share for hit in known}, rel=1e-5
    )
    assert [hit.bm25 for hit in found] == pytest.approx([hit.bm25 for hit in known], rel=1e-5)
