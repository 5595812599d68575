"""The real corpus, where it is there."""

from pathlib import Path

import pytest

from fallback_plugins.solved_examples.sources.dataset import Imported, read_examples
from fallback_tier.retrieval import SolvedExample

DATA = Path(__file__).parents[5] / "shared/data/solved-examples.jsonl.xz"


@pytest.fixture(scope="session")
def records() -> tuple[SolvedExample, ...]:
    if not DATA.exists():
        pytest.skip("the data set is not here (shared/data/solved-examples.jsonl.xz)")
    return tuple(found.example for found in read_examples(DATA) if isinstance(found, Imported))
