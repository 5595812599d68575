"""Comparison of a memory with its manifest. Every difference is reported, and nothing is repaired."""

import sqlite3
from collections.abc import Iterator
from enum import StrEnum

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.index.indexing import described, nearest
from fallback_plugins.solved_examples.interfaces import (
    Embedder,
    EmbeddingError,
    ExampleStoreError,
)
from fallback_plugins.solved_examples.store.example_store import (
    ExampleStore,
    chunk_rows,
    columns,
    current_manifest,
    recorded_manifest,
    recorded_sha256,
)
from fallback_plugins.solved_examples.store.records import as_ingested
from fallback_plugins.solved_examples.store.schema import (
    TABLES,
    Meta,
    State,
    get_meta,
    number,
    write_transaction,
)

#: Records that are read at once, in one snapshot: a writer never waits long.
_PAGE = 100

_RECORD = "id, content_sha256, state, record, example_id, ecosystem, package, language, cwe"

_WITHOUT_CHUNK = """
    SELECT count(*) FROM examples
    WHERE state = 'live' AND id NOT IN (SELECT example FROM chunks)"""

_ORPHANS = """
    SELECT count(*) FROM chunks
    WHERE example NOT IN (SELECT id FROM examples WHERE state = 'live')"""


class DriftKind(StrEnum):
    """What differs. The value is what ``validate`` prints."""

    SCHEMA = "schema"
    MANIFEST = "manifest"
    CORPUS = "corpus"
    RECORD = "record"
    CHUNKER = "chunker"
    CHUNKS = "chunks"
    WORDS = "words"
    MODEL = "model"
    VECTORS = "vectors"


class Drift(Frozen):
    """One difference, in a sentence."""

    kind: DriftKind
    sentence: str


_Difference = tuple[DriftKind, str]


def validate(store: ExampleStore, embedder: Embedder | None = None) -> tuple[Drift, ...]:
    """Return every difference between the store, its manifest, and what is installed.

    Reads every record and cuts it again, so that it detects a chunker that changed without its version.
    ``embedder`` None: the extra is not installed, and the model is not checked. Writes nothing; on a
    read-only medium the words are counted, not compared. Raises ExampleStoreError if the store can't be
    read at all.
    """
    with store.reading(as_is=True) as connection:
        in_snapshot = (
            *_schema(connection),
            *_manifest(connection),
            *_chunker(connection, store.chunker.version),
            *_chunks(connection),
            *_vectors(connection),
            *_model(store, connection, embedder),
        )
    differences = (*in_snapshot, *_words(store), *_records(store))
    return tuple(Drift(kind=kind, sentence=sentence) for kind, sentence in differences)


def _schema(connection: sqlite3.Connection) -> Iterator[_Difference]:
    statements = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    for statement in TABLES:
        if statement not in statements:
            what = statement.partition("\n")[0].removeprefix("CREATE ").rstrip(" (")
            yield DriftKind.SCHEMA, f"not as it was made: {what}"


def _manifest(connection: sqlite3.Connection) -> Iterator[_Difference]:
    current = current_manifest(connection)
    try:
        recorded = recorded_manifest(connection)
    except ValueError:
        yield DriftKind.MANIFEST, "the recorded manifest can't be read"
        return
    if recorded.sha256 != recorded_sha256(connection):
        yield DriftKind.MANIFEST, "the recorded manifest does not have its digest"
    for field in type(recorded).model_fields:
        recorded_value, current_value = getattr(recorded, field), getattr(current, field)
        if recorded_value != current_value:
            kind = DriftKind.CORPUS if field == "corpus_sha256" else DriftKind.MANIFEST
            yield kind, f"{field}: {recorded_value} is recorded, and {current_value} is there"


def _chunker(connection: sqlite3.Connection, installed: str) -> Iterator[_Difference]:
    recorded = get_meta(connection, Meta.CHUNKER)
    if recorded not in {None, installed}:
        yield DriftKind.CHUNKER, f"cut by {recorded}, and {installed} is installed"
    other_count = number(
        connection,
        "SELECT count(*) FROM examples WHERE state = 'live' AND chunker IS NOT ?",
        [recorded],
    )
    if other_count:
        yield DriftKind.CHUNKER, f"{other_count} live records were cut by another than {recorded}"


