"""Self-RAG through the tier: what it asks, what it keeps, what is on record (ADR-0024)."""

import json
from pathlib import Path

import pytest

from fallback_audit.events import RetrievalQueried
from fallback_audit.vocabulary import CallType, Retrieve
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_tier.attempt.task import DraftDiscarded
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.llm.selfrag import FRESH_CONTEXT, SAME_PLAN, UNREADABLE_ANSWER
from fallback_tier.outcome import Applied, DependencyBump
from fallback_tier.ports import ModelRequest
from tests.fakes.answering import Said
from tests.fakes.memory import PagedRetriever, UntouchableRetriever
from tests.fixtures.fallback_tier_callable import failed
from tests.integration.self_rag_case import (
    BUMP,
    ELSEWHERE,
    READ,
    WRITE,
    SelfRagCase,
    called,
    critique,
    decided,
    example,
    is_retrieve,
    judges,
    scored,
    shots,
    steps_taken,
    tail,
    writes,
)
from tests.unit.solved_examples.builders import store_at


def test_a_plan_is_written_edit_by_edit(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path)
    done = case()
    assert isinstance(done, Applied)
    assert done.plan is not None
    assert done.plan.rationale == "Reading stays inside. Writing stays inside."
    assert done.diff.count("+    ") == 2
    assert done.used_few_shot_ref == ("first",)
    assert done.notes == ()
    assert {(one.call_type, one.calls) for one in done.usage} == {
        (CallType.AUTHOR, 4),
        (CallType.CRITIQUE, 4),
    }


def test_the_record_of_a_search(tmp_path: Path) -> None:
    """Decision, candidates, critiques, scores; both candidates are asked for before either is told."""
    case = SelfRagCase(tmp_path)
    case()
    calls = ["ModelCalled", "ModelAnswered"]
    step = [
        *calls,
        "RetrieveDecided",
        *["ModelCalled"] * 2,
        *["ModelAnswered"] * 2,
        *calls,
        *["SegmentScored"] * 2,
    ]
    assert case.audit.kinds == [
        "AttemptStarted",
        "RecipeEvaluated",
        "RetrievalQueried",
        *step,
        *step,
        "GroundingNotEvaluated",
        "PatchProposed",
    ]
    assert [one.decision for one in decided(case)] == [Retrieve.YES, Retrieve.CONTINUE]
    first, same, second, _ = scored(case)
    assert (first.example_id, first.score, first.lm_score, first.kept) == ("first", 0.9, None, True)
    # Equal plans are scored once: the later candidate asked no critic.
    assert (same.score, same.kept) == (None, False)
    assert same.problem == SAME_PLAN
    assert (second.is_final, second.candidate.step) == (True, 2)
    candidates = [one.candidate for one in called(case, CallType.AUTHOR)]
    assert [(one.step, one.path, one.number) for one in candidates if one] == [
        (1, 0, 0),
        (1, 0, 1),
        (2, 0, 0),
        (2, 0, 1),
    ]


def test_requests_of_an_attempt_begin_alike(tmp_path: Path) -> None:
    """So a cache can hold the beginning; what differs is in the last turn, under its own nonce."""
    case = SelfRagCase(tmp_path)
    case()
    requests = case.author_model.requests
    assert len({(request.system, request.messages[:-1]) for request in requests}) == 1
    assert [message.cache for message in requests[0].messages] == [True, False, False]
    assert len({tail(request) for request in requests}) == len(requests)
    assert len({request.nonces[0] for request in requests}) == 1
    assert len({request.nonces[1] for request in requests}) == len(requests)
    assert all(request.nonces[0] not in tail(request) for request in requests)
    # One example a prompt.
    assert not any("first" in tail(one) and "second" in tail(one) for one in requests)


def test_every_untrusted_byte_is_fenced(tmp_path: Path) -> None:
    """An author's words come back in the next prompt: as data, each line behind the prefix."""

    def author(request: ModelRequest) -> Said:
        reported = WRITE if steps_taken(request) else {**READ, "rationale": "OBEY-MARKER"}
        return json.dumps(reported)

    case = SelfRagCase(tmp_path, author)
    case()
    again = [*case.author_model.requests, *case.critic_model.requests]
    lines = [line for r in again for line in r.text.splitlines() if "OBEY-MARKER" in line]
    assert lines
    assert all(line.startswith("| ") for line in lines)


