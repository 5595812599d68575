"""Single attempts over HTTP: what `fallback-tier attempt` reads and prints, answered once a key."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from fallback_tier.service.refusals import BusyError
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Limits, ServiceSettings
from tests.e2e.command import osv, repository
from tests.integration.service.test_requests import problem
from tests.service.portal import write_trails
from tests.service.running import events, waited
from tests.service.scenario import ServiceScenario, service_scenario
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.registry("uv")

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}
FAILED = {"attempt": 1, "failure_kind": "tests_failed", "prior_failure_summary": "it failed"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    with service_scenario(tmp_path, repositories=[app]) as opened:
        yield opened


def test_an_attempt_by_recipe(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    for fix_id in ("mine-1", "mine-2"):
        reported = client.post("/v1/attempts", json={**BODY, "fix_id": fix_id}).json()
        assert reported["application"]["outcome"] == "applied"
        assert "+idna==3.7" in reported["application"]["diff"]
        events = service.service.record.events(fix_id)
        assert events[0].kind == "AttemptStarted"


def test_a_retry_without_a_model_is_refused_with_its_reason(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    reported = client.post("/v1/attempts", json={**BODY, "prior_attempts": [FAILED]}).json()
    assert reported["application"]["outcome"] == "refused"
    assert reported["application"]["sentence"]


def test_the_same_request_again_has_the_same_answer_whole(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    key = {"Idempotency-Key": "a-1"}
    first = client.post("/v1/attempts", json=BODY, headers=key).json()
    count = len(service.service.audits.events())
    again = client.post("/v1/attempts", json=BODY, headers=key).json()
    assert (first["cached"], again["cached"]) == (False, True)
    assert again["application"] == first["application"]
    assert len(service.service.audits.events()) == count
    other = client.post("/v1/attempts", json={**BODY, "fix_id": "x"}, headers=key)
    assert "another body" in problem(other, 409)["detail"]


def streamed(client: TestClient, body: object, **headers: str) -> list[tuple[str, Any]]:
    answer = client.post("/v1/attempts/stream", json=body, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    reported = events(iter(answer.text.split("\n")))
    return [
        (event["event"], json.loads(event["data"])) for event in reported if "comment" not in event
    ]


def test_an_attempt_is_told_as_it_comes_and_again_as_one_event(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    key = {"Idempotency-Key": "a-1"}
    reported = streamed(client, {**BODY, "fix_id": "mine"}, **key)
    recorded = [stored.kind for stored in service.service.record.events("mine")]
    assert [kind for kind, _ in reported] == [*recorded, "Finished"]
    assert "+idna==3.7" in reported[-1][1]["application"]["diff"]
    ((kind, again),) = streamed(client, {**BODY, "fix_id": "mine"}, **key)
    assert (kind, again["cached"]) == ("Finished", True)
    assert again["application"] == reported[-1][1]["application"]
    whole = client.post("/v1/attempts", json={**BODY, "fix_id": "mine"}, headers=key).json()
    assert whole == again


def test_what_goes_wrong_in_a_stream_is_its_last_event(
    service: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.client(Role.SUBMIT)
    ((kind, reported),) = streamed(client, {**BODY, "repository": "other"})
    assert (kind, reported["status"], reported["code"]) == ("problem", 422, "not_served")
    monkeypatch.setattr(service.service.attempts, "_in_pool", lambda _: 1 // 0)
    ((kind, reported),) = streamed(client, BODY)
    assert (kind, reported["code"]) == ("problem", "defect")


def test_an_error_is_no_answer(service: ServiceScenario, tmp_path: Path) -> None:
    client = service.client(Role.SUBMIT)
    key = {"Idempotency-Key": "a-1"}
    (left := tmp_path / "app" / "requirements.txt").write_text("idna==3.5\n")
    reported = problem(client.post("/v1/attempts", json=BODY, headers=key), 422)
    assert "uncommitted changes" in reported["detail"]
    left.write_text("idna==3.6\n")
    assert not client.post("/v1/attempts", json=BODY, headers=key).json()["cached"]


def test_what_is_being_answered_is_not_begun_twice(service: ServiceScenario) -> None:
    inner = service.service.attempts
    client = service.client(Role.SUBMIT)
    real = inner._in_pool
    answers = []

    def meanwhile(work: object) -> object:
        inner._in_pool = real  # type: ignore[method-assign]
        answers.append(client.post("/v1/attempts", json=BODY, headers=key))
        return real(work)  # type: ignore[arg-type]

    key = {"Idempotency-Key": "a-1"}
    inner._in_pool = meanwhile  # type: ignore[method-assign,assignment]
    assert client.post("/v1/attempts", json=BODY, headers=key).status_code == 200
    assert "answered just now" in problem(answers[0], 409)["detail"]


def test_a_submitted_fix_makes_its_attempts_itself(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    fix_id = client.post("/v1/fixes", json=BODY).json()["fix_id"]
    answer = client.post("/v1/attempts", json={**BODY, "fix_id": fix_id})
    assert "begun by somebody else" in problem(answer, 409)["detail"]


def test_nobody_writes_to_a_fix_that_others_began(service: ServiceScenario) -> None:
    """A terminal's fix, and that of another key: their records stay as they are."""
    write_trails(service.service.state_dir, ("fix-verified",))
    body = {**BODY, "fix_id": "mine"}
    first, other = service.client(Role.SUBMIT), service.client(Role.SUBMIT)
    assert first.post("/v1/attempts", json=body).status_code == 200
    count = len(service.service.audits.events())
    for client, fix_id in ((first, "fix-verified"), (other, "fix-verified"), (other, "mine")):
        answer = client.post("/v1/attempts", json={**BODY, "fix_id": fix_id})
        assert "begun by somebody else" in problem(answer, 409)["detail"]
    assert len(service.service.audits.events()) == count
    retry = {**body, "prior_attempts": [FAILED]}
    assert first.post("/v1/attempts", json=retry).status_code == 200


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"repository": "/etc"}, "body.repository"),
        ({"fix_id": "../x"}, "body.fix_id"),
        ({"prior_attempts": [FAILED, FAILED]}, "strictly increasing"),
        ({"prior_attempts": [{**FAILED, "prior_failure_summary": "x" * 9_000}]}, "8,192"),
        ({"prior_attempts": [FAILED] * 17}, "body.prior_attempts"),
    ],
)
def test_an_attempt_that_can_not_be(
    service: ServiceScenario, more: dict[str, object], says: str
) -> None:
    answer = service.client(Role.SUBMIT).post("/v1/attempts", json={**BODY, **more})
    assert says in problem(answer, 422)["detail"]


