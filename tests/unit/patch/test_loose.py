"""Edits that match but for white space: which slips are forgiven, where, and what they leave alone."""

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from fallback_tier.errors import EditError
from fallback_tier.outcome import SearchReplace
from fallback_tier.patch.edits import apply_edits, merge_edits, replace_in_plan, replace_once
from tests.fakes.repository import context
from tests.kinds import OfKind

CODE = (
    "class A:\n    def f(self, x):\n        if x:\n            return run(x)\n        return None\n"
)


def edit(old: str, new: str, path: str = "a.py") -> SearchReplace:
    return SearchReplace(path=path, old=old, new=new)


def loosely(text: str, old: str, new: str) -> str:
    made = replace_in_plan(text, edit(old, new))
    assert made.loose
    return made.text


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        # Blanks at the ends of lines, typed or in the file.
        ("a\nb \t\nc\n", "a\nb\nc", "a\nx\nc", "a\nx\nc\n"),
        ("a\nb\nc\n", "a  \nb\nc", "x\nb\nc", "x\nb\nc\n"),
        ("a\n \t\nc\n", "a\n\nc", "a\n\nx", "a\n \t\nx\n"),
        # Blank lines around the old text go with those around the new.
        ("a\nb\n", "\n\nb\n", "\n\nx\n", "a\nx\n"),
        ("a\nb\n", "\nb\n\n\n", "x", "a\nx\n"),
        ("a\nb\nc\n", "\nb\n\n", "\n\nx\n\n", "a\n\nx\nc\n"),
        ("a\nb\nc\n", "b \n", "", "a\nc\n"),
        # Too little, or too much, indentation of all lines.
        (
            "{\n    a\n      b\n}\n",
            "a\n  b\n",
            "a\n  x\n    y\n",
            "{\n    a\n      x\n        y\n}\n",
        ),
        ("a:\n  b\n", "  a:\n    b\n", "  a:\n    x\n\n    y\n", "a:\n  x\n\n  y\n"),
        ("\tif x:\n\t\ty\n", "if x:\n\ty", "if x:\n\tz", "\tif x:\n\t\tz\n"),
        # The file's own line ends, and a last line without one.
        ("{\r\n  a\r\n  b\r\n}", "a\nb\n", "a\nx\ny\n", "{\r\n  a\r\n  x\r\n  y\r\n}"),
        ("{\n  a\n  b", "a\nb\n", "a\nb\nc\n", "{\n  a\n  b\n  c"),
        ("{\n  a\n  b", "a\nb\n", "a\nx\n", "{\n  a\n  x"),
        ("{\n  a\n  b", "a\nb\n", "a\n", "{\n  a\n"),
        ("\n  a\n  b", "a\nb\n", "x\na\nb\n", "\n  x\n  a\n  b"),
        # What both begin and end with keeps the file's bytes.
        ("f( \n  a\t\n) \n", "f(\n  a\n)", "f(\n  b\n)", "f( \n  b\n) \n"),
    ],
)
def test_slips_that_are_forgiven(text: str, old: str, new: str, after: str) -> None:
    assert loosely(text, old, new) == after
    with pytest.raises(EditError):
        replace_once(text, edit(old, new))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("x = 'a  b'\n", "x = 'a b'", "x = ''"),
        ("f(a,b)\n", "f(a, b)", "g()"),
        ("if x:\n\treturn\n", "if x:\n    return", "pass"),
        ("  a\n    b\n", "a\nb", "x"),
        ("a\n\n\nb\n", "a\n\nb", "x"),
        ("a\nb\n", "a\n# note\nb", "x"),
        ("ab\n", "abc", "x"),
        ("  }\n", "    }", "x"),
        ("a\n", " \n\n", "x"),
        ("a\u00a0\n", "a\n\n", "x"),
        ("a\fb\n", "a b", "x"),
        # Less indentation than is to go.
        ("a:\n  b\n", "  a:\n    b\n", "a:\n  c\n"),
        # Where indentation is content.
        ("  a\n  b\n", "a\nb\n", 'a\n"""\nb\n"""\n'),
        ("  a\n  b\n", "a\nb\n", "a\n`\nb\n"),
        ("  s = '''\n  b\n", "s = '''\nb\n", "s = '''\nc\n"),
        ("  a\n  b\n", "a\nb\n", "a\n'c\\\nd'\n"),
    ],
)
def test_what_is_not_forgiven(text: str, old: str, new: str) -> None:
    with pytest.raises(EditError, check=OfKind("no_match")) as caught:
        replace_in_plan(text, edit(old, new))
    assert caught.value.next_step


def test_a_string_that_spans_lines_may_stand_in_what_stays() -> None:
    text = '  def f():\n    """One\n    two."""\n    return 1\n'
    old = 'def f():\n  """One\n  two."""\n  return 1\n'
    assert loosely(text, old, old.replace("1", "2")) == text.replace("1", "2")


def test_two_places_are_never_chosen_from() -> None:
    text = "  if a:\n    b\n\n    if a:\n      b\n"
    with pytest.raises(EditError, check=OfKind("several_but_for_space"), match=r"\(lines 1, 4\)"):
        replace_in_plan(text, edit("if a:\n  b\n\n", "c"))
    with pytest.raises(
        EditError, check=OfKind("several_but_for_space"), match=r"lines 1, 3, 5, 7, 9, …"
    ):
        replace_in_plan("  a\n    b\n" * 200, edit("a\n  b\n", "c"))
    # One of them differs in more than a shift: still nothing tells which was meant.
    with pytest.raises(EditError, check=OfKind("several_but_for_space")):
        replace_in_plan("a\n  a\n", edit("\ta", "b"))


