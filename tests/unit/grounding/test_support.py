"""Claims of a plan, and a judge's grades of them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.grounding.support import (
    MAX_CLAIM_CHARS,
    MAX_SENTENCES,
    Claim,
    Graded,
    Judgement,
    claims_of,
    read_verdicts,
    sentences,
)
from fallback_tier.llm.judging import read_graded
from fallback_tier.outcome import DependencyBump, Override, Refuse, SearchReplace, SourceEdit
from fallback_tier.ports import ModelAnswer, Usage

EDIT = SearchReplace(path="a.py", old="open(name)", new="open(safe(name))")
CLAIMS = (Claim(id="C1", text="one"), Claim(id="C2", text="two"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (" \n ", ()),
        ("One claim", ("One claim",)),
        ("Raise it to 4.2.1. Then test.", ("Raise it to 4.2.1.", "Then test.")),
        ("Use `a. B`, e.g. in x.py, i.e. here. Done.", ("Use `a. B`, e.g. in x.py, i.e. here.", "Done.")),
        ("Is it safe? No. See no. 3!", ("Is it safe?", "No.", "See no. 3!")),
        ("Cut [S1]. It ends. [S1][E2] Next.", ("Cut [S1].", "It ends. [S1][E2]", "Next.")),
        ("Pins etc. are kept. Pins etc. They stay.", ("Pins etc. are kept.", "Pins etc.", "They stay.")),
        ("- first\n- second. third\n2. fourth", ("first", "second.", "third", "fourth")),
        ("Written by J. Doe in ver. 2. It works...", ("Written by J. Doe in ver. 2.", "It works...")),
        ("one line\nand the next\n\nnew paragraph", ("one line and the next", "new paragraph")),
        ("it ends. lower case goes on", ("it ends.", "lower case goes on")),
        ("```py\nx = 1. \n\ny = 2\n``` is code", ("```py x = 1. y = 2 ``` is code",)),
        ("He says `unclosed. But goes on.", ("He says `unclosed.", "But goes on.")),
        ("...", ()),
    ],
)  # fmt: skip
def test_sentences(text: str, found: tuple[str, ...]) -> None:
    assert sentences(text) == found


@given(st.text(st.sampled_from("ab .!?\n`-1)[]S,eg"), max_size=200))
def test_nothing_but_white_space_and_list_marks_is_lost(text: str) -> None:
    """Letters that are in no list mark are all there, in order."""
    message = "".join(sentences(text))
    assert re.sub(r"[^abSeg`]", "", message) == re.sub(r"[^abSeg`]", "", text).replace("\x00", "")


@given(st.text(max_size=300))
def test_a_sentence_is_one_line_and_never_empty(text: str) -> None:
    for message in sentences(text):
        assert message == " ".join(message.split())
        assert message


@pytest.mark.parametrize("unit", [".", "!?", ". ", "`", "```", "\n- ", ".[S1]", " ", "\n \n"])
def test_a_model_caught_in_a_loop_costs_no_time(unit: str) -> None:
    """200,000 characters: with a quadratic pattern this would not end."""
    assert len(sentences(unit * (200_000 // len(unit)) + "x")) >= 1


def test_claims_of_a_source_edit() -> None:
    plan = SourceEdit(rationale="It is joined. Nothing checks it.", edits=(EDIT, EDIT))
    claims = claims_of(plan)
    assert [claim.id for claim in claims] == ["C1", "C2", "C3", "C4"]
    assert claims[1].text == "Nothing checks it."
    assert claims[3].text == (
        "Edit 2 replaces `open(name)` in a.py by `open(safe(name))`; "
        "the advisory and the code shown call for it."
    )


def test_a_removal_says_so() -> None:
    (claim,) = claims_of(SourceEdit(edits=(EDIT.model_copy(update={"new": ""}),)))
    assert claim.text.startswith("Edit 1 removes `open(name)` from a.py;")


def test_a_new_file_says_so() -> None:
    made = SearchReplace(path="pkg/limits.py", old="", new="MOST = 1\n")
    (claim,) = claims_of(SourceEdit(edits=(made,)))
    assert claim.text.startswith("Edit 1 makes the new file pkg/limits.py with `MOST = 1`; ")


def test_a_bump_and_an_override_claim_their_version() -> None:
    (bump,) = claims_of(DependencyBump(package="p", version="1.2"))
    (force,) = claims_of(Override(package="p", version="1.2"))
    assert bump.text == "Raising p to 1.2 clears the advisory."
    assert force.text == "Forcing p to 1.2 clears the advisory."


def test_a_refusal_claims_nothing() -> None:
    assert claims_of(Refuse(reason="no snippet", rationale="None.")) == ()


def test_an_essay_has_a_bounded_number_of_claims_and_loses_none() -> None:
    plan = SourceEdit(rationale="A b. " * 60, edits=(EDIT,))
    claims = claims_of(plan)
    assert len(claims) == MAX_SENTENCES + 1
    assert claims[-2].text.count("A b.") == 60 - MAX_SENTENCES + 1


def test_a_long_claim_is_shown_by_its_ends() -> None:
    (claim, _) = claims_of(SourceEdit(rationale="x" * 5_000 + "END", edits=(EDIT,)))
    assert len(claim.text) <= MAX_CLAIM_CHARS
    assert claim.text.endswith("END")


def graded(**supported: bool) -> list[Graded]:
    return [Graded(id=name, supported=value, reason="why") for name, value in supported.items()]


def test_every_claim_once_is_a_judgement_in_the_order_of_the_claims() -> None:
    judgement = read_verdicts(graded(C2=False, C1=True), CLAIMS)
    assert isinstance(judgement, Judgement)
    assert [grade.id for grade in judgement.graded] == ["C1", "C2"]
    assert not judgement.supported
    assert judgement.faithfulness_score == 0.5
    assert judgement.unsupported == ("two (why)",)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (graded(C1=True), "nothing about a claim: C2"),
        ([*graded(C1=True, C2=True), *graded(C1=False)], "a claim more than once: C1"),
        (graded(C1=True, C2=True, C3=True), "claims that the plan does not make: C3"),
        (graded(c1=True, C2=True), "claims that the plan does not make: c1"),
        ([], "nothing about a claim: C1, C2"),
    ],
)
def test_what_is_no_judgement(answer: list[Graded], why: str) -> None:
    assert why in str(read_verdicts(answer, CLAIMS))


def test_an_invented_id_is_quoted_short() -> None:
    reason = read_verdicts(graded(**{"x" * 1_000: True}), CLAIMS)
    assert isinstance(reason, str)
    assert len(reason) < 120


def test_without_claims_there_is_nothing_to_judge() -> None:
    assert "no claim" in str(read_verdicts([], ()))


def answer(text: str, stop_reason: str = "end_turn") -> ModelAnswer:
    return ModelAnswer(text=text, usage=Usage(), stop_reason=stop_reason)


ONE = '{"claims": [{"id": "C1", "supported": true, "reason": "S1"}]}'


@pytest.mark.parametrize("text", [ONE, f"Sure:\n```json\n{ONE}\n```", f'{{"answer": {ONE}}}'])
def test_a_judges_answer_is_found(text: str) -> None:
    verdicts, problems = read_graded(answer(text))
    assert verdicts is not None
    assert problems == ()
    assert verdicts.claims == (Graded(id="C1", supported=True, reason="S1"),)


@pytest.mark.parametrize(
    ("text", "stop_reason"),
    [
        (ONE, "max_tokens"),
        (ONE, "refusal"),
        ("all supported", "end_turn"),
        ('{"claims": []}', "end_turn"),
        ('{"claims": [{"id": "C1", "supported": "yes"}]}', "end_turn"),
        ('{"claims": [{"id": "C1"}]}', "end_turn"),
        ('{"claims": [{"id": "C1", "supported": true, "score": 1}]}', "end_turn"),
        (ONE + ONE.replace("true", "false"), "end_turn"),
    ],
)
def test_a_judges_answer_that_is_none(text: str, stop_reason: str) -> None:
    verdicts, problems = read_graded(answer(text, stop_reason))
    assert verdicts is None
    assert problems
