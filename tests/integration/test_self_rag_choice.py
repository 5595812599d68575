"""Self-RAG's choice: scores, ties, and calls that fail."""

import json
import re
import threading
from pathlib import Path
from typing import Any

from fallback_audit.vocabulary import CallType, RefusalReason, Support
from fallback_tier.outcome import Applied, Refused
from fallback_tier.ports import ModelAnswer, ModelRequest, Usage
from tests.fakes.answering import Said
from tests.integration.self_rag_case import (
    READ,
    WRITE,
    SelfRagCase,
    called,
    critique,
    degraded,
    is_retrieve,
    judges,
    scored,
    silent,
    steps_taken,
    tail,
    two_ways,
    writes,
)

# --- Scores ---------------------------------------------------------------------------------------


def test_the_likelihood_counts_where_the_server_gives_it(tmp_path: Path) -> None:
    """The critic likes both alike; the author was surer of the second."""

    def author(request: ModelRequest) -> Said:
        sure = "second" in tail(request)
        text = json.dumps(WRITE if sure or steps_taken(request) else READ)
        logprob = -0.1 if sure else -2.0
        return ModelAnswer(text=text, usage=Usage(), stop_reason="end_turn", mean_logprob=logprob)

    case = SelfRagCase(tmp_path, author)
    done = case()
    assert isinstance(done, Applied)
    first, second = scored(case)[:2]
    assert (first.lm_score, second.lm_score) == (0.135335, 0.904837)
    assert (first.kept, second.kept) == (False, True)


def test_ties_go_by_position_whoever_answers_first(tmp_path: Path) -> None:
    """Same marks, other edits. The first candidate's answer waits for the second's, or the other way."""

    def plan(first: str, then: str, root: Path) -> Any:
        answered = {"first": threading.Event(), "second": threading.Event()}

        def author(request: ModelRequest) -> Said:
            me = "first" if "(first)" in tail(request) else "second"
            if steps_taken(request):
                return '{"action": "done"}'
            if me == then:
                assert answered[first].wait(10)
            answered[me].set()
            return json.dumps(READ if me == "first" else WRITE)

        case = SelfRagCase(root, author)
        done = case()
        assert isinstance(done, Applied)
        return done.plan, case.audit.payloads

    one = plan("first", "second", tmp_path / "a")
    other = plan("second", "first", tmp_path / "b")
    assert one[0] == other[0]
    assert [strip(event) for event in one[1]] == [strip(event) for event in other[1]]
    assert one[0].edits[0].old == READ["old"]


def strip(event: Any) -> dict[str, Any]:
    """An event without what a clock says."""
    return {key: value for key, value in event.model_dump().items() if key != "duration_ms"}


def test_a_wider_beam_finds_what_greed_passes_by(tmp_path: Path) -> None:
    """What is best at first leads to a bad end."""
    ending = {**READ, "new": "    return open(checked(name)).read()", "rationale": "It ends well."}

    def author(request: ModelRequest) -> Said:
        if steps_taken(request):
            return json.dumps(WRITE if "Reading" in tail(request) else ending)
        return two_ways(request)

    def critic(request: ModelRequest) -> Said:
        if is_retrieve(request):
            return judges(request)
        if steps_taken(request):
            return critique(
                is_final=True, support="full" if "ends well" in tail(request) else "none"
            )
        return critique(usefulness=5 if "Reading" in tail(request) else 4)

    def rationale(width: int) -> str:
        case = SelfRagCase(tmp_path / str(width), author, critic, beam_width=width)
        done = case()
        assert isinstance(done, Applied)
        assert done.plan is not None
        return done.plan.rationale

    assert rationale(1) == "Reading stays inside. Writing stays inside."
    assert rationale(2) == "Writing stays inside. It ends well."


def test_a_refusal_counts_only_where_nobody_has_an_edit(tmp_path: Path) -> None:
    refuse = json.dumps({"action": "refuse", "reason": "no code is shown"})
    first = SelfRagCase(tmp_path / "a", lambda r: refuse if "first" in tail(r) else writes(r))
    assert isinstance(first(), Applied)
    everyone = SelfRagCase(tmp_path / "b", lambda _: refuse)
    done = everyone()
    assert isinstance(done, Refused)
    assert done.reason is RefusalReason.MODEL_REFUSED
    assert "no code is shown" in done.sentence
    assert not any(one.kept for one in scored(everyone))


