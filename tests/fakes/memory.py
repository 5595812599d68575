"""Retrievers: one that answers, and one that must never be touched."""

from dataclasses import dataclass
from typing import Any

from fallback_tier.advisory import Advisory
from fallback_tier.ports import Retrieval
from fallback_tier.repo import RepoContext


@dataclass
class FixedRetriever:
    """Implements SolvedExampleRetriever with one answer."""

    answer: Retrieval
    queries: int = 0

    def query(self, advisory: Advisory, repo_ctx: RepoContext) -> Retrieval:
        self.queries += 1
        return self.answer


class UntouchableRetriever:
    """Fails the test if *any* attribute is looked up: ADR-0011 allows no query, no store access."""

    def __getattribute__(self, name: str) -> Any:
        # pytest's assertion rewriting and repr() never see this object, so every look-up is the tier's.
        raise AssertionError(f"the retriever was touched on a retry: .{name}")
