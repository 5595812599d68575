"""Whole cases with a server of ours in place of a model: policies, hidden checks, and replay."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind
from fallback_eval.retrieval.results import EvaluationError
from fallback_eval.retry.calls import Call, Calls, Sampling
from fallback_eval.retry.policies import (
    EXPLORED,
    FIRST_ATTEMPTS,
    LOG_CHARS,
    NO_SUMMARY_TEXT,
    Policy,
)
from fallback_eval.retry.run import RetryCase, Row, Setup, run_case
from fallback_eval.retry.study import CALLS_NAME
from fallback_eval.retry.tasks import Edit, Task, load_tasks
from fallback_tier.answers.block_form import write_edit
from fallback_tier.outcome import SearchReplace
from fallback_tier.ports import ModelRequest
from tests.campaigns.retry.__main__ import CAMPAIGN, TASKS

pytestmark = pytest.mark.sandbox

(TASK,) = load_tasks(TASKS, ["upload_path"])
REFERENCE = TASK.reference
ALMOST = next(wrong for wrong in TASK.wrong if wrong.caught_by == "hidden").edits
MISLED = next(wrong for wrong in TASK.wrong if wrong.follows_decoy).edits
DECOY_PACKAGE = TASK.decoy.package


def answer(task: Task, edits: Sequence[Edit]) -> str:
    blocks = (
        write_edit(SearchReplace(path=task.path, old=edit.old, new=edit.new)) for edit in edits
    )
    return "\n".join(
        ["action: source_edit", "rationale: by hand", f"citations: {task.advisory_id}", *blocks]
    )


class Script:
    """Answers in order, and remembers what it was asked."""

    def __init__(self, *fixes: Sequence[Edit], as_json: bool = False) -> None:
        self.fixes = list(fixes)
        self.write = TASK.plan if as_json else None
        self.requests: list[ModelRequest] = []

    def answer(self, request: ModelRequest, key: str, sampling: Sampling, seed: int) -> Call:
        self.requests.append(request)
        edits = self.fixes.pop(0)
        text = self.write(edits).model_dump_json() if self.write else answer(TASK, edits)
        return Call(key=key, text=text, stop_reason="end_turn", input_tokens=100, output_tokens=10)


def run(policy: Policy, calls: Path, script: Script | None, seed: int = 1) -> Row:
    return run_case(RetryCase(TASK, policy, seed), Setup("scripted", Calls(calls), script))


def without_time(row: Row) -> Row:
    return row.model_copy(update={"seconds": 0})


def test_right_fix_passes_the_hidden_checks_and_a_near_one_does_not(tmp_path: Path) -> None:
    right = run(Policy.FRESH_CONTEXT, tmp_path / "right", Script(REFERENCE))
    assert (right.fixed_at, right.stricter) == (1, True)
    near = run(Policy.FRESH_CONTEXT, tmp_path / "near", Script(ALMOST))
    assert (near.fixed_at, near.stricter) == (1, False)


@pytest.mark.parametrize(
    ("policy", "turns", "shows_example"),
    [
        (Policy.FRESH_CONTEXT, 1, False),
        (Policy.EXCLUDE_PRIOR_HIT, 1, False),
        (Policy.FULL_CHAIN, 1, True),
        (Policy.CONVERSATION, 3, True),
    ],
)
def test_policies_differ_in_the_retry_alone(
    policy: Policy, turns: int, *, shows_example: bool, tmp_path: Path
) -> None:
    script = Script(MISLED, REFERENCE)
    row = run(policy, tmp_path / "calls", script)
    assert row.fixed_at == 2
    assert row.attempts[0].failure_kind is FailureKind.PROOF_FAILED
    first, second = script.requests
    assert DECOY_PACKAGE in first.text
    assert len(second.messages) == turns
    assert (DECOY_PACKAGE in second.text) is shows_example
    last = second.messages[-1].content
    assert "prior_attempt_summary" in last
    assert "prior_attempt_summary" not in first.text
    if policy is Policy.CONVERSATION:
        assert second.messages[0] == first.messages[0]
        assert second.messages[1].content == answer(TASK, MISLED)


HISTORIES = {
    # The policy → what its third prompt shows of attempts 1 and 2, and whether it has the example.
    Policy.RESAMPLE: ((), True),
    Policy.NO_SUMMARY: ((NO_SUMMARY_TEXT,), False),
    Policy.EVERY_FAILURE: (("Attempt 1 (proof_failed): ",), False),
    Policy.BEST_CANDIDATE: (("The best answer so far:", "action: source_edit"), False),
    Policy.LOG_TAIL: (("Gate proof failed. The end of its log:", "FAILED (failures="), False),
}


@pytest.mark.parametrize("policy", EXPLORED)
def test_an_explored_policy_shows_its_own_history(policy: Policy, tmp_path: Path) -> None:
    (edit,) = REFERENCE
    other = [Edit(old=edit.old, new=edit.old.replace("name", "str(name)"))]  # changes nothing
    script = Script(MISLED, other, REFERENCE)
    found = run(policy, tmp_path / "calls", script)
    assert found.fixed_at == 3
    first, _, third = script.requests
    texts, shows_example = HISTORIES[policy]
    assert all(text in third.text for text in texts)
    assert (DECOY_PACKAGE in third.text) is shows_example
    assert (third.text == first.text) is (policy is Policy.RESAMPLE)
    assert len(third.messages) == 1


def test_end_of_a_long_log_is_shown(tmp_path: Path) -> None:
    script = Script(MISLED, REFERENCE)
    run(Policy.LOG_TAIL, tmp_path / "calls", script)
    summary = script.requests[1].text.partition("The end of its log:")[2].partition("<<<END")[0]
    assert LOG_CHARS / 2 < len(summary.replace("\n| ", "\n")) <= LOG_CHARS + 2


@pytest.mark.parametrize("policy", FIRST_ATTEMPTS)
def test_first_attempts_end_with_the_first(policy: Policy, tmp_path: Path) -> None:
    script = Script(MISLED, REFERENCE, as_json=policy is Policy.FIRST_JSON)
    others = load_tasks(TASKS) if policy is Policy.FIRST_RETRIEVED else ()
    case = RetryCase(TASK, policy, 1, others)
    found = run_case(case, Setup("scripted", Calls(tmp_path / "calls"), script))
    (attempt,) = found.attempts
    assert (found.fixed_at, attempt.failure_kind) == (None, FailureKind.PROOF_FAILED)
    (asked,) = script.requests
    assert (DECOY_PACKAGE in asked.text) is (policy is Policy.FIRST_JSON)
    assert ("fix-" in asked.text) is (policy is Policy.FIRST_RETRIEVED)
    assert f"fix-{TASK.name}" not in asked.text
    assert (asked.answer_schema is not None) is (policy is Policy.FIRST_JSON)
    assert (asked.answer_grammar is None) is (policy is Policy.FIRST_JSON)
    # The form of the answer that is told is the one that is read.
    assert ("SEARCH" in asked.system) is (policy is not Policy.FIRST_JSON)


def test_first_attempts_are_shared_and_everything_replays_offline(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    fresh = run(Policy.FRESH_CONTEXT, calls, Script(MISLED, REFERENCE))
    # Its first answer is kept already: the script has that of the retry alone.
    full = run(Policy.FULL_CHAIN, calls, Script(ALMOST))
    assert full.calls[0] == fresh.calls[0]
    assert full.attempts[0] == fresh.attempts[0]
    for row in (fresh, full):
        assert without_time(run(row.policy, calls, None)) == without_time(row)


def test_excluding_the_only_example_asks_what_a_fresh_context_asks(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    fresh = run(Policy.FRESH_CONTEXT, calls, Script(MISLED, REFERENCE))
    assert run(Policy.EXCLUDE_PRIOR_HIT, calls, None).calls == fresh.calls


def test_another_seed_and_a_missing_answer_are_no_result(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    run(Policy.FRESH_CONTEXT, calls, Script(REFERENCE))
    with pytest.raises(EvaluationError):
        run(Policy.FRESH_CONTEXT, calls, None, seed=2)


def test_campaign_resumes_and_needs_no_server_for_what_is_kept(tmp_path: Path) -> None:
    run(Policy.FRESH_CONTEXT, tmp_path / CALLS_NAME, Script(REFERENCE))
    name = f"{TASK.name}.{Policy.FRESH_CONTEXT}.1"
    words = ["--folder", str(tmp_path), "--model", "scripted", "--only", name]
    assert CAMPAIGN.main(words) == 0
    assert CAMPAIGN.main(["--folder", str(tmp_path), "--check"]) == 0
    (row,) = CAMPAIGN.rows.read(tmp_path)
    assert row.name == name
