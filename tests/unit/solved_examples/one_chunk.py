"""Stores with one chunk a record: its advisory text, and nothing of its code."""

from pathlib import Path

from fallback_plugins.solved_examples.interfaces import Chunk
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.retrieval import SolvedExample
from tests.unit.solved_examples.builders import NOON, WholeRecordChunker


class AdvisoryChunker(WholeRecordChunker):
    def chunks(self, example: SolvedExample) -> tuple[Chunk, ...]:
        return super().chunks(example)[:1]


def one_chunk_store(path: Path) -> ExampleStore:
    return ExampleStore(path, chunker=AdvisoryChunker("advisory-1"), clock=lambda: NOON)
