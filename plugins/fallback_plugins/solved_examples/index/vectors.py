"""Exact nearest neighbours in a file: float32 rows, memory-mapped, all compared with each question.

::

    0   magic              8 bytes, the format's version in it
    8   dimension          uint32, little-endian
    12  (zero)             4 bytes
    16  model              sha256 of the weights, 32 bytes
    48  (zero)             16 bytes: rows start on a cache line
    64  row 0, row 1, …    float32, little-endian

The header has no count: the store's transaction has it. Rows are written and synced first, then named in
the table ``vectors``. What a killed writer left after the last named row is overwritten by the next one.
Files only grow, or are replaced whole under another name, so a reader's mapping stays valid.

Exact on purpose (ADR-0019): reading 100,000 rows of 384 is bound by memory, and takes 6 ms on two cores. An
approximate index saves 5 ms before seconds of a model's answer, and costs a minute to build.
"""

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fallback_audit.events import Digest
from fallback_audit.files import sync_directory
from fallback_plugins.solved_examples.interfaces import ExampleStoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAGIC: Final = b"FTVECS\x00\x01"
_HEADER: Final = struct.Struct("<8sI4x32s16x")
_FLOAT_BYTES: Final = 4

#: Rows that a thread takes at a time: 6 MB at 384 dimensions. Small enough that a delayed thread leaves
#: the rest to others, large enough that Python's share of the time is negligible.
_CHUNK_ROWS: Final = 4_096

#: Bytes of a file that stay mapped; later pages are released once they were read. The system keeps them in
#: its cache, and a process that searches once does not stay 150 MB larger (a goal: 1.3 times the vectors at
#: 100,000). Mapping them again takes a quarter more time on file systems with large folios (ext4, XFS), and
#: twice the time on others.
_RESIDENT_BYTES: Final = 112 * 2**20

#: Entries of a ranking that are sorted at first; if they don't suffice, so many times more.
_FIRST_SORTED: Final = 32

#: Two threads use all the memory bandwidth of a small machine; more help if there are more cores.
_MAX_THREADS: Final = 4


class Neighbour(NamedTuple):
    """A row and its cosine (both vectors have length 1)."""

    row: int
    score: float


@dataclass(frozen=True)
class VectorFile:
    """A file of rows of one model: another model's are never read."""

    path: Path
    dimension: int
    sha256: Digest

    def create(self) -> None:
        """Create a new, empty, private file, synced with its name. Raises ExampleStoreError."""
        header = _HEADER.pack(_MAGIC, self.dimension, bytes.fromhex(self.sha256))
        self._write(header, 0, os.O_CREAT | os.O_TRUNC)
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._unusable(error) from error

    def write(self, row: int, vectors: "NDArray[np.float32]") -> None:
        """Write rows from ``row`` on, synced: then they may be named. Nothing before ``row`` is touched,
        whatever happens (disk full, killed). Raises ExampleStoreError."""
        import numpy as np

        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ValueError(
                f"vectors of shape {vectors.shape}, not of {self.dimension} dimensions"
            )
        if not np.isfinite(vectors).all():
            raise ValueError("a vector has a component that is no number")
        self._write(np.ascontiguousarray(vectors, dtype="<f4").tobytes(), self._offset(row))

    def open(self, count: int) -> "Vectors":
        """Map the first ``count`` rows. Raises ExampleStoreError if it is not such a file, is of another
        model, or has too few rows."""
        try:
            with self.path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                self._check(stream.read(_HEADER.size), size, count)
                mapping = mmap.mmap(stream.fileno(), self._offset(count), prot=mmap.PROT_READ)
        except OSError as error:
            raise self._unusable(error) from error
        return Vectors(mapping, self.dimension, count)

    def _check(self, header: bytes, size: int, count: int) -> None:
        try:
            magic, dimension, model = _HEADER.unpack(header)
        except struct.error:
            magic, dimension, model = b"", 0, b""
        if magic != _MAGIC:
            reason = "is no vector file of this version"
        elif (dimension, model.hex()) != (self.dimension, self.sha256):
            reason = f"has vectors of model {model.hex()[:12]}, dimension {dimension}"
        elif size < self._offset(count):
            reason = f"has {size:,} bytes, too few for {count:,} vectors"
        else:
            return
        raise ExampleStoreError(
            f"The vector file {str(self.path)!r} {reason}.",
            next_step="Embed the examples again: `fallback-tier examples index --rebuild`.",
        )

    def _write(self, data: bytes, offset: int, flags: int = 0) -> None:
        """Write all of the data, synced. One call may write less, which is the first sign of a full
        disk."""
        rest = memoryview(data)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | flags, 0o600)
            try:
                while rest:
                    written = os.pwrite(descriptor, rest, offset)
                    rest, offset = rest[written:], offset + written
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._unusable(error) from error

    def _offset(self, row: int) -> int:
        return _HEADER.size + row * self.dimension * _FLOAT_BYTES

    def _unusable(self, error: OSError) -> ExampleStoreError:
        return ExampleStoreError(
            f"The vector file {str(self.path)!r} can't be used: {error.strerror}.",
            next_step="Check the disk's free space and the path; what was indexed before still stands.",
        )


