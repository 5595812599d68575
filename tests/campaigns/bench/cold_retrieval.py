"""A whole process that asks once: ``python cold_retrieval.py SIDE PLACE``. Prints the ids found.

Everything is imported here, and nothing before: import, open, first question.
"""

import json
import sys
from pathlib import Path

NEAREST = 4
QUESTION = "Path traversal: members of an archive are joined to the folder without a check."


def ours(place: Path) -> list[int]:
    """A question whose vector is known, as chromadb gets it."""
    return _nearest(place, text=False)


def ours_text(place: Path) -> list[int]:
    """A question that has to be embedded first."""
    return _nearest(place, text=True)


def _nearest(place: Path, *, text: bool) -> list[int]:
    from fallback_plugins.solved_examples.index.embedding import MiniLmEmbedder
    from fallback_plugins.solved_examples.index.indexing import nearest
    from fallback_plugins.solved_examples.store.example_store import ExampleStore

    embedder = MiniLmEmbedder()
    store = ExampleStore(place / "examples.db")
    with store.reading() as connection:
        query = embedder.embed([QUESTION])[0] if text else _query(place)
        hits = nearest(store, connection, embedder, query, limit=NEAREST)
    return [chunk for chunk, _ in hits]


def chromadb(place: Path) -> list[int]:
    """A persistent collection, its telemetry off."""
    collection = _client(place).get_collection("examples", embedding_function=None)
    found = collection.query(query_embeddings=[_query(place)], n_results=NEAREST, include=[])
    return [int(number) for number in found["ids"][0]]


def make_chromadb(place: Path) -> list[int]:
    """The collection that is asked: cosine, all else as it comes."""
    import numpy as np

    rows = np.load(place / "vectors.npy")
    collection = _client(place).create_collection(
        "examples", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    for start in range(0, len(rows), 5_000):
        part = rows[start : start + 5_000]
        collection.add([str(start + n + 1) for n in range(len(part))], embeddings=part)
    return []


def _client(place: Path):  # type: ignore[no-untyped-def]
    import chromadb  # type: ignore[import-not-found]
    from chromadb.config import Settings  # type: ignore[import-not-found]

    settings = Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(path=str(place / "chromadb"), settings=settings)


def _query(place: Path):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.load(place / "queries.npy")[0]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