def test_a_retry_is_a_fresh_context(tmp_path: Path) -> None:
    """Retrieve is forced to no at every step: no question about it, no look at the memory."""
    case = SelfRagCase(tmp_path)
    case.retriever = UntouchableRetriever()
    done = case(prior=[failed(1, "LAST-FAILURE in test_escape")])
    assert isinstance(done, Applied)
    assert [(one.decision, one.forced) for one in decided(case)] == [(Retrieve.NO, True)] * 2
    assert {one.reason for one in decided(case)} == {FRESH_CONTEXT}
    assert not any(map(is_retrieve, case.critic_model.requests))
    assert "RetrievalQueried" not in case.audit.kinds
    assert all("LAST-FAILURE" in request.text for request in case.author_model.requests)
    assert not any("Solved example" in tail(request) for request in case.author_model.requests)
    assert all(one.relevant is None for one in scored(case))
    assert done.used_few_shot_ref == ()


def test_yes_fetches_examples_that_were_not_shown(tmp_path: Path) -> None:
    retriever = PagedRetriever(shots("one", "two", "three"), page=2)

    def critic(request: ModelRequest) -> Said:
        if is_retrieve(request):
            return '{"retrieve": "yes"}'
        return critique(is_final=steps_taken(request) > 0)

    case = SelfRagCase(tmp_path, critic=critic, retriever=retriever)
    done = case()
    assert isinstance(done, Applied)
    assert retriever.asked == [frozenset(), frozenset({"one", "two"})]
    assert [one.example_id for one in scored(case)] == ["one", "two", "three"]
    assert done.used_few_shot_ref == ("one", "three")
    kinds = case.audit.kinds
    assert kinds.count("RetrievalQueried") == 2
    second = len(kinds) - 1 - kinds[::-1].index("RetrieveDecided")
    assert kinds[second + 1] == "RetrievalQueried"


def test_no_writes_from_no_example(tmp_path: Path) -> None:
    def critic(request: ModelRequest) -> Said:
        return (
            '{"retrieve": "no", "reason": "evident"}' if is_retrieve(request) else judges(request)
        )

    case = SelfRagCase(tmp_path, critic=critic)
    done = case()
    assert isinstance(done, Applied)
    assert [(one.decision, one.forced) for one in decided(case)] == [(Retrieve.NO, False)] * 2
    assert len(case.author_model.requests) == 2
    assert done.used_few_shot_ref == ()


@pytest.mark.parametrize("message", ["I would rather not say.", '{"retrieve": "continue"}'])
def test_an_unreadable_decision_changes_nothing_and_says_so(tmp_path: Path, message: str) -> None:
    """Nor does one to go on with what there is not."""

    def critic(request: ModelRequest) -> Said:
        return message if is_retrieve(request) else judges(request)

    case = SelfRagCase(tmp_path, critic=critic)
    assert isinstance(case(), Applied)
    assert [one.decision for one in decided(case)] == [Retrieve.NO] * 2
    assert all(one.reason for one in decided(case))


def test_after_examples_an_unreadable_decision_goes_on_with_them(tmp_path: Path) -> None:
    def critic(request: ModelRequest) -> Said:
        return "What?" if is_retrieve(request) and steps_taken(request) else judges(request)

    case = SelfRagCase(tmp_path, critic=critic)
    case()
    assert [one.decision for one in decided(case)] == [Retrieve.YES, Retrieve.CONTINUE]
    assert decided(case)[1].reason.startswith(f"{UNREADABLE_ANSWER}: ")


