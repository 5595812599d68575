"""Searches in a warm process, ours and the peers': each asks one question of twenty in turn.

``found`` in the facts is what the last round found, so that the row sees that both sides did the
same work.
"""

import itertools
import json
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corpus_retrieval import DIMENSION, QUESTIONS, SHA256, questions

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]
Search = Callable[[int], list[int]]

#: What a retrieval asks for: four examples of the vectors, ten candidates of the words.
NEAREST, CANDIDATES = 4, 10


def prepare(place: Path, side: str, *options: str) -> Prepared:
    """``side``: a function of this module."""
    search: Search = globals()[side](place, *options)
    numbers = itertools.cycle(range(QUESTIONS))
    found: dict[int, list[int]] = {}

    def work() -> None:
        number = next(numbers)
        found[number] = search(number)

    return work, lambda: {"found": [found[number] for number in sorted(found)]}


def ours(place: Path) -> Search:
    """Our file."""
    import numpy as np

    from fallback_plugins.solved_examples.index.vectors import VectorFile

    asked = np.load(place / "queries.npy")
    vectors = VectorFile(place / "vectors", DIMENSION, SHA256).open(_count(place))
    return lambda number: [
        row for row, _ in itertools.islice(vectors.ranked(asked[number]), NEAREST)
    ]


def floor(place: Path) -> Search:
    """Reading the same mapped bytes once, on two threads: what memory gives at best.

    The largest of the words as integers: one comparison each, vectorised, faster than a sum.
    """
    import numpy as np

    words = np.memmap(place / "vectors", dtype=np.uint32, mode="r")
    halves = np.array_split(words, 2)

    def read(_: int) -> list[int]:
        other = threading.Thread(target=halves[0].max)
        other.start()
        halves[1].max()
        other.join()
        return []

    return read


def faiss(place: Path) -> Search:
    """IndexFlatIP as it comes: in memory, its own choice of threads."""
    import faiss  # type: ignore[import-not-found]
    import numpy as np

    asked = np.load(place / "queries.npy")
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(np.fromfile(place / "vectors.f32", dtype=np.float32).reshape(-1, DIMENSION))
    return lambda number: [int(n) for n in index.search(asked[number : number + 1], NEAREST)[1][0]]


def sqlite_vec(place: Path) -> Search:
    """A vec0 table, through apsw: not every Python's own sqlite3 loads extensions."""
    import apsw  # type: ignore[import-not-found]
    import numpy as np
    import sqlite_vec  # type: ignore[import-not-found]

    asked = np.load(place / "queries.npy")
    rows = np.fromfile(place / "vectors.f32", dtype=np.float32).reshape(-1, DIMENSION)
    connection = apsw.Connection(str(place / "vec0.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.execute(
        f"CREATE VIRTUAL TABLE v USING vec0 (e float[{DIMENSION}] distance_metric=cosine)"
    )
    with connection:
        connection.executemany(
            "INSERT INTO v (rowid, e) VALUES (?, ?)",
            ((n, row.tobytes()) for n, row in enumerate(rows)),
        )
    sql = "SELECT rowid FROM v WHERE e MATCH ? AND k = ? ORDER BY distance"
    return lambda number: [
        row for (row,) in connection.execute(sql, [asked[number].tobytes(), NEAREST])
    ]


def words(place: Path, kind: str) -> Search:
    """Ours: the store opened for each question, as the product does; its posting lists."""
    from fallback_plugins.solved_examples.index.word_index import words_of
    from fallback_plugins.solved_examples.search.lexical import search
    from fallback_plugins.solved_examples.store.example_store import ExampleStore

    asked = questions(kind)
    store = ExampleStore(place / "examples.db")

    def ask(number: int) -> list[int]:
        with store.reading() as connection:
            postings = words_of(store, connection).postings
            hits = search(connection, asked[number], limit=CANDIDATES, postings=postings)
        return [hit.chunk for hit in hits]

    return ask


def tantivy(place: Path, kind: str) -> Search:
    """The words joined by OR, its default; one merged segment."""
    import tantivy  # type: ignore[import-not-found]

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_text_field("text")
    folder = place / f"tantivy-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    index = tantivy.Index(builder.build(), path=str(folder))
    writer = index.writer(200_000_000, 1)
    for number, text in enumerate(json.loads((place / "texts.json").read_text()), start=1):
        writer.add_document(tantivy.Document(id=number, text=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    asked = [index.parse_query(" ".join(question), ["text"]) for question in questions(kind)]

    def ask(number: int) -> list[int]:
        hits = searcher.search(asked[number], CANDIDATES).hits
        return [searcher.doc(address)["id"][0] for _, address in hits]

    return ask


def whole(place: Path) -> Search:
    """Ours: words and vectors of one store, in one process."""
    import numpy as np
    from corpus_retrieval import Prepared

    from fallback_plugins.solved_examples.index.indexing import nearest
    from fallback_plugins.solved_examples.store.example_store import ExampleStore

    by_words, asked = words(place, "advisory"), np.load(place / "queries.npy")
    store, embedder = ExampleStore(place / "examples.db"), Prepared(asked)

    def ask(number: int) -> list[int]:
        with store.reading() as connection:
            near = nearest(store, connection, embedder, asked[number], limit=NEAREST)
        return [*(chunk for chunk, _ in near), *by_words(number)]

    return ask


def whole_peers(place: Path) -> Search:
    """faiss and tantivy, in one process."""
    near, by_words = faiss(place), tantivy(place, "advisory")
    return lambda number: [*(row + 1 for row in near(number)), *by_words(number)]


def build(place: Path) -> Search:
    """Ours: every chunk of a small store embedded anew, and durable."""
    from fallback_plugins.solved_examples.index.embedding import MiniLmEmbedder
    from fallback_plugins.solved_examples.index.indexing import build_index
    from fallback_plugins.solved_examples.store.example_store import ExampleStore

    store, embedder = ExampleStore(place / "examples.db"), MiniLmEmbedder(many=True)
    return lambda _: [build_index(store, embedder, rebuild=True).embedded]


def bare_model(place: Path) -> Search:
    """The same model on the same texts, each alone, in a session as it comes; nothing is kept."""
    import numpy as np

    from fallback_plugins.solved_examples.index import embedding

    tokenizer, _ = embedding.MiniLmEmbedder()._load()
    weights = embedding._installed(*embedding._WEIGHTS)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(weights), providers=["CPUExecutionProvider"])
    texts = json.loads((place / "texts.json").read_text())

    def run(_: int) -> list[int]:
        for text in texts:
            tokens = np.asarray([tokenizer.encode(text).ids], dtype=np.int64)
            mask, kinds = np.ones_like(tokens), np.zeros_like(tokens)
            given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": kinds}
            session.run(["last_hidden_state"], given)[0][0].mean(axis=0)
        return [len(texts)]

    return run


def _count(place: Path) -> int:
    return (place / "vectors.f32").stat().st_size // (4 * DIMENSION)
