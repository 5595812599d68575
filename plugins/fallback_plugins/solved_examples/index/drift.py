"""Is a memory still what its manifest says? Every difference is reported, and nothing is repaired."""

import sqlite3
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.index.embedded import EMBEDDED_TEXT
from fallback_plugins.solved_examples.index.indexing import nearest
from fallback_plugins.solved_examples.interfaces import (
    Embedder,
    EmbeddingError,
    ExampleStoreError,
)
from fallback_plugins.solved_examples.store import manifest as manifests
from fallback_plugins.solved_examples.store.connection import write_transaction
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.ingestion import chunk_rows, columns
from fallback_plugins.solved_examples.store.records import as_ingested
from fallback_plugins.solved_examples.store.schema import TABLES, Meta, State, get_meta

#: Records that are held at once, and looked at in one snapshot: a writer never waits long.
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


def validate(store: ExampleStore, embedder: Embedder | None = None) -> tuple[Drift, ...]:
    """Every difference between the store, its manifest, and what is installed; empty where none is.

    Reads every record and cuts it again, so that it also sees a chunker that changed without its
    version. ``embedder`` None: the extra is not installed, and the model is not looked at. Writes
    nothing; on a read-only medium the words are counted, not compared. Raises ExampleStoreError where
    the store can't be read at all.
    """
    with store.reading(as_is=True) as connection:
        whole = tuple(
            chain(
                _schema(connection),
                _manifest(connection),
                _chunker(connection, store.chunker.version),
                _chunks(connection),
                _vectors(connection),
                _model(store, connection, embedder),
            )
        )
    return (*whole, *_words(store), *_records(store))


def _schema(connection: sqlite3.Connection) -> Iterator[Drift]:
    there = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    for statement in TABLES:
        if statement not in there:
            what = statement.partition("\n")[0].removeprefix("CREATE ").rstrip(" (")
            yield Drift(kind=DriftKind.SCHEMA, sentence=f"not as it was made: {what}")


def _manifest(connection: sqlite3.Connection) -> Iterator[Drift]:
    current = manifests.compute(connection)
    try:
        recorded = manifests.recorded(connection)
    except ValueError:
        yield Drift(kind=DriftKind.MANIFEST, sentence="the recorded manifest can't be read")
        return
    if recorded.sha256 != manifests.recorded_sha256(connection):
        yield Drift(
            kind=DriftKind.MANIFEST, sentence="the recorded manifest does not have its digest"
        )
    for field in type(recorded).model_fields:
        was, now = getattr(recorded, field), getattr(current, field)
        if was != now:
            kind = DriftKind.CORPUS if field == "corpus_sha256" else DriftKind.MANIFEST
            yield Drift(kind=kind, sentence=f"{field}: {was} is recorded, and {now} is there")


def _chunker(connection: sqlite3.Connection, installed: str) -> Iterator[Drift]:
    found = get_meta(connection, Meta.CHUNKER)
    if found not in {None, installed}:
        yield Drift(
            kind=DriftKind.CHUNKER, sentence=f"cut by {found}, and {installed} is installed"
        )
    others = connection.execute(
        "SELECT count(*) FROM examples WHERE state = 'live' AND chunker IS NOT ?", [found]
    ).fetchone()[0]
    if others:
        yield Drift(
            kind=DriftKind.CHUNKER,
            sentence=f"{others} live records were cut by another than {found}",
        )


def _chunks(connection: sqlite3.Connection) -> Iterator[Drift]:
    for what, sql in (
        ("live records have no chunk", _WITHOUT_CHUNK),
        ("chunks are of no live record", _ORPHANS),
    ):
        if count := connection.execute(sql).fetchone()[0]:
            yield Drift(kind=DriftKind.CHUNKS, sentence=f"{count} {what}")
    indexed, there = connection.execute(
        "SELECT (SELECT count(*) FROM chunks_fts_docsize), (SELECT count(*) FROM chunks)"
    ).fetchone()
    if indexed != there:
        yield Drift(
            kind=DriftKind.WORDS, sentence=f"the words of {indexed} chunks are indexed, of {there}"
        )


