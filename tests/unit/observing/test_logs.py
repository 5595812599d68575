"""Log lines are JSON for machines; words of people, targets and models are not in them."""

import io
import json
import logging
from pathlib import Path
from typing import Any

from fallback_audit.events import FixEscalated, LowConfidenceFlagged
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.observing.logs import Logs
from tests.unit.audit import trails
from tests.unit.observing.observed import ObservedTrail


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_line_with_its_identifiers(tmp_path: Path) -> None:
    observed, stream = ObservedTrail(tmp_path), io.StringIO()
    logs = Logs(stream)
    for stored in observed.record(trails.verified_on_retry(), fix="fix-7"):
        logs.take(stored)
    reported = lines(stream)
    assert len(reported) == len(trails.verified_on_retry())
    assert {line["fix_id"] for line in reported} == {"fix-7"}
    assert {line["gate_transition_id"] for line in reported} == {"gate-of-fix-7"}
    assert [line["seq"] for line in reported] == list(range(1, len(reported) + 1))
    (failed,) = [line for line in reported if line.get("status") == "failed"]
    assert (failed["event"], failed["gate"], failed["attempt"]) == ("GateJudged", "tests", 1)
    assert failed["failure_kind"] == "tests_failed"
    assert {line["level"] for line in reported if line["event"] == "SandboxDisabled"} == {"warning"}
    observed.close()


def test_prose_is_left_to_the_record(tmp_path: Path) -> None:
    observed, stream = ObservedTrail(tmp_path), io.StringIO()
    logs = Logs(stream)
    events = [
        LowConfidenceFlagged(attempt=1, reason="the secret is hunter2\nforged line", attempts=1),
        FixEscalated(
            attempt=1, reason=EscalationReason.NOTHING_PROVED, question="Is hunter2 the secret?"
        ),
        trails.recipe(selected=False),
        trails.judged(1, "gate\u202ehunter2"),
        trails.judged(1, "hunter2" * 20),
    ]
    for stored in observed.record(events):
        logs.take(stored)
    assert "hunter2" not in stream.getvalue()
    assert [line.get("reason") for line in lines(stream)][:2] == [None, "nothing_proved"]
    observed.close()


def test_what_libraries_say_is_json_until_it_is_closed() -> None:
    stream = io.StringIO()
    logs = Logs(stream)
    logs.install()
    try:
        logging.getLogger("fallback_audit").warning("made a key, in %s", "/keys")
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("uvicorn.error").exception("a defect")
    finally:
        logs.close()
    logging.getLogger("fallback_audit").info("not here")
    first, second = lines(stream)
    assert (first["event"], first["level"]) == ("made a key, in /keys", "warning")
    assert first["logger"] == "fallback_audit"
    assert "ValueError: broken" in second["exception"]


def test_a_request_is_told_by_its_route() -> None:
    stream = io.StringIO()
    Logs(stream).request("GET", "/v1/fixes/{fix_id}", 404, 0.0123)
    (line,) = lines(stream)
    assert line["timestamp"].endswith("Z")
    assert {name: line[name] for name in ("event", "method", "route", "status", "duration_ms")} == {
        "event": "request",
        "method": "GET",
        "route": "/v1/fixes/{fix_id}",
        "status": 404,
        "duration_ms": 12.3,
    }


def test_a_log_that_can_not_be_written_stops_nothing(tmp_path: Path) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    observed = ObservedTrail(tmp_path)
    closed = io.StringIO()
    for stream in (Broken(), closed):
        logs = Logs(stream)
        closed.close()
        for stored in observed.record(trails.first_by_recipe()):
            logs.take(stored)
        logs.request("GET", "/metrics", 200, 0.1)
        logs.warning("health", check="disk")
    observed.close()
