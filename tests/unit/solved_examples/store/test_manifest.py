"""The manifest says what answered; validate says whether that is still so, and touches nothing."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fallback_plugins.solved_examples.index.drift import DriftKind, validate
from fallback_plugins.solved_examples.index.indexing import EMBEDDED_TEXT, build_index
from fallback_plugins.solved_examples.interfaces import EmbeddingError, ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import ExampleStore, recorded_sha256
from fallback_plugins.solved_examples.store.records import content_sha256
from fallback_plugins.solved_examples.store.schema import read_snapshot
from tests.kinds import OfKind
from tests.unit.solved_examples.builders import WholeRecordChunker, example, store_at

SHA = "a" * 64


class StubEmbedder:
    """A model of two dimensions: the same vector for every text."""

    def __init__(self, model: str = "stub", sha256: str = SHA, broken: bool = False) -> None:
        self.model = model
        self.sha256 = sha256
        self.dimension = 2
        self._broken = broken

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._broken:
            raise EmbeddingError("The weights are not the pinned ones.", next_step="Reinstall.")
        return np.asarray([[0.6, 0.8]] * len(texts), dtype=np.float32)

    def token_vectors(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    store = store_at(tmp_path / "examples.db")
    store.ingest([example("e1", cwe=("CWE-22",)), example("e2"), example("e3")])
    return store


def embedded(store: ExampleStore) -> Path:
    """Give every chunk a vector; the file that has them."""
    build_index(store, StubEmbedder())
    (path,) = store.path.parent.glob(f"{store.vectors_path.name}*")
    return path


def alter(store: ExampleStore, sql: str) -> None:
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute(sql)
    connection.close()


def kinds(store: ExampleStore, embedder: StubEmbedder | None = None) -> set[DriftKind]:
    return {drift.kind for drift in validate(store, embedder)}


def test_it_says_which_corpus_chunker_and_model(store: ExampleStore) -> None:
    digests = sorted(content_sha256(stored.example) for stored in store.live())
    found = store.manifest()
    assert (
        found.corpus_sha256
        == hashlib.sha256("".join(f"{d}\n" for d in digests).encode()).hexdigest()
    )
    assert (found.examples, found.chunks, found.chunker) == (3, 6, "whole-1")
    assert found.embedding is None
    embedded(store)
    embedding = store.manifest().embedding
    assert embedding is not None
    assert (embedding.model, embedding.dimension, embedding.vectors) == ("stub", 2, 6)
    assert embedding.text == EMBEDDED_TEXT


def test_every_change_changes_its_digest_and_the_same_corpus_has_the_same(
    store: ExampleStore, tmp_path: Path
) -> None:
    seen = [store.manifest().sha256]
    store.ingest([example("e4")])
    seen.append(store.manifest().sha256)
    store.withdraw("e4", reason="wrong", by="me")
    assert store.manifest().sha256 == seen[0]
    embedded(store)
    seen.append(store.manifest().sha256)
    newer = store_at(store.path, "whole-2")
    newer.rechunk()
    seen.append(newer.manifest().sha256)
    assert len(set(seen)) == 4
    with newer.reading() as connection:
        assert recorded_sha256(connection) == seen[-1]
    # The order of arrival is no part of what a corpus is.
    other = store_at(tmp_path / "other.db")
    other.ingest([example("e3"), example("e1", cwe=("CWE-22",)), example("e2")])
    assert other.manifest().sha256 == seen[0]


def test_a_store_as_it_was_left_has_no_drift(store: ExampleStore) -> None:
    store.ingest([example("e1", licence="MIT")])
    store.withdraw("e2", reason="wrong", by="me")
    assert validate(store) == ()
    assert validate(store, StubEmbedder(model="another")) == ()  # nothing was embedded


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("UPDATE examples SET record = replace(record, 'Apache', 'Apathy') WHERE id = 2", "record"),
        ("UPDATE examples SET record = replace(record, '\"e2\"', '\"e9\"') WHERE id = 2", "record"),
        ("UPDATE examples SET package = 'another' WHERE id = 2", "record"),
        ("UPDATE examples SET ecosystem = 'npm' WHERE id = 2", "record"),
        ("UPDATE examples SET language = 'c' WHERE id = 2", "record"),
        ("UPDATE examples SET cwe = '[]' WHERE id = 1", "record"),
        ("UPDATE examples SET state = 'superseded' WHERE id = 2", "corpus"),
        ("UPDATE examples SET state = 'superseded' WHERE id = 2", "chunks"),
        ("DELETE FROM examples WHERE id = 2", "corpus"),
        ("UPDATE examples SET chunker = 'whole-0' WHERE id = 2", "chunker"),
        ("UPDATE chunks SET text = 'another' WHERE id = 3", "chunks"),
        ("UPDATE chunks SET context = 'another' WHERE id = 3", "chunks"),
        ("UPDATE chunks SET edits = '[1]' WHERE id = 4", "chunks"),
        ("DELETE FROM chunks WHERE example = 2", "chunks"),
        ("DELETE FROM chunks WHERE id = 3", "manifest"),
        ("DELETE FROM chunks_fts_docsize WHERE id = 3", "words"),
        ("INSERT INTO chunks_fts (rowid, context, text) VALUES (3, '', 'planted')", "words"),
        ("DROP TRIGGER chunks_deleted", "schema"),
        ("DROP INDEX examples_live", "schema"),
        ("UPDATE meta SET value = 'x' WHERE key = 'manifest'", "manifest"),
        ("UPDATE meta SET value = 'x' WHERE key = 'manifest_sha256'", "manifest"),
        ("DELETE FROM meta WHERE key = 'manifest'", "manifest"),
        ("UPDATE meta SET value = 'whole-0' WHERE key = 'chunker'", "chunker"),
        ("DELETE FROM vectors WHERE row = 1", "vectors"),
        ("UPDATE vectors SET chunk = 999 WHERE row = 1", "vectors"),
        ("UPDATE meta SET value = 'another' WHERE key = 'embedding_model'", "model"),
        ("UPDATE meta SET value = '3' WHERE key = 'embedding_dimension'", "model"),
        ("UPDATE meta SET value = 'another' WHERE key = 'embedding_text'", "model"),
    ],
)
def test_drift_is_reported(store: ExampleStore, sql: str, kind: str) -> None:
    embedded(store)
    assert validate(store, StubEmbedder()) == ()
    alter(store, sql)
    assert DriftKind(kind) in kinds(store, StubEmbedder())


def test_a_chunker_that_changed_without_its_version_is_seen(store: ExampleStore) -> None:
    class Careless(WholeRecordChunker):
        def chunks(self, example: Any) -> Any:
            return super().chunks(example)[:1]

    assert kinds(ExampleStore(store.path, chunker=Careless())) == {DriftKind.CHUNKS}
    assert kinds(store_at(store.path, "whole-2")) == {DriftKind.CHUNKER}


def test_another_model_is_drift_and_so_are_weights_that_are_not_the_pinned_ones(
    store: ExampleStore,
) -> None:
    embedded(store)
    assert kinds(store, StubEmbedder(sha256="b" * 64)) == {DriftKind.MODEL}
    assert kinds(store, StubEmbedder(broken=True)) == {DriftKind.MODEL}
    assert kinds(store) == set()


@pytest.mark.parametrize("damage", ["gone", "cut", "another"])
def test_a_vector_file_that_is_not_what_was_written(store: ExampleStore, damage: str) -> None:
    path = embedded(store)
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.write_bytes(b"x" * path.stat().st_size)
    assert kinds(store, StubEmbedder()) == {DriftKind.VECTORS}


def test_on_a_read_only_medium_the_words_are_counted_alone(
    store: ExampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root writes wherever a mode forbids it: here SQLite itself refuses."""

    @contextmanager
    def refused(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
        with read_snapshot(path) as connection:
            connection.execute("DELETE FROM meta")
            yield connection

    monkeypatch.setattr("fallback_plugins.solved_examples.index.drift.write_transaction", refused)
    assert validate(store) == ()
    alter(store, "INSERT INTO chunks_fts (rowid, context, text) VALUES (99, '', 'planted')")
    assert kinds(store) == {DriftKind.WORDS}


def test_validate_waits_for_no_one_for_ever(
    store: ExampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallback_plugins.solved_examples.store.schema.BUSY_TIMEOUT_S", 0.01)
    with (
        store.writing(),
        pytest.raises(ExampleStoreError, check=OfKind("unusable"), match="locked"),
    ):
        validate(store)


def test_validate_changes_no_byte(store: ExampleStore) -> None:
    embedded(store)
    alter(store, "DELETE FROM chunks WHERE id = 3")

    def content() -> dict[str, tuple[bytes, int]]:
        return {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in store.path.parent.iterdir()
        }

    before = content()
    assert validate(store, StubEmbedder())
    assert content() == before
