"""A fix that was interrupted is abandoned from its page: in the signed-in person's name, and only then."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import FixAbandoned
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.fix.journal.holding import holding
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db, evidence_dir
from tests.service.portal import SAME_ORIGIN, Visitor, portal_scenario, text_of, visit
from tests.service.scenario import ServiceScenario
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record

PAGE = "/fixes/fix-open"
WHY = "the project <b>is</b> archived"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with portal_scenario(tmp_path) as opened:
        written(opened, h.abandoned_between_gates()[:-1], "fix-open")
        yield opened


@pytest.fixture
def operator(service: ServiceScenario) -> Visitor:
    return visit(service, Role.READ, Role.DECIDE)


def written(service: ServiceScenario, events: t.Events, fix_id: str) -> None:
    state = service.service.state_dir
    with closing(SqliteAuditStore(audit_db(state))) as store:
        record = Record(store, FileEvidenceStore(evidence_dir(state)))
        record.write(events, Scope(fix_id=fix_id, gate_transition_id="t"))


def abandonments(service: ServiceScenario, fix_id: str = "fix-open") -> list[FixAbandoned]:
    events = [stored.payload for stored in service.service.record.events(fix_id)]
    return [event for event in events if isinstance(event, FixAbandoned)]


def test_it_is_one_event_in_the_signed_in_persons_name(
    service: ServiceScenario, operator: Visitor
) -> None:
    page = operator.get(PAGE)
    assert 'type="checkbox" required' in page
    answer = operator.send(f"{PAGE}/abandon", page, because=WHY)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/portal{PAGE}")
    (event,) = abandonments(service)
    assert event.by.startswith("key:")
    assert event.reason == WHY
    after = operator.get(PAGE)
    assert f"abandoned by {event.by}" in text_of(after)
    assert f"{PAGE}/abandon" not in after
    assert "<b>is</b>" not in after


def test_again_it_is_refused(service: ServiceScenario, operator: Visitor) -> None:
    page = operator.get(PAGE)
    assert operator.send(f"{PAGE}/abandon", page, because=WHY).status_code == 303
    assert operator.send(f"{PAGE}/abandon", page, because=WHY).status_code == 422
    assert len(abandonments(service)) == 1


@pytest.mark.parametrize("because", ["", "   "])
def test_without_a_reason_nothing_is_recorded(
    service: ServiceScenario, operator: Visitor, because: str
) -> None:
    answer = operator.send(f"{PAGE}/abandon", operator.get(PAGE), because=because)
    assert answer.status_code == 422
    assert abandonments(service) == []


def test_one_that_a_process_works_on_stays(service: ServiceScenario, operator: Visitor) -> None:
    page = operator.get(PAGE)
    with holding(service.service.state_dir, "fix-open"):
        answer = operator.send(f"{PAGE}/abandon", page, because=WHY)
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text
    assert "the project &lt;b&gt;is" in answer.text
    assert abandonments(service) == []


@pytest.mark.parametrize("fix_id", ["fix-verified", "fix-cap", "fix-refused"])
def test_one_that_has_ended_is_neither_offered_nor_taken(
    service: ServiceScenario, operator: Visitor, fix_id: str
) -> None:
    assert f"{fix_id}/abandon" not in operator.get(f"/fixes/{fix_id}")
    page = operator.get(PAGE)
    assert operator.send(f"/fixes/{fix_id}/abandon", page, because=WHY).status_code == 422
    assert abandonments(service, fix_id) == []


def test_one_that_was_reopened_and_has_not_begun_is_offered_and_taken(
    service: ServiceScenario, operator: Visitor
) -> None:
    written(service, h.cap_then_reopened(), "fix-reopened")
    page = operator.get("/fixes/fix-reopened")
    assert "fix-reopened/abandon" in page
    path = "/fixes/fix-reopened/abandon"
    assert operator.send(path, page, because=WHY).status_code == 303
    assert len(abandonments(service, "fix-reopened")) == 1
    assert path not in operator.get("/fixes/fix-reopened")


def test_another_orchestrators_fix_is_neither_offered_nor_taken(
    service: ServiceScenario, operator: Visitor
) -> None:
    written(service, t.foreign_orchestrator(), "fix-foreign")
    assert "fix-foreign/abandon" not in operator.get("/fixes/fix-foreign")
    page = operator.get(PAGE)
    assert operator.send("/fixes/fix-foreign/abandon", page, because=WHY).status_code == 422


def test_a_line_end_counts_as_in_the_browser(service: ServiceScenario, operator: Visitor) -> None:
    """Which sends two characters for it."""
    page = operator.get(PAGE)
    because = "x\r\n" * 999 + "yz"
    assert operator.send(f"{PAGE}/abandon", page, because=because + "!").status_code == 422
    assert operator.send(f"{PAGE}/abandon", page, because=because).status_code == 303
    (event,) = abandonments(service)
    assert event.reason == because.replace("\r\n", "\n")


def test_only_who_may_decide_abandons(service: ServiceScenario) -> None:
    reader = visit(service, Role.READ)
    page = reader.get(PAGE)
    assert f"{PAGE}/abandon" not in page
    assert reader.send(f"{PAGE}/abandon", page, because=WHY).status_code == 403
    assert abandonments(service) == []


def test_a_form_of_no_page_is_refused(service: ServiceScenario, operator: Visitor) -> None:
    """Without the session's token, and from another site."""
    fields = {"because": WHY}
    path = f"/portal{PAGE}/abandon"
    bare = operator.client.post(path, data=fields, headers=SAME_ORIGIN)
    assert bare.status_code == 403
    answer = operator.client.post(path, data=fields, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert abandonments(service) == []
