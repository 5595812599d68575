"""Requests of every kind, made from the OpenAPI document: no server error, each answer as it is described.

In CI a few; ``python -m tests.campaigns.hostile.test_http 100000`` runs the campaign, against a process
of its own; a second number ends it after so many minutes.
Event streams are followed in tests/integration/service.
"""

import argparse
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.http.given import ADVISORY
from fallback_tier.wiring import audit_db, evidence_dir
from tests.e2e.command import repository
from tests.service.running import Running, served
from tests.unit.audit import trails
from tests.unit.fix.journal.review_record import FIX, Record

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

#: So many are not refused for being many, and no worker takes one.
CONFIG = """
[limits]
requests_per_key = "1000000/second"
requests_per_address = "1000000/second"
failed_sign_ins = "1000000/second"
queued_fixes = 100000
min_free_bytes = 1152921504606846976
[repositories.app]
path = "{app}"
"""

#: Where a campaign's figures are kept.
FIGURES = Path("docs/evaluation/service/requests.json")

#: Requests of one kind before the next kind has its turn.
A_ROUND = 50

#: A stream does not end by itself; and that nothing can be begun here (``min_free_bytes``) is said by 503.
APART = ("/v1/fixes/{fix_id}/events", "/v1/attempts/stream", "/health/ready", "/v1/health")


@contextmanager
def target(place: Path) -> Iterator[Running]:
    """A service with a question on record and a fix that waits."""
    app = repository(place / "app", {"requirements.txt": "idna==3.6\n"})
    state = place / "state"
    state.mkdir()
    with closing(SqliteAuditStore(audit_db(state))) as store:
        Record(store, FileEvidenceStore(evidence_dir(state))).write(trails.cap_reached())
    with served(state, CONFIG.format(app=app)) as service:
        yield service


def operations(service: Running) -> list[APIOperation[Any, Any, Any, Any]]:
    """All but what stands apart."""
    schema = openapi.from_url(f"{service.address}/v1/openapi.json")
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.path not in APART]


def real(case: Case, draw: st.DataObject, names: list[str]) -> None:
    """Some requests name what there is: else all would end at a name that nobody knows."""
    if case.path_parameters.get("fix_id") is not None and draw.draw(st.booleans()):
        case.path_parameters["fix_id"] = draw.draw(st.sampled_from(names))
    if case.operation.path == "/v1/fixes" and isinstance(case.body, dict):
        if draw.draw(st.booleans()):
            case.body["repository"] = "app"
        if draw.draw(st.booleans()):
            case.body["advisory"] = ADVISORY


def drive(service: Running, count: int, until: float = math.inf) -> Counter[str]:
    """So many requests at least, shared among the operations; how they were answered. They go round by
    round, so that one that is cut off at ``until`` (of the monotonic clock) has asked all operations alike.
    An operation with few different requests has fewer in a round. Raises on the first answer that is not as
    it should be."""
    reported: Counter[str] = Counter()
    body = {"repository": "app", "advisory": ADVISORY}
    names = [FIX, service.post("/v1/fixes", body).json()["fix_id"]]
    kinds = [
        (operation, mode)
        for operation in operations(service)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if _varies(operation, mode)
    ]
    examples = min(A_ROUND, max(1, count // len(kinds)))
    number = 0
    with requests.Session() as session:
        while reported.total() < count:
            for operation, mode in kinds:
                if time.monotonic() > until:
                    return reported
                _drive_one(service, session, operation, mode, examples, number, names, reported)
            print(f"{reported.total():,}: {dict(sorted(reported.items()))}", flush=True)
            number += 1
    return reported


def _drive_one(
    service: Running,
    session: requests.Session,
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    count: int,
    number: int,
    names: list[str],
    reported: Counter[str],
) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), draw=st.data())
    def one(case: Case, draw: st.DataObject) -> None:
        real(case, draw, names)
        key = {"X-API-Key": service.key}
        answer = case.call(base_url=service.address, session=session, headers=key, timeout=60)
        reported[f"{answer.status_code}"] += 1
        case.validate_response(answer, checks=CHECKS)

    one()


def _varies(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode) -> bool:
    """A request without parameters can't be wrong."""
    return mode is GenerationMode.POSITIVE or bool(
        operation.path_parameters or operation.query or operation.body
    )


def test_a_few_of_every_kind(tmp_path: Path) -> None:
    with target(tmp_path) as service:
        reported = drive(service, 199)
        assert service.process.poll() is None
        assert "Traceback" not in "".join(service.said)
    assert sum(reported.values()) > 200
    assert {"200", "202", "422"} <= reported.keys()


def main() -> None:
    """The campaign. ``--report`` keeps its figures for docs/evaluation/service.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("minutes", type=float, nargs="?", default=math.inf)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as running:
        answered = drive(running, arguments.count, began + 60 * arguments.minutes)
    figures = {
        "requests": answered.total(),
        "wanted": arguments.count,
        "seconds": round(time.monotonic() - began),
        "statuses": dict(sorted(answered.items())),
        "load_after": round(os.getloadavg()[1], 1),
        "schemathesis": version("schemathesis"),
    }
    print(json.dumps(figures))
    if arguments.report:
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
