"""The peer, and the count of what it cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval.fixed_size import (
    CutCount,
    FixedSizeSplitter,
    cut_units,
    record_texts,
)
from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import UnitKind, count_tokens, one_line_end
from fallback_tier.errors import ConfigurationError
from tests.kinds import OfKind
from tests.unit.solved_examples.chunking.texts import ANY_TEXT, edit, example

TABLE = "Versions:\n\n| version | on |\n|---|---|\n" + "| 1.0 | x |\n" * 12


@given(ANY_TEXT, st.integers(16, 60))
def test_chunks_cover_the_text_and_keep_the_cap(text: str, limit: int) -> None:
    text = one_line_end(text)
    splitter = FixedSizeSplitter(limit, limit // 4)
    spans = splitter.spans(advisory_units(text))
    assert [span[0] for span in spans] == sorted({span[0] for span in spans})
    assert "".join(unit.text for unit in splitter.units(text)) == text
    for begin, end in spans:
        part = text[begin:end]
        assert count_tokens(part) <= limit or len(part.split()) == 1


def test_the_overlap_is_told_twice() -> None:
    words = " ".join(f"w{number:02}" for number in range(40))
    first, second, *_ = FixedSizeSplitter(20, 4).split(words)
    assert first.split()[-2:] == second.split()[:2]


def test_a_table_that_it_cuts_is_counted() -> None:
    texts = [advisory_units("Some words before it. " * 4 + "\n\n" + TABLE)]
    size = count_tokens(TABLE)
    fixed = cut_units(texts, FixedSizeSplitter(size, 0))
    ours = cut_units(texts, StructureChunker(size, 0))
    assert fixed.counts[UnitKind.TABLE] == CutCount(total=1, cut=1, too_large=0)
    assert ours.counts[UnitKind.TABLE] == CutCount(total=1, cut=0, too_large=0)


def test_what_is_above_the_cap_is_told_apart() -> None:
    report = cut_units([advisory_units(TABLE)], StructureChunker(40, 0))
    assert report.counts[UnitKind.TABLE] == CutCount(total=1, cut=1, too_large=1)


def test_a_text_of_one_chunk_has_nothing_to_cut() -> None:
    report = cut_units([advisory_units(TABLE)], FixedSizeSplitter(512, 64))
    assert (report.texts, report.long_texts) == (1, 0)
    assert all(count.cut == 0 for count in report.counts.values())


def test_the_texts_of_a_record_are_its_advisory_and_its_files() -> None:
    record = example("Zip slip", edit("a", "b"), edit("c", "d"), edit("e", "f", path="b.js"))
    texts = ["".join(unit.text for unit in units) for units in record_texts(record)]
    assert texts == ["Zip slip", "a\nbc\nd", "e\nf"]


def test_it_stands_in_for_a_chunker() -> None:
    record = example("A sentence is here. " * 20, edit("x\n", "y\n"))
    chunks = FixedSizeSplitter(16, 4).chunks(record)
    assert len(chunks) > 3
    assert chunks[-1].edits == (0,)
    assert FixedSizeSplitter(16, 4).version != StructureChunker(16, 4).version
    assert FixedSizeSplitter().chunks(example(" "))[0].text == "example-package"


def test_sizes_that_cannot_be_kept() -> None:
    with pytest.raises(ConfigurationError, check=OfKind("bad_sizes")):
        FixedSizeSplitter(512, 300)
