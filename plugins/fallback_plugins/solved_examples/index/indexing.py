"""The vectors of a store: built in batches, continued after a kill, searched exactly.

A build works in batches, and each is durable before the next begins:

1. read some chunks that have no vector (no lock is held while they are embedded);
2. embed them;
3. in one transaction of the store: write the vectors after the last named row, sync the file, name the
   rows in ``vectors``.

Advisory chunks are embedded as they are; code with the advisory's first words and the fix's own summary
above the changed lines, and without context lines: code alone has few words on the vulnerability, so its
vector would be far from every question (ADR-0019 has the figures).

The store's commit is the only one (``vectors.VectorFile``): if a build is killed or the disk fills, what
was indexed before stays, and the next build repeats one batch at most.

A vector file is only appended to. If too many of its rows are dead, or the model is another, the next
*generation* is written next to it and named by one commit.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from fallback_plugins.solved_examples.index.vectors import Neighbour, VectorFile, Vectors
from fallback_plugins.solved_examples.index.word_index import build_locked, only_builder
from fallback_plugins.solved_examples.interfaces import (
    Chunk,
    ChunkKind,
    Embedder,
    ExampleStoreError,
)
from fallback_plugins.solved_examples.question import flaw_text
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.schema import Meta, get_meta, number, set_meta
from fallback_tier.retrieval import SolvedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Called with (chunks that have a vector, chunks in all).
Progress = Callable[[int, int], None]

#: Chunks per transaction: about a second of a small machine's work, which is what a kill can cost.
BATCH: Final = 64

#: A file with more dead rows than this share is rewritten: they cost time at every question.
MAX_DEAD_SHARE: Final = 0.25

#: Rows that are copied at once when a file is rewritten.
_COPIED_ROWS: Final = 4_096

_WITHOUT_VECTOR: Final = """
    SELECT chunks.id, record, kind, text, tokens, context, edits
    FROM chunks JOIN examples ON examples.id = example
    WHERE chunks.id > ? AND chunks.id NOT IN (SELECT chunk FROM vectors)
    ORDER BY chunks.id LIMIT ?"""

_DEAD: Final = "SELECT count(*) FROM vectors WHERE chunk NOT IN (SELECT id FROM chunks)"

_LIVE: Final = "SELECT row, chunk FROM vectors WHERE chunk IN (SELECT id FROM chunks) ORDER BY row"

_OF_ROW: Final = """
    SELECT chunks.id, example, ecosystem FROM vectors
    JOIN chunks ON chunks.id = chunk JOIN examples ON examples.id = example WHERE row = ?"""


class NearestChunk(NamedTuple):
    """A chunk that vectors found, its record (``examples.id``), and how near it is."""

    chunk: int
    record: int
    cosine: float


@dataclass(frozen=True)
class IndexReport:
    """What a build did. ``dead_rows``: rows of the file, as it is now, whose chunk is gone."""

    embedded: int
    already: int
    dead_rows: int
    seconds: float


def build_index(
    store: ExampleStore,
    embedder: Embedder,
    *,
    progress: Progress | None = None,
    batch: int = BATCH,
    rebuild: bool = False,
) -> IndexReport:
    """Embed every chunk that has no vector, or all (``rebuild``); then build the posting lists of a large
    store (``word_index``).

    Raises EmbeddingError; ExampleStoreError if the store can't be used, another build is running, the
    vectors are of another model (then with ``rebuild`` in its next step), or the disk is full. What was
    committed stays.
    """
    start = time.monotonic()
    with only_builder(store):
        _prepare(store, embedder, rebuild=rebuild)
        already = _count(
            store, "SELECT count(*) FROM chunks WHERE id IN (SELECT chunk FROM vectors)"
        )
        embedded = 0
        for added in _batches(store, embedder, batch):
            embedded += added
            if progress is not None:
                progress(already + embedded, _count(store, "SELECT count(*) FROM chunks"))
        dead = _count(store, _DEAD)
        build_locked(store)
    return IndexReport(embedded, already, dead, time.monotonic() - start)


def nearest(
    store: ExampleStore,
    connection: sqlite3.Connection,
    embedder: Embedder,
    query: "NDArray[np.float32]",
    *,
    limit: int,
    ecosystems: Sequence[str] = (),
) -> list[tuple[int, float]]:
    """Return the live chunks of highest cosine, best first: (chunk, cosine). Empty before the first build.

    ``connection``: a snapshot of this store. ``ecosystems``: only chunks of their records; empty for all.
    Raises ExampleStoreError for vectors of another model, or a damaged file.
    """
    check_model(connection, store, embedder)
    if not _rows(connection):
        return []
    ranked = open_vectors(store, connection, embedder).ranked(query)
    live = live_chunks(connection, ranked, ecosystems)
    return [(near.chunk, near.cosine) for near in islice(live, limit)]


def live_chunks(
    connection: sqlite3.Connection, ranked: Iterable[Neighbour], ecosystems: Sequence[str] = ()
) -> Iterator[NearestChunk]:
    """Yield the chunks of these rows that are still there; ``ecosystems`` as in ``nearest``."""
    for row, cosine in ranked:
        owner = connection.execute(_OF_ROW, [row]).fetchone()
        if owner is not None and (not ecosystems or owner[2] in ecosystems):
            yield NearestChunk(owner[0], owner[1], cosine)


def open_vectors(
    store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder
) -> Vectors:
    """Return the vectors of a store that has some. ``connection``: a snapshot of it. Raises
    ExampleStoreError if they are of another model, or their file is damaged."""
    check_model(connection, store, embedder)
    return _vector_file(store, connection, embedder).open(_rows(connection))


def check_model(connection: sqlite3.Connection, store: ExampleStore, embedder: Embedder) -> None:
    """Raise ExampleStoreError if the store's vectors are of another model."""
    installed = described(embedder)
    recorded = {key: get_meta(connection, key) for key in installed}
    if recorded[Meta.EMBEDDING_MODEL] is not None and recorded != installed:
        raise ExampleStoreError(
            f"The vectors of {str(store.path)!r} are of model {_named(recorded)}, and this is "
            f"{_named(installed)}: they can't be compared.",
            next_step="Embed the examples again: `fallback-tier examples index --rebuild "
            f"--store {store.path}`.",
            kind="another_model",
        )