class Vectors:
    """Rows of a mapped file. Any thread may search."""

    def __init__(self, mapping: mmap.mmap, dimension: int, count: int) -> None:
        import numpy as np

        self._mapping = mapping
        self._row_bytes = dimension * _FLOAT_BYTES
        self.rows: NDArray[np.float32] = np.frombuffer(
            mapping, dtype="<f4", offset=_HEADER.size, count=count * dimension
        ).reshape(count, dimension)

    def ranked(self, query: "NDArray[np.float32]") -> Iterator[Neighbour]:
        """Yield rows by cosine, best first; among equals the lower row. Sorted only as far as it is read.
        Raises ValueError for a query of another dimension."""
        scores = self.scores(query)
        for row, score in best_first(scores, len(scores)):
            yield Neighbour(row, score)

    def scores(
        self, query: "NDArray[np.float32]", *, threads: int | None = None
    ) -> "NDArray[np.float32]":
        """Return the cosine of every row, in order, bit for bit the same for any number of threads."""
        import numpy as np

        count, dimension = self.rows.shape
        query = np.ascontiguousarray(query, dtype=np.float32)
        if query.shape != (dimension,):
            raise ValueError(f"a query of shape {query.shape}, not ({dimension},)")
        scores = np.empty(count, dtype=np.float32)
        # One iterator for all threads: each takes the next chunk when it is free.
        starts = iter(range(0, count, _CHUNK_ROWS))

        def work() -> None:
            # vecdot, not matmul: BLAS's own threads spin on a busy machine, and took up to 52 ms.
            for start in starts:
                chunk = slice(start, start + _CHUNK_ROWS)
                np.vecdot(self.rows[chunk], query, out=scores[chunk])
                self._forget(start)

        wanted = threads or min(len(os.sched_getaffinity(0)), _MAX_THREADS)
        helpers = min(wanted, -(-count // _CHUNK_ROWS)) - 1
        started = [threading.Thread(target=work) for _ in range(helpers)]
        for thread in started:
            thread.start()
        work()
        for thread in started:
            thread.join()
        return scores

    def _forget(self, start: int) -> None:
        """Unmap the pages of a chunk. A page that another chunk still reads is mapped again."""
        first = _HEADER.size + start * self._row_bytes
        page = first - first % mmap.PAGESIZE
        if page >= _RESIDENT_BYTES:
            length = min(_CHUNK_ROWS * self._row_bytes, len(self._mapping) - page)
            self._mapping.madvise(mmap.MADV_DONTNEED, page, length)


def best_first(scores: "NDArray[np.float32]", count: int) -> Iterator[tuple[int, float]]:
    """Yield the indices of the ``count`` highest scores with the scores, best first; among equals the lower
    index. Sorted only as far as it is read."""
    import numpy as np

    yielded, wanted = 0, _FIRST_SORTED
    while yielded < count:
        threshold_index = len(scores) - min(wanted, count)
        threshold = np.partition(scores, threshold_index)[threshold_index]
        indices = np.flatnonzero(scores >= threshold)
        best = indices[np.lexsort((indices, -scores[indices]))]
        if len(best) == yielded:
            return  # the other scores are not numbers: a damaged file
        for row in best[yielded:]:
            yield int(row), float(scores[row])
        yielded, wanted = len(best), wanted * _FIRST_SORTED