def test_an_exact_match_comes_first_and_two_of_them_are_no_reason_to_look_further() -> None:
    assert replace_in_plan("  a\na\n", edit("\na\n", "\nb\n")) == ("  a\nb\n", False)
    with pytest.raises(EditError, check=OfKind("several_matches"), match=r"\b2 "):
        replace_in_plan("a\na\n  a \n", edit("a\n", "b"))


def test_it_is_recorded_by_number_and_a_replay_stays_exact(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": CODE, "b.py": "one\n"})
    edits = [edit("one", "two", "b.py"), edit("if x:\n    return run(x)\n", "pass\n")]
    merged = merge_edits(repo, (), edits)
    assert merged.loose == ("a.py: edit 2",)
    assert merged.changes[0].after == CODE.replace(
        "        if x:\n            return run(x)\n", "        pass\n"
    )
    with pytest.raises(EditError, check=OfKind("no_match"), match=r"line 3\b"):
        apply_edits(repo, edits)


LINES = st.sampled_from(["a", "b ", "if a:", "  b", "    a", "\tb", "", "  ", "}", "a b", "c"])


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str, str]:
    """A text, some of its lines as a model may type them (or not quite), and what is to stand there."""
    lines = draw(st.lists(LINES, min_size=1, max_size=12))
    first = draw(st.integers(0, len(lines) - 1))
    taken = lines[first : draw(st.integers(first + 1, len(lines)))]
    pad = draw(st.sampled_from(["", "  ", "\t"]))
    less = draw(st.booleans())
    typed = [line.removeprefix(pad) if less else pad + line for line in taken]
    if draw(st.booleans()):
        typed = [line.rstrip() for line in typed]
    old = (
        draw(st.sampled_from(["", "\n"]))
        + "\n".join(typed)
        + draw(st.sampled_from(["", "\n", "\n\n"]))
    )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    new = "\n".join([*typed[:1], *draw(st.lists(LINES, max_size=3))])
    text = end.join(lines) + draw(st.sampled_from(["", end]))
    return text, old or "a", draw(st.sampled_from([new, ""]))


def stripped(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def sites(text: str, old: str) -> list[int]:
    """The lines at which the words of ``old`` begin, whatever their indentation: found the slow way."""
    wanted = stripped(old.strip())
    lines = stripped(text)
    return [n for n in range(len(lines)) if lines[n : n + len(wanted)] == wanted]


def attempt(text: str, old: str, new: str) -> tuple[str, bool] | None:
    try:
        return replace_in_plan(text, edit(old, new))
    except EditError:
        return None


@given(slips())
def test_only_matched_lines_change_and_exact_matches_are_as_before(
    slip: tuple[str, str, str],
) -> None:
    text, old, new = slip
    made = attempt(text, old, new)
    try:
        exact: str | None = replace_once(text, edit(old, new))
    except EditError:
        exact = None
    if made is None or exact is not None:
        assert made == (None if exact is None else (exact, False))
        return
    assert made[1]
    lines, size = text.split("\n"), len(old.strip().split("\n"))
    around = (
        ("".join(f"{line}\n" for line in lines[:n]), "\n".join(lines[n + size :]))
        for n in sites(text, old)
    )
    assert any(
        made[0].startswith(before)
        and made[0].endswith(after)
        and len(before) + len(after) <= len(made[0])
        for before, after in around
    ), "everything outside of one place stays as it was"


@given(slips(), st.sampled_from(["", "  ", "\t\t"]))
def test_where_two_places_are_possible_nothing_is_changed(
    slip: tuple[str, str, str], pad: str
) -> None:
    """Once more the same lines, at an indentation of their own: no loose match may be found."""
    text, old, new = slip
    made = attempt(text, old, new)
    if made is not None and made[1]:
        again = attempt(f"{text}\n{textwrap.indent(text, pad)}", old, new)
        assert again is None or not again[1]


def test_the_generated_slips_are_often_forgiven() -> None:
    """What the properties above are about does happen."""
    assert find(slips(), lambda slip: (attempt(*slip) or ("", False))[1])
    assert find(slips(), lambda slip: attempt(*slip) is None and len(sites(*slip[:2])) > 1)


@st.composite
def python(draw: st.DrawFn, depth: int = 0) -> str:
    """Statements that parse, nested, indented by nothing."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        if depth < 3 and draw(st.booleans()):
            body = textwrap.indent(
                draw(python(depth=depth + 1)), draw(st.sampled_from([" ", "    "]))
            )
            head = draw(
                st.sampled_from(["if a:", "while b:", "def f(x):", "class C:", "with d as e:"])
            )
            found.append(f"{head}\n{body}")
        else:
            found.append(
                draw(
                    st.sampled_from(["a = 1\n", "run(a,\n    b)\n", "x = '''one'''\n", "pass\n\n"])
                )
            )
    return "".join(found)


@given(python(), python(), python(), st.sampled_from(["", "  ", "\t", "        "]))
def test_code_that_was_indented_anew_still_parses(
    before: str, old: str, new: str, pad: str
) -> None:
    """A model often types a nested block as if it stood at the margin."""
    start = textwrap.indent(f"{before}MARK\n{old}", pad)
    text = f"if True:\n{pad}pass\n{start}" if pad else start
    ast.parse(text)
    try:
        made = replace_in_plan(text, edit(f"MARK\n{old}", f"MARK\n{new}"))
    except EditError:
        raise AssertionError("the block is there once") from None
    ast.parse(made.text)
    assert made.text.rstrip().endswith(textwrap.indent(f"MARK\n{new}", pad).rstrip())