def _words(store: ExampleStore) -> Iterator[Drift]:
    """FTS5's own check of its index against the chunks. It is said as an INSERT, so it needs the
    writer's lock (1 s at 40,000 chunks), and changes nothing."""
    try:
        with write_transaction(store.path, create=False) as connection:
            try:
                connection.execute(
                    "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"
                )
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT_VTAB:
                    raise
                yield Drift(
                    kind=DriftKind.WORDS, sentence="the index of words is not what the chunks say"
                )
    except ExampleStoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code & 0xFF != sqlite3.SQLITE_READONLY:
            raise


def _vectors(connection: sqlite3.Connection) -> Iterator[Drift]:
    if get_meta(connection, Meta.EMBEDDING_MODEL) is None:
        return
    missing, dead = connection.execute(
        "SELECT (SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM vectors)), "
        "(SELECT count(*) FROM vectors WHERE chunk NOT IN (SELECT id FROM chunks))"
    ).fetchone()
    if missing:
        yield Drift(kind=DriftKind.VECTORS, sentence=f"{missing} chunks have no vector")
    if dead:
        yield Drift(
            kind=DriftKind.VECTORS, sentence=f"{dead} vectors are dead: their chunk is gone"
        )


def _model(
    store: ExampleStore, connection: sqlite3.Connection, embedder: Embedder | None
) -> Iterator[Drift]:
    """The installed model against the vectors', then the file: a question goes over all its rows."""
    if embedder is None or get_meta(connection, Meta.EMBEDDING_MODEL) is None:
        return
    others = [
        (key, found, installed)
        for key, installed in (
            (Meta.EMBEDDING_MODEL, embedder.model),
            (Meta.EMBEDDING_SHA256, embedder.sha256),
            (Meta.EMBEDDING_DIMENSION, str(embedder.dimension)),
            (Meta.EMBEDDING_TEXT, EMBEDDED_TEXT),
        )
        if (found := get_meta(connection, key)) != installed
    ]
    for key, found, installed in others:
        yield Drift(
            kind=DriftKind.MODEL,
            sentence=f"{key.value}: the vectors have {found}, and {installed} is installed",
        )
    if others:
        return
    try:
        # Opens the weights too, and holds them against their digest.
        nearest(store, connection, embedder, embedder.embed([""])[0], limit=1)
    except EmbeddingError as error:
        yield Drift(kind=DriftKind.MODEL, sentence=error.problem)
    except ExampleStoreError as error:
        yield Drift(kind=DriftKind.VECTORS, sentence=error.problem)


def _records(store: ExampleStore) -> Iterator[Drift]:
    """Every version of every record, and the chunks of the live ones."""
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
    *beside: str,
) -> Iterator[Drift]:
    example_id = beside[0]
    example = as_ingested(record, digest)
    if example is None:
        yield Drift(kind=DriftKind.RECORD, sentence=f"{example_id}: not what was ingested")
        return
    for (column, value), found in zip(columns(example).items(), beside, strict=True):
        if value != found:
            yield Drift(
                kind=DriftKind.RECORD,
                sentence=f"{example_id}: {column} is filed as {found}, and the record says {value}",
            )
    if state != State.LIVE or get_meta(connection, Meta.CHUNKER) != store.chunker.version:
        return
    kept = connection.execute(
        "SELECT ordinal, kind, context, text, tokens, edits FROM chunks "
        "WHERE example = ? ORDER BY ordinal",
        [row],
    ).fetchall()
    if kept != list(chunk_rows(example, store.chunker)):
        yield Drift(
            kind=DriftKind.CHUNKS,
            sentence=f"{example_id}: its chunks are not what the record gives",
        )
