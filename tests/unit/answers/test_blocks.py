"""Plans as plain text with search/replace blocks: what is written is read, what is unclear is asked."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallback_audit.vocabulary import Capability
from fallback_tier.answers.block_form import DIVIDER, REPLACE, SEARCH
from fallback_tier.answers.blocks import parse_blocks, read_plan
from fallback_tier.answers.reading import MAX_ANSWER_CHARS, MAX_PROBLEM_CHARS, MAX_PROBLEMS
from fallback_tier.outcome import (
    DependencyBump,
    Override,
    Plan,
    Refuse,
    SearchReplace,
    SourceEdit,
)
from fallback_tier.ports import ModelAnswer, Usage
from fallback_tier.repo import AnswerForm
from tests.fixtures.written_blocks import write_blocks
from tests.unit.answers.test_plan import plans as any_plans

BLOCK = f"```\n{SEARCH}\nx\n{DIVIDER}\ny\n{REPLACE}\n```"
EDIT = f"action: source_edit\nrationale: why not\ncitations: S1\npath: a.py\n{BLOCK}\n"
REFUSE = "action: refuse\nreason: nothing to see\n"
READ = SourceEdit(
    rationale="why not",
    citations=("S1",),
    edits=(SearchReplace(path="a.py", old="x", new="y"),),
)

# --- What can be said in this form --------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z0-9@][A-Za-z0-9@/._+-]{0,20}", fullmatch=True)
#: Code: any characters, but for lines that are markers and the carriage returns of line ends.
lines = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=30),
    st.sampled_from(
        ["", "```", "path: b.py", "action: refuse", "</think>", "<<<<<<< HEAD", "====="]
    ),
)
code = st.lists(lines, min_size=1, max_size=5).map("\n".join)
edits = st.builds(SearchReplace, path=names, old=code, new=code)
sentences = st.lists(
    st.sampled_from(["It", "is", "`so`:", "why?", "é", "</b>", "S1"]), max_size=6
).map(" ".join)
about = {
    "rationale": sentences,
    "citations": st.lists(names, max_size=3).map(tuple),
    "capabilities": st.lists(st.sampled_from(Capability), max_size=2, unique=True).map(tuple),
}
some = st.lists(edits, max_size=3).map(tuple)
sayable: st.SearchStrategy[Plan] = st.one_of(
    st.builds(DependencyBump, package=names, version=names, edits=some, **about),
    st.builds(Override, package=names, version=names, edits=some, **about),
    st.builds(SourceEdit, edits=st.lists(edits, min_size=1, max_size=3).map(tuple), **about),
    st.builds(Refuse, reason=sentences.filter(bool), **about),
)


def edit(old: str, new: str) -> Plan:
    return SourceEdit(edits=(SearchReplace(path="a.py", old=old, new=new),))


@given(sayable)
@example(edit("a\n", ""))
@example(edit("a", ""))
@example(edit("\n", ""))
@example(edit("\n\n", "\n"))
@example(edit("a\n\n", "\n\na"))
@example(edit("", "a = 1"))
@example(edit("", "a = 1\n"))
@example(edit("", "\n"))
def test_what_is_written_is_read(plan: Plan) -> None:
    assert parse_blocks(write_blocks(plan)) == (plan, ())


@given(any_plans)
def test_what_can_not_be_said_is_not_written(plan: Plan) -> None:
    """Any plan at all: it comes back as it was, or there is no text of it."""
    try:
        text = write_blocks(plan)
    except ValueError:
        return
    assert parse_blocks(text) == (plan, ())


@pytest.mark.parametrize("line", [SEARCH, DIVIDER, REPLACE, f"  {SEARCH}", "======= ", "x\r"])
def test_code_that_holds_a_marker_is_not_written(line: str) -> None:
    for plan in (edit(f"a\n{line}\nb", "y"), edit("x", f"a\n{line}\nb")):
        with pytest.raises(ValueError, match="marker"):
            write_blocks(plan)


# --- What a text is -----------------------------------------------------------------------------------


def one(block: str) -> tuple[str, str]:
    plan, problems = parse_blocks(f"action: source_edit\npath: a.py\n{SEARCH}\n{block}{REPLACE}\n")
    assert isinstance(plan, SourceEdit), problems
    (found,) = plan.edits
    return found.old, found.new


@pytest.mark.parametrize(
    ("block", "texts"),
    [
        ("a\n=======\nb\n", ("a", "b")),
        ("  a\n\n\tb\n=======\n  c\n", ("  a\n\n\tb", "  c")),
        ("a\nb\n=======\n", ("a\nb\n", "")),  # deleted with their line ends
        ("a\n=======\n\n", ("a", "")),  # an empty line in their place
        ("a\r\nb\r\n=======\r\nc\r\n", ("a\nb", "c")),
        ("=====\n=======\n=========\n", ("=====", "=========")),
        ("a\n========\nb\n", ("a", "b")),  # miscounted, and the only one
        (r'"""\d"""' + "\n=======\n'\\n'\n", (r'"""\d"""', r"'\n'")),
        ("```\na\n```\n=======\n</think>\n", ("```\na\n```", "</think>")),
        ("action: refuse\n=======\npath: b.py\n", ("action: refuse", "path: b.py")),
        ("=======\na\n\nb\n", ("", "a\n\nb")),  # a new file's whole text
        ("\n=======\na\n", ("", "a")),
    ],
)
def test_a_text_is_its_lines(block: str, texts: tuple[str, str]) -> None:
    assert one(block) == texts


# --- What is forgiven ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        EDIT,
        f"Here is the plan.\n\n{EDIT}\nIt mends the flaw.",
        f"```\n{EDIT}```",
        EDIT.replace("\n", "\r\n"),
        EDIT.replace("action:", "- **Action:**").replace("a.py", "`a.py`"),
        EDIT.replace("S1", '["S1"]').replace("source_edit", '"source_edit"'),
        EDIT.replace("path: a.py", "a.py"),
        EDIT.replace("path: a.py", "**`a.py`**:"),
        EDIT.replace("path: a.py\n```", "```python\na.py"),
        EDIT.replace("path: a.py", "path: a.py\n\nThe change is this:\n"),
        EDIT.replace(SEARCH, "<<<<<< SEARCH").replace(REPLACE, ">>>>>>>> replace "),
        "path: a.py\n" + EDIT.replace("path: a.py\n", ""),
        "package:\nversion: \n" + EDIT,
        f"{EDIT}\n{EDIT}",
        f"<think>\n{REFUSE}</think>\n{EDIT}",
        f"{REFUSE}path: b.py\nno\n</think>\n{EDIT}",
    ],
)
def test_what_has_one_reading_is_forgiven(text: str) -> None:
    assert parse_blocks(text) == (READ, ())


def test_blocks_in_a_row_are_of_one_path() -> None:
    second = BLOCK.replace("x", "v").replace("\ny", "\nw")
    plan, _ = parse_blocks(f"{EDIT}\n{second}\npath: b.js\n{second}")
    assert isinstance(plan, SourceEdit)
    assert [(one.path, one.old) for one in plan.edits] == [
        ("a.py", "x"),
        ("a.py", "v"),
        ("b.js", "v"),
    ]


def test_a_bump_has_its_call_sites_below_its_head() -> None:
    head = "action: dependency_bump\npackage: @a/b\nversion: 1.2.3\n"
    plan, _ = parse_blocks(head)
    assert plan == DependencyBump(package="@a/b", version="1.2.3")
    plan, _ = parse_blocks(f"{head}path: a.py\n{BLOCK}")
    assert plan == DependencyBump(package="@a/b", version="1.2.3", edits=READ.edits)


@pytest.mark.parametrize(
    "line", ["capabilities: network, process", '"capabilities": ["network", "process"]']
)
def test_a_retry_can_declare_what_its_edits_reach_for(line: str) -> None:
    """Also as the gate words it, which knows of JSON alone."""
    plan, problems = parse_blocks(f"{line}\n{EDIT}")
    assert problems == ()
    assert plan is not None
    assert plan.capabilities == (Capability.NETWORK, Capability.PROCESS)


# --- What is asked again ------------------------------------------------------------------------------


def problem(text: str) -> str:
    plan, problems = parse_blocks(text)
    assert plan is None
    return " | ".join(problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The answer has no line `action: …`."),
        ("I can't help with that.", "exactly one plan"),
        ('{"action": "refuse", "reason": "no"}', "no line `action"),
        (EDIT.replace("action: source_edit\n", ""), "no line `action"),
        ("action: patch", "'dependency_bump', 'override', 'source_edit', 'refuse'"),
        ("action: refuse", "At refuse.reason: Field required."),
        ("action: source_edit", "no edit: write a line `path: FILE` and a block"),
        (REFUSE + "package: a", "At refuse.package: there is no such field; leave it out."),
        (f"{REFUSE}path: a.py\n{BLOCK}", "At refuse.edits: there is no such field; leave it out."),
        (f"{EDIT}capabilities: files", "At source_edit.capabilities[0]:"),
        (f"{EDIT}\nor rather\n{REFUSE}", "The answer has 2 different plans."),
        (f"{EDIT}rationale: another", "`rationale` is given twice: say it once, on one line."),
        (f"{EDIT}path: b.py", "No block follows the path 'b.py'"),
        (EDIT.replace("path: a.py", "path: a.py\npath: b.py"), "No block follows the path 'a.py'"),
        (EDIT.replace("path: a.py\n", ""), "Edit 1 has no path: write a line `path: FILE` before"),
        (f"{EDIT}\nAnd then:\n{BLOCK}", "Edit 2 has no path"),
        (EDIT.replace(REPLACE, ""), "Edit 1 is not closed: end it with a line `>>>>>>> REPLACE`."),
        (EDIT.replace(DIVIDER, ""), "Edit 1 has no line `=======`"),
        (EDIT.replace("x\n", f"x\n{DIVIDER}\n"), "Edit 1 has 2 lines `=======`"),
        (EDIT.replace("y\n", f"{SEARCH}\n"), "Edit 1 has a line `<<<<<<< SEARCH` of its own"),
        (EDIT.replace("x\n", f"{REPLACE}\nx\n"), "Edit 1 has no line `=======`"),
        (EDIT.replace("y\n", f"{REPLACE}\ny\n"), "A line `>>>>>>> REPLACE` belongs to no block"),
        ("<think>\n" + EDIT, "ends inside its thinking"),
        ("x" * (MAX_ANSWER_CHARS + 1), "longer than"),
        (EDIT.replace("why not", "\ud800"), "Invalid JSON"),
    ],
)
def test_what_is_unclear_is_asked_again(text: str, message: str) -> None:
    assert message in problem(text)


def test_a_broken_plan_is_not_passed_over_for_another() -> None:
    assert f"`{REPLACE}`" in problem(f"{REFUSE}\n{EDIT.replace(REPLACE, '')}")
    assert f"`{SEARCH}`" in problem(EDIT.replace(REPLACE, "") + EDIT)


def test_many_problems_are_counted_not_listed() -> None:
    plan, problems = parse_blocks(f"{REPLACE}\n" * 20)
    assert plan is None
    assert len(problems) == MAX_PROBLEMS + 1
    assert "15 more" in problems[-1]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_cut_answer_is_never_used_however_whole_it_looks(reason: str) -> None:
    answer = ModelAnswer(text=EDIT, usage=Usage(), stop_reason=reason)
    plan, problems = read_plan(answer, AnswerForm.BLOCKS)
    assert plan is None
    assert reason in problems[0]


def test_the_form_decides_how_an_answer_is_read() -> None:
    blocks, written = (
        ModelAnswer(text=text, usage=Usage(), stop_reason="end_turn")
        for text in (EDIT, json.dumps(READ.model_dump(mode="json")))
    )
    assert read_plan(blocks, AnswerForm.BLOCKS)[0] == read_plan(written)[0] == READ
    assert read_plan(blocks)[0] is read_plan(written, AnswerForm.BLOCKS)[0] is None


# --- Whatever comes -----------------------------------------------------------------------------------

pieces = st.lists(
    st.sampled_from(
        [
            *(SEARCH, DIVIDER, REPLACE, "```", "\n", "path: ", "a.py", "action: ", "refuse"),
            *("<think>", "</think>", "citations: ", "]", "\r\n", EDIT, REFUSE),
        ]
    )
    | st.text(max_size=5),
    max_size=30,
).map("".join)


@given(st.text() | pieces)
def test_any_text_gives_a_plan_or_problems(text: str) -> None:
    plan, problems = parse_blocks(text)
    assert (plan is None) == bool(problems)
    for message in problems:
        assert message.endswith(".")
        assert message.isprintable()
        assert len(message) < MAX_PROBLEM_CHARS + 50


@pytest.mark.parametrize(
    "unit",
    [
        "<", "=", ">", "`", "*", ".", "./", "-*", "path: a\n", "action: refuse\n", f"{SEARCH}\n",
        f"{REPLACE}\n", f"{DIVIDER}\n", "</think>", "\r", "S1,", f"path: a.py\n{BLOCK}\n", " ",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "head", ["", "path:", "citations: ", "action: source_edit\n", f"{SEARCH}\n"]
)
def test_reading_is_linear(unit: str, head: str) -> None:
    """Twenty times the text in far less than four hundred times the time."""

    def seconds(size: int) -> float:
        text = (head + unit * size)[:size] + " x"
        started = time.process_time()
        parse_blocks(text)
        return time.process_time() - started

    small = min(seconds(MAX_ANSWER_CHARS // 20) for _ in range(3))
    assert seconds(MAX_ANSWER_CHARS - 2) < max(0.05, small) * 100


def test_every_problem_is_a_sentence_for_one_reader() -> None:
    reported: Callable[[str], str] = problem
    assert "\n" not in reported(f"path: {'x' * 999}\u202e\n{EDIT}")
