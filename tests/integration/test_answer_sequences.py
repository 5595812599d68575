"""Any sequence of people's answers to any fix: what was asked is answered once, and nothing else."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallback_audit.vocabulary import EscalationReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.review import (
    Signature,
    approve,
    reject,
    reopen,
    run_gates_again,
)
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix_result import FixResult
from tests.fixtures.fallback_tier_callable import ADVISORY, NO_RECIPE
from tests.integration import test_fix_sequences as sequences
from tests.integration.leaf_sequences import Case
from tests.integration.test_fix_sequences import (
    NOT_FAILED,
    SLOW,
    Came,
    Fix,
    Story,
    ended,
    stories,
    transition,
)

scenario = sequences.scenario

ADA = Signature("Ada", "because")
WORDS = ("approve", "reject", "reopen", "again")
OPENING = {"reopen", "again"}
ASKED = {reason.value for reason in EscalationReason}
_UNAVAILABLE = EscalationReason.MODEL_UNAVAILABLE

#: What belongs to the making of a patch: none of it where gates alone are run again.
MAKING = {
    *("RecipeEvaluated", "RetrievalQueried", "ExampleReplayed", "RagSkippedOnRetry"),
    *("ModelCalled", "ModelAnswered", "AnswerReused", "AttemptRefused"),
}


def answer(fix: Fix, word: str, opens: str) -> bool:
    """Was it taken? One that is not leaves the trail as it was."""
    before = list(fix.audit.kinds)
    fix_id = fix.repo.fix_id
    try:
        match word:
            case "approve":
                approve(fix.audit, fix.evidence, fix_id, ADA)
            case "reject":
                reject(fix.audit, fix_id, ADA)
            case "again":
                run_gates_again(fix.audit, fix.evidence, fix_id, ADA, opens=opens)
            case _:
                reopen(fix.audit, fix_id, ADA, opens=opens)
    except InputError:
        assert fix.audit.kinds == before
        return False
    finally:
        fix.check()
    return True


def go_on(fix: Fix) -> FixResult:
    """The gate transition that was opened, as `fallback-tier resume` runs it."""
    advisory = parse_advisory(ADVISORY, "test")
    recorded = RecordedFix(fix.audit, fix.evidence, fix.repo.fix_id)
    fix.repo = fix.repo.model_copy(update={"gate_transition_id": recorded.gate_transition_id})
    return fix.checked(lambda: run_fix(fix.parts(), advisory, fix.based, NO_RECIPE, recorded))


def judged_again(plan: str, gate: Iterator[str]) -> Came:
    """How gates that are run again must end: nothing else is heard."""
    word = next(gate, "passes")
    if word in NOT_FAILED:
        return Came(NOT_FAILED[word], plan, None)
    return Came(EscalationReason.GATES_FAILED_AGAIN, plan, plan)


@SLOW
@given(story=stories, answers=st.lists(st.sampled_from(WORDS), max_size=4))
@example(
    story=Story(Case(("plan 0", "plan 1", "plan 2", "plan 1"), None), ("fails",) * 4),
    answers=["reopen", "approve", "reopen"],
)
@example(story=Story(Case(("plan 0",), None), ("is skipped",)), answers=["reopen", "approve"])
@example(story=Story(Case(("plan 0",) * 3, None), ("fails",)), answers=["reopen", "reopen"])
@example(
    story=Story(Case(("plan 0", "plan 1", "plan 2"), None), ("fails",) * 4),
    answers=["again", "again"],
)
@example(
    story=Story(Case(("plan 0", "unreachable", "plan 1"), None), ("fails", "fails otherwise")),
    answers=["again", "reopen", "approve"],
)
@example(
    story=Story(Case(("a citation of nothing", "overloaded", "plan 0"), None), ("fails",)),
    answers=["reopen", "reopen"],
)
@example(
    story=Story(Case(("plan 0", "unreachable"), None), ("has no tool", "has no tool", "passes")),
    answers=["again", "reopen", "again"],
)
def test_a_person_answers_what_was_asked_once(
    scenario: "Callable[[Story], Fix]", story: Story, answers: list[str]
) -> None:
    fix = scenario(story)
    author, gate = iter(story.case.author), iter(story.gate)
    judge = None if story.case.judge is None else iter(story.case.judge)
    inherited: str | None = None
    last: str | None = None
    came = transition(author, judge, gate)
    assert ended(fix.start()) == came.end
    settled, first_attempts = False, 1
    for number, word in enumerate(answers):
        failed = inherited if came.failed is None else came.failed
        last = came.proposed or last
        # The model gave no answer to the first attempt: it can be made again, retrieval and all (ADR-0098).
        is_not_made = failed is None and came.proposed is None and came.end == _UNAVAILABLE
        may = {
            "approve": came.proposed is not None,
            "reject": True,
            "reopen": failed is not None or is_not_made,
            "again": last is not None,
        }[word]
        taken = answer(fix, word, f"opened-{number}")
        assert taken is (may and came.end in ASKED and not settled), (word, fix.audit.kinds)
        if taken and word in OPENING:
            inherited, before = failed, len(fix.audit.kinds)
            first_attempts += word == "reopen" and is_not_made
            if word == "again":
                assert last is not None
                came = judged_again(last, gate)
            else:
                came = transition(author, judge, gate, inherited)
            assert ended(go_on(fix)) == came.end, fix.audit.kinds
            assert fix.audit.kinds.count("RetrievalQueried") <= first_attempts
            assert word != "again" or not MAKING & set(fix.audit.kinds[before:])
        settled = settled or (taken and word not in OPENING)


def test_an_answer_to_a_fix_that_was_not_asked_is_no_answer(
    scenario: "Callable[[Story], Fix]",
) -> None:
    fix = scenario(Story(Case(("plan 0",), None), ("passes",)))
    fix.start()
    assert not any(answer(fix, word, "gate-1") for word in WORDS)
    with pytest.raises(InputError):
        reject(fix.audit, "another", ADA)


def test_a_reopening_under_a_name_that_is_used_is_no_answer(
    scenario: "Callable[[Story], Fix]",
) -> None:
    fix = scenario(Story(Case(("plan 0",) * 3, None), ("fails",)))
    fix.start()
    assert not answer(fix, "reopen", fix.repo.gate_transition_id)
    assert not answer(fix, "again", fix.repo.gate_transition_id)
    assert answer(fix, "reopen", "another")
