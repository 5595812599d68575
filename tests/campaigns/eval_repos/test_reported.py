"""What the tool printed, read; and whether its plan and its fix say the same."""

import json

import pytest

from tests.campaigns.eval_repos.agreeing import differences
from tests.campaigns.eval_repos.reported import read_reported
from tests.campaigns.measuring.process import Done

MOVE = {
    "manifest": "uv.lock",
    "package": "left",
    "step": "lock_refresh",
    "before": ["1.0.0"],
    "after": "1.1.0",
    "raised": [],
    "declined": [{"step": "direct_bump", "reason": "not declared"}],
}
PLAN = {"fixes": [{"moves": [{**MOVE, "advisory_ids": ["A"]}]}], "left": []}
FIXED = {
    "outcome": "verified",
    "attempts": 1,
    "headline": "fixed",
    "application": {"remediation": {"moves": [MOVE], "left": []}},
}
REFUSED = {"outcome": "refused", "reason": "no_fixed_version", "sentence": "None of left is fixed."}
LEFT = {"package": "left", "reason": "no_fixed_version", "sentence": "None of left is fixed."}


def done(document: object, code: int | None = 0, err: str = "") -> Done:
    return Done(code, f"{json.dumps(document)}\n", err)


@pytest.mark.parametrize(
    ("document", "code", "outcome", "reasons"),
    [
        (FIXED, 0, "fixed", ()),
        (REFUSED, 4, "refused", ("no_fixed_version",)),
        ({**REFUSED, "reason": "not_affected"}, 5, "not affected", ("not_affected",)),
        ({"outcome": "patched"}, 8, "patched", ()),
        ({"error": {"code": "git", "problem": "no repository"}}, 2, "error", ("git",)),
        ({"fixes": [{**FIXED, "delivered": True}], "left": [], "exit_code": 0}, 0, "fixed", ()),
        (
            {"fixes": [{**FIXED, "delivered": True}], "left": [LEFT], "exit_code": 4},
            4,
            "partly",
            ("no_fixed_version",),
        ),
        ({"fixes": [], "left": [LEFT], "exit_code": 4}, 4, "refused", ("no_fixed_version",)),
        ({"fixes": [], "left": [], "exit_code": 5}, 5, "not affected", ()),
    ],
)
def test_how_a_run_ended(
    document: object, code: int, outcome: str, reasons: tuple[str, ...]
) -> None:
    reported = read_reported(done(document, code), 1.0)
    assert (reported.outcome, reported.reasons) == (outcome, reasons)


def test_what_gave_no_answer() -> None:
    assert read_reported(Done(None, "", "slow"), 1.0).outcome == "timeout"
    reported = read_reported(Done(1, "", "Traceback (most recent call last)\nKeyError: 'x'"), 1.0)
    assert (reported.outcome, reported.traceback) == ("error", True)


def test_a_plan_that_is_done_agrees() -> None:
    assert differences(PLAN, FIXED, [FIXED["application"]["remediation"]]) == []  # type: ignore[index]
    assert differences({"fixes": [], "left": [LEFT]}, REFUSED, []) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": "1.2.0"}, "after 1.2.0"),
        ({"step": "override"}, "step override"),
        ({"declined": []}, "move"),
    ],
)
def test_a_plan_that_is_not_what_is_done_differs(change: dict[str, object], message: str) -> None:
    found = differences(PLAN, FIXED, [{"moves": [{**MOVE, **change}], "left": []}])
    assert len(found) == 2
    assert message in found[1]


def test_a_refusal_of_what_was_planned_differs() -> None:
    found = differences(PLAN, REFUSED, [])
    assert [line.partition(":")[0] for line in found] == ["only planned", "only done"]


def test_what_the_gates_failed_was_done_as_planned() -> None:
    """The first attempt applied the plan; that it was refused then is the gates' word."""
    refused = {**REFUSED, "reason": "model_not_configured"}
    assert differences(PLAN, refused, [{"moves": [MOVE], "left": []}]) == []
