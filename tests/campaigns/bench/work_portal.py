"""The portal's first page over HTTP, and a bare FastAPI handler: each a server in this process, asked
over one connection that is kept. The page's record has as many events as it is told.
"""

import http.client
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

Prepared = tuple[Callable[[], None], Callable[[], Mapping[str, Any]]]

_KEPT_S = 3_600

#: Services live as long as this process.
_OPEN: list[Any] = []


def prepare(place: Path, side: str, events: str) -> Prepared:
    """``side``: "page" or "bare". ``events``: how many are on record before the server starts."""
    app, headers = _bare() if side == "bare" else _portal(place, int(events))
    port = _serve(app)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []

    def ask() -> None:
        begun = time.perf_counter()
        connection.request("GET", "/portal/", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or (side == "page" and b"to decide" not in body):
            raise RuntimeError(f"{answer.status}: {body[:200]!r}")
        times.append(time.perf_counter() - begun)

    def facts() -> Mapping[str, Any]:
        p95 = statistics.quantiles(times[1:], n=20)[-1] if len(times) > 3 else times[-1]
        return {"requests": len(times), "p95_ms": p95 * 1_000, "first_ms": times[0] * 1_000}

    return ask, facts


def _bare() -> tuple[FastAPI, dict[str, str]]:
    app = FastAPI()

    @app.get("/portal/")
    def page() -> HTMLResponse:
        return HTMLResponse("<p>bare</p>")

    return app, {}


def _portal(place: Path, events: int) -> tuple[FastAPI, dict[str, str]]:
    from fallback_tier.portal.mounting import open_portal
    from fallback_tier.service.http.app import create_app
    from fallback_tier.service.opening import open_service
    from fallback_tier.service.roles import Role
    from fallback_tier.service.settings import Secrets, ServiceSettings

    state = Path(tempfile.mkdtemp(dir=place)) / "state"
    settings = {
        "limits": {"requests_per_key": "1000000/minute", "requests_per_address": "1000000/minute"},
        "record": {"keys": state.parent / "keys"},
    }
    _OPEN.append(open_service(ServiceSettings.model_validate(settings), state, Secrets()))
    service = _OPEN[-1].__enter__()
    _write(state, events)
    app = create_app(service, pages=open_portal(service))
    while app.state.board.catch_up().behind:
        continue
    key = service.keys.new("bench", [Role.READ]).secret
    return app, {"Cookie": _signed_in(app, key)}


def _signed_in(app: FastAPI, key: str) -> str:
    """The cookie of a browser that has signed in, as it sends it."""
    from fastapi.testclient import TestClient

    client = TestClient(app)
    form = {"key": key}
    answer = client.post("/portal/sign-in", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    ((name, value),) = client.cookies.items()
    if "sign-in" in str(answer.url):
        raise RuntimeError(f"{answer.status_code}: {answer.text[:200]}")
    return f"{name}={value}"


def _write(state: Path, events: int) -> None:
    """Escalated fixes of ten events each."""
    from fallback_audit.events import (
        AttemptStarted,
        AuditEvent,
        FixEscalated,
        FixStarted,
        GateJudged,
    )
    from fallback_audit.ports import Record, Scope
    from fallback_audit.stores.sqlite import SqliteAuditStore
    from fallback_audit.vocabulary import EscalationReason, GateStatus, PromptShape
    from fallback_tier.wiring import audit_db

    gate = GateJudged(
        attempt=1, gate="tests", status=GateStatus.PASSED, detail="as expected", duration_ms=1
    )
    started = AttemptStarted(
        attempt=1, advisory_id="GHSA-0", prior_attempt_count=0, prompt_shape=PromptShape.INITIAL
    )
    asked = FixEscalated(attempt=1, reason=EscalationReason.NOTHING_PROVED, question="What now?")
    with closing(SqliteAuditStore(audit_db(state))) as store:
        for number in range(events // 10):
            scope = Scope(fix_id=f"fix-{number}", gate_transition_id="t")
            begun = FixStarted(
                advisory_id="GHSA-0",
                repository=f"repository-{number}",
                base_commit="0" * 40,
                ecosystem="npm",
                tool_version="0",
            )
            written: list[AuditEvent] = [begun, started, *[gate] * 7, asked]
            store.append_all([Record(scope, one) for one in written])


def _serve(app: FastAPI) -> int:
    # The connection is kept while the other side of a row is made: that takes its time.
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        timeout_keep_alive=_KEPT_S,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])
