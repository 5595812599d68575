"""Retriever of solved examples: identical code first, then what is similar enough, best first (ADR-0019).

1. the advisory becomes a question: its words about the vulnerability;
2. channels (BM25 over the chunks; vectors, if there are some) bring records into a pool;
3. components score every record of the pool, and fusion makes one order of it;
4. a reranker, if one is given, scores the best of them again;
5. the routing floor decides whether there is an answer, the chunk floor which records stay in it, and
   neither the same fix twice nor more than ``k`` records are shown.

Identical code (records of a named package, made on files that this repository has unchanged) is only listed
first and marked; the tier itself judges whether it may be replayed (ADR-0013).
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fallback_plugins.solved_examples.index.embedding import load_embedder
from fallback_plugins.solved_examples.interfaces import (
    Embedder,
    ExampleStoreError,
    Question,
    Reranker,
)
from fallback_plugins.solved_examples.question import question_of
from fallback_plugins.solved_examples.search import selection
from fallback_plugins.solved_examples.search.ranking import Ranking, rank
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.store.example_store import ExampleStore, StoredExample
from fallback_plugins.solved_examples.store.records import text_sha256
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import RagDegraded, RagHit, RagMiss, Retrieval

_DEFAULTS = RetrievalSettings()


class SolvedExampleIndex:
    """The retriever over one store (``fallback_tier.ports.SolvedExampleRetriever``).

    ``embedder`` None: by words alone. ``settings``: by default the measured ones.
    """

    def __init__(
        self,
        store: ExampleStore,
        *,
        embedder: Embedder | None = None,
        settings: RetrievalSettings = _DEFAULTS,
        reranker: Reranker | None = None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._reranker = reranker

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        """Return at most ``k`` examples, identical code first, none in ``beyond`` (ids shown before).

        RagMiss if nothing is good enough. RagDegraded if it could not work as configured: by words alone if
        the model fails, without examples if the store can't be read. Never raises for either.
        """
        try:
            same = list(_identical(self._store, advisory, repo_ctx))
            ranking = self.search(question_of(advisory))
            return self._answer(same, ranking, beyond)
        except ExampleStoreError as error:
            return RagDegraded(examples=(), evidence=str(error))

    def search(self, question: Question) -> Ranking:
        """Return every candidate in order, with scores, before floors. Raises ExampleStoreError."""
        return rank(self._store, question, self._settings, self._embedder, self._reranker)

    def _answer(
        self, same: list[StoredExample], ranking: Ranking, beyond: frozenset[str]
    ) -> Retrieval:
        chosen = selection.select(same, ranking, self._settings, beyond)
        shots = selection.shots(self._store, chosen.kept)
        account = selection.account(chosen, ranking, self._settings)
        evidence = selection.evidence(same, ranking, self._settings)
        if ranking.degraded:
            reason = f"{ranking.degraded} {evidence}"
            return RagDegraded(examples=shots, evidence=reason, account=account)
        if not shots:
            return RagMiss(evidence=evidence, account=account)
        return RagHit(examples=shots, evidence=evidence, account=account)


def open_index(path: Path, *, routing_floor: float | None = None) -> SolvedExampleIndex:
    """Return the memory at ``path`` with the model, if that is installed. ``routing_floor``: as
    ``RetrievalSettings.with_routing_floor``."""
    settings = _DEFAULTS.with_routing_floor(routing_floor)
    return SolvedExampleIndex(ExampleStore(path), embedder=load_embedder(), settings=settings)


def _identical(
    store: ExampleStore, advisory: Advisory, repo: RepoContext
) -> Iterator[StoredExample]:
    """Yield live records of the advisory's packages whose files this repository has, byte for byte."""

    @cache
    def digest(path: str) -> str | None:
        try:
            return text_sha256(repo.read_text(path))
        except RepositoryError:
            return None

    for ecosystem in advisory.ecosystems:
        for stored in store.of_package(ecosystem, advisory.packages(ecosystem)):
            files = stored.example.file_sha256
            if files and all(digest(path) == sha256 for path, sha256 in files.items()):
                yield stored
