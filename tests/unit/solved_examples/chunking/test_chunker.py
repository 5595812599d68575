"""A record's chunks, and when the chunker is another one."""

import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.chunking.markdown import advisory_units
from fallback_plugins.solved_examples.chunking.units import count_tokens
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.errors import ConfigurationError
from fallback_tier.outcome import SearchReplace
from tests.kinds import OfKind
from tests.unit.solved_examples.chunking.texts import ANY_TEXT, CODE_LIKE, PATHS, edit, example

EDITS = st.lists(st.builds(edit, CODE_LIKE.filter(bool), CODE_LIKE, PATHS), max_size=4)


@given(ANY_TEXT, EDITS, st.integers(16, 60))
def test_any_record_has_chunks_below_the_cap(
    text: str, edits: list[SearchReplace], limit: int
) -> None:
    record = example(text, *edits)
    chunks = StructureChunker(limit, limit // 4).chunks(record)
    assert chunks
    kinds = [chunk.kind for chunk in chunks]
    assert kinds == sorted(kinds, key=list(ChunkKind).index)
    for chunk in chunks:
        assert chunk.text.strip()
        assert chunk.tokens == count_tokens(chunk.text) <= limit
        assert (chunk.kind is ChunkKind.CODE) == bool(chunk.edits)
    shown = {number for chunk in chunks for number in chunk.edits}
    assert shown >= {number for number, one in enumerate(edits) if one.old.strip()}


def test_edits_of_a_file_share_a_chunk_and_are_named() -> None:
    record = example(
        "Zip slip",
        edit("def read():\n    return 1\n", "def read():\n    return 2\n"),
        edit("def write():\n    return 1\n", "def write():\n    return 2\n"),
        edit("x", "y", path="b.js"),
    )
    assert StructureChunker().chunks(record)[1:] == (
        Chunk(
            ChunkKind.CODE,
            "def read():\n    return 1\ndef read():\n    return 2\n"
            "def write():\n    return 1\ndef write():\n    return 2",
            28,
            "a.py: read, write",
            (0, 1),
        ),
        Chunk(ChunkKind.CODE, "x\ny", 2, "b.js", (2,)),
    )


def test_a_chunk_names_only_the_edits_that_it_shows() -> None:
    edits = [edit(f"def f{number}(a):\n    return 1\n", "pass\n") for number in range(3)]
    chunks = StructureChunker(16, 0).chunks(example("Zip slip", *edits))
    assert {chunk.edits for chunk in chunks[1:]} == {(0,), (1,), (2,)}


def test_a_record_that_says_nothing_still_has_a_chunk() -> None:
    assert StructureChunker().chunks(example(" \n\n")) == (
        Chunk(ChunkKind.ADVISORY, "example-package", 5),
    )


def test_version_names_what_moves_borders() -> None:
    assert StructureChunker().version == StructureChunker(512, 64).version
    versions = {StructureChunker(*sizes).version for sizes in ((512, 64), (256, 64), (512, 32))}
    assert len(versions) == 3


@pytest.mark.parametrize("sizes", [(15, 0), (512, 257), (512, -1)])
def test_sizes_that_cannot_be_kept(sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, check=OfKind("bad_sizes")):
        StructureChunker(*sizes)


def _calls(work: Callable[[], object]) -> int:
    """Function calls, in Python and in C: what work costs, the same on every machine."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "line",
    [
        "A sentence. However, no. ",
        "- item\n",
        "Note: x\n\n",
        "<table>\n\n",
        "> a\n\n",
        "| a | b |\n|---|---|\n| c | d |\n\n",
        "# a\n\n```\nb\n```\n",
        "word ",
    ],
)
def test_work_grows_with_the_text(line: str) -> None:
    chunker = StructureChunker(64, 8)

    def cost(times: int) -> int:
        return _calls(lambda: chunker.chunks(example(line * times)))

    cost(1)  # loads the parser
    assert cost(800) < 2.6 * cost(400)


def test_spans_fill_the_text() -> None:
    text = "A sentence that is here. " * 100
    spans = StructureChunker(64, 8).spans(advisory_units(text))
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
