"""Self-RAG where something runs out: it ends, searches less, and says so, rather than overrun."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fallback_audit.events import Charge
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import BudgetLimit, RefusalReason
from fallback_tier.budget.meter import OverBudget
from fallback_tier.budget.prices import Prices
from fallback_tier.llm.selfrag import MAX_CANDIDATE_CALLS, MAX_STEPS
from fallback_tier.outcome import Applied, Refused
from fallback_tier.ports import ModelRequest
from tests.fakes.answering import Said
from tests.integration.self_rag_case import (
    READ,
    WRITE,
    SelfRagCase,
    critique,
    degraded,
    hit,
    is_retrieve,
    scored,
    steps_taken,
    tail,
)


def restless() -> Callable[[ModelRequest], Said]:
    """An author that always has another edit of what stands there."""
    lock, count = threading.Lock(), [0]

    def author(request: ModelRequest) -> Said:
        with lock:
            count[0] += 1
            new = f"def write_file(name, text):\n    x = {count[0]}"
        return json.dumps({**WRITE, "old": "def write_file(name, text):", "new": new})

    return author


def endless(request: ModelRequest) -> Said:
    """A critic that is never content."""
    if is_retrieve(request):
        return '{"retrieve": "continue"}' if steps_taken(request) else '{"retrieve": "yes"}'
    return critique()


def test_a_search_ends_at_the_cap_of_steps(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, restless(), endless, retriever=hit("only"))
    done = case()
    assert isinstance(done, Applied)
    assert done.notes == ("Self-RAG: the critic found no plan of the search complete.",)
    assert {one.candidate.step for one in scored(case)} == set(range(1, MAX_STEPS + 1))
    assert not degraded(case)


def test_the_cap_of_candidates_makes_it_greedy(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, restless(), endless, retriever=hit(*"abcd"), beam_width=4)
    assert isinstance(case(), Applied)
    (reported,) = degraded(case)
    assert f" {MAX_CANDIDATE_CALLS} candidates" in reported.reason
    assert "greedy" in reported.reason
    assert len(case.author_model.requests) <= MAX_CANDIDATE_CALLS
    after = [one for one in scored(case) if one.candidate.step >= reported.step]
    assert all((one.candidate.path, one.candidate.number) == (0, 0) for one in after)
    # Every step had a candidate, also those after it.
    assert {one.candidate.step for one in scored(case)} == set(range(1, MAX_STEPS + 1))


class CallBudget:
    """A meter that counts a token a call and has room for ``room`` of them."""

    prices = Prices()

    def __init__(self, case_room: int) -> None:
        self.room = case_room
        self.booked = 0

    def charge(self, model: str, request: ModelRequest) -> Charge:
        return Charge(tokens=1)

    def check(self, scope: Scope, charge: Charge) -> None:
        if self.booked + charge.tokens > self.room:
            raise OverBudget(
                BudgetLimit.TOKENS_PER_FIX,
                cap=str(self.room),
                used=str(self.booked),
                wanted=str(charge.tokens),
            )

    def confirm(self, scope: Scope) -> None:
        self.booked += 1


class Contested(CallBudget):
    """It has room when it is looked at; from the ``room``-th call on others are faster."""

    def check(self, scope: Scope, charge: Charge) -> None:
        pass

    def confirm(self, scope: Scope) -> None:
        super().check(scope, Charge(tokens=1))
        super().confirm(scope)


@pytest.mark.parametrize(
    ("space", "candidates", "told"),
    [
        # Step 1: a decision, two candidates, two critiques; step 2 the same.
        (10, [2, 2], []),
        (9, [2, 1], ["greedy"]),
        (8, [2, 1], ["greedy"]),
        (7, [2], ["ends here"]),
        (5, [2], ["ends here"]),
        (4, [1], ["greedy", "ends here"]),
        (3, [1], ["greedy", "ends here"]),
    ],
)
def test_it_degrades_rather_than_overrun(
    tmp_path: Path, space: int, candidates: list[int], told: list[str]
) -> None:
    def author(request: ModelRequest) -> Said:
        edits = [READ, WRITE] if "(first)" in tail(request) else [WRITE, READ]
        return json.dumps(edits[steps_taken(request)])

    meter = CallBudget(space)
    case = SelfRagCase(tmp_path, author, meter=meter)
    done = case()
    assert isinstance(done, Applied)
    # What is on record is also said to who reads the result.
    assert all(
        event.reason in note for event, note in zip(degraded(case), done.notes, strict=False)
    )
    assert len(done.notes) >= len(told)
    steps = [one.candidate.step for one in scored(case)]
    assert [steps.count(step) for step in sorted(set(steps))] == candidates
    reasons = [event.reason for event in degraded(case)]
    assert len(reasons) == len(told)
    assert all(word in reason for word, reason in zip(told, reasons, strict=True))
    assert meter.booked <= space
    assert "ModelFailed" not in case.audit.kinds


def test_without_room_for_one_candidate_the_attempt_stops_at_the_cap(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, meter=CallBudget(2))
    done = case()
    assert isinstance(done, Refused)
    assert done.reason is RefusalReason.BUDGET_EXHAUSTED
    assert "BudgetReached" in case.audit.kinds
    assert not case.author_model.requests


@pytest.mark.parametrize("space", range(10))
def test_where_others_spend_what_was_left(tmp_path: Path, space: int) -> None:
    """Nothing is sent beyond the cap; what is in hand by then is the draft."""
    case = SelfRagCase(tmp_path, meter=Contested(space))
    done = case()
    # A decision and two candidates; without a critique the first of them is the draft.
    if space < 3:
        assert isinstance(done, Refused)
        assert done.reason is RefusalReason.BUDGET_EXHAUSTED
    else:
        assert isinstance(done, Applied)
    if space < 8:
        assert case.recorded("ModelFailed") or degraded(case)
    sent = [*case.author_model.requests, *case.critic_model.requests]
    assert len(sent) <= space


def test_what_was_paid_for_is_found_again(tmp_path: Path) -> None:
    """An attempt that broke off in the first step goes through it again without asking anybody."""
    case = SelfRagCase(tmp_path, with_journal=True)
    stream = case.stream()
    for event in stream:
        if event.kind == "SegmentScored":
            break
    stream.close()
    paid = len(case.author_model.requests), len(case.critic_model.requests)
    assert paid == (2, 2)
    assert isinstance(case(), Applied)
    assert case.audit.kinds.count("AnswerReused") == 4
    assert (len(case.author_model.requests), len(case.critic_model.requests)) == (4, 4)