def _chunks(connection: sqlite3.Connection) -> Iterator[_Difference]:
    for what, sql in (
        ("live records have no chunk", _WITHOUT_CHUNK),
        ("chunks are of no live record", _ORPHANS),
    ):
        if count := number(connection, sql):
            yield DriftKind.CHUNKS, f"{count} {what}"
    indexed, present = connection.execute(
        "SELECT (SELECT count(*) FROM chunks_fts_docsize), (SELECT count(*) FROM chunks)"
    ).fetchone()
    if indexed != present:
        yield DriftKind.WORDS, f"the words of {indexed} chunks are indexed, of {present}"


def _words(store: ExampleStore) -> Iterator[_Difference]:
    """Run FTS5's own check of its index against the chunks. As an INSERT it needs the writer's lock (1 s at
    40,000 chunks), and changes nothing."""
    try:
        with write_transaction(store.path, create=False) as connection:
            try:
                connection.execute(
                    "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"
                )
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT_VTAB:
                    raise
                yield DriftKind.WORDS, "the index of words is not what the chunks say"
    except ExampleStoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code & 0xFF != sqlite3.SQLITE_READONLY:
            raise


def _vectors(connection: sqlite3.Connection) -> Iterator[_Difference]:
    if get_meta(connection, Meta.EMBEDDING_MODEL) is None:
        return
    missing, dead = connection.execute(
        "SELECT (SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM vectors)), "
        "(SELECT count(*) FROM vectors WHERE chunk NOT IN (SELECT id FROM chunks))"
    ).fetchone()
    if missing:
        yield DriftKind.VECTORS, f"{missing} chunks have no vector"
    if dead:
        yield DriftKind.VECTORS, f"{dead} vectors are dead: their chunk is gone"


def _model(
    store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder | None
) -> Iterator[_Difference]:
    """Compare the installed model with the vectors', then search the file, which reads all its rows."""
    if embedder is None or get_meta(connection, Meta.EMBEDDING_MODEL) is None:
        return
    differing = [
        (key, recorded, installed)
        for key, installed in described(embedder).items()
        if (recorded := get_meta(connection, key)) != installed
    ]
    for key, recorded, installed in differing:
        yield (
            DriftKind.MODEL,
            f"{key.value}: the vectors have {recorded}, and {installed} is installed",
        )
    if differing:
        return
    try:
        # This opens the weights too, and compares them with their digest.
        nearest(store, connection, embedder, embedder.embed([""])[0], limit=1)
    except EmbeddingError as error:
        yield DriftKind.MODEL, error.problem
    except ExampleStoreError as error:
        yield DriftKind.VECTORS, error.problem


def _records(store: ExampleStore) -> Iterator[_Difference]:
    """Yield the differences of every version of every record, and of the chunks of the live ones."""
    last = 0
    while True:
        with store.reading(as_is=True) as connection:
            page = connection.execute(
                f"SELECT {_RECORD} FROM examples WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
                [last, _PAGE],
            ).fetchall()
            for row in page:
                yield from _record(connection, store, *row)
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _record(
    connection: sqlite3.Connection,
    store: ExampleStore,
    row: int,
    digest: str,
    state: str,
    record: str,
    *stored_columns: str,
) -> Iterator[_Difference]:
    example_id = stored_columns[0]
    example = as_ingested(record, digest)
    if example is None:
        yield DriftKind.RECORD, f"{example_id}: not what was ingested"
        return
    for (column, value), stored in zip(columns(example).items(), stored_columns, strict=True):
        if value != stored:
            yield (
                DriftKind.RECORD,
                f"{example_id}: {column} is filed as {stored}, and the record says {value}",
            )
    if state != State.LIVE or get_meta(connection, Meta.CHUNKER) != store.chunker.version:
        return
    stored_rows = connection.execute(
        "SELECT ordinal, kind, context, text, tokens, edits FROM chunks "
        "WHERE example = ? ORDER BY ordinal",
        [row],
    ).fetchall()
    if stored_rows != list(chunk_rows(example, store.chunker)):
        yield DriftKind.CHUNKS, f"{example_id}: its chunks are not what the record gives"
