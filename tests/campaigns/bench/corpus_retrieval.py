"""A memory of made-up text for the rows of goals 6 to 8: ``python corpus_retrieval.py PLACE COUNT KIND``.

KIND "vectors": ``vectors.f32`` (unit rows, raw) and our file of them. "store": an example store with
COUNT chunks, its vectors, and ``texts.json``. Words are made of syllables and drawn by Zipf's law, as
those of real text are; seeds are fixed, so that every run measures the same.
"""

import bisect
import itertools
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DIMENSION = 384
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MODEL = "all-MiniLM-L6-v2-int8"

#: Words of a chunk, and of all chunks.
_WORDS, _VOCABULARY = 60, 30_000

#: Questions that a round asks in turn.
QUESTIONS = 20

#: Ranks of the six words of a question, from the most frequent word of all: in one chunk of five
#: each, or in about one of a thousand.
KINDS = {"common": range(20, 60), "rare": range(4_000, 8_000)}


def vocabulary() -> list[str]:
    """The words, most frequent first."""
    draw = random.Random(1)
    consonants, vowels = (*"bcdfghklmnprstvwz", "st", "tr", "pr"), "aeiou"
    found: dict[str, None] = {}
    while len(found) < _VOCABULARY:
        length = draw.randint(2, 4)
        found["".join(draw.choice(consonants) + draw.choice(vowels) for _ in range(length))] = None
    return list(found)


def texts(count: int, seed: int = 7) -> Iterator[str]:
    """Chunks."""
    words = vocabulary()
    weights = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    draw = random.Random(seed)
    for _ in range(count):
        ranks = (bisect.bisect(weights, draw.random() * weights[-1]) for _ in range(_WORDS))
        yield " ".join(words[rank] for rank in ranks)


def questions(kind: str) -> list[list[str]]:
    """Six words each of a frequency; "advisory": all words of a text that is no chunk."""
    if kind == "advisory":
        return [sorted(set(text.split())) for text in texts(QUESTIONS, seed=8)]
    words, draw = vocabulary(), random.Random(9)
    return [[words[rank] for rank in draw.sample(KINDS[kind], 6)] for _ in range(QUESTIONS)]


def matrix(count: int) -> Any:
    """Rows of length 1."""
    import numpy as np

    made = np.random.default_rng(3).standard_normal((count, DIMENSION), dtype=np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def queries(rows: Any) -> Any:
    """Near some of the rows, so that the best is known."""
    import numpy as np

    chosen = rows[:: len(rows) // QUESTIONS][:QUESTIONS]
    made = chosen + 0.02 * np.random.default_rng(5).standard_normal(chosen.shape, dtype=np.float32)
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


#: What every chunk belongs to: advisory chunks are embedded as they are.
_RECORD = json.dumps(
    {
        "example_id": "e",
        "advisory_id": "GHSA-1",
        "advisory_text": "",
        "ecosystem": "PyPI",
        "package": "package",
        "edits": [],
        "file_sha256": {},
        "provenance": {"origin": "written", "source": "made up"},
        "licence": "Apache-2.0",
    }
)


class Prepared:
    """An embedder that says it is the product's, and takes its vectors from a matrix, in order."""

    model, sha256, dimension = MODEL, SHA256, DIMENSION

    def __init__(self, rows: Any) -> None:
        self._rows, self._done = rows, 0

    def embed(self, texts: Sequence[str]) -> Any:
        """The next rows."""
        self._done += len(texts)
        return self._rows[self._done - len(texts) : self._done]

    def token_vectors(self, text: str) -> Any:
        """Nothing asks for these here."""
        raise NotImplementedError(text)


def make_vectors(place: Path, count: int) -> None:
    """The same rows raw, for the peers, and in our file."""
    import numpy as np

    from fallback_plugins.solved_examples.index.vectors import VectorFile

    rows = matrix(count)
    rows.tofile(place / "vectors.f32")
    np.save(place / "queries.npy", queries(rows))
    file = VectorFile(place / "vectors", DIMENSION, SHA256)
    file.create()
    file.write(0, rows)


def make_store(place: Path, count: int) -> None:
    """Chunks and records by SQL: ingesting them one by one would take an hour."""
    import numpy as np

    from fallback_plugins.solved_examples.index.indexing import build_index
    from fallback_plugins.solved_examples.store.example_store import ExampleStore

    chunks = list(texts(count))
    (place / "texts.json").write_text(json.dumps(chunks))
    store = ExampleStore(place / "examples.db")
    with store.writing(create=True) as connection:
        connection.executemany(
            "INSERT INTO examples VALUES "
            "(?, ?, ?, 1, 'live', 'PyPI', 'package', 'python', '[]', ?, ?, '')",
            (
                (n, f"{n:064x}", f"e{n}", _RECORD, store.chunker.version)
                for n in range(1, count + 1)
            ),
        )
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, 0, 'advisory', '', ?, 60, '[]')",
            ((n, n, text) for n, text in enumerate(chunks, start=1)),
        )
    rows = matrix(count)
    np.save(place / "queries.npy", queries(rows))
    np.save(place / "vectors.npy", rows)
    build_index(store, Prepared(rows), batch=10_000)


if __name__ == "__main__":
    {"vectors": make_vectors, "store": make_store}[sys.argv[3]](Path(sys.argv[1]), int(sys.argv[2]))
