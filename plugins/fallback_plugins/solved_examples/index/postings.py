"""Exact BM25 from a file: memory-mapped posting lists, each occurrence's part of the score worked out.

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

FTS5 reads every place of every word again to score it; this adds up one number a chunk, and needs no
bound (ADR-0019). Tokens are FTS5's own: ``word_index`` reads them out of it. A file is written once,
under a name that says which state of the store it is of, and never changed.
"""

import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fallback_plugins.solved_examples.index.vectors import best_first
from fallback_plugins.solved_examples.interfaces import ExampleStoreError

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
#: looked at; above it adding to every chunk is quicker.
_FEW: Final = 1 / 8


def key(word: str) -> int:
    """What a word is looked up by. Of a million words, two share theirs once in 40 million stores."""
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


class Arrays(NamedTuple):
    """The parts of a file behind its header."""

    chunks: "NDArray[np.int64]"
    keys: "NDArray[np.uint64]"
    first: "NDArray[np.int64]"
    counts: "NDArray[np.int64]"
    rows: "NDArray[np.uint32]"
    weights: "NDArray[np.float32]"


@dataclass(frozen=True)
class Layout:
    """How large the parts are."""

    chunks: int
    words: int
    postings: int

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return _HEADER.size + 8 * self.chunks + 24 * self.words + 8 * self.postings

    def header(self, state: str) -> bytes:
        """``state``: 64 hexadecimal digits."""
        return _HEADER.pack(_MAGIC, self.chunks, self.words, self.postings, bytes.fromhex(state))

    def arrays(self, mapping: mmap.mmap) -> Arrays:
        """The parts, none of them read yet."""
        import numpy as np

        lengths = (self.chunks, *(self.words,) * 3, *(self.postings,) * 2)
        parts: list[NDArray[np.generic]] = []
        offset = _HEADER.size
        for length, kind in zip(lengths, ("<i8", "<u8", "<i8", "<i8", "<u4", "<f4"), strict=True):
            parts.append(np.frombuffer(mapping, dtype=kind, count=length, offset=offset))
            offset += parts[-1].nbytes
        return Arrays(*parts)  # type: ignore[arg-type]


def open_postings(path: Path, state: str) -> "Postings":
    """Raises ExampleStoreError: no such file, not one of this version, of another state, cut off."""
    try:
        found = path.stat()
        return _mapped(path, state, (found.st_ino, found.st_size, found.st_mtime_ns))
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


# Kept from one question to the next, as mapping a file anew means to fault in all its pages again:
# half of a question's time. One alone: a file that was replaced takes up its disk until then.
@lru_cache(maxsize=1)
def _mapped(path: Path, state: str, _version: tuple[int, int, int]) -> "Postings":
    with path.open("rb") as stream:
        layout = _layout(stream.read(_HEADER.size), state)
        if layout is None or os.fstat(stream.fileno()).st_size != layout.size:
            raise damaged(path, "it is not one of this version, or is cut off")
        mapping = mmap.mmap(stream.fileno(), layout.size, prot=mmap.PROT_READ)
    return Postings(path, layout.arrays(mapping))


def damaged(path: Path, reason: str, *, kind: str = "") -> ExampleStoreError:
    """The error of a file that can't be used; the words are still in the store itself."""
    return ExampleStoreError(
        f"The posting lists {str(path)!r} can't be used: {reason}.",
        next_step="Check the disk's free space, then run `fallback-tier examples index` again.",
        kind=kind,
    )


def _layout(header: bytes, state: str) -> Layout | None:
    try:
        magic, chunks, words, postings, found = _HEADER.unpack(header)
    except struct.error:
        return None
    whole = magic == _MAGIC and found.hex() == state
    return Layout(chunks, words, postings) if whole else None


