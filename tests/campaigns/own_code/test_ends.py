"""The reading of what the command printed, and of what stopped a perfect answer."""

import json
from typing import Any

import pytest

from tests.campaigns.own_code.ends import (
    SAID_CHARS,
    End,
    Failed,
    Gate,
    Stop,
    judged_on_record,
    read_end,
    stopped,
)
from tests.campaigns.own_code.results import proof_ran, suite_ran


def end(code: int | None, answer: dict[str, Any] | None = None, err: str = "") -> End:
    out = "" if answer is None else json.dumps(answer) + "\n"
    places = [("/tmp/x/repo", "REPO")]
    return read_end(code, out, err, seconds=1.25, asked=1, places=places)


def verdict(
    gate: str, status: str, detail: str = "said", kind: str | None = None
) -> dict[str, Any]:
    return {"gate": gate, "status": status, "detail": detail, "failure_kind": kind, "new": "field"}


def failure(kind: str, *gates: str, tier: str | None = "llm") -> dict[str, Any]:
    message = f"Attempt 1 (llm) failed at gate {gates}: {kind}.\nwhat it said\n- more"
    facts = {"attempt": 1, "tier": tier, "failing_gates": gates, "failure_kind": kind}
    return {**facts, "prior_failure_summary": message}


def error(problem: str, code: str = "proof") -> dict[str, Any]:
    return {"error": {"code": code, "problem": problem, "next_step": ""}}


PROVED = {
    "outcome": "verified",
    "application": {"tier": "llm"},
    "verdicts": [verdict("tests", "passed"), verdict("proof", "passed")],
}


@pytest.mark.parametrize(
    ("code", "answer", "stop", "what"),
    [
        (0, {**PROVED, "verdicts": [verdict("tests", "passed")]}, Stop.UNPROVED, "verified"),
        (0, {**PROVED, "application": {"tier": "recipe"}}, Stop.RECIPE, ""),
        (8, {"outcome": "patched", "verdicts": []}, Stop.UNPROVED, "patched"),
        (
            2,
            error("The proof can't be run: … can't be installed here."),
            Stop.PROOF_DEPENDENCIES,
            "proof",
        ),
        (
            2,
            error("… not because of the flaw: there is no program 'tap'"),
            Stop.PROOF_DEPENDENCIES,
            "proof",
        ),
        (
            2,
            error("… not because of the flaw: it has no test that runs"),
            Stop.PROOF_OTHER,
            "proof",
        ),
        (2, error("The proof passes already at the base commit, …"), Stop.NO_PROOF, "proof"),
        (2, error("The proof's file 'a' is in the way of a file …"), Stop.NO_PROOF, "proof"),
        (6, error("npm is not installed", "tool_missing"), Stop.TOOL, "tool_missing"),
        (5, {"outcome": "refused", "reason": "not_affected"}, Stop.NOT_AFFECTED, "not_affected"),
        (4, {"outcome": "refused", "reason": "plan_invalid"}, Stop.PLAN_REFUSED, "plan_invalid"),
        (4, {"outcome": "refused", "reason": "own_code"}, Stop.REFUSED, "own_code"),
        (3, {"outcome": "escalated", "reason": "nothing_proved"}, Stop.PERSON, "nothing_proved"),
        (
            3,
            {
                "outcome": "escalated",
                "reason": "retry_refused",
                "prior_attempts": [failure("tests_failed", "tests")],
            },
            Stop.GATE,
            "tests (tests_failed)",
        ),
        (
            3,
            {
                "outcome": "escalated",
                "reason": "retry_refused",
                "prior_attempts": [
                    failure("undeclared_capability", "capability"),
                    failure("repeated_patch", tier=None),
                ],
            },
            Stop.PLAN_REPEATED,
            "after undeclared_capability",
        ),
        (
            3,
            {
                "outcome": "escalated",
                "reason": "retry_refused",
                "prior_attempts": [failure("resolution_failed", "resolves", tier="recipe")],
            },
            Stop.RECIPE,
            "failed: resolves",
        ),
        (
            3,
            {
                "outcome": "escalated",
                "reason": "retry_refused",
                "prior_attempts": [failure("plan_invalid", tier=None)],
            },
            Stop.PLAN_REFUSED,
            "plan_invalid",
        ),
        (None, None, Stop.TOOL, "timeout"),
        (1, None, Stop.TOOL, "nothing"),
    ],
)
def test_what_stopped_a_perfect_answer(
    code: int | None, answer: dict[str, Any] | None, stop: Stop, what: str
) -> None:
    found = stopped(end(code, answer))
    assert found is not None
    assert (found.stop, found.what) == (stop, what)


