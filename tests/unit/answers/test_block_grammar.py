"""What the grammar of a plan in blocks admits: edits that quote what is shown, each in one place."""

import re
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_audit.vocabulary import Capability
from fallback_tier.answers.block_grammar import (
    MAX_BEGINNING,
    MAX_LINES,
    Quotable,
    grammar_of_blocks,
)
from fallback_tier.answers.blocks import parse_blocks
from fallback_tier.outcome import Refuse, SearchReplace, SourceEdit
from tests.fixtures.written_blocks import write_blocks
from tests.unit.messages_api.test_grammar import regex_of

CODE = (
    "def read(text):",
    '    """It\'s read."""',
    "    if text:",
    "        return eval(text)",
    "",
    "}",
    "    }",
)
#: Few kinds of lines, so that they repeat; and what looks like a marker.
LINES = st.lists(
    st.sampled_from([*CODE, "\tx = 1", "=======", "<<<<<<< SEARCH", "a\\b"]),
    min_size=1,
    max_size=12,
)


def made(quotable: Sequence[Quotable], **may: bool) -> str | None:
    return grammar_of_blocks(quotable, ["S1", "GHSA-1"], **{"may_bump": True, **may})


@cache
def admitted(lines: Sequence[str], path: str = "app.py") -> re.Pattern[str] | None:
    grammar = made([Quotable(path=path, lines=tuple(lines))])
    return None if grammar is None else re.compile(regex_of(grammar))


def plan(old: str, new: str, path: str = "app.py", cites: str = "GHSA-1") -> str:
    edit = SearchReplace(path=path, old=old, new=new)
    return write_blocks(SourceEdit(edits=(edit,), rationale="It's safe.", citations=("S1", cites)))


def test_only_what_is_known_is_cited() -> None:
    assert (pattern := admitted(CODE)) is not None
    assert pattern.fullmatch(plan("    if text:", "    if x:"))
    assert not pattern.fullmatch(plan("    if text:", "    if x:", cites="S2"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return eval(text)", "        return int(text)"),
        ("    if text:\n        return eval(text)", "    return int(text)"),
        ("def read(text):", "import json\n\n\ndef read(text):"),
        ("    if text:\n", ""),
        ("}\n    }", "<b>{}</b>"),
    ],
)
def test_an_edit_of_lines_that_are_shown_is_admitted(old: str, new: str) -> None:
    assert (pattern := admitted(CODE)) is not None
    assert pattern.fullmatch(plan(old, new))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        pytest.param("        return eval( text )", "x", "app.py", id="nearly"),
        pytest.param("    if text:\n}", "x", "app.py", id="a line left out"),
        pytest.param("}", "x", "app.py", id="in two places"),
        pytest.param("        return eval(text)", "x", "other.py", id="another file"),
        pytest.param("", "x", "app.py", id="a new file"),
        pytest.param("    if text:", "```", "app.py", id="a fence in the new text"),
    ],
)
def test_no_other_edit_is(old: str, new: str, path: str) -> None:
    assert (pattern := admitted(CODE)) is not None
    assert not pattern.fullmatch(plan(old, new, path))


def test_declining_and_a_bump_are_admitted_too() -> None:
    assert (pattern := admitted(CODE)) is not None
    assert pattern.fullmatch(write_blocks(Refuse(reason="lib/x.js is missing.")).removesuffix("\n"))
    bump = "action: dependency_bump\npackage: @a/b\nversion: 1.2.3\nrationale: r\ncitations: S1\n"
    assert pattern.fullmatch(bump)
    own = made([Quotable(path="app.py", lines=CODE)], may_bump=False)
    assert own is not None
    assert not re.compile(regex_of(own)).fullmatch(bump)


@given(LINES, st.data())
@settings(max_examples=20)
def test_all_that_is_admitted_is_a_plan_whose_old_text_stands_once(
    lines: list[str], data: st.DataObject
) -> None:
    if (pattern := admitted(tuple(lines))) is None:
        return
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    made, problems = parse_blocks(text)
    if made is None:  # an answer that contradicts itself, by two values of one key
        assert all("twice" in problem for problem in problems), (text, problems)
        return
    for edit in getattr(made, "edits", ()):
        shown = "".join(f"{line}\n" for line in lines)
        assert shown.find(edit.old) == shown.rfind(edit.old) >= 0


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("",), id="nothing to quote"),
        pytest.param(tuple(map(str, range(MAX_LINES + 1))), id="too much"),
    ],
)
def test_where_nothing_can_be_held_to_there_is_no_grammar(lines: tuple[str, ...]) -> None:
    assert admitted(lines) is None


def test_capabilities_are_declared_where_that_is_asked_for() -> None:
    edit = SearchReplace(path="app.py", old="    if text:", new="    if x:")
    asked = (Capability.PROCESS, Capability.UNKNOWN)
    plan = SourceEdit(edits=(edit,), rationale="r", citations=("S1",), capabilities=asked)
    for may_declare in (False, True):
        grammar = made([Quotable(path="app.py", lines=CODE)], may_declare=may_declare)
        assert grammar is not None
        assert bool(re.fullmatch(regex_of(grammar), write_blocks(plan))) is may_declare


def test_a_plan_cites_something() -> None:
    assert grammar_of_blocks([Quotable(path="a.py", lines=CODE)], [], may_bump=True) is None


def test_what_stands_in_two_snippets_of_a_file_is_quoted_with_what_follows() -> None:
    shown = [Quotable(path="a.py", lines=("x = 1", end)) for end in ("y = 1", "y = 2")]
    grammar = made(shown)
    assert grammar is not None
    assert '"x = 1\\ny = 2\\n"' in grammar
    assert '"x = 1\\n" run' not in grammar.partition("run0-0")[0]


def test_code_that_repeats_itself_costs_no_more_than_other_code() -> None:
    """An edit begins where its text is soon the only one of its kind: here before the last line alone."""
    lines = (*["x = 1"] * (MAX_LINES - 1), "y = 2")
    grammar = made([Quotable(path="a.py", lines=lines)])
    assert grammar is not None
    assert len(grammar) < 200 * MAX_LINES
    begins = next(rule for rule in grammar.splitlines() if rule.startswith("run0 ::="))
    assert begins.count(" | ") == MAX_BEGINNING - 1
