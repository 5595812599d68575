"""The posting lists of a store: exact BM25 from a memory-mapped file, built from FTS5.

::

    0   magic              8 bytes, the format's version in it
    8   chunks, words      uint32 each, little-endian
    16  postings           uint64
    24  state              32 bytes: which words of the store these are
    56  (zero)             8 bytes
    64  chunk ids          int64, ascending: row n of all that follows is this chunk
        keys               uint64: a digest of each word, ascending
        first, count       int64 each, a word: where its postings are, and how many
        rows               uint32: the chunks that have the word, ascending
        weights            float32: what an occurrence adds, before the word's own weight

FTS5 reads every place of every word again to score it; this adds up one number per chunk, and needs no
bound (ADR-0019). A file is written once, under a name that says which state of the store it is of, and
never changed.

FTS5 is still searched in small stores, without numpy, and from a change of the store to the next
`examples index`: answers are right at any moment, and fast again after that. FTS5's own list of its tokens
(fts5vocab) is read, so that both ways split words alike.
"""

import fcntl
import json
import math
import mmap
import os
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fallback_audit.files import sync_directory
from fallback_plugins.solved_examples.index.vectors import best_first
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_plugins.solved_examples.store.schema import Meta, get_meta, number, set_meta

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Robertson's constants as FTS5 has them; they can't be set there.
K1: Final = 1.2
B: Final = 0.75

#: FTS5's weight of a word that half of the chunks have, or more.
_LEAST_WEIGHT: Final = 1e-6

_MAGIC: Final = b"FTWORD\x00\x01"
_HEADER: Final = struct.Struct("<8sIIQ32s8x")

#: Postings of a question, as a share of the chunks, up to which only the chunks that have a word are
#: scored; above it adding to every chunk is faster.
_FEW: Final = 1 / 8


def _key(word: str) -> int:
    """Return a word's key. Of a million words, two share theirs once in 40 million stores."""
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


class _Arrays(NamedTuple):
    """The parts of a file after its header."""

    chunks: "NDArray[np.int64]"
    keys: "NDArray[np.uint64]"
    first: "NDArray[np.int64]"
    counts: "NDArray[np.int64]"
    rows: "NDArray[np.uint32]"
    weights: "NDArray[np.float32]"


@dataclass(frozen=True)
class _Layout:
    """The lengths of the parts."""

    chunks: int
    words: int
    postings: int

    @property
    def size(self) -> int:
        return _HEADER.size + 8 * self.chunks + 24 * self.words + 8 * self.postings

    def header(self, state: str) -> bytes:
        return _HEADER.pack(_MAGIC, self.chunks, self.words, self.postings, bytes.fromhex(state))

    def arrays(self, mapping: mmap.mmap) -> _Arrays:
        import numpy as np

        lengths = (self.chunks, *(self.words,) * 3, *(self.postings,) * 2)
        parts: list[NDArray[np.generic]] = []
        offset = _HEADER.size
        for length, kind in zip(lengths, ("<i8", "<u8", "<i8", "<i8", "<u4", "<f4"), strict=True):
            parts.append(np.frombuffer(mapping, dtype=kind, count=length, offset=offset))
            offset += parts[-1].nbytes
        return _Arrays(*parts)  # type: ignore[arg-type]


# Cached from one question to the next, as mapping a file again means to fault in all its pages: half of
# a question's time. Only one, as a file that was replaced takes up its disk space while it is mapped.
@lru_cache(maxsize=1)
def _mapped(path: Path, state: str, _version: tuple[int, int, int]) -> "Postings":
    with path.open("rb") as stream:
        layout = _layout(stream.read(_HEADER.size), state)
        if layout is None or os.fstat(stream.fileno()).st_size != layout.size:
            raise _damaged(path, "it is not one of this version, or is cut off")
        mapping = mmap.mmap(stream.fileno(), layout.size, prot=mmap.PROT_READ)
    return Postings(path, layout.arrays(mapping))


def _damaged(path: Path, reason: str, *, kind: str = "") -> ExampleStoreError:
    """Return the error of a file that can't be used; the words are still in the store itself."""
    return ExampleStoreError(
        f"The posting lists {str(path)!r} can't be used: {reason}.",
        next_step="Check the disk's free space, then run `fallback-tier examples index` again.",
        kind=kind,
    )


