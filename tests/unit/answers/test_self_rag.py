"""Segments and critiques in a model's words: found tolerantly, validated strictly."""

import pytest

from fallback_audit.vocabulary import Retrieve, Support
from fallback_tier.answers.critique import (
    Critique,
    EditSegment,
    RaiseSegment,
    read_critique,
    read_retrieve,
    read_segment,
)
from fallback_tier.ports import ModelAnswer, Usage

EDIT = '{"action": "edit", "path": "a.py", "old": "x", "new": "y"}'
GOOD = '{"relevant": true, "support": "partial", "usefulness": 4, "is_final": false}'


def said(text: str, stop_reason: str = "end_turn") -> ModelAnswer:
    return ModelAnswer(text=text, usage=Usage(), stop_reason=stop_reason)


@pytest.mark.parametrize(
    "text", [EDIT, f"Here it is:\n```json\n{EDIT}\n```", f'{{"answer": {EDIT}}}', f"{EDIT}\n{EDIT}"]
)
def test_a_segment_is_found_in_prose(text: str) -> None:
    assert read_segment(said(text)) == (EditSegment(path="a.py", old="x", new="y"), ())


def test_both_kinds_of_raise() -> None:
    for action in ("dependency_bump", "override"):
        text = f'{{"action": "{action}", "package": "p", "version": "1.0"}}'
        segment, _ = read_segment(said(text))
        assert isinstance(segment, RaiseSegment)
        assert segment.action == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I can't.",
        '{"action": "edit", "path": "a.py", "old": "", "new": "y"}',
        '{"action": "edit", "path": "a.py", "old": "x"}',
        '{"action": "edit", "path": "a.py", "old": "x", "new": "y", "mode": "755"}',
        # A whole plan is no segment: which of its edits was meant first?
        '{"action": "source_edit", "edits": [{"path": "a.py", "old": "x", "new": "y"}]}',
        f"{EDIT} or {EDIT.replace('y', 'z')}",
    ],
)
def test_what_is_no_segment(text: str) -> None:
    segment, problems = read_segment(said(text))
    assert segment is None
    assert problems


def test_a_cut_answer_is_never_used() -> None:
    assert read_segment(said(EDIT, "max_tokens"))[0] is None
    assert read_critique(said(GOOD, "max_tokens"))[0] is None


def test_a_critique() -> None:
    expected = Critique(relevant=True, support=Support.PARTIAL, usefulness=4, is_final=False)
    assert read_critique(said(GOOD)) == (expected, ())
    assert read_critique(said(GOOD.replace("partial", " Partial "))) == (expected, ())
    without = GOOD.replace("true", "null")
    assert read_critique(said(without))[0] == expected.model_copy(update={"relevant": None})


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("4", "6"),
        GOOD.replace("4", "0"),
        GOOD.replace("4", '"4"'),
        GOOD.replace("partial", "mostly"),
        GOOD.replace("false", '"no"'),
        GOOD.replace(', "is_final": false', ""),
        f"{GOOD} {GOOD.replace('4', '5')}",
    ],
)
def test_what_is_no_critique(text: str) -> None:
    critique, problems = read_critique(said(text))
    assert critique is None
    assert problems


def test_a_decision() -> None:
    answer, _ = read_retrieve(said('{"retrieve": "YES", "reason": "how is unclear"}'))
    assert answer is not None
    assert (answer.retrieve, answer.reason) == (Retrieve.YES, "how is unclear")
    assert read_retrieve(said('{"retrieve": true}'))[0] is None
    assert read_retrieve(said('{"retrieve": "maybe"}'))[0] is None
