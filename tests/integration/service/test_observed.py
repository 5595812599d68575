"""A real service after a real fix: what it says of itself is what the record says."""

import json
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.service.database import service_db
from tests.e2e.command import osv, repository
from tests.e2e.command import run as command
from tests.service.running import Running, served, waited
from tests.unit.observing.test_spans import collector
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.registry("uv"), pytest.mark.sandbox]

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def config(tmp_path: Path) -> str:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    return f'[repositories.app]\npath = "{app}"\n'


@pytest.fixture
def service(tmp_path: Path, config: str) -> Iterator[Running]:
    with served(tmp_path / "state", config) as running:
        yield running


def scraped(service: Running) -> Samples:
    """As Prometheus reads it: name and label values, by the labels' names → value."""
    with service.client() as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, *dict(sorted(sample.labels.items())).values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_metrics_after_a_fix_are_the_records(service: Running, tmp_path: Path) -> None:
    """The worker is a process of its own: what it did is known by what it recorded."""
    assert scraped(service)["fallback_tier_attempts_total",] == 0
    fix_id = service.post("/v1/fixes", BODY).json()["fix_id"]
    assert service.until_over(fix_id)["outcome"] == "verified"
    assert service.get(f"/v1/fixes/{fix_id}")["outcome"] == "verified"
    with service.client() as client:
        assert client.get("/v1/fixes/no-such-fix").status_code == 404
        assert client.get("/no/such/path?secret=hunter2").status_code == 404
    reported = scraped(service)

    reader = open_readonly(tmp_path / "state" / "audit.db")
    recorded = list(reader.events())
    reader.close()
    kinds = Counter(stored.kind for stored in recorded)
    gates = Counter(
        (stored.payload.gate, stored.payload.status.value)
        for stored in recorded
        if stored.payload.kind == "GateJudged"
    )
    assert kinds["FixVerified"] == 1
    assert reported["fallback_tier_fixes_started_total", "PyPI"] == kinds["FixStarted"] == 1
    assert reported["fallback_tier_fixes_ended_total", "verified", "none"] == 1
    assert reported["fallback_tier_attempts_total",] == kinds["AttemptStarted"] == 1
    assert reported["fallback_tier_tier_outcomes_total", "verified", "recipe"] == 1
    name = "fallback_tier_gate_verdicts_total"
    assert {key[1:]: value for key, value in reported.items() if key[0] == name} == dict(gates)
    assert reported["fallback_tier_chain_events",] == recorded[-1].seq
    assert reported["fallback_tier_chain_lag_events",] == 0
    assert reported["fallback_tier_trail_behind_events",] == 0
    assert reported["fallback_tier_trail_readable",] == 1
    assert reported["fallback_tier_queue_depth", "ended"] == 1
    assert reported["fallback_tier_queue_depth", "queued"] == 0
    assert reported["http_requests_total", "POST", "/v1/fixes", "202"] == 1
    assert reported["http_requests_total", "GET", "/v1/fixes/{fix_id}", "404"] == 1
    assert reported["http_requests_total", "GET", "unknown", "404"] == 1
    assert reported["http_request_duration_seconds_count", "POST", "/v1/fixes"] == 1
    assert "hunter2" not in str(reported)
    assert "hunter2" not in str(service.said)

    document = service.get("/v1/metrics")["metrics"]
    assert document["fallback_tier_attempts"]["samples"][0]["value"] == 1
    assert service.get("/health/ready")["ready"] is True
    assert service.get("/health/live") == {"state": "alive"}
    assert service.end() == 0
    lines = [json.loads(line) for line in service.said if line.startswith("{")]
    assert [line["seq"] for line in lines if "seq" in line] == [one.seq for one in recorded]
    assert {line["fix_id"] for line in lines if "seq" in line} == {fix_id}


