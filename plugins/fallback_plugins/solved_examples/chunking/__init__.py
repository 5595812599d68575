"""Cutting a record on its structure, and choosing what of it a prompt shows (ADR-0019)."""

from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.chunking.passage import Passage, passage
from fallback_plugins.solved_examples.chunking.tokens import count_tokens

__all__ = [
    "Passage",
    "StructureChunker",
    "count_tokens",
    "passage",
]
