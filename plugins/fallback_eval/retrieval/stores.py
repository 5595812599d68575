"""A store for each way of cutting the corpus, made in a scratch folder when it is first asked for."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from fallback_audit.events import Digest
from fallback_eval.retrieval.fixed_size import FixedSizeSplitter
from fallback_eval.retrieval.variants import Chunking
from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.index.indexing import build_index
from fallback_plugins.solved_examples.interfaces import Chunk, Chunker, ChunkKind, Embedder
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.retrieval import SolvedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Told what is being done, and how far it is (done, all).
Progress = Callable[[str, int, int], None]


class AdvisoryOnly:
    """A chunker that leaves the code's chunks out."""

    def __init__(self, chunker: Chunker) -> None:
        self._chunker = chunker

    @property
    def version(self) -> str:
        """Another one than with the code."""
        return f"{self._chunker.version}/advisory"

    def chunks(self, example: SolvedExample) -> tuple[Chunk, ...]:
        """The advisory's chunks; a record without any keeps what it has."""
        found = self._chunker.chunks(example)
        return tuple(one for one in found if one.kind is ChunkKind.ADVISORY) or found


class Remembering:
    """An embedder that embeds no text twice, in this run or in the next: stores share most chunks.

    ``file`` (NumPy's .npz) outlives the run; what is in it is of the model whose digest its name has.
    Only for building stores: questions are asked of the embedder itself, whose time is measured.
    """

    def __init__(self, embedder: Embedder, file: Path) -> None:
        self._embedder = embedder
        self._file = file
        self._known = _read(file)

    @property
    def model(self) -> str:
        """As the embedder's own."""
        return self._embedder.model

    @property
    def sha256(self) -> Digest:
        """As the embedder's own."""
        return self._embedder.sha256

    @property
    def dimension(self) -> int:
        """As the embedder's own."""
        return self._embedder.dimension

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """As the embedder's own. Raises EmbeddingError."""
        import numpy as np

        names = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() for text in texts]
        unknown = {
            name: text for name, text in zip(names, texts, strict=True) if name not in self._known
        }
        if unknown:
            self._known.update(
                zip(unknown, self._embedder.embed(list(unknown.values())), strict=True)
            )
            self._keep()
        return np.stack([self._known[name] for name in names])

    def token_vectors(self, text: str) -> "NDArray[np.float32]":
        """As the embedder's own. Raises EmbeddingError."""
        return self._embedder.token_vectors(text)

    def _keep(self) -> None:
        import numpy as np

        self._file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file.with_name(f"{self._file.name}.part")
        with unfinished.open("wb") as stream:
            np.savez(stream, names=list(self._known), vectors=np.stack(list(self._known.values())))
        unfinished.replace(self._file)


def _read(file: Path) -> "dict[str, NDArray[np.float32]]":
    """What an earlier run kept; nothing where that can't be read: it is made again."""
    import numpy as np

    try:
        with file.open("rb") as stream, np.load(stream) as kept:
            return dict(zip(kept["names"].tolist(), kept["vectors"], strict=True))
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return {}


def chunker_of(chunking: Chunking) -> Chunker:
    """The chunker that a variant names."""
    sizes = (chunking.max_tokens, chunking.overlap_tokens)
    made: Chunker
    made = FixedSizeSplitter(*sizes) if chunking.splitter == "fixed" else StructureChunker(*sizes)
    return made if chunking.code else AdvisoryOnly(made)


@dataclass
class Stores:
    """Stores of one corpus under ``folder``. ``embedder`` None: they get no vectors."""

    folder: Path
    corpus: Sequence[SolvedExample]
    embedder: Embedder | None
    progress: Progress = lambda *_: None
    _made: dict[Chunking, ExampleStore] = field(default_factory=dict)
    _vectors: set[Chunking] = field(default_factory=set)

    def of(self, chunking: Chunking, *, vectors: bool) -> ExampleStore:
        """The store that is cut so, with vectors where asked for (and there is an embedder).

        Raises ExampleStoreError, EmbeddingError.
        """
        store = self._made.get(chunking)
        if store is None:
            path = self.folder / f"{len(self._made)}.db"
            store = self._made[chunking] = ExampleStore(path, chunker=chunker_of(chunking))
            self.progress("reading the corpus", 0, len(self.corpus))
            store.ingest(self.corpus)
        if vectors and self.embedder is not None and chunking not in self._vectors:
            build_index(store, self.embedder, progress=self._progress_of(chunking))
            self._vectors.add(chunking)
        return store

    def _progress_of(self, chunking: Chunking) -> Callable[[int, int], None]:
        what = f"embedding chunks ({chunking.splitter}, {chunking.max_tokens} tokens)"
        return lambda done, total: self.progress(what, done, total)