def _layout(header: bytes, state: str) -> _Layout | None:
    try:
        magic, chunks, words, postings, recorded_state = _HEADER.unpack(header)
    except struct.error:
        return None
    is_valid = magic == _MAGIC and recorded_state.hex() == state
    return _Layout(chunks, words, postings) if is_valid else None


class Postings:
    """Posting lists of a mapped file. Any thread may search."""

    def __init__(self, path: Path, arrays: _Arrays) -> None:
        self._path = path
        self._arrays = arrays
        self.chunks = len(arrays.chunks)

    def counts(self, words: Sequence[str]) -> dict[str, int]:
        """Return the number of chunks that have each word."""
        indices = self._places(words)
        return {
            word: int(self._arrays.counts[at]) if at >= 0 else 0 for word, at in indices.items()
        }

    def ranked(self, words: Sequence[str]) -> Iterator[tuple[int, float]]:
        """Yield the chunks that have any of the words, best BM25 first, then by id: (chunk, BM25). Sorted
        only as far as it is read. Raises ExampleStoreError if the file was overwritten."""
        try:
            yield from self._ranked(words)
        except IndexError as error:
            raise _damaged(
                self._path, "its content is damaged; delete it", kind="damaged"
            ) from error

    def _ranked(self, words: Sequence[str]) -> Iterator[tuple[int, float]]:
        import numpy as np

        lists = [self._list(index) for index in self._places(words).values() if index >= 0]
        if sum(len(rows) for rows, _ in lists) < self.chunks * _FEW:
            rows, scores = _added(lists)
            for index, score in best_first(_numbers(scores), len(scores)):
                yield int(self._arrays.chunks[rows[index]]), score
            return
        every = np.zeros(self.chunks, dtype=np.float32)
        for rows, parts in lists:
            np.add.at(every, rows, parts)
        for row, score in best_first(_numbers(every), int(np.count_nonzero(every))):
            yield int(self._arrays.chunks[row]), score

    def _places(self, words: Sequence[str]) -> dict[str, int]:
        """Return the index of each word among the keys; -1 if no chunk has the word."""
        import numpy as np

        keys = np.fromiter(map(_key, words), dtype=np.uint64, count=len(words))
        indices = np.searchsorted(self._arrays.keys, keys)
        indices[indices == len(self._arrays.keys)] = 0
        is_present = self._arrays.keys[indices] == keys if len(self._arrays.keys) else keys < 0
        return dict(zip(words, np.where(is_present, indices, -1).tolist(), strict=True))

    def _list(self, index: int) -> "tuple[NDArray[np.uint32], NDArray[np.float32]]":
        """Return a word's rows, and what it adds to the score of each."""
        import numpy as np

        first, count = int(self._arrays.first[index]), int(self._arrays.counts[index])
        weight = max(_LEAST_WEIGHT, math.log((self.chunks - count + 0.5) / (count + 0.5)))
        part = slice(first, first + count)
        return self._arrays.rows[part], self._arrays.weights[part] * np.float32(weight)


