"""What a prompt shows of a record: whole units and whole edits, below the fence's cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval.fixed_size import FixedSizeSplitter
from fallback_plugins.solved_examples.chunking.units import one_line_end
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_plugins.solved_examples.search.selection import LEFT_OUT, passage
from fallback_tier.limits import MAX_EXAMPLE_BYTES
from fallback_tier.outcome import SearchReplace
from fallback_tier.prompt.fence import SourceKind, fence
from fallback_tier.retrieval import example_text
from tests.unit.solved_examples.chunking.texts import ANY_TEXT, edit, example

SMALL = edit("return open(path)\n", "return open(safe(path))\n")
LARGE = edit("x = 1\n" * 400, "x = 2\n" * 400)
WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=400)
EDITS = st.lists(st.builds(edit, WORDS, WORDS), max_size=8, unique_by=str)


@given(st.lists(ANY_TEXT, max_size=12).map("\n\n".join), EDITS)
def test_the_fence_never_cuts_it(text: str, edits: list[SearchReplace]) -> None:
    record = example(text, *edits)
    chosen = passage(record)
    shown = example_text(record, chosen.text, chosen.edits)
    fenced = fence(shown, source_kind=SourceKind.SOLVED_EXAMPLE, nonce="0" * 32)
    assert not fenced.cut
    assert list(chosen.edits) == [one for one in edits if one in chosen.edits]


def test_a_record_that_fits_is_shown_as_it_is() -> None:
    text = "Zip slip\n\nFiles are overwritten.\r\n\r\nAnd read."
    chosen = passage(example(text, SMALL))
    assert chosen.text == one_line_end(text)
    assert chosen.edits == (SMALL,)


def test_an_edit_that_is_too_large_is_left_out_and_counted() -> None:
    record = example("Zip slip", LARGE, SMALL)
    chosen = passage(record)
    assert chosen.edits == (SMALL,)
    assert example_text(record, chosen.text, chosen.edits).endswith(
        "\n(1 of 2 not shown: too long)"
    )


def test_the_best_ranked_edits_are_taken_and_stand_in_their_order() -> None:
    edits = [edit(f"old {number} " * 50, f"new {number} " * 50) for number in range(6)]
    record = example("Zip slip", *edits)
    assert passage(record).edits == tuple(edits[:3])
    ranked = (
        Chunk(ChunkKind.CODE, "", 0, edits=(5,)),
        Chunk(ChunkKind.CODE, "", 0, edits=(2, 4)),
    )
    assert passage(record, ranked=ranked).edits == (edits[2], edits[4], edits[5])


def paragraphs(count: int) -> list[str]:
    return [f"Paragraph {number} says it. " + "More words follow. " * 20 for number in range(count)]


def test_units_that_are_left_out_leave_a_mark() -> None:
    parts = paragraphs(12)
    chosen = passage(example("\n\n".join(["Title of it", *parts]), SMALL))
    shown = "\n\n".join(["Title of it", *parts[:5]]).rstrip()
    assert chosen.text == f"{shown}\n\n[…]"


def test_the_title_and_the_best_ranked_units_are_taken() -> None:
    parts = paragraphs(12)
    ranked = (Chunk(ChunkKind.ADVISORY, f"{parts[7]}\n\n{parts[8]}", 0),)
    chosen = passage(example("\n\n".join(["Title of it", *parts]), SMALL), ranked=ranked)
    assert chosen.text.startswith("Title of it\n\nParagraph 0")
    assert "Paragraph 7" in chosen.text
    assert "Paragraph 8" in chosen.text
    assert chosen.text.count("[…]") == 2


def test_a_rule_that_has_no_room_is_left_out_whole() -> None:
    rule = "All servers are affected. " + "They leak a lot of memory. " * 60
    text = f"Title of it\n\nIntro.\n\n{rule}\n\nUnless the flag is off. {'It is on. ' * 120}"
    chosen = passage(example(text, SMALL))
    assert "All servers" not in chosen.text
    assert "Unless" not in chosen.text
    assert chosen.text == "Title of it\n\nIntro.\n\n[…]"


def test_a_paragraph_that_has_no_room_shows_whole_sentences() -> None:
    sentences = [f"Sentence number {number} says something of it." for number in range(90)]
    chosen = passage(example(" ".join(sentences), SMALL))
    body, _, rest = chosen.text.partition("\n\n[…]")
    assert rest == ""
    assert body == " ".join(sentences[: body.count(".")])
    assert body.count(".") > 20


def test_no_heading_is_left_without_its_text() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 400
    chosen = passage(example(f"Title of it\n\nIntro.\n\n## Versions\n\n{table}\n\nLast.", SMALL))
    assert chosen.text == "Title of it\n\nIntro.\n\n[…]\n\nLast."


def test_less_room() -> None:
    record = example("Title of it\n\n" + "\n\n".join(paragraphs(3)), SMALL)
    chosen = passage(record, max_bytes=400)
    assert chosen.edits == (SMALL,)
    assert chosen.text.startswith("Title of it\n\nParagraph 0 says it. More")
    assert chosen.text.endswith("follow.\n\n[…]")
    assert MAX_EXAMPLE_BYTES > 400


def test_with_fixed_size_units_a_sentence_is_cut() -> None:
    """What the tests above say of ours is not true of any splitter."""
    text = " ".join(f"Sentence number {number} says something of it." for number in range(90))
    chosen = passage(example(text, SMALL), units=FixedSizeSplitter(67, 0).units)
    shown = [part.strip() for part in chosen.text.split("[…]") if part.strip()]
    assert not all(part.endswith(".") for part in shown)


LONG = "\n\n".join(["Title of it", *(f"Paragraph {n} says it. " * 12 for n in range(12))])
BIG, BIGGER = edit("a" * 500, "b" * 500), edit("c" * 470, "d" * 470)


def test_edits_leave_room_for_text() -> None:
    chosen = passage(example(LONG, BIG, BIGGER))
    assert chosen.edits == (BIG,)
    assert "Paragraph 1 " in chosen.text


def test_edits_take_the_room_that_no_text_can_use() -> None:
    rule = f"All servers leak. {'It is so. ' * 200}\n\nUnless the flag is off. {'It is on. ' * 120}"
    assert passage(example(rule, BIG, BIGGER)).edits == (BIG, BIGGER)


def test_an_edit_takes_more_room_than_usual_where_none_would_be_shown() -> None:
    large = edit("a" * 1_000, "b" * 1_000)
    assert passage(example(LONG, large)).edits == (large,)


def test_the_title_stands_first_whatever_was_found() -> None:
    _, first, *rest = LONG.split("\n\n")
    ranked = (Chunk(ChunkKind.ADVISORY, "\n\n".join(rest), 0),)
    chosen = passage(example(LONG, SMALL), ranked=ranked)
    assert chosen.text.startswith(f"Title of it\n\n{first.strip()}")


@pytest.mark.parametrize("piece", ["\u200b", "\U000e0041", "\x07", "漏", "a\n"])
def test_what_a_fence_spells_out_is_counted_so(piece: str) -> None:
    for times in (100, 250, 500, 900, 1_200):
        record = example(piece * times, SMALL)
        chosen = passage(record)
        shown = example_text(record, chosen.text, chosen.edits)
        assert not fence(shown, source_kind=SourceKind.SOLVED_EXAMPLE, nonce="0" * 32).cut


@given(st.integers(700, 1_400))
def test_an_edit_that_fits_alone_is_shown_without_any_text(length: int) -> None:
    one = edit("a" * length, "b" * length)
    record = example(LONG, one)
    space = MAX_EXAMPLE_BYTES
    alone = example_text(record, LEFT_OUT, (one,))
    fits = not fence(alone, source_kind=SourceKind.SOLVED_EXAMPLE, nonce="0" * 32).cut
    chosen = passage(record, max_bytes=space)
    # The estimate may refuse what just fits (see ``_shown_bytes``), never what has room to spare.
    assert chosen.edits or not fits or len(alone.encode()) > space - 100
    shown = example_text(record, chosen.text, chosen.edits)
    assert not fence(shown, source_kind=SourceKind.SOLVED_EXAMPLE, nonce="0" * 32).cut