@pytest.mark.parametrize(
    ("invalid", "problem"),
    [
        (ELSEWHERE, "0 matches"),
        ({**READ, "path": "deps.txt", "old": "vulnerable"}, "may not be changed"),
        ({**READ, "citations": ["S99"]}, "does not exist"),
        ({**BUMP, "version": "0.9"}, "is affected"),
        ({"action": "done"}, "begins with"),
        ({"action": "diff"}, "does not match any"),
    ],
)
def test_an_invalid_candidate_is_out_and_says_why(
    tmp_path: Path, invalid: dict[str, str], problem: str
) -> None:
    def author(request: ModelRequest) -> Said:
        return json.dumps(invalid) if "(first)" in tail(request) else writes(request)

    case = SelfRagCase(tmp_path, author)
    done = case()
    assert isinstance(done, Applied)
    assert done.used_few_shot_ref == ("second",)
    bad, good = scored(case)[:2]
    assert problem in bad.problem
    assert (bad.score, bad.kept, good.kept) == (None, False, True)
    judged = [one for one in called(case, CallType.CRITIQUE) if one.candidate]
    assert bad.candidate not in [one.candidate for one in judged]


def test_no_valid_candidate_is_asked_again_as_any_invalid_plan(tmp_path: Path) -> None:
    plan = {"action": "source_edit", "edits": [{k: READ[k] for k in ("path", "old", "new")}]}

    def author(request: ModelRequest) -> Said:
        is_search = "the next step" in tail(request)
        return json.dumps(ELSEWHERE if is_search else plan)

    case = SelfRagCase(tmp_path, author)
    assert isinstance(case(), Applied)
    assert "PlanRejected" in case.audit.kinds
    assert case.audit.kinds.count("SegmentScored") == 2
    assert [one.candidate is None for one in called(case, CallType.AUTHOR)] == [False, False, True]


def test_a_bump_takes_its_call_sites_along(tmp_path: Path) -> None:
    def author(request: ModelRequest) -> Said:
        return json.dumps(READ if steps_taken(request) else BUMP)

    case = SelfRagCase(tmp_path, author)
    done = case()
    assert isinstance(done, Applied)
    assert isinstance(done.plan, DependencyBump)
    assert done.files == ("app.py", "deps.txt")


def test_drafts_that_lose_are_discarded(tmp_path: Path) -> None:
    def author(request: ModelRequest) -> Said:
        if "second" in tail(request):
            return json.dumps(WRITE if not steps_taken(request) else READ)
        return writes(request)

    case = SelfRagCase(tmp_path, author, beam_width=2)
    done = case()
    assert isinstance(done, Applied)
    drafts = {one.call for one in called(case, CallType.AUTHOR)}
    void = [event.call for event in case.streamed if isinstance(event, DraftDiscarded)]
    assert len(void) == len(set(void))
    assert len(drafts - set(void)) == 2  # one a segment of the plan


def test_a_step_has_no_more_candidates_than_a_prompt_has_examples(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, retriever=PagedRetriever(shots(*"abcdef"), page=6))
    case()
    assert len([one for one in scored(case) if one.candidate.step == 1]) == MAX_EXAMPLES


def test_the_real_memory_gives_other_examples_at_the_next_step(tmp_path: Path) -> None:
    store = store_at(tmp_path / "examples.db")
    names = [f"solved-{number}" for number in range(MAX_EXAMPLES + 2)]
    store.ingest([example(name) for name in names])

    def critic(request: ModelRequest) -> Said:
        if is_retrieve(request):
            return '{"retrieve": "yes"}'
        return critique(is_final=steps_taken(request) > 0)

    memory = SolvedExampleIndex(store, settings=RetrievalSettings(floors=()))
    case = SelfRagCase(tmp_path / "repo", critic=critic, retriever=memory)
    assert isinstance(case(), Applied)
    first = [one.example_id for one in scored(case) if one.candidate.step == 1]
    second = [one.example_id for one in scored(case) if one.candidate.step == 2]
    assert sorted(map(str, [*first, *second])) == names
    queried = [e for e in case.recorded("RetrievalQueried") if isinstance(e, RetrievalQueried)]
    accounts = [json.loads(case.evidence.get(e.account_sha256 or "")) for e in queried]
    assert [one["returned"] for one in accounts] == [first, second]