def test_metrics_go_on_after_a_restart_and_need_a_key(
    service: Running, tmp_path: Path, config: str
) -> None:
    fix_id = service.post("/v1/fixes", BODY).json()["fix_id"]
    service.until_over(fix_id)
    service.kill()
    with served(tmp_path / "state", config, key=service.key) as again:
        assert scraped(again)["fallback_tier_attempts_total",] == 1
        with again.client("") as nobody:
            assert nobody.get("/metrics").status_code == 401
            assert nobody.get("/v1/metrics").status_code == 401
            assert nobody.get("/health/ready").json() == {"ready": True}
        # A fix that somebody makes at a terminal, with the same record.
        repo = repository(tmp_path / "other", {"requirements.txt": "idna==3.6\n"})
        advisory = tmp_path / "advisory.json"
        advisory.write_text(json.dumps(BODY["advisory"]))
        words = ("fix", repo, "--advisory", advisory, "--dry-run")
        assert command(*words, "--state-dir", tmp_path / "state").code == 0
        assert scraped(again)["fallback_tier_attempts_total",] == 2
        # What was recorded before its start is not told again.
        assert not [line for line in again.said if fix_id in line and '"seq"' in line]


def test_spans_go_where_the_environment_says(tmp_path: Path, config: str) -> None:
    with collector() as (url, got):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        with served(tmp_path / "state", config, env=env) as service:
            fix_id = service.post("/v1/fixes", BODY).json()["fix_id"]
            service.until_over(fix_id)
            assert service.end() == 0
    spans = [
        span
        for request in got
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {"fix", "attempt"} < {span.name for span in spans}
    assert len({span.trace_id for span in spans}) == 1
    facts = [{one.key: one.value.string_value for one in span.attributes} for span in spans]
    assert {fact["fallback_tier.fix_id"] for fact in facts} == {fix_id}


def failed(answer: httpx2.Response) -> list[dict[str, Any]]:
    return [one for one in answer.json()["checks"] if one["state"] == "failed"]


def test_not_ready_is_said_by_a_running_service(service: Running, tmp_path: Path) -> None:
    (store := tmp_path / "state" / "audit.db").rename(tmp_path / "away.db")
    store.write_bytes(b"not a database" * 1_000)
    with service.client("") as nobody:
        answer = waited(  # a finding is good for two seconds
            lambda: nobody.get("/health/ready"), lambda reported: reported.status_code != 200
        )
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
        assert nobody.get("/v1/health").status_code == 401
    with service.client() as client:  # each check's finding has two seconds of its own
        answer = waited(lambda: client.get("/v1/health"), lambda answer: len(failed(answer)) > 1)
    assert answer.status_code == 503
    bad = failed(answer)
    assert [one["check"] for one in bad] == ["store", "checkpoints"]
    assert all("audit.db" in one["reason"] and one["next_step"] for one in bad)


def test_a_queue_that_can_not_be_worked_on_is_not_ready(service: Running, tmp_path: Path) -> None:
    """Else fixes are accepted, none begins, and whoever balances is told that all is well."""
    with sqlite3.connect(service_db(tmp_path / "state")) as db:
        db.execute("ALTER TABLE orders RENAME TO gone")
    with service.client() as client:
        answer = waited(
            lambda: client.get("/v1/health"), lambda reported: reported.status_code != 200
        )
    assert [one["check"] for one in failed(answer)] == ["queue"]


def test_what_the_server_itself_says_is_json_as_well(service: Running) -> None:
    host, _, port = service.address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"no request at all\r\n\r\n")
        connection.recv(1_000)
    waited(
        lambda: [*service.said], lambda reported: any("Invalid HTTP" in line for line in reported)
    )
    (line,) = [line for line in service.said if "Invalid HTTP" in line]
    reported_value = json.loads(line)
    assert (reported_value["event"], reported_value["level"]) == (
        "Invalid HTTP request received.",
        "warning",
    )
    assert reported_value["logger"].startswith("uvicorn")
