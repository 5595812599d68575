"""What a memory is made of, in one small record whose digest every retrieval states (ADR-0019).

The manifest is kept in the store and written in the transaction of each change, so that reading it
costs one look-up. ``drift.validate`` says whether it is still true.
"""

import hashlib
import json
import sqlite3

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.store.records import text_sha256
from fallback_plugins.solved_examples.store.schema import (
    FORMAT,
    Meta,
    get_meta,
    number,
    set_meta,
)

_LIVE_DIGESTS = "SELECT content_sha256 FROM examples WHERE state = 'live' ORDER BY content_sha256"


class EmbeddingManifest(Frozen):
    """Which model the vectors are from, and how many live chunks have one."""

    model: str
    sha256: Digest
    dimension: int
    #: What of a chunk was embedded.
    text: str = ""
    vectors: int


class Manifest(Frozen):
    """Which corpus, cut by which chunker, embedded by which model."""

    format: str = FORMAT
    #: Over the content digests of the live records, sorted, one a line.
    corpus_sha256: Digest
    examples: int
    chunks: int
    #: None before the first ingest.
    chunker: str | None = None
    #: None where nothing was embedded: such a store is searched by words alone.
    embedding: EmbeddingManifest | None = None

    @property
    def sha256(self) -> Digest:
        """Digest of the manifest as canonical JSON."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return text_sha256(text)


def recorded(connection: sqlite3.Connection) -> Manifest:
    """The manifest that is kept in the store. Raises ValueError where that was altered."""
    return Manifest.model_validate_json(get_meta(connection, Meta.MANIFEST) or "")


def recorded_sha256(connection: sqlite3.Connection) -> Digest:
    """Its digest: what a retrieval logs. One look-up."""
    return get_meta(connection, Meta.MANIFEST_SHA256) or ""


def record(connection: sqlite3.Connection) -> None:
    """Write the manifest anew, in the transaction that changed the store."""
    current = compute(connection)
    set_meta(connection, Meta.MANIFEST, current.model_dump_json())
    set_meta(connection, Meta.MANIFEST_SHA256, current.sha256)


def compute(connection: sqlite3.Connection) -> Manifest:
    """The manifest of what is there now."""
    corpus = hashlib.sha256()
    examples = 0
    for (digest,) in connection.execute(_LIVE_DIGESTS):
        corpus.update(f"{digest}\n".encode())
        examples += 1
    return Manifest(
        corpus_sha256=corpus.hexdigest(),
        examples=examples,
        chunks=number(connection, "SELECT count(*) FROM chunks"),
        chunker=get_meta(connection, Meta.CHUNKER),
        embedding=_embedding(connection),
    )


def _embedding(connection: sqlite3.Connection) -> EmbeddingManifest | None:
    model = get_meta(connection, Meta.EMBEDDING_MODEL)
    if model is None:
        return None
    return EmbeddingManifest(
        model=model,
        sha256=get_meta(connection, Meta.EMBEDDING_SHA256) or "",
        dimension=int(get_meta(connection, Meta.EMBEDDING_DIMENSION) or 0),
        text=get_meta(connection, Meta.EMBEDDING_TEXT) or "",
        vectors=number(
            connection, "SELECT count(*) FROM vectors JOIN chunks ON chunks.id = vectors.chunk"
        ),
    )
