"""What of a chunk is embedded."""

from fallback_plugins.solved_examples.index.indexing import embedded_text
from fallback_plugins.solved_examples.interfaces import Chunk, ChunkKind
from fallback_tier.outcome import SearchReplace
from tests.unit.solved_examples.builders import example

OLD = "def find(name):\n    return root / name\n"
NEW = "def find(name):\n    check(name)\n    return root / name\n"
RECORD = example(
    advisory_text="Path traversal in thing\n\n## Credits\n\nSomebody",
    package="thing",
    fix_summary="Check the name, closes CVE-2020-1",
    edits=(
        SearchReplace(path="a.py", old=OLD, new=NEW),
        SearchReplace(path="a.py", old="    check(name)\n", new="\n"),
    ),
)


def code(text: str, *edits: int) -> Chunk:
    return Chunk(ChunkKind.CODE, text, 9, "a.py: find", edits)


def test_an_advisory_chunk_stands_under_its_headings() -> None:
    chunk = Chunk(ChunkKind.ADVISORY, "All versions.", 3, "Impact")
    assert embedded_text(RECORD, chunk) == "Impact\nAll versions."
    assert embedded_text(RECORD, Chunk(ChunkKind.ADVISORY, "All.", 1)) == "All."


def test_code_stands_under_the_flaw_and_only_changed_lines_count() -> None:
    text = embedded_text(RECORD, code(OLD + NEW, 0))
    assert text == "Path traversal in it\nCheck the name, closes\ncheck(name)"


def test_where_nothing_is_written_what_was_taken_away_counts() -> None:
    gone = example(edits=(SearchReplace(path="a.py", old="a\nunsafe()\n", new="a\n"),))
    assert embedded_text(gone, code("a\nunsafe()\na\n", 0)).endswith("\nunsafe()")


def test_a_piece_of_an_edit_has_the_lines_that_are_in_it() -> None:
    assert embedded_text(RECORD, code("    return root / name\n", 0)).endswith(
        "\nreturn root / name"
    )
    assert embedded_text(RECORD, code("", 0)).endswith("closes\n")


def test_a_long_advisory_leaves_the_code_its_room() -> None:
    long = example(advisory_text="word " * 9_000, edits=RECORD.edits)
    assert embedded_text(long, code(NEW, 0)).endswith("check(name)")
    assert len(embedded_text(long, code("x = 1\n" * 9_000, 0))) < 2_000
