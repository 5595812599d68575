"""Asking a store once imports what that needs, and nothing of what makes or ranks records."""

import subprocess
import sys

#: A question by vector, and the store it is asked of.
QUESTION = """
from fallback_plugins.solved_examples.index.embedding import MiniLmEmbedder
from fallback_plugins.solved_examples.index.indexing import nearest
from fallback_plugins.solved_examples.store.example_store import ExampleStore
MiniLmEmbedder(), ExampleStore("none").chunker
"""
SEAMS = "import fallback_plugins.solved_examples.interfaces"
RANKING = "import fallback_plugins.solved_examples.search.retriever"

#: Parsing advisories, and the packages of the extra: each is tens of milliseconds.
NEVER = {
    "concurrent",
    "fallback_tier.advisory.osv",
    "fallback_plugins.solved_examples.search.retriever",
    "numpy",
    "onnxruntime",
    "sqlite_utils",
    "tokenizers",
    "tree_sitter",
}


def loaded(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_a_question_imports_no_more_than_it_needs() -> None:
    found = loaded(QUESTION)
    assert "fallback_plugins.solved_examples.store.example_store" in found
    assert found & NEVER == set()


def test_seams_import_no_models() -> None:
    assert not any(name.partition(".")[0] == "pydantic" for name in loaded(SEAMS))


def test_the_retriever_imports_no_model() -> None:
    found = loaded(RANKING)
    assert found & {"numpy", "onnxruntime", "sqlite_utils", "tokenizers"} == set()