def _numbers(scores: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return the scores. Raises IndexError if one is not a number."""
    import numpy as np

    if not np.isfinite(scores).all():
        raise IndexError("a score is no number")
    return scores


def _added(
    lists: "Sequence[tuple[NDArray[np.uint32], NDArray[np.float32]]]",
) -> "tuple[NDArray[np.uint32], NDArray[np.float32]]":
    """Return the distinct rows of all lists, ascending, with the sum of each."""
    import numpy as np

    if not lists:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    rows, inverse = np.unique(np.concatenate([rows for rows, _ in lists]), return_inverse=True)
    parts = np.concatenate([parts for _, parts in lists])
    return rows, np.bincount(inverse, weights=parts).astype(np.float32)


def _weigh(arrays: _Arrays) -> None:
    """Turn the counts in ``weights`` into what each adds to its chunk's score, a page at a time.

    A chunk's length is the sum of its counts: FTS5 measures it in tokens too.
    """
    import numpy as np

    parts = [slice(start, start + _PAGE) for start in range(0, len(arrays.rows), _PAGE)]
    lengths = np.zeros(len(arrays.chunks))
    for part in parts:
        counted = np.bincount(arrays.rows[part], weights=arrays.weights[part])
        lengths[: len(counted)] += counted
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1.0))
    for part in parts:
        times = arrays.weights[part].astype(np.float64)
        arrays.weights[part] = times * (K1 + 1) / (times + norms[arrays.rows[part]])


# --- A store's own lists: built, named, and used while they are of its state -----------------------

#: A store of fewer chunks has no posting lists: FTS5 answers any question within 25 ms, and a process
#: that searches once needs 80 ms to import numpy.
MIN_CHUNKS: Final = 10_000

#: Occurrences that are read in one snapshot, for which a writer waits half a second, and held at once.
_PAGE: Final = 250_000

_TERMS: Final = "SELECT term, doc, cnt FROM chunks_terms"
_OCCURRENCES: Final = "SELECT doc FROM temp.occurrences WHERE term >= ? AND term <= ?"


@dataclass(frozen=True)
class Words:
    """How a store's words are searched. ``postings`` None: by FTS5; ``note``: why, if there are
    postings."""

    postings: Postings | None = None
    note: str = ""


@dataclass(frozen=True)
class _Term:
    text: str
    #: Number of chunks that have it, and of its occurrences.
    chunks: int
    times: int


def words_of(store: ExampleStore, connection: sqlite3.Connection) -> Words:
    """Return how a store's words are searched. ``connection``: a snapshot of it. Never raises for posting
    lists that can't be used."""
    built = get_meta(connection, Meta.POSTINGS)
    if built is None:
        return Words()
    if built != state_of(connection):
        return _by_fts5("the store changed since `fallback-tier examples index`")
    if find_spec("numpy") is None:
        return _by_fts5("numpy is not installed")
    path = _path(store, built)
    try:
        status = path.stat()
        return Words(_mapped(path, built, (status.st_ino, status.st_size, status.st_mtime_ns)))
    except OSError as error:
        failure = _damaged(path, error.strerror or str(error))
    except ExampleStoreError as error:
        failure = error
    return _by_fts5(str(failure).rstrip("."))


def _by_fts5(reason: str) -> Words:
    return Words(note=f"words by SQLite's index, within its bound: {reason}")


def state_of(connection: sqlite3.Connection) -> str:
    """Return a digest of the set of chunks, by three look-ups.

    Each new chunk raises AUTOINCREMENT's number, and each deleted one lowers the count: the pair never
    recurs. The corpus distinguishes a store from another one at the same path.
    """
    manifest = json.loads(get_meta(connection, Meta.MANIFEST) or "{}")
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    parts = (manifest.get("corpus_sha256"), manifest.get("chunks"), row and row[0])
    return sha256(json.dumps(parts).encode()).hexdigest()


def build_words(store: ExampleStore, *, min_chunks: int | None = None) -> bool:
    """Write the posting lists of the store as it is now. Return whether it has them at the end.

    None are written for a small store, or without numpy. A store that changes meanwhile keeps FTS5 until
    the next build. Raises ExampleStoreError if another build is running, or the disk is full.
    """
    with only_builder(store):
        return build_locked(store, min_chunks=min_chunks)


def build_locked(store: ExampleStore, *, min_chunks: int | None = None) -> bool:
    """``build_words`` for a caller that holds the lock."""
    with store.reading() as connection:
        if words_of(store, connection).postings is not None:
            return True
        state = state_of(connection)
        count = number(connection, "SELECT count(*) FROM chunks")
        least = MIN_CHUNKS if min_chunks is None else min_chunks
        if count < max(least, 1) or find_spec("numpy") is None:
            return False
        chunks = [row for (row,) in connection.execute("SELECT id FROM chunks ORDER BY id")]
        terms = [_Term(*row) for row in connection.execute(_TERMS)]
    new = _path(store, "new")
    try:
        is_written = _write(store, new, state, chunks, terms)
        if is_written:
            new.replace(_path(store, state))
            sync_directory(store.path.parent)
    except OSError as error:
        raise _damaged(new, error.strerror or str(error)) from error
    finally:
        new.unlink(missing_ok=True)
    return is_written and _named(store, state)


def _named(store: ExampleStore, state: str) -> bool:
    """Name the new file in the store, and delete the others: their readers have them mapped."""
    with store.writing() as connection:
        is_current = state_of(connection) == state
        if is_current:
            set_meta(connection, Meta.POSTINGS, state)
    if is_current:
        current = _path(store, state)
        for path in current.parent.glob(f"{_path(store, '').name}*"):
            if path != current:
                path.unlink(missing_ok=True)
    return is_current


def _write(
    store: ExampleStore, path: Path, state: str, chunks: Sequence[int], terms: Sequence[_Term]
) -> bool:
    """Write the whole file, synced. Return False if the store changed before its end."""
    layout = _Layout(len(chunks), len(terms), sum(term.chunks for term in terms))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # Allocate all blocks first: a mapping can't report that the disk is full.
        os.posix_fallocate(descriptor, 0, layout.size)
        os.pwrite(descriptor, layout.header(state), 0)
        mapping = mmap.mmap(descriptor, layout.size)
        is_complete = _fill(store, state, layout.arrays(mapping), chunks, terms)
        mapping.flush()
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return is_complete


def _fill(
    store: ExampleStore,
    state: str,
    arrays: _Arrays,
    chunks: Sequence[int],
    terms: Sequence[_Term],
) -> bool:
    import numpy as np

    arrays.chunks[:] = chunks
    counts = np.fromiter((term.chunks for term in terms), dtype=np.int64, count=len(terms))
    keys = np.fromiter((_key(term.text) for term in terms), dtype=np.uint64, count=len(terms))
    order = np.argsort(keys)
    arrays.keys[:] = keys[order]
    arrays.counts[:] = counts[order]
    arrays.first[:] = (np.cumsum(counts) - counts)[order]
    done = 0
    for page in _pages(terms):
        with store.reading() as connection:
            if state_of(connection) != state:
                return False
            occurrences = _occurrences(connection, page)
        starts, times = _runs(occurrences, page)
        part = slice(done, done + len(starts))
        arrays.rows[part] = np.searchsorted(arrays.chunks, occurrences[starts])
        arrays.weights[part] = times
        done += len(starts)
    _weigh(arrays)
    return True


def _pages(terms: Sequence[_Term]) -> Iterator[Sequence[_Term]]:
    """Yield runs of terms with about _PAGE occurrences together; a term is never divided."""
    page: list[_Term] = []
    occurrences = 0
    for term in terms:
        page.append(term)
        occurrences += term.times
        if occurrences >= _PAGE:
            yield page
            page, occurrences = [], 0
    if page:
        yield page


def _occurrences(connection: sqlite3.Connection, page: Sequence[_Term]) -> "NDArray[np.int64]":
    """Return the chunk of each occurrence, by term, then by chunk."""
    import numpy as np

    # A temporary table is not a part of the store.
    connection.execute("PRAGMA query_only = OFF")
    connection.execute(
        "CREATE VIRTUAL TABLE temp.occurrences USING fts5vocab (main, chunks_fts, instance)"
    )
    connection.execute("PRAGMA query_only = ON")
    rows = connection.execute(_OCCURRENCES, [page[0].text, page[-1].text])
    return np.fromiter((chunk for (chunk,) in rows), dtype=np.int64)


def _runs(
    occurrences: "NDArray[np.int64]", page: Sequence[_Term]
) -> "tuple[NDArray[np.intp], NDArray[np.intp]]":
    """Return the index at which each chunk of a term begins, and how often it has the term."""
    import numpy as np

    ends = np.cumsum([term.times for term in page])
    begins = np.ones(len(occurrences), dtype=np.bool_)
    begins[1:] = occurrences[1:] != occurrences[:-1]
    begins[ends[:-1]] = True
    starts = np.flatnonzero(begins)
    if len(occurrences) != ends[-1] or len(starts) != sum(term.chunks for term in page):
        raise ExampleStoreError(
            "The words of the example store don't agree with their own counts.",
            next_step="`fallback-tier examples validate` says what is damaged.",
            kind="counts_differ",
        )
    return starts, np.diff(starts, append=len(occurrences))


def _path(store: ExampleStore, state: str) -> Path:
    """Return a state's file, named after the state's first digits; all of them are in its header."""
    return store.path.with_name(f"{store.path.name}.postings.{state[:16]}")


@contextmanager
def only_builder(store: ExampleStore) -> Iterator[None]:
    """Hold the lock of a store's builds: two at once would do the same work twice. The system releases the
    lock of a killed one.

    It is not on the store's own file: closing another descriptor of that drops SQLite's locks. Raises
    ExampleStoreError if the store can't be read, another build is running, or the lock can't be created.
    """
    with store.reading():
        pass  # a missing store is an error before a lock is made next to it
    path = store.path.with_name(f"{store.path.name}.indexing")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise ExampleStoreError(
            f"The lock {str(path)!r} can't be made: {error.strerror}.",
            next_step="Check the folder's permissions.",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ExampleStoreError(
                f"Another process is indexing {str(store.path)!r}.",
                next_step="Wait for its end; what it has done by then is kept.",
                kind="locked",
            ) from error
        yield
    finally:
        os.close(descriptor)
