"""Rerankers behind ``interfaces.Reranker``: each looks at the question and at few candidates."""

from fallback_plugins.solved_examples.search.rerank.linear import Coefficients, LinearRanker

__all__ = ["Coefficients", "LinearRanker"]