def _named(model: Mapping[Meta, str | None]) -> str:
    name, sha256, dimension, text = model.values()
    return f"{name} ({dimension} dimensions, sha256 {(sha256 or '')[:12]}…, of {text})"


def _prepare(store: ExampleStore, embedder: Embedder, *, rebuild: bool) -> None:
    """Prepare a file of this model with few dead rows, and remove leftovers of killed builds."""
    with store.writing() as connection:
        if rebuild or get_meta(connection, Meta.EMBEDDING_MODEL) is None:
            connection.execute("DELETE FROM vectors")
            _next_generation(store, connection, embedder).create()
        else:
            check_model(connection, store, embedder)
            _compact(store, connection, embedder)
        for key, value in described(embedder).items():
            set_meta(connection, key, value)
        current = _vector_file(store, connection, embedder).path
    for path in store.path.parent.glob(f"{store.vectors_path.name}.*"):
        if path != current and path.suffix[1:].isdecimal():
            path.unlink(missing_ok=True)


def _compact(store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder) -> None:
    """If many rows are dead, copy the others into the next generation, in their order."""
    count = _rows(connection)
    # Opened in any case, so that a damaged file is detected before hours of work go into it.
    old = _vector_file(store, connection, embedder).open(count).rows if count else None
    live = connection.execute(_LIVE).fetchall()
    if old is None or count - len(live) <= count * MAX_DEAD_SHARE:
        return
    new = _next_generation(store, connection, embedder)
    new.create()
    for start in range(0, len(live), _COPIED_ROWS):
        new.write(start, old[[row for row, _ in live[start : start + _COPIED_ROWS]]])
    connection.execute("DELETE FROM vectors")
    _name_rows(connection, 0, [chunk for _, chunk in live])


def _batches(store: ExampleStore, embedder: Embedder, size: int) -> Iterator[int]:
    """Embed all chunks that have no vector; yield the number added by each batch."""
    last = 0
    while True:
        with store.reading() as connection:
            chunks = connection.execute(_WITHOUT_VECTOR, [last, size]).fetchall()
        if not chunks:
            return
        last = chunks[-1][0]
        vectors = embedder.embed([_text(*fields) for _, *fields in chunks])
        yield _add(store, embedder, [chunk for chunk, *_ in chunks], vectors)