def test_where_everybody_declines_for_want_of_code_the_author_is_shown_it_once(
    tmp_path: Path,
) -> None:
    refuse = json.dumps({"action": "refuse", "reason": "`is_inside` is not shown"})
    edit = {key: READ[key] for key in ("path", "old", "new")}
    plan = json.dumps({"action": "source_edit", "rationale": "so", "edits": [edit]})
    guards = {"tools/guards.py": "def is_inside(name):\n    return '..' not in name\n"}

    def author(request: ModelRequest) -> Said:
        return plan if "def is_inside" in tail(request) else refuse

    case = SelfRagCase(tmp_path, author, more_files=guards)
    assert isinstance(case(), Applied)
    assert len(case.recorded("MoreCodeShown")) == 1


def test_done_ends_a_path_with_what_it_has(tmp_path: Path) -> None:
    def author(request: ModelRequest) -> Said:
        return '{"action": "done"}' if steps_taken(request) else json.dumps(READ)

    case = SelfRagCase(tmp_path, author)
    done = case()
    assert isinstance(done, Applied)
    assert done.diff.count("\n+    ") == 1


# --- Calls that fail ------------------------------------------------------------------------------


def test_a_candidate_without_an_answer_is_out(tmp_path: Path) -> None:
    def author(request: ModelRequest) -> Said:
        return silent() if "(first)" in tail(request) else writes(request)

    case = SelfRagCase(tmp_path, author)
    assert isinstance(case(), Applied)
    assert scored(case)[0].problem == "The server is busy."
    assert scored(case)[1].kept


def test_no_answer_at_all_is_no_gate_failure(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, lambda _: silent())
    done = case()
    assert isinstance(done, Refused)
    assert done.reason is RefusalReason.MODEL_UNAVAILABLE


def test_an_author_that_falls_silent_later_leaves_what_there_is(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, lambda r: silent() if steps_taken(r) else writes(r))
    done = case()
    assert isinstance(done, Applied)
    assert done.plan is not None
    assert done.plan.rationale == READ["rationale"]


def test_a_silent_critic_ends_the_search_with_the_first_valid_candidate(tmp_path: Path) -> None:
    case = SelfRagCase(tmp_path, lambda r: json.dumps(READ), lambda _: silent())
    done = case()
    assert isinstance(done, Applied)
    (end,) = degraded(case)
    assert "critic gives no answer" in end.reason
    (only,) = scored(case)
    assert (only.support, only.usefulness, only.kept) == (None, None, True)


def test_an_unreadable_critique_counts_the_worst(tmp_path: Path) -> None:
    def critic(request: ModelRequest) -> Said:
        if is_retrieve(request):
            return judges(request)
        if "(first)" in tail(request):
            return "Looks great!"
        return critique(usefulness=2, support="partial", relevant=False, is_final=True)

    case = SelfRagCase(tmp_path, author=two_ways, critic=critic)
    done = case()
    assert isinstance(done, Applied)
    assert done.used_few_shot_ref == ("second",)
    first, second = scored(case)
    assert (first.support, first.score, first.kept) == (None, -0.2, False)
    assert (second.support, second.kept) == (Support.PARTIAL, True)


# --- What follows --------------------------------------------------------------------------------


def test_an_unsupported_plan_of_a_search_is_regenerated_as_any_other(tmp_path: Path) -> None:
    """What follows the first draft is the ordinary loop, which carries the strict instruction."""
    plan = {"action": "source_edit", "edits": [{k: WRITE[k] for k in ("path", "old", "new")}]}
    verdicts = iter([False, True])

    def author(request: ModelRequest) -> Said:
        return writes(request) if "the next step" in tail(request) else json.dumps(plan)

    def judge(request: ModelRequest) -> Said:
        supported = next(verdicts)
        ids = sorted(set(re.findall(r"^\| (C[0-9]+):", tail(request), re.MULTILINE)))
        return json.dumps({"claims": [{"id": one, "supported": supported} for one in ids]})

    case = SelfRagCase(tmp_path, author, judge=judge)
    done = case()
    assert isinstance(done, Applied)
    assert done.grounded
    assert case.audit.kinds.count("GroundingJudged") == 2
    asked = called(case, CallType.AUTHOR)
    assert [(one.strict, one.candidate is None) for one in asked] == [
        *[(False, False)] * 4,
        (True, True),
    ]
