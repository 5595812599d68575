"""On the real corpus: nothing is lost, nothing that fits is cut, and a fixed size does cut."""

from itertools import islice

import pytest

from fallback_eval.retrieval.fixed_size import FixedSizeSplitter, cut_units, record_texts
from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import UnitKind, one_line_end
from fallback_plugins.solved_examples.search.selection import passage
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.retrieval import SolvedExample, example_text
from tests.unit.solved_examples.chunking.texts import check_tree

Records = tuple[SolvedExample, ...]


def test_advisories_are_their_units(records: Records) -> None:
    for record in records:
        check_tree(advisory_units(record.advisory_text), one_line_end(record.advisory_text))


@pytest.mark.parametrize("sizes", [(512, 64), (128, 16)])
def test_ours_cuts_only_what_is_above_the_cap(records: Records, sizes: tuple[int, int]) -> None:
    texts = [units for record in records[::6] for units in record_texts(record)]
    ours = cut_units(texts, StructureChunker(*sizes))
    fixed = cut_units(texts, FixedSizeSplitter(*sizes))
    assert all(count.cut == count.too_large for count in ours.counts.values())
    assert {k: c.total for k, c in ours.counts.items()} == {
        k: c.total for k, c in fixed.counts.items()
    }
    assert fixed.counts[UnitKind.FUNCTION].cut > 2 * ours.counts[UnitKind.FUNCTION].cut
    assert fixed.counts[UnitKind.SECTION].cut > ours.counts[UnitKind.SECTION].cut


def test_what_reaches_a_prompt_is_whole_and_never_cut(records: Records) -> None:
    for record in records:
        chosen = passage(record)
        text = example_text(record, chosen.text, chosen.edits)
        fenced = fence(text, source_kind=SourceKind.SOLVED_EXAMPLE, nonce="0" * 32)
        assert not fenced.cut
        assert set(chosen.edits) <= set(record.edits)
        whole = one_line_end(record.advisory_text)
        place = 0
        for part in chosen.text.split("[…]"):
            place = whole.index(part.strip(), place)


def test_most_records_would_be_cut_if_they_were_shown_whole(records: Records) -> None:
    """Otherwise the test above could not fail."""
    cut = sum(
        fence(
            example_text(record, record.advisory_text, record.edits),
            source_kind=SourceKind.SOLVED_EXAMPLE,
            nonce="0" * 32,
        ).cut
        for record in islice(records, 0, None, 5)
    )
    assert cut > len(records) // 5 // 3
