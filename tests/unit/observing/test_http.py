"""What the service says of itself over HTTP, on an application without anything else."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

from fallback_audit.ports import Scope
from fallback_tier.observing import observer as module
from fallback_tier.observing.following import Position
from fallback_tier.observing.http import routes
from fallback_tier.observing.observer import Observer, build_observer
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.wiring.trail import open_trail
from tests.unit.audit import trails
from tests.waiting import becomes

SCOPE = Scope(fix_id="fix-1", gate_transition_id="gate-1")


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(
        state_dir=tmp_path / "state",
        record=RecordSettings(keys=tmp_path / "keys"),
        sandbox_waiver="a test",
    )


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def observer(configuration: Configuration, log: io.StringIO) -> Iterator[Observer]:
    built = build_observer(
        configuration, {}, log_to=log, queue_depth=lambda: {"queued": 3}, min_free_bytes=1
    )
    built.start()
    yield built
    built.close()


@pytest.fixture
def client(observer: Observer) -> TestClient:
    app = FastAPI()
    app.include_router(routes(observer))
    return TestClient(app)


def record(configuration: Configuration) -> None:
    store = open_trail(configuration.state_dir, configuration.record)
    for event in trails.verified_on_retry():
        store.append(SCOPE, event)
    store.close()


def test_metrics_are_as_the_record_is_now(client: TestClient, configuration: Configuration) -> None:
    before = client.get("/metrics")
    assert before.status_code == 200
    assert before.headers["content-type"].startswith("text/plain; version=")
    assert "fallback_tier_attempts_total 0.0" in before.text
    record(configuration)
    text = client.get("/metrics").text.splitlines()
    assert "fallback_tier_attempts_total 2.0" in text
    assert 'llm_tokens_total{call_type="author",direction="input"} 2700.0' in text
    assert 'fallback_tier_queue_depth{state="queued"} 3.0' in text
    assert "fallback_tier_trail_behind_events 0.0" in text
    assert "fallback_tier_chain_lag_events 0.0" in text


def test_metrics_as_openmetrics_and_json_are_the_same(
    client: TestClient, configuration: Configuration
) -> None:
    record(configuration)
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = client.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    document = client.get("/v1/metrics").json()["metrics"]
    assert document["fallback_tier_retries"] == {
        "type": "counter",
        "help": "Those of them that were retries.",
        "samples": [{"name": "fallback_tier_retries_total", "labels": {}, "value": 1.0}],
    }


def test_readers_alone_see_metrics_and_all_see_health(observer: Observer) -> None:
    def nobody() -> None:
        raise HTTPException(401)

    app = FastAPI()
    app.include_router(routes(observer, readers=[Depends(nobody)]))
    client = TestClient(app)
    assert client.get("/metrics").status_code == 401
    assert client.get("/v1/metrics").status_code == 401
    assert client.get("/health/live").json() == {"state": "alive"}
    assert client.get("/health/ready").json() == {"ready": True}
    assert client.get("/v1/health").status_code == 401


def test_not_ready_is_503_with_reason_and_next_step(configuration: Configuration) -> None:
    record(configuration)

    def asked() -> TestClient:
        app = FastAPI()
        app.include_router(routes(build_observer(configuration, {}, min_free_bytes=1)))
        return TestClient(app)

    answer = asked().get("/health/ready")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    (configuration.state_dir / "audit.db").write_bytes(b"not a database" * 1_000)
    client = asked()
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})
    answer = client.get("/v1/health")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    bad = [one for one in answer.json()["checks"] if one["state"] == "failed"]
    assert [one["check"] for one in bad] == ["store", "checkpoints"]
    assert all("audit.db" in one["reason"] and one["next_step"] for one in bad)
    text = client.get("/metrics").text.splitlines()
    assert 'fallback_tier_check_ok{check="store"} 0.0' in text
    assert 'fallback_tier_check_ok{check="disk"} 1.0' in text
    assert "fallback_tier_ready 0.0" in text
    assert "fallback_tier_trail_readable 0.0" in text


def test_requests_are_counted_by_route_and_streams_are_not_timed(
    observer: Observer, client: TestClient, log: io.StringIO
) -> None:
    observer.request_ended("GET", "/v1/fixes/{fix_id}", 404, 0.25)
    observer.request_ended("GET", "/v1/fixes/{fix_id}/events", 200, 3_600.0)
    observer.request_ended("BREW\u202e", "unknown", 405, 0.1)
    text = client.get("/metrics").text
    asked = 'http_requests_total{method="GET",route="/v1/fixes/{fix_id}",status="404"} 1.0'
    assert asked in text
    name = "http_request_duration_seconds_sum"
    assert f'{name}{{method="GET",route="/v1/fixes/{{fix_id}}"}} 0.25' in text
    assert '_seconds_sum{method="GET",route="/v1/fixes/{fix_id}/events"}' not in text
    assert 'http_requests_total{method="other",route="unknown",status="405"} 1.0' in text
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    reported = [line["route"] for line in lines if line["event"] == "request"]
    assert reported[0] == "/v1/fixes/{fix_id}"


def test_the_log_tells_what_is_recorded_from_now_on_once(
    configuration: Configuration, log: io.StringIO
) -> None:
    record(configuration)
    observer = build_observer(configuration, {}, log_to=log, min_free_bytes=1)
    observer.start()
    store = open_trail(configuration.state_dir, configuration.record)
    for event in trails.recipe_verified():
        store.append(
            SCOPE.model_copy(update={"fix_id": "fix-2", "gate_transition_id": "g2"}), event
        )
    store.close()
    observer.close()
    observer.close()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    reported = [line for line in lines if "seq" in line]
    assert {line["fix_id"] for line in reported} == {"fix-2"}
    assert len(reported) == len(trails.recipe_verified())
    changed = [line for line in lines if line["event"] == "health"]
    assert ("sandbox", "degraded") in {(line["check"], line["state"]) for line in changed}


def test_who_follows_goes_on_after_a_failure(
    configuration: Configuration, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    observer = build_observer(configuration, {}, log_to=log, min_free_bytes=1)
    calls: list[int] = []
    real = observer.follower.catch_up

    def fails_first(*rest: float, **named: float) -> Position:
        calls.append(1)
        if len(calls) == 2:  # the first is that of the start
            raise OSError(5, "Input/output error")
        return real(*rest, **named)

    monkeypatch.setattr(observer.follower, "catch_up", fails_first)
    observer.start()
    becomes(lambda: len(calls) > 3, "the record is looked at again")
    observer.close()
    reported = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["error"] for line in reported if line["event"] == "observer"] == ["OSError"]
