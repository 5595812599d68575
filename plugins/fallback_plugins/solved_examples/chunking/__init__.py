"""Cutting a record on its structure, and choosing what of it a prompt shows (ADR-0019)."""

from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.chunking.fixed_size import (
    CutCount,
    CutReport,
    FixedSizeSplitter,
    cut_units,
    record_texts,
)
from fallback_plugins.solved_examples.chunking.passage import Passage, passage
from fallback_plugins.solved_examples.chunking.tokens import count_tokens

__all__ = [
    "CutCount",
    "CutReport",
    "FixedSizeSplitter",
    "Passage",
    "StructureChunker",
    "count_tokens",
    "cut_units",
    "passage",
    "record_texts",
]
