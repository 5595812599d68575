"""People answer over HTTP what fixes ask: the events of `fallback-tier review`, in the caller's name."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import BudgetRaised, ReviewDecided, TransitionReopened
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.fix.journal.holding import holding
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db
from tests.integration.service.test_requests import problem
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import FIX, Record, diff
from tests.waiting import at_once

ANSWERS = (ReviewDecided, TransitionReopened, BudgetRaised)
PATH = f"/v1/reviews/{FIX}/decisions"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with service_scenario(tmp_path) as opened:
        state = opened.service.state_dir
        with closing(SqliteAuditStore(audit_db(state))) as store:
            Record(store, opened.service.record.evidence).write(t.cap_reached())
        yield opened


def answers(service: ServiceScenario) -> list[Any]:
    events = [stored.payload for stored in service.service.record.events(FIX)]
    return [event for event in events if isinstance(event, ANSWERS)]


def decide(service: ServiceScenario, verdict: str, **more: Any) -> Any:
    body = {"verdict": verdict, "because": "read it", **more}
    return service.client(Role.DECIDE).post(PATH, json=body)


def test_a_question_has_what_is_needed_to_answer_it(service: ServiceScenario) -> None:
    client = service.client(Role.READ)
    (question,) = client.get("/v1/reviews").json()["questions"]
    assert (question["fix_id"], question["reason"]) == (FIX, "retry_cap_reached")
    whole = client.get(f"/v1/reviews/{FIX}").json()
    assert whole["patch"] == diff(4)
    assert len(whole["attempts"]) == 4


def test_an_approval_is_on_record_in_the_callers_name(service: ServiceScenario) -> None:
    answer = decide(service, "approve")
    assert answer.status_code == 201, answer.text
    reported = answer.json()
    assert reported["patch"] == diff(4)
    assert reported["by"].startswith("key:")
    (event,) = answers(service)
    assert (event.verdict, event.by, event.reason) == ("approved", reported["by"], "read it")
    client = service.client(Role.READ)
    assert client.get("/v1/reviews").json() == {"questions": []}
    (asked,) = client.get("/v1/reviews?answered=true").json()["questions"]
    assert "approved by key:" in asked["answer"]


def test_who_comes_second_is_told_the_first(service: ServiceScenario) -> None:
    first = decide(service, "reject").json()
    reported = problem(decide(service, "approve"), 409)
    assert f"answered already: rejected by {first['by']}" in reported["detail"]
    assert len(answers(service)) == 1


def test_of_many_at_once_one_decides(service: ServiceScenario) -> None:
    clients = [service.client(Role.DECIDE) for _ in range(8)]
    body, given = {"verdict": "approve", "because": "read it"}, []
    at_once([lambda one=one: given.append(one.post(PATH, json=body)) for one in clients])
    reported = sorted((answer.status_code, answer.text) for answer in given)
    assert [status for status, _ in reported] == [201] + [409] * 7, reported
    assert len(answers(service)) == 1


def test_nobody_decides_while_it_is_worked_on(service: ServiceScenario) -> None:
    with holding(service.service.state_dir, FIX):
        assert "worked on" in problem(decide(service, "approve"), 409)["detail"]
    assert answers(service) == []


def test_reopened_for_attempts_or_for_gates(service: ServiceScenario) -> None:
    reported = decide(service, "gates_again", patch=None).json()
    assert reported["goes_on"]
    assert reported["opens"].startswith("gate-")
    (event,) = answers(service)
    assert (event.opens, event.judges_again) == (reported["opens"], reported["patch_sha256"])
    assert "gates run again on patch" in problem(decide(service, "reopen"), 409)["detail"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"verdict": "approve"}, "body.because"),
        ({"verdict": "approve", "because": ""}, "body.because"),
        ({"verdict": "approve", "because": "  "}, "is empty"),
        ({"verdict": "approve", "because": "x" * 2_001}, "body.because"),
        ({"verdict": "approve", "because": "x", "patch": "zz"}, "body.patch"),
        ({"verdict": "approve", "because": "x", "patch": "0" * 12}, "names no patch"),
        ({"verdict": "approve", "because": "x", "by": "Ada"}, "body.by: Extra"),
        ({"verdict": "merge", "because": "x"}, "body.verdict"),
        ({"verdict": "raise_budget", "because": "x"}, "did not stop at its budget"),
    ],
)
def test_an_answer_that_can_not_be(service: ServiceScenario, body: object, says: str) -> None:
    answer = service.client(Role.DECIDE).post(PATH, json=body)
    assert says in problem(answer, 422)["detail"]
    assert answers(service) == []


def test_a_fix_that_is_not_on_record_asks_nothing(service: ServiceScenario) -> None:
    path = "/v1/reviews/fix-unknown"
    problem(service.client(Role.READ).get(path), 404)
    body = {"verdict": "reject", "because": "no"}
    problem(service.client(Role.DECIDE).post(f"{path}/decisions", json=body), 404)
    assert not list((service.service.state_dir / "held").glob("*"))
