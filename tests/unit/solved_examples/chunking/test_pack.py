"""Packing: whole units while they fit, and what is told twice when one does not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.chunking.chunker import Piece, pack
from fallback_plugins.solved_examples.chunking.code import code_units
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import Unit, count_tokens
from tests.unit.solved_examples.chunking.texts import ANY_TEXT, CODE_LIKE, PATHS

LIMITS = st.integers(16, 80)
UNITS = st.one_of(ANY_TEXT.map(advisory_units), st.builds(code_units, CODE_LIKE, PATHS))


def packed(text: str, limit: int, overlap: int = 0) -> list[Piece]:
    return list(pack(advisory_units(text), limit, overlap))


@given(UNITS, LIMITS, st.integers(0, 8))
def test_pieces_are_the_text_and_none_is_above_the_cap(
    units: tuple[Unit, ...], limit: int, overlap: int
) -> None:
    pieces = list(pack(units, limit, overlap))
    assert "".join(piece.own for piece in pieces) == "".join(unit.text for unit in units)
    assert all(count_tokens(piece.text) <= limit for piece in pieces)
    assert pieces == list(pack(units, limit, overlap))


@given(UNITS, LIMITS)
def test_a_unit_that_fits_is_whole_in_one_piece(units: tuple[Unit, ...], limit: int) -> None:
    pieces = list(pack(units, limit, 8))
    start = 0
    borders = {0}
    for piece in pieces:
        start += len(piece.own)
        borders.add(start)
    start = 0
    for unit in units:
        if count_tokens(unit.text) <= limit:
            assert not borders & set(range(start + 1, start + len(unit.text)))
        start += len(unit.text)


@given(UNITS, LIMITS)
def test_only_pieces_of_a_split_unit_repeat_anything(units: tuple[Unit, ...], limit: int) -> None:
    start = 0
    starts = {0}
    for unit in units:
        start += len(unit.text)
        starts.add(start)
    place = 0
    for piece in pack(units, limit, 8):
        assert not (piece.repeated and place in starts)
        place += len(piece.own)


def test_neighbours_share_a_piece_while_they_fit() -> None:
    text = "One two three.\n\nFour five six.\n\n" * 6
    assert [count_tokens(piece.text) for piece in packed(text, 17)] == [16, 16, 16]


def test_a_table_that_is_too_large_repeats_its_header_rows() -> None:
    rows = [f"| {number}.0 | on |" for number in range(40)]
    head = "| version | setting |\n|---|---|"
    pieces = packed("\n".join([head, *rows]), 80)
    assert len(pieces) > 2
    assert all(piece.text.startswith(head + "\n|") for piece in pieces)
    shown = [line for piece in pieces for line in piece.text.splitlines() if " on " in line]
    assert shown == rows


def test_a_list_that_is_too_large_repeats_heading_and_lead_in() -> None:
    items = [f"- the setting number {number} is on" for number in range(30)]
    text = "\n".join(["## Who is affected", "", "Servers are affected, except when:", "", *items])
    pieces = packed(text, 80)
    assert len(pieces) > 2
    for piece in pieces:
        assert piece.text.startswith("## Who is affected\n\nServers are affected, except when:\n")


def test_a_split_paragraph_overlaps_by_whole_sentences() -> None:
    sentences = [f"Sentence number {number} says this." for number in range(20)]
    pieces = packed(" ".join(sentences), 40, overlap=14)
    assert len(pieces) > 2
    for before, after in pairwise(pieces):
        assert after.repeated.strip() in before.text
        assert after.repeated.strip().split(". ")[-1].rstrip(".") + "." in sentences
        assert 0 < count_tokens(after.repeated) <= 14


def test_without_overlap_nothing_of_a_paragraph_is_told_twice() -> None:
    pieces = packed(" ".join(f"Sentence number {number} says this." for number in range(20)), 40)
    assert [piece.repeated for piece in pieces] == [""] * len(pieces)


def test_a_word_that_is_too_long_is_sliced() -> None:
    pieces = packed("a1" * 500, 16)
    assert "".join(piece.text for piece in pieces) == "a1" * 500
    assert all(count_tokens(piece.text) <= 16 for piece in pieces)


def test_a_row_comes_whole_before_a_header_is_repeated() -> None:
    rows = [f"| {'cell ' * 66}{number} |\n" for number in range(4)]
    pieces = packed("".join(["| a title of the column here |\n|---|\n", *rows]), 80)
    assert [piece.own for piece in pieces[-3:]] == rows[1:]
    assert all(count_tokens(piece.text) <= 80 for piece in pieces)


def test_a_header_that_would_fill_a_piece_is_not_repeated() -> None:
    lead = f"Servers are affected {'again ' * 40}except when:\n"
    items = [f"- the setting number {number} is on\n" for number in range(30)]
    pieces = packed("".join([lead, "\n", *items]), 80)
    assert sum("except when" in piece.text for piece in pieces) == 1


def test_slices_never_add_up_to_more_than_the_cap() -> None:
    pieces = packed(("a" * 16 + "1" * 16) * 20, 16)
    assert all(count_tokens(piece.text) <= 16 for piece in pieces)


@pytest.mark.parametrize(
    "units",
    [
        advisory_units("# Title\n" + "\n" * 20_000 + "word " * 4_000),
        advisory_units("Do this:\n\n" + " " * 20_000 + "\n\n" + "- word\n" * 4_000),
        code_units("def f():\n" + "\n" * 20_000 + "    a = 1\n" * 2_000, "a.py"),
    ],
)
def test_blank_space_is_not_told_again_and_again(units: tuple[Unit, ...]) -> None:
    pieces = list(pack(units, 128, 32))
    assert len(pieces) > 20
    own = sum(len(piece.own) for piece in pieces)
    assert sum(len(piece.text) for piece in pieces) < 3 * own
