"""Any sequence of people's answers to any fix: what was asked is answered once, and nothing else."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fallback_audit.vocabulary import EscalationReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.resume import take_up
from fallback_tier.gates.journal.review import Signature, approve, reject, reopen
from fallback_tier.gates.result import FixResult
from tests.fixtures.fallback_tier_callable import ADVISORY, NO_RECIPE
from tests.integration import test_fix_sequences as sequences
from tests.integration.leaf_sequences import Case
from tests.integration.test_fix_sequences import SLOW, Fix, Story, ended, stories, transition

house = sequences.house

ADA = Signature("Ada", "because")
ASKED = {reason.value for reason in EscalationReason}


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
    taken = take_up(fix.audit, fix.evidence, fix.repo.fix_id, advisory=advisory)
    fix.repo = fix.repo.model_copy(update={"gate_transition_id": taken.gate_transition_id})
    return fix.checked(lambda: fix.runner().resume(advisory, fix.based, NO_RECIPE, taken))


@SLOW
@given(
    story=stories, answers=st.lists(st.sampled_from(("approve", "reject", "reopen")), max_size=4)
)
@example(
    story=Story(Case(("plan 0", "plan 1", "plan 2", "plan 1"), None), ("fails",) * 4),
    answers=["reopen", "approve", "reopen"],
)
@example(story=Story(Case(("plan 0",), None), ("is skipped",)), answers=["reopen", "approve"])
@example(story=Story(Case(("plan 0",) * 3, None), ("fails",)), answers=["reopen", "reopen"])
def test_a_person_answers_what_was_asked_once(
    house: "Callable[[Story], Fix]", story: Story, answers: list[str]
) -> None:
    fix = house(story)
    author, gate = iter(story.case.author), iter(story.gate)
    judge = None if story.case.judge is None else iter(story.case.judge)
    inherited: str | None = None
    came = transition(author, judge, gate)
    assert ended(fix.start()) == came.end
    settled = False
    for number, word in enumerate(answers):
        failed = inherited if came.failed is None else came.failed
        may = {"approve": came.proposed, "reject": True, "reopen": failed is not None}[word]
        taken = answer(fix, word, f"opened-{number}")
        assert taken is (may and came.end in ASKED and not settled), (word, fix.audit.kinds)
        if taken and word == "reopen":
            inherited = failed
            came = transition(author, judge, gate, inherited)
            assert ended(go_on(fix)) == came.end, fix.audit.kinds
            assert fix.audit.kinds.count("RetrievalQueried") <= 1
        settled = settled or (taken and word != "reopen")


def test_an_answer_to_a_fix_that_was_not_asked_is_no_answer(
    house: "Callable[[Story], Fix]",
) -> None:
    fix = house(Story(Case(("plan 0",), None), ("passes",)))
    fix.start()
    assert not any(answer(fix, word, "gate-1") for word in ("approve", "reject", "reopen"))
    with pytest.raises(InputError):
        reject(fix.audit, "another", ADA)


def test_a_reopening_under_a_name_that_is_used_is_no_answer(
    house: "Callable[[Story], Fix]",
) -> None:
    fix = house(Story(Case(("plan 0",) * 3, None), ("fails",)))
    fix.start()
    assert not answer(fix, "reopen", fix.repo.gate_transition_id)
    assert answer(fix, "reopen", "another")
