"""The memory of solved examples: validated past fixes in SQLite, found again by BM25 (FTS5)."""

from fallback_plugins.solved_examples.index import SolvedExampleIndex
from fallback_plugins.solved_examples.records import load_jsonl
from fallback_plugins.solved_examples.store import ExampleStore, IngestCounts

__all__ = ["ExampleStore", "IngestCounts", "SolvedExampleIndex", "load_jsonl"]
