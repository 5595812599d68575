"""Any sequence of answers and verdicts: each acts, through ``run`` and ``stream`` alike (ADR-0022)."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fallback_audit.events import AuditEvent, ModelAnswered, PlanRejected
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.attempt.task import DraftDiscarded, DraftText, Finished, TierEvent
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.outcome import RecipeApplication, Refused
from tests.integration.leaf_sequences import (
    AUTHOR_SAYS,
    FAILURES,
    INVALID,
    JUDGE_SAYS,
    VALID,
    Case,
    LeafScenario,
    came_to,
    expected,
    finished,
)

#: Bounded by count, never by time; the folder is only ever read, so that cases may share it.
QUICK = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

plans = st.sampled_from(sorted(VALID))
# Half of what is said is a plan, or a doubt: the rest ends most attempts at once.
author = st.lists(plans | st.sampled_from(AUTHOR_SAYS), min_size=1, max_size=MAX_AUTHOR_CALLS)
judge = st.none() | st.lists(st.just("doubted") | st.sampled_from(JUDGE_SAYS), max_size=3)
repeats = st.lists(plans, unique=True, max_size=2)
cases = st.builds(
    lambda author, judge, repeats: Case(
        tuple(author), None if judge is None else tuple(judge), tuple(repeats)
    ),
    author,
    judge,
    repeats,
)


def recorded(events: list[TierEvent]) -> list[TierEvent]:
    return [e for e in events if not isinstance(e, DraftText | DraftDiscarded | Finished)]


@QUICK
@given(case=cases)
def test_every_answer_and_verdict_acts(tmp_path: Path, case: Case) -> None:
    streamed, run = LeafScenario(tmp_path, case), LeafScenario(tmp_path, case)
    events = streamed.stream()
    streamed.check()
    application = finished(events)
    assert came_to(application) == expected(case)._replace(why=""), streamed.audit.kinds
    # The trail is the stream, and `run` is the same attempt.
    assert recorded(events) == streamed.audit.payloads
    assert run.run() == application
    assert [without_time(e) for e in run.audit.payloads] == [
        without_time(e) for e in streamed.audit.payloads
    ]


@QUICK
@given(case=cases, stops=st.lists(st.integers(2, 25), min_size=1, max_size=3))
def test_whoever_leaves_and_comes_back_pays_nothing_twice(
    tmp_path: Path, case: Case, stops: list[int]
) -> None:
    scenario = LeafScenario(tmp_path, case)
    due = case
    for stop in (*stops, None):
        due = scenario.case_from_anew
        events = scenario.stream(leave_after=stop)
        scenario.check()
        if OUTCOMES & set(scenario.audit.kinds):
            break
        assert scenario.audit.kinds[-1] == "ConsumerLeft"
    assert OUTCOMES & set(scenario.audit.kinds)
    if isinstance(events[-1], Finished):
        assert came_to(finished(events)) == expected(due)._replace(why=""), scenario.audit.kinds
    # What was heard out is on record once, and nothing was heard that is not.
    ended = [e for e in scenario.audit.payloads if isinstance(e, ModelAnswered)]
    heard = [
        word for word in (*scenario.author.heard, *scenario.judge.heard) if word not in FAILURES
    ]
    assert len(ended) == len(heard)


@QUICK
@example(case=Case(author=("ask",), judge=None), caps=[10692])
@given(case=cases, caps=st.lists(st.integers(0, 90_000), min_size=1, max_size=4))
def test_a_raised_budget_goes_on_to_the_same_end(
    tmp_path: Path, case: Case, caps: list[int]
) -> None:
    scenario = LeafScenario(tmp_path, case)
    for cap in (*caps, 10**9):
        scenario.tokens_per_fix = cap
        due = scenario.case_from_anew
        application = finished(scenario.stream())
        scenario.check()
        if not is_stopped(application):
            break
    came = came_to(application)
    if "budget has no room for the judge" not in str(scenario.audit.payloads):
        assert came == expected(due)._replace(why=""), scenario.audit.kinds
    else:
        assert came.plan is None or came.plan in due.author


def test_what_is_said_of_a_void_draft_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "ghp_" + "a1B2" * 9
    monkeypatch.setitem(INVALID, "a secret", {**VALID["plan 0"], "citations": [secret]})
    scenario = LeafScenario(tmp_path, Case(("a secret",), None))
    void = [event for event in scenario.stream() if isinstance(event, DraftDiscarded)]
    (reported,) = scenario.audit.of(PlanRejected)
    assert "[REDACTED]" in str(reported)
    assert "[REDACTED]" in void[0].reason
    assert secret not in str(void)


def is_stopped(application: RecipeApplication) -> bool:
    return isinstance(application, Refused) and application.reason is RefusalReason.BUDGET_EXHAUSTED


OUTCOMES = {"PatchProposed", "AttemptRefused"}


def without_time(event: AuditEvent) -> AuditEvent:
    return event.model_copy(update={"duration_ms": 0}) if hasattr(event, "duration_ms") else event