class Postings:
    """Posting lists of a mapped file. Any thread may ask."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self._path = path
        self._arrays = arrays
        self.chunks = len(arrays.chunks)

    def counts(self, words: Sequence[str]) -> dict[str, int]:
        """Word → how many chunks have it."""
        places = self._places(words)
        return {word: int(self._arrays.counts[at]) if at >= 0 else 0 for word, at in places.items()}

    def ranked(self, words: Sequence[str]) -> Iterator[tuple[int, float]]:
        """The chunks that have any of the words, best BM25 first, then by id: (chunk, BM25).

        Sorted only as far as it is read. Raises ExampleStoreError where the file was overwritten.
        """
        try:
            yield from self._ranked(words)
        except IndexError as error:
            raise damaged(
                self._path, "its content is damaged; delete it", kind="damaged"
            ) from error

    def _ranked(self, words: Sequence[str]) -> Iterator[tuple[int, float]]:
        import numpy as np

        lists = [self._list(at) for at in self._places(words).values() if at >= 0]
        if sum(len(rows) for rows, _ in lists) < self.chunks * _FEW:
            rows, scores = _added(lists)
            for place, score in best_first(_numbers(scores), len(scores)):
                yield int(self._arrays.chunks[rows[place]]), score
            return
        every = np.zeros(self.chunks, dtype=np.float32)
        for rows, parts in lists:
            np.add.at(every, rows, parts)
        for row, score in best_first(_numbers(every), int(np.count_nonzero(every))):
            yield int(self._arrays.chunks[row]), score

    def _places(self, words: Sequence[str]) -> dict[str, int]:
        """Word → its place among the keys, -1 where no chunk has it."""
        import numpy as np

        keys = np.fromiter(map(key, words), dtype=np.uint64, count=len(words))
        places = np.searchsorted(self._arrays.keys, keys)
        places[places == len(self._arrays.keys)] = 0
        there = self._arrays.keys[places] == keys if len(self._arrays.keys) else keys < 0
        return dict(zip(words, np.where(there, places, -1).tolist(), strict=True))

    def _list(self, place: int) -> "tuple[NDArray[np.uint32], NDArray[np.float32]]":
        """A word's rows, and what each gets for it."""
        import numpy as np

        first, count = int(self._arrays.first[place]), int(self._arrays.counts[place])
        weight = max(_LEAST_WEIGHT, math.log((self.chunks - count + 0.5) / (count + 0.5)))
        part = slice(first, first + count)
        return self._arrays.rows[part], self._arrays.weights[part] * np.float32(weight)


def _numbers(scores: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Raises IndexError for a score that is none."""
    import numpy as np

    if not np.isfinite(scores).all():
        raise IndexError("a score is no number")
    return scores


def _added(
    lists: "Sequence[tuple[NDArray[np.uint32], NDArray[np.float32]]]",
) -> "tuple[NDArray[np.uint32], NDArray[np.float32]]":
    """The rows of all lists, ascending, each once, and its sum."""
    import numpy as np

    if not lists:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    rows, places = np.unique(np.concatenate([rows for rows, _ in lists]), return_inverse=True)
    parts = np.concatenate([parts for _, parts in lists])
    return rows, np.bincount(places, weights=parts).astype(np.float32)


def weigh(arrays: Arrays, block: int) -> None:
    """Turn the counts in ``weights`` into what each adds to its chunk's score, a block at a time.

    A chunk's length is the sum of its counts: FTS5 measures it in tokens too.
    """
    import numpy as np

    parts = [slice(n, n + block) for n in range(0, len(arrays.rows), block)]
    lengths = np.zeros(len(arrays.chunks))
    for part in parts:
        counted = np.bincount(arrays.rows[part], weights=arrays.weights[part])
        lengths[: len(counted)] += counted
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1.0))
    for part in parts:
        times = arrays.weights[part].astype(np.float64)
        arrays.weights[part] = times * (K1 + 1) / (times + norms[arrays.rows[part]])


def keyed(words: Mapping[str, int]) -> "tuple[NDArray[np.uint64], NDArray[np.intp]]":
    """The keys of the words, ascending, and which word each is of."""
    import numpy as np

    keys = np.fromiter(map(key, words), dtype=np.uint64, count=len(words))
    order = np.argsort(keys)
    return keys[order], order
