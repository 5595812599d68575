"""Retrievers: one that answers, and one that must never be touched."""

from dataclasses import dataclass, field
from typing import Any

from fallback_tier.advisory import Advisory
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot, RagHit, RagMiss, Retrieval


@dataclass
class FixedRetriever:
    """Implements SolvedExampleRetriever with one answer."""

    answer: Retrieval
    queries: int = 0

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        self.queries += 1
        return self.answer


@dataclass
class PagedRetriever:
    """Implements SolvedExampleRetriever over a list, ``page`` at a time. ``asked``: each ``beyond``."""

    shots: tuple[FewShot, ...]
    page: int = 2
    asked: list[frozenset[str]] = field(default_factory=list)

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        self.asked.append(beyond)
        fresh = [shot for shot in self.shots if shot.example.example_id not in beyond]
        if not fresh:
            return RagMiss(evidence="nothing else")
        return RagHit(examples=tuple(fresh[: self.page]), evidence="paged")


class UntouchableRetriever:
    """Fails the test if *any* attribute is looked up: ADR-0011 allows no query, no store access."""

    def __getattribute__(self, name: str) -> Any:
        # pytest's assertion rewriting and repr() never see this object, so every look-up is the tier's.
        raise AssertionError(f"the retriever was touched on a retry: .{name}")