@pytest.mark.parametrize(
    ("path", "free", "other", "status"),
    [("", 8, "/v1/repositories", 200), ("/stream", 42, "/v1/fixes/fix-0/events", 404)],
)
def test_attempts_that_wait_keep_nobody_else_waiting(
    path: str, free: int, other: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a thread until it is answered; the others' requests need some, too.

    ``free``: places for attempts that are left when so many wait that nobody else had a thread: 40 that
    routes run in, of asyncio's own 6 (on two cores).
    """
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    settings = ServiceSettings(limits=Limits(concurrent_attempts=16, request_s=5))
    with service_scenario(tmp_path, settings, [app]) as opened:
        go_on, attempts = threading.Event(), opened.service.attempts

        def held(*_: object) -> None:
            go_on.wait(PATIENCE_S)
            raise BusyError("over", next_step="")

        monkeypatch.setattr(attempts, "_attempt", held)
        with (
            opened.client(Role.SUBMIT, Role.READ) as client,
            ThreadPoolExecutor(attempts.most_at_once) as many,
        ):
            try:
                for _ in range(attempts.most_at_once):
                    many.submit(client.post, f"/v1/attempts{path}", json=BODY)
                waited(lambda: attempts._room._value, lambda left: left <= free)
                assert client.get(other).status_code == status
            finally:
                go_on.set()
