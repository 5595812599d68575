"""Interfaces of the memory: chunks, embedders, rerankers.

numpy and the records are in annotations only: importing this module imports neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from fallback_tier.errors import FallbackError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fallback_audit.events import Digest
    from fallback_tier.retrieval import SolvedExample


class ExampleStoreError(FallbackError):
    """The store of solved examples can't be read, written, or trusted."""

    code = "example_store"


class EmbeddingError(FallbackError):
    """The embedding model can't be used: not installed, not the pinned one, or it failed."""

    code = "embedding"


class ChunkKind(StrEnum):
    """Which side of a record a chunk is from."""

    ADVISORY = "advisory"
    CODE = "code"


@dataclass(frozen=True)
class Chunk:
    """A run of whole structural units of one record, small enough for the embedding model."""

    kind: ChunkKind
    text: str
    #: By the chunker's own counting (``chunking.tokens``).
    tokens: int
    #: Headings above an advisory chunk; path and symbol of a code chunk.
    context: str = ""
    #: Positions (into ``SolvedExample.edits``) that a code chunk shows.
    edits: tuple[int, ...] = ()


class Chunker(Protocol):
    """Cuts a record on structure. ``version`` is in the manifest: another one is drift."""

    @property
    def version(self) -> str:
        """Changes whenever the same record would be cut elsewhere."""
        ...

    def chunks(self, example: "SolvedExample") -> tuple[Chunk, ...]:
        """Return all of a record, advisory before code; never empty, never raises for odd text."""
        ...


class Embedder(Protocol):
    """A local text model. ``sha256``: of its weights; other weights make another vector space."""

    @property
    def model(self) -> str:
        """Name of the model, as the manifest pins it."""
        ...

    @property
    def sha256(self) -> "Digest":
        """Digest of the weights."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one row per text, each of length 1. Raises EmbeddingError."""
        ...

    def token_vectors(self, text: str) -> "NDArray[np.float32]":
        """Return one row per token, each of length 1 (for late interaction). Raises EmbeddingError."""
        ...


@dataclass(frozen=True)
class Question:
    """A question to the memory: an advisory, without a repository."""

    text: str
    ecosystems: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    cwe: tuple[str, ...] = ()
    language: str = ""


@dataclass(frozen=True)
class Candidate:
    """A record under consideration. ``scores``: by component that ran; ``chunks``: the ids of its chunks
    that were found, best first."""

    example: "SolvedExample"
    content_sha256: "Digest"
    scores: Mapping[str, float] = field(default_factory=dict)
    chunks: tuple[int, ...] = ()


class Reranker(Protocol):
    """Ranks few candidates by reading both texts. A cross-encoder fits here."""

    @property
    def name(self) -> str:
        """Name of its score in ``Candidate.scores`` and floors."""
        ...

    def scores(self, question: Question, candidates: Sequence[Candidate]) -> Sequence[float]:
        """Return one score per candidate, higher is better. Raises EmbeddingError if its model fails."""
        ...
