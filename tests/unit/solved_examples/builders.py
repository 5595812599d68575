"""Solved examples for tests."""

from typing import Any

from fallback_tier.outcome import SearchReplace
from fallback_tier.ports import SolvedExample


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
            "provenance": "written for the tests",
            "licence": "Apache-2.0",
            **fields,
        }
    )
