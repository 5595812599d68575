"""The posting lists of a store: read out of FTS5, written beside it, used while they are true.

FTS5 stays what is searched in small stores, without numpy, and from a change of the store to the
next `examples index`: answers are right at any moment, and quick again after that.

FTS5's own list of its tokens (fts5vocab) is read, so that a word is the same word on both ways.
"""

import json
import mmap
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fallback_audit.files import sync_directory
from fallback_plugins.solved_examples.index.build_lock import only_builder
from fallback_plugins.solved_examples.index.postings import (
    Arrays,
    Layout,
    Postings,
    damaged,
    keyed,
    open_postings,
    weigh,
)
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.schema import Meta, get_meta, set_meta

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A store of fewer chunks has no posting lists: FTS5 answers within 25 ms whatever is asked, and a
#: process that asks once needs 80 ms to import numpy.
MIN_CHUNKS: Final = 10_000

#: Occurrences read in one snapshot: half a second, for which a writer waits; and held at once.
_PAGE: Final = 250_000

_TERMS: Final = "SELECT term, doc, cnt FROM chunks_terms"
_OCCURRENCES: Final = "SELECT doc FROM temp.occurrences WHERE term >= ? AND term <= ?"


@dataclass(frozen=True)
class Words:
    """How the words of a store are searched. ``postings`` None: by FTS5; ``note`` says why, if the
    store had some."""

    postings: Postings | None = None
    note: str = ""


@dataclass(frozen=True)
class _Term:
    text: str
    #: In so many chunks, so many times in all.
    chunks: int
    times: int


def words_of(store: ExampleStore, connection: sqlite3.Connection) -> Words:
    """``connection``: a snapshot of this store. Never raises for posting lists that can't be used."""
    built = get_meta(connection, Meta.POSTINGS)
    if built is None:
        return Words()
    if built != state_of(connection):
        return _by_fts5("the store changed since `fallback-tier examples index`")
    if find_spec("numpy") is None:
        return _by_fts5("numpy is not installed")
    try:
        return Words(open_postings(_path(store, built), built))
    except ExampleStoreError as error:
        return _by_fts5(str(error).rstrip("."))


def _by_fts5(reason: str) -> Words:
    return Words(note=f"words by SQLite's index, within its bound: {reason}")


def state_of(connection: sqlite3.Connection) -> str:
    """Which chunks there are, in a digest; three look-ups, however many.

    Each new chunk raises AUTOINCREMENT's number, and each that goes makes them fewer: together they
    never come back. The corpus keeps a store apart from another one at the same path.
    """
    manifest = json.loads(get_meta(connection, Meta.MANIFEST) or "{}")
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    parts = (manifest.get("corpus_sha256"), manifest.get("chunks"), row and row[0])
    return sha256(json.dumps(parts).encode()).hexdigest()


def build_words(store: ExampleStore, *, min_chunks: int | None = None) -> bool:
    """Write the posting lists of the store as it is now; whether they are there at the end.

    Not for a small store, nor without numpy. One that changes meanwhile keeps FTS5 until the next
    build. Raises ExampleStoreError: another build is at work, the disk is full.
    """
    with store.reading():
        pass  # a missing store is told before a lock is made beside it
    with only_builder(store.path):
        return build_locked(store, min_chunks=min_chunks)


