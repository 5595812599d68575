"""Reading a log costs time in proportion to its length, and tells what the plain way would tell."""

from itertools import chain

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fallback_tier.gates.failure_summary.diagnosis import (
    MAX_ASSERTIONS,
    MAX_ASSERTIONS_BYTES,
    clean,
    diagnose,
)

#: Pieces of what cleaning takes out, and of what is around them: none may be taken across a line end.
PIECES = (
    "\n", "\n", "\r", "\r\n", " ", "a", "/", "/tmp/", "lib/", "node_modules/", "\x1b", "\x1b[", "1m",
    "\x1b]", "\x07", "\x1b\\", "file://", "2026-01-01", "T", "10:00:00", ".5", "Z", " in ", "1", "s",
    "(2 ms)", "duration_ms ", "0x", "abcd", "tmp", "abcdef", "pid", ":", "Python", "v1.2",
    ". Did you mean", "?", " (consider renaming ", ")", "\u200b", "\t", "\xa0",
)  # fmt: skip

lines = st.builds(
    lambda word, number, times: f"{word}{number} " * times,
    st.sampled_from(["a", "\u00e9"]),
    st.integers(0, 15),
    st.sampled_from([1, 1, 1, 20, 150]),
)


def fits(groups: list[list[str]]) -> bool:
    shown = {line.strip()[:300].rstrip() for line in chain.from_iterable(groups)}
    size = sum(len(line.encode()) + 3 for line in shown)
    return len(shown) <= MAX_ASSERTIONS and size <= MAX_ASSERTIONS_BYTES


@settings(max_examples=300)
@given(st.lists(st.lists(lines, min_size=1, max_size=20), min_size=1, max_size=14))
def test_of_each_failure_as_many_assertions_as_fit(groups: list[list[str]]) -> None:
    log = "\nbetween\n".join("\n".join(f"E   {line}" for line in group) for group in groups)
    depths = range(max(map(len, groups)), 0, -1)
    depth = next((deep for deep in depths if fits([group[:deep] for group in groups])), 1)
    shown = (line.strip()[:300].rstrip() for line in chain.from_iterable(g[:depth] for g in groups))
    assert diagnose(log).assertions == tuple(dict.fromkeys(shown))[:MAX_ASSERTIONS]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@example("\x1b]a\nb\x07")
@example("NameError: a. Did you mean 'b'?\nc")
def test_a_log_is_cleaned_as_each_of_its_lines_is(text: str) -> None:
    split = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert clean(text) == "\n".join(map(clean, split))


def test_of_a_log_of_very_many_lines_its_beginning_and_its_end_are_read() -> None:
    many = ["x"] * 150_000
    log = "\n".join(["FAILED first", *many, "FAILED middle", *many, "FAILED last"])
    assert diagnose(log).tests == ("first", "last")


def test_the_rest_of_a_very_long_line_is_left_out() -> None:
    assert clean(f"{'a' * 8_000}bc\n{'d' * 8_000}\n") == f"{'a' * 8_000}\n{'d' * 8_000}\n"


def test_a_path_is_shortened_below_thirty_folders_at_most() -> None:
    """A line may have thousands of slashes, and a path may begin at each."""
    assert clean(f"/{'a/' * 30}node_modules/x") == ".../x"
    deeper = f"/{'a/' * 31}node_modules/x"
    assert clean(deeper) == deeper


def test_a_frame_without_a_name_is_none_of_a_function() -> None:
    """Blanks are read once: as indentation."""
    assert diagnose(f"{' ' * 8}(a.js:1:2)\n{' ' * 4}at f (b.js:3:4)").frames == ("b.js:3 in f",)