def test_a_proved_answer_was_stopped_by_nothing() -> None:
    assert stopped(end(0, PROVED)) is None


def test_words_are_short_and_name_no_machine() -> None:
    problem = "in /tmp/x/repo/lib: GET https://npm.example.com:8080/left-pad\n" + "x" * 900
    message = end(2, error(problem)).said
    assert message.startswith("in REPO/lib: GET https://HOST/left-pad x")
    assert len(message) == SAID_CHARS


@pytest.mark.parametrize(
    ("gate", "ran"),
    [
        (verdict("tests", "passed"), True),
        (verdict("tests", "failed", "tests failed (3 ran)", "tests_failed"), True),
        (verdict("tests", "failed", "npm test did not end within 600 s", "gate_timeout"), True),
        (verdict("tests", "failed", "the test run failed before any test", "tests_failed"), False),
        (verdict("tests", "skipped", "12 test(s) pass; 2 fail as at the base commit, so"), True),
        (
            verdict("tests", "skipped", "the tests fail at the base commit too, in the same way"),
            False,
        ),
        (verdict("tests", "skipped", "the project's dependencies could not be installed"), False),
    ],
)
def test_whether_the_suite_ran(gate: dict[str, Any], ran: bool) -> None:
    found = suite_ran([end(4, {"outcome": "refused", "verdicts": [gate]})])
    assert found.ran is ran
    assert found.detail == ("" if ran else gate["detail"])


def test_a_gate_of_an_earlier_attempt_counts() -> None:
    ended = end(3, {"outcome": "escalated", "prior_attempts": [failure("proof_failed", "proof")]})
    assert proof_ran([ended]).ran
    assert not suite_ran([ended]).ran
    assert suite_ran([ended]).detail == "proof failed first"


def test_a_proof_that_passes_already_ran() -> None:
    assert proof_ran([end(2, error("The proof passes already at the base commit, so …"))]).ran
    assert not proof_ran([end(2, error("there is no program 'tap'"))]).ran


def test_the_facts_of_a_run_are_kept() -> None:
    found = end(0, PROVED)
    assert (found.code, found.outcome, found.tier, found.seconds) == (0, "verified", "llm", 1.2)
    assert found.gate("tests") == Gate(name="tests", status="passed", detail="said")
    failed = end(3, {"outcome": "escalated", "prior_attempts": [failure("proof_failed", "proof")]})
    expected = Failed(tier="llm", kind="proof_failed", gates=("proof",), said="what it said")
    assert failed.failed == (expected,)


def test_verdicts_of_earlier_attempts_are_read_from_the_record() -> None:
    """The proof passed, and then tests failed: the answer's own history does not have that verdict."""
    judged = [
        {"kind": "GateJudged", "payload": {"gate": "proof", "status": "passed", "detail": ""}}
    ]
    events = [{"kind": "FixStarted", "payload": {}}, *judged]
    gates = judged_on_record(json.dumps({"events": events}))
    asked = end(3, {"outcome": "escalated", "reason": "retry_refused", "fix_id": "fix-1"})
    assert not proof_ran([asked]).ran
    assert proof_ran([asked.model_copy(update={"judged": gates})]).ran
    assert judged_on_record("") == ()


def test_tests_that_stand_against_a_true_fix_are_a_question() -> None:
    history = [{"tier": "llm", "failure_kind": "tests_failed", "failing_gates": ["tests"]}]
    answer = {"outcome": "escalated", "reason": "tests_contradict_patch", "question": "Do they?"}
    found = stopped(end(3, {**answer, "prior_attempts": history}))
    assert found is not None
    assert (found.stop, found.what) == (Stop.PERSON, "tests_contradict_patch")