def build_locked(store: ExampleStore, *, min_chunks: int | None = None) -> bool:
    """``build_words``, of a caller that holds the lock."""
    with store.reading() as connection:
        if words_of(store, connection).postings is not None:
            return True
        state = state_of(connection)
        (count,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
        least = MIN_CHUNKS if min_chunks is None else min_chunks
        if count < max(least, 1) or find_spec("numpy") is None:
            return False
        chunks = [row for (row,) in connection.execute("SELECT id FROM chunks ORDER BY id")]
        terms = [_Term(*row) for row in connection.execute(_TERMS)]
    new = _path(store, "new")
    try:
        there = _write(store, new, state, chunks, terms)
        if there:
            new.replace(_path(store, state))
            sync_directory(store.path.parent)
    except OSError as error:
        raise damaged(new, error.strerror or str(error)) from error
    finally:
        new.unlink(missing_ok=True)
    return there and _named(store, state)


def _named(store: ExampleStore, state: str) -> bool:
    """Name the new file in the store, and take the others away: who still reads one has it mapped."""
    with store.writing() as connection:
        there = state_of(connection) == state
        if there:
            set_meta(connection, Meta.POSTINGS, state)
    if there:
        current = _path(store, state)
        for path in current.parent.glob(f"{_path(store, '').name}*"):
            if path != current:
                path.unlink(missing_ok=True)
    return there


def _write(
    store: ExampleStore, path: Path, state: str, chunks: Sequence[int], terms: Sequence[_Term]
) -> bool:
    """The whole file, synced. False where the store changed before its end."""
    layout = Layout(len(chunks), len(terms), sum(term.chunks for term in terms))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # All blocks first: a mapping has no way to say that the disk is full.
        os.posix_fallocate(descriptor, 0, layout.size)
        os.pwrite(descriptor, layout.header(state), 0)
        mapping = mmap.mmap(descriptor, layout.size)
        there = _fill(store, state, layout.arrays(mapping), chunks, terms)
        mapping.flush()
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return there


def _fill(
    store: ExampleStore,
    state: str,
    arrays: Arrays,
    chunks: Sequence[int],
    terms: Sequence[_Term],
) -> bool:
    import numpy as np

    arrays.chunks[:] = chunks
    counts = np.fromiter((term.chunks for term in terms), dtype=np.int64, count=len(terms))
    arrays.keys[:], order = keyed({term.text: 0 for term in terms})
    arrays.counts[:] = counts[order]
    arrays.first[:] = (np.cumsum(counts) - counts)[order]
    done = 0
    for page in _pages(terms):
        with store.reading() as connection:
            if state_of(connection) != state:
                return False
            found = _occurrences(connection, page)
        starts, times = _runs(found, page)
        part = slice(done, done + len(starts))
        arrays.rows[part] = np.searchsorted(arrays.chunks, found[starts])
        arrays.weights[part] = times
        done += len(starts)
    weigh(arrays, _PAGE)
    return True


def _pages(terms: Sequence[_Term]) -> Iterator[Sequence[_Term]]:
    """Runs of terms with some _PAGE occurrences together; a term is never divided."""
    page: list[_Term] = []
    held = 0
    for term in terms:
        page.append(term)
        held += term.times
        if held >= _PAGE:
            yield page
            page, held = [], 0
    if page:
        yield page


def _occurrences(connection: sqlite3.Connection, page: Sequence[_Term]) -> "NDArray[np.int64]":
    """The chunk of each occurrence, by term, then by chunk."""
    import numpy as np

    # A temporary table is nothing of the store's.
    connection.execute("PRAGMA query_only = OFF")
    connection.execute(
        "CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab (main, chunks_fts, instance)"
    )
    connection.execute("PRAGMA query_only = ON")
    rows = connection.execute(_OCCURRENCES, [page[0].text, page[-1].text])
    return np.fromiter((chunk for (chunk,) in rows), dtype=np.int64)


def _runs(
    found: "NDArray[np.int64]", page: Sequence[_Term]
) -> "tuple[NDArray[np.intp], NDArray[np.intp]]":
    """Where a chunk of a term begins, and how often it has the term."""
    import numpy as np

    ends = np.cumsum([term.times for term in page])
    begins = np.ones(len(found), dtype=np.bool_)
    begins[1:] = found[1:] != found[:-1]
    begins[ends[:-1]] = True
    starts = np.flatnonzero(begins)
    if len(found) != ends[-1] or len(starts) != sum(term.chunks for term in page):
        raise ExampleStoreError(
            "The words of the example store don't agree with their own counts.",
            next_step="`fallback-tier examples validate` says what is damaged.",
            kind="counts_differ",
        )
    return starts, np.diff(starts, append=len(found))


def _path(store: ExampleStore, state: str) -> Path:
    """A file is named after the first digits of its state; all of them are in it."""
    return store.path.with_name(f"{store.path.name}.postings.{state[:16]}")
