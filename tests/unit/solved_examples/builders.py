"""Solved examples for tests."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_plugins.solved_examples.store.example_store import ExampleStore
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample
from tests.fixtures.examples import WRITTEN

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def example(example_id: str = "e1", **fields: Any) -> SolvedExample:
    return SolvedExample(
        **{
            "example_id": example_id,
            "advisory_id": "GHSA-1",
            "advisory_text": f"path traversal in {example_id}",
            "ecosystem": "PyPI",
            "package": "Some.Package",
            "edits": (SearchReplace(path="a.py", old="x", new="y"),),
            "file_sha256": {"a.py": "0" * 64},
            "provenance": WRITTEN,
            "licence": "Apache-2.0",
            **fields,
        }
    )


class WholeRecordChunker:
    """One chunk a side: for tests that are not about cutting. ``version`` can be another one."""

    def __init__(self, version: str = "whole-1") -> None:
        self.version = version

    def chunks(self, example: SolvedExample) -> tuple[Chunk, ...]:
        code = "\n".join(f"{edit.old}\n{edit.new}" for edit in example.edits)
        positions = tuple(range(len(example.edits)))
        sides = (
            Chunk(ChunkKind.ADVISORY, example.advisory_text, len(example.advisory_text.split())),
            Chunk(ChunkKind.CODE, code, len(code.split()), edits=positions),
        )
        return sides if example.edits else sides[:1]


def store_at(path: Path, chunker: str = "whole-1") -> ExampleStore:
    """A store whose clock stands still."""
    return ExampleStore(path, chunker=WholeRecordChunker(chunker), clock=lambda: NOON)
