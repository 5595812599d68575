"""Many questions that are one: one reason, one event each; and a fix saved with its proof."""

import base64
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import FixStarted, ReviewDecided
from fallback_audit.evidence.store import FileEvidenceStore, put_document
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.advisory import parse_advisory
from fallback_tier.cli.main import main
from fallback_tier.fix.journal.inputs import FixInputs
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db, evidence_dir
from tests.service.portal import Visitor, text_of, visit
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record

OSV = b"""{"id": "GHSA-xxxx-yyyy-zzzz", "modified": "2024-01-01T00:00:00Z", "affected": [
 {"package": {"ecosystem": "npm", "name": "NAME"},
  "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "2.0.0"}]}]}]}"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    """Four fixes with one failure: three about lodash, one about qs; and another failure about lodash."""
    with service_scenario(tmp_path) as opened:
        state = opened.service.state_dir
        evidence = FileEvidenceStore(evidence_dir(state))
        with closing(SqliteAuditStore(audit_db(state))) as store:
            record = Record(store, evidence)
            for number, package in enumerate(("lodash", "lodash", "lodash", "qs", "lodash")):
                events = t.cap_reached() if number < 4 else t.same_failure_three_times()
                advisory = parse_advisory(OSV.replace(b"NAME", package.encode()), "test")
                inputs = put_document(evidence, FixInputs(repository=tmp_path, advisory=advisory))
                events[0] = events[0].model_copy(update={"inputs_sha256": inputs})
                assert isinstance(events[0], FixStarted)
                record.write(events, Scope(fix_id=f"fix-{number}", gate_transition_id="t"))
        yield opened


@pytest.fixture
def operator(service: ServiceScenario) -> Visitor:
    return visit(service, Role.READ, Role.DECIDE)


def answered(service: ServiceScenario, fix_id: str) -> list[ReviewDecided]:
    events = [stored.payload for stored in service.service.record.events(fix_id)]
    return [event for event in events if isinstance(event, ReviewDecided)]


def test_the_same_package_and_failure_are_one_question(operator: Visitor) -> None:
    page = operator.get("/fixes/fix-1/alike")
    assert sorted(re.findall(r'name="fix" value="([^"]+)"', page)) == ["fix-0", "fix-1", "fix-2"]
    assert "About npm:lodash: retry cap reached, tests failed at tests." in text_of(page)
    assert "2 more questions about the same package" in operator.get("/fixes/fix-1/triage")
    assert "about the same package" not in operator.get("/fixes/fix-3/triage")


def test_one_reason_and_one_event_each(service: ServiceScenario, operator: Visitor) -> None:
    page = operator.get("/fixes/fix-0/alike")
    token = re.findall(r'name="form_token" value="([^"]+)"', page)[0]
    answer = operator.client.post(
        "/portal/fixes/fix-0/alike",
        data={
            "form_token": token,
            "verdict": "reject",
            "because": "we drop lodash",
            "fix": ["fix-0", "fix-1", "fix-3"],
        },
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    message = text_of(answer.text)
    assert answer.status_code == 409
    assert "reject: 2 of 3 recorded." in message
    assert "fix-3 not recorded It is not like this one" in message
    for fix_id in ("fix-0", "fix-1"):
        (event,) = answered(service, fix_id)
        assert (event.reason, event.by[:4]) == ("we drop lodash", "key:")
    assert answered(service, "fix-2") == answered(service, "fix-3") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "reject", "because": "", "fix": "fix-0"},
        {"verdict": "reject", "because": "x"},
        {"verdict": "raise_budget", "because": "x", "fix": "fix-0"},
    ],
)
def test_what_is_no_decision_records_nothing(
    service: ServiceScenario, operator: Visitor, fields: dict[str, str]
) -> None:
    page = operator.get("/fixes/fix-0/alike")
    assert operator.send("/fixes/fix-0/alike", page, **fields).status_code == 422
    assert answered(service, "fix-0") == []


def test_a_fix_is_saved_as_a_page_that_needs_no_server_with_its_proof(
    service: ServiceScenario, operator: Visitor, tmp_path: Path
) -> None:
    assert operator.decide("fix-0", "reject").status_code == 303
    answer = operator.client.get("/portal/fixes/fix-0/export.html")
    assert answer.headers["content-disposition"] == 'attachment; filename="fix-0.html"'
    assert "sandbox" in answer.headers["content-security-policy"]
    page = answer.text
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert "<script" not in page
    (proof,) = re.findall(r"base64,([A-Za-z0-9+/=]+)", page)
    exported = tmp_path / "fix-0.export"
    exported.write_bytes(base64.b64decode(proof))
    assert main(["audit", "verify", str(exported)]) == 0
    assert "1 file, +1 \N{MINUS SIGN}1 app.py" in text_of(page)
    assert page.count('id="event-') == len(service.service.record.events("fix-0"))
    assert not list((service.service.state_dir / "service" / "exports").iterdir())
