"""What holds of every selection, whatever the repository, the advisory and the failure say."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.prompt.context import MAX_SNIPPET_BYTES, Snippet, select_snippets
from fallback_tier.prompt.context.packing import SnippetBudget, Wanted, pack
from fallback_tier.prompt.context.select import MIN_FAILURE_BYTES
from fallback_tier.prompt.context.sources import (
    MAX_LINE_CHARS,
    Reader,
    lines_of,
    sizes_of,
    units_of,
)
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.repo import Settings
from fallback_tier.syntax import definitions, structure
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.unit.prompt.context_cases import advisory, failed

SECRET = "swordfish-of-this-process"

_NAMES = st.sampled_from(["read_archive", "openFile", "vulnerable", "helper", "é"])
_FUNCTION = st.builds(
    "def {0}_{1}():\n{2}    return {0}(1)\n\n\n".format,
    _NAMES,
    st.integers(0, 9),
    st.integers(0, 90).map(lambda count: f"    x = 'é' + {SECRET!r}\n" * count),
)
_CODE = st.lists(
    st.one_of(
        _FUNCTION,
        st.sampled_from(
            [
                "import vulnerable\n",
                "x = 1\n" * 300,
                "class A:\n    y = 2\n\n",
                "(\n",
                "\n",
                "\f\r\n",
            ]
        ),
    ),
    max_size=12,
).map("".join)
_FILES = st.dictionaries(
    st.sampled_from(["a.py", "src/b.py", "src/c.js", "tests/test_d.py", "deps.txt", "e.vue"]), _CODE
)
_TEXTS = st.lists(
    st.sampled_from(
        ["`read_archive()`", "openFile", "src/b.py:40", "a.py", "'helper'", "x" * 300, "archive é "]
    ),
    max_size=5,
).map(" ".join)


def _chosen(
    root: str, files: dict[str, str], details: str, summary: str, budget: int, *, own: bool = False
) -> tuple[Snippet, ...]:
    room = Settings(snippet_budget_bytes=budget, own_code_budget_bytes=budget)
    repo = context(Path(root), files).model_copy(update={"settings": room})
    return select_snippets(
        advisory(details),
        repo,
        FakeEcosystem(),
        prior_attempts=failed(summary) if summary else (),
        secrets=frozenset({SECRET}),
        own_code=own,
    )


def _chosen_again(
    files: dict[str, str], details: str, summary: str, budget: int, *, own: bool
) -> tuple[Snippet, ...]:
    with tempfile.TemporaryDirectory() as root:
        return _chosen(root, files, details, summary, budget, own=own)


def _lines(chosen: tuple[Snippet, ...]) -> Iterator[tuple[str, int]]:
    for one in chosen:
        yield from ((one.path, line) for line in range(one.start_line, one.end_line + 1))


@settings(max_examples=80, deadline=None)
@given(_FILES, _TEXTS, _TEXTS, st.sampled_from([0, 300, 5_000, 12_000, 50_000]), st.booleans())
def test_every_selection(
    files: dict[str, str], details: str, summary: str, budget: int, own: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        chosen = _chosen(root, files, details, summary, budget, own=own)
        again = dict(reversed(files.items()))
        assert chosen == _chosen(root, again, details, summary, budget, own=own)
    sizes = [len(snippet.text.encode()) for snippet in chosen]
    space = SnippetBudget.of_own(budget) if own else SnippetBudget(budget)
    more = (
        SnippetBudget.of_own(min(budget, max(MIN_FAILURE_BYTES, budget // 4)))
        if summary
        else SnippetBudget(0, 0)
    )
    assert sum(sizes) <= space.budget + more.budget
    assert max(sizes, default=0) <= MAX_SNIPPET_BYTES
    assert len(chosen) <= space.most + more.most
    assert [snippet.id for snippet in chosen] == [f"S{n}" for n in range(1, len(chosen) + 1)]
    first = set(_lines(_chosen_again(files, details, "", budget, own=own))) if summary else set()
    assert first <= set(_lines(chosen))
    seen: set[tuple[str, int]] = set()
    for snippet in chosen:
        lines = lines_of(redact_secrets(files[snippet.path], frozenset({SECRET}))[0])
        assert snippet.text == "".join(lines[snippet.start_line - 1 : snippet.end_line])
        assert SECRET not in snippet.text
        shown = {(snippet.path, line) for line in range(snippet.start_line, snippet.end_line + 1)}
        assert not shown & seen
        seen |= shown


@settings(max_examples=60, deadline=None)
@given(_CODE, _TEXTS, st.booleans())
def test_no_definition_that_fits_is_cut(text: str, details: str, own: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        chosen = _chosen(root, {"a.py": text}, details, "", 12_000, own=own)
    text = redact_secrets(text, frozenset({SECRET}))[0]
    lines = lines_of(text)
    for found in definitions(text, "python"):
        wanted = range(found.start_line, found.end_line + 1)
        size = sum(sizes_of(lines[found.start_line - 1 : found.end_line]))
        if found.kind == "class" or size > MAX_SNIPPET_BYTES:
            continue
        for snippet in chosen:
            shown = range(snippet.start_line, snippet.end_line + 1)
            inside = [line for line in wanted if line in shown]
            assert not inside or len(inside) == len(wanted)


@given(_CODE, st.integers(1, 4_000))
def test_units_are_the_file_in_order(text: str, most: int) -> None:
    found = structure(text, "python")
    assert found is not None
    lines = lines_of(text)
    assert "".join(lines) == text
    units = units_of("a.py", lines, found, most)
    assert [line for unit in units for line in range(unit.start, unit.end)] == list(
        range(len(lines))
    )


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 60)), max_size=15),
    st.integers(0, 9_000),
)
def test_packing_keeps_the_first_wanted_and_the_budget(
    widths: list[int], places: list[tuple[int, int]], budget: int
) -> None:
    lines = ["x" * width + "\n" for width in widths]
    wanted = [
        Wanted("a.py", min(start, len(lines) - 1), min(start + count, len(lines)), start)
        for start, count in places
    ]
    packed = pack(wanted, lambda _: lines, SnippetBudget(budget))
    assert sum(len(snippet.text) for snippet in packed) <= budget
    if wanted and sum(map(len, lines)) <= min(budget, MAX_SNIPPET_BYTES) and any(widths):
        assert [snippet.text for snippet in packed] == ["".join(lines)]


@given(st.lists(st.integers(0, 2_200), max_size=8), st.booleans())
def test_a_line_is_cut_by_its_length_alone(widths: list[int], ended: bool) -> None:
    lines = ["x" * width for width in widths]
    text = "\n".join(lines) + "\n" * ended
    with tempfile.TemporaryDirectory() as root:
        Path(root, "a.py").write_text(text)
        read = Reader(Path(root)).read("a.py")
    long = [line for line in lines if len(line) > MAX_LINE_CHARS]
    if read is None:  # most of it is in such lines
        assert 2 * sum(map(len, long)) >= len(text) - 100 * len(long)
    else:
        shown = read.removesuffix("\n" * ended).split("\n")
        for before, after in zip(lines or [""], shown, strict=True):
            assert after.startswith("<<<CUT") if len(before) > MAX_LINE_CHARS else after == before


def test_nothing_is_joined_over_what_is_shown_already() -> None:
    lines = [f"line {number:03}\n" for number in range(900)]
    budget = SnippetBudget(3_000)
    (shown,) = pack([Wanted("a.py", 100, 103, 100)], lambda _: lines, budget)
    around = [Wanted("a.py", 60, 101, 60), Wanted("a.py", 101, 140, 120)]
    before, after = pack(around, lambda _: lines, budget, shown=[shown])
    assert (before.end_line, shown.start_line) == (100, 101)
    assert (shown.end_line, after.start_line) == (103, 104)
