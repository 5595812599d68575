"""From answer to plan: never raises, never invents, never chooses silently."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallback_tier.answers.blocks import parse_plan
from fallback_tier.answers.reading import (
    MAX_ANSWER_CHARS,
    MAX_OBJECTS,
    MAX_PROBLEM_CHARS,
    MAX_PROBLEMS,
)
from fallback_tier.outcome import (
    DependencyBump,
    Override,
    Plan,
    Refuse,
    SearchReplace,
    SourceEdit,
    plan_adapter,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
edits = st.builds(SearchReplace, path=words.filter(bool), old=words, new=words)
common = {"rationale": words, "citations": st.lists(words, max_size=2).map(tuple)}
some_edits = st.lists(edits, max_size=3).map(tuple)
plans: st.SearchStrategy[Plan] = st.one_of(
    st.builds(DependencyBump, package=words, version=words, edits=some_edits, **common),
    st.builds(Override, package=words, version=words, edits=some_edits, **common),
    st.builds(SourceEdit, edits=st.lists(edits, min_size=1, max_size=3).map(tuple), **common),
    st.builds(Refuse, reason=words, **common),
)
#: Prose that holds no object of its own, and no mark that ends a thinking part: what stands before that is
#: no answer.
prose = words.map(lambda text: text.replace("{", "(").replace("}", ")").replace("</think>", ""))

REFUSE = '{"action": "refuse", "reason": "nothing to see"}'
EDIT = '{"action": "source_edit", "edits": [{"path": "a.py", "old": "x", "new": "y"}]}'


def pieces() -> st.SearchStrategy[str]:
    """Text that looks like answers: fragments of JSON, quotes, escapes, whole plans."""
    fragment = st.sampled_from(
        ['{"action": ', '"refuse"', "{", "}", "[", "]", ",", '"', "'", '"""', "\\", "\\u12", REFUSE]
    )
    return st.lists(fragment | st.text(max_size=5), max_size=30).map("".join)


@given(st.text() | pieces())
@example("{" * 5_000)
@example('{"' * 5_000)
@example('{"a":' * 5_000)
@example('{"action": "refuse", "reason": "\\ud800"}')
@example('{"action": {"action": []}}')
def test_any_text_gives_a_plan_or_problems(text: str) -> None:
    plan, problems = parse_plan(text)
    assert (plan is None) == bool(problems)
    for problem in problems:
        assert problem.endswith(".")
        assert len(problem) < MAX_PROBLEM_CHARS + 250


@given(plans, prose, prose, st.sampled_from(["{}", "```json\n{}\n```", '{{"plan": {}}}', "[{}]"]))
def test_a_valid_plan_survives_prose_and_fences(
    plan: Plan, before: str, after: str, frame: str
) -> None:
    text = frame.format(plan.model_dump_json())
    assert parse_plan(f"{before}\n{text}\n{after}") == (plan, ())


@given(plans)
def test_defaults_may_be_left_out(plan: Plan) -> None:
    text = json.dumps(
        {"action": plan.action, **plan.model_dump(mode="json", exclude_defaults=True)}
    )
    assert parse_plan(text) == (plan, ())


def problem(text: str) -> str:
    plan, problems = parse_plan(text)
    assert plan is None
    return " | ".join(problems)


def test_two_different_plans_are_never_chosen_from() -> None:
    assert "2 different objects" in problem(f"{EDIT} or {REFUSE}")


def test_the_same_plan_twice_is_one_plan() -> None:
    spaced = REFUSE.replace(": ", ":\n")
    assert parse_plan(f"{REFUSE}\n```json\n{spaced}\n```")[0] == plan_adapter.validate_json(REFUSE)


def test_a_broken_plan_is_not_passed_over_for_another() -> None:
    assert "not valid JSON" in problem('{"action": "source_edit", "edits": [oops]} ' + REFUSE)


def test_a_plan_inside_a_string_is_not_a_plan() -> None:
    text = json.dumps({"note": REFUSE})
    assert 'no JSON object with the key "action"' in problem(text)


def test_other_objects_are_passed_over() -> None:
    assert parse_plan('For {"a": 1} and {b}: ' + REFUSE)[0] is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "exactly one JSON object"),
        ("I can't help with that.", "exactly one JSON object"),
        ('{"action": "patch"}', "'dependency_bump', 'override', 'source_edit', 'refuse'"),
        ('{"action": "refuse"}', "At refuse.reason: Field required."),
        ('{"action": "refuse", "reason": 5}', "At refuse.reason: Input should be a valid string."),
        (
            '{"action": "refuse", "reason": "r", "confidence": 1}',
            "At refuse.confidence: there is no such field",
        ),
        ('{"action": "source_edit", "edits": []}', "at least 1 item"),
        (
            r'{"action": "refuse", "reason": "\d"}',
            r"write a backslash as \\ (line 1 of the answer)",
        ),
    ],
)
def test_problems_say_what_to_do(text: str, message: str) -> None:
    assert message in problem(text)


def test_a_wrong_edit_is_not_also_a_missing_edit() -> None:
    text = '{"action": "source_edit", "edits": [{"path": "a", "old": "b", "new": "c", "line": 3}]}'
    assert problem(text) == "At source_edit.edits[0].line: there is no such field; leave it out."


def test_many_problems_are_counted_not_listed() -> None:
    extra = ", ".join(f'"k{number}": 1' for number in range(20))
    _, problems = parse_plan(REFUSE[:-1] + f", {extra}}}")
    assert len(problems) == MAX_PROBLEMS + 1
    assert "15 more" in problems[-1]


def test_a_long_tag_is_not_quoted_whole() -> None:
    assert len(problem('{"action": "' + "x" * 50_000 + '"}')) < MAX_PROBLEM_CHARS + 50


def test_size_and_work_are_bounded() -> None:
    assert f"{MAX_ANSWER_CHARS:,}" in problem(" " * (MAX_ANSWER_CHARS + 1))
    most, too_many = ('{"a" ' * count + REFUSE for count in (MAX_OBJECTS - 1, MAX_OBJECTS + 1))
    assert parse_plan(most)[0] is not None
    assert problem(too_many)