def _text(record: str, kind: str, text: str, tokens: int, context: str, edits: str) -> str:
    chunk = Chunk(ChunkKind(kind), text, tokens, context, tuple(json.loads(edits)))
    return embedded_text(_parsed(record), chunk)


@lru_cache(maxsize=2)  # the chunks of a record follow each other
def _parsed(record: str) -> SolvedExample:
    return SolvedExample.model_validate_json(record)


def _add(
    store: ExampleStore, embedder: Embedder, chunks: Sequence[int], vectors: "NDArray[np.float32]"
) -> int:
    """Write the vectors of the chunks that are still there (step 3). Return their number."""
    with store.writing() as connection:
        present = [
            index
            for index, chunk in enumerate(chunks)
            if connection.execute("SELECT 1 FROM chunks WHERE id = ?", [chunk]).fetchone()
        ]
        row = _rows(connection)
        _vector_file(store, connection, embedder).write(row, vectors[present])
        _name_rows(connection, row, [chunks[index] for index in present])
    return len(present)


def _name_rows(connection: sqlite3.Connection, first: int, chunks: Sequence[int]) -> None:
    connection.executemany("INSERT INTO vectors VALUES (?, ?)", enumerate(chunks, start=first))


def _rows(connection: sqlite3.Connection) -> int:
    """Return the number of valid rows of the file: up to the last that has a name."""
    return number(connection, "SELECT coalesce(max(row) + 1, 0) FROM vectors")


def _count(store: ExampleStore, sql: str) -> int:
    with store.reading() as connection:
        return number(connection, sql)


def _vector_file(
    store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder
) -> VectorFile:
    generation = int(get_meta(connection, Meta.VECTORS_GENERATION) or 0)
    path = store.vectors_path.with_name(f"{store.vectors_path.name}.{generation}")
    return VectorFile(path, embedder.dimension, embedder.sha256)


def _next_generation(
    store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder
) -> VectorFile:
    generation = int(get_meta(connection, Meta.VECTORS_GENERATION) or 0)
    set_meta(connection, Meta.VECTORS_GENERATION, str(generation + 1))
    return _vector_file(store, connection, embedder)


#: Raise it with every change of the text: vectors of another one are drift.
EMBEDDED_TEXT = "flaw-and-changes-1"

#: Characters of the vulnerability's text above a piece of code: a title and a sentence, a quarter of
#: what the model reads.
_FLAW_CHARS = 300

#: Characters of changed lines: with the text above, more than the model reads of most code.
_CODE_CHARS = 1_500


def described(embedder: Embedder) -> dict[Meta, str]:
    """Return the store's ``meta`` for vectors of this model."""
    return {
        Meta.EMBEDDING_MODEL: embedder.model,
        Meta.EMBEDDING_SHA256: embedder.sha256,
        Meta.EMBEDDING_DIMENSION: str(embedder.dimension),
        Meta.EMBEDDING_TEXT: EMBEDDED_TEXT,
    }


def embedded_text(example: SolvedExample, chunk: Chunk) -> str:
    """Return the text of a record's chunk for the model."""
    if chunk.kind is ChunkKind.ADVISORY:
        return f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    flaw = flaw_text(example.advisory_text, (example.package,))[:_FLAW_CHARS]
    summary = flaw_text(example.fix_summary, (example.package,))
    return "\n".join((flaw, summary, _changed_lines(example, chunk)[:_CODE_CHARS]))


def _changed_lines(example: SolvedExample, chunk: Chunk) -> str:
    """Return the chunk's lines that its edits add; if they add none, those that they remove."""
    shown = [example.edits[number] for number in chunk.edits]
    pairs = [(set(edit.old.splitlines()), set(edit.new.splitlines())) for edit in shown]
    added = {line for old, new in pairs for line in new - old}
    removed = {line for old, new in pairs for line in old - new}
    lines = chunk.text.splitlines()
    return "\n".join(
        _stripped(lines, added) or _stripped(lines, removed) or _stripped(lines, lines)
    )


def _stripped(lines: Sequence[str], wanted: Container[str]) -> list[str]:
    return [line.strip() for line in lines if line in wanted]
