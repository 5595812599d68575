"""The memory of solved examples: validated past fixes, found again by words and by meaning.

The public names are imported on first use: opening a store and asking it once needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fallback_plugins.solved_examples.search.retriever import (
        SolvedExampleIndex as SolvedExampleIndex,
    )
    from fallback_plugins.solved_examples.store.example_store import ExampleStore as ExampleStore
    from fallback_plugins.solved_examples.store.example_store import IngestCounts as IngestCounts
    from fallback_plugins.solved_examples.store.records import load_jsonl as load_jsonl

_HOME = {
    "ExampleStore": "fallback_plugins.solved_examples.store.example_store",
    "IngestCounts": "fallback_plugins.solved_examples.store.example_store",
    "SolvedExampleIndex": "fallback_plugins.solved_examples.search.retriever",
    "load_jsonl": "fallback_plugins.solved_examples.store.records",
}

__all__ = ["ExampleStore", "IngestCounts", "SolvedExampleIndex", "load_jsonl"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
