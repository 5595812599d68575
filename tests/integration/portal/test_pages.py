"""Every page over every trail, of every schema version: what it says, and that it is there."""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from fallback_audit.chain import StoredRow, read_row
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.portal.board import Board
from fallback_tier.portal.mounting import PAGES
from fallback_tier.portal.pages import triage
from fallback_tier.portal.routing import render
from fallback_tier.portal.views.timeline import timeline
from fallback_tier.service.http.security import Sessions
from fallback_tier.service.roles import Role
from fallback_tier.wiring import audit_db
from tests.service.portal import (
    SAME_ORIGIN,
    TRAILS,
    WAITING,
    Visitor,
    portal_scenario,
    text_of,
    visit,
)
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import Record

OLD = Path(__file__).parents[2] / "fixtures" / "trails"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with portal_scenario(tmp_path) as opened:
        yield opened


@pytest.fixture
def reader(service: ServiceScenario) -> Visitor:
    return visit(service, Role.READ)


def test_the_overview_has_the_queue_the_figures_and_what_is_unfixed(reader: Visitor) -> None:
    message = text_of(reader.get("/"))
    for words in (
        "5 to decide",
        "1 of 8 fixed",
        "How fixes ended 9 in 14 days",
        "Estimated cost",
        "unsigned no checkpoint covers the 149 events yet",
        "Advisories without a delivered fix 7",
        "not delivered its patch: ",
        "refused not affected Not affected.",
    ):
        assert words in message, words


def test_a_long_queue_shows_its_newest_and_leads_to_the_others(
    reader: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triage, "ROWS", 2)
    page = reader.get("/queue")
    assert "5 questions to answer, the newest 2 here; the list of fixes has the others" in text_of(
        page
    )
    assert page.count('class="row"') == 2
    assert "5 fixes" in text_of(reader.get("/fixes?outcome=escalated"))


def test_fixes_are_found_by_name_state_and_text(reader: Visitor) -> None:
    assert "8 fixes" in text_of(reader.get("/fixes"))
    message = text_of(reader.get("/fixes?outcome=refused"))
    assert "1 fix" in message
    assert "not affected" in message
    assert "1 fix " in text_of(reader.get("/fixes?text=FIX-CAP"))
    assert "7 fixes" in text_of(reader.get("/fixes?outcome=unfixed"))
    assert "Nothing on record fits" in reader.get("/fixes?text=no-such")


@pytest.mark.parametrize("fix_id", TRAILS)
def test_every_fix_has_its_timeline_and_each_event_its_address(
    service: ServiceScenario, reader: Visitor, fix_id: str
) -> None:
    page = reader.get(f"/fixes/{fix_id}")
    events = service.service.record.events(fix_id)
    for stored in events:
        assert f'id="event-{stored.seq}"' in page
    last = events[-1]
    message = text_of(reader.get(f"/fixes/{fix_id}/events/{last.seq}"))
    assert last.kind in message
    assert last.leaf in message
    other = last.seq + 1 if fix_id != list(TRAILS)[-1] else 1
    assert "has no event" in reader.get(f"/fixes/{fix_id}/events/{other}", 404)


def test_a_long_fix_is_shown_in_pages(service: ServiceScenario) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        scope = Scope(fix_id="long", gate_transition_id="t")
        Record(store).write([t.fix_started(), *[t.judged(1, "g")] * 450], scope)
    reader = visit(service, Role.READ)
    seen, path = 0, "/fixes/long"
    for _ in range(3):
        page = reader.get(path)
        seen += page.count('id="event-')
        path = "/fixes/long?after=" + page.rpartition("?after=")[2].partition('"')[0]
    assert seen == 451
    assert 'rel="next"' not in page


def test_evidence_is_shown_escaped_and_saved_as_an_attachment(
    service: ServiceScenario, reader: Visitor
) -> None:
    hostile = b"<script>alert(1)</script>\x1b[2J" + b"x" * 200_000 + b"<b>end"
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        digest = service.service.record.evidence.put(hostile)
        judged = t.judged(1, "tests").model_copy(update={"evidence_sha256": digest})
        Record(store).audit.append(Scope(fix_id="fix-ev", gate_transition_id="t"), judged)
    page = reader.get(f"/fixes/fix-ev/evidence/{digest}")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J" in page
    assert "&lt;b&gt;end" in page
    assert "136,0" in page
    assert "characters are left out here" in page
    answer = reader.client.get(f"/v1/fixes/fix-ev/evidence/{digest}")
    assert answer.content == hostile
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "names no evidence" in reader.get(f"/fixes/fix-cap/evidence/{digest}", 404)


def test_private_evidence_is_for_admins(service: ServiceScenario) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        digest = service.service.record.evidence.put(b"a prompt")
        called = t.called(1).model_copy(update={"prompt_evidence": digest})
        store.append(Scope(fix_id="fix-p", gate_transition_id="t"), called)
    path = f"/fixes/fix-p/evidence/{digest}"
    assert "admins alone may read it" in visit(service, Role.READ).get(path, 403)
    assert "a prompt" in visit(service, Role.ADMIN).get(path)


def test_advisory_repository_and_example_lead_to_their_fixes(service: ServiceScenario) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        for name, trail in (("fix-ex", t.model_with_examples), ("fix-re", t.replayed)):
            Record(store).write(trail(), Scope(fix_id=name, gate_transition_id=name))
    reader = visit(service, Role.READ)
    assert "10 fixes" in text_of(reader.get("/advisory?id=GHSA-xxxx-yyyy-zzzz"))
    assert "10 fixes" in text_of(reader.get("/repository?name=shop"))
    found = visit(service, Role.READ)
    board = found.client.app.state.board  # type: ignore[attr-defined]
    board.catch_up()
    (example,) = set(board.fixes["fix-re"].influences)
    message = text_of(reader.get(f"/example?id={example}"))
    assert "fix-re" in message
    assert "replayed" in message
    assert "No fix on record has to do with" in reader.get("/example?id=none", 404)


def test_verification_is_run_when_asked_and_tells_the_first_bad_event(
    service: ServiceScenario, reader: Visitor
) -> None:
    page = reader.get("/verification")
    assert "Nobody has asked for one" in page
    assert reader.send("/verification", page).status_code == 303
    message = text_of(reader.get("/verification"))
    assert "stored bytes" in message
    assert "asked by key:" in message


def test_settings_show_where_they_come_from_and_no_secret(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        message = text_of(visit(opened, Role.READ).get("/settings"))
    assert (
        "listen setting value from what it is host 127.0.0.1 default address to listen on"
        in message
    )
    assert "api_key not set environment" in message


def test_an_empty_record_says_so_on_every_page(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        reader = visit(opened, Role.READ)
        assert "No fix waits for a person" in reader.get("/queue")
        assert "No fix yet" in reader.get("/fixes")
        assert "Nothing was recorded in these days" in reader.get("/")
        reader.get("/verification")


def old_rows(path: Path) -> Iterator[StoredRow]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield StoredRow(row["seq"], row["header"].encode(), row["leaf"], row["payload"].encode())


@pytest.mark.parametrize("path", sorted(OLD.glob("schema-*.jsonl")), ids=lambda path: path.stem)
def test_a_trail_of_every_schema_version_is_shown(path: Path) -> None:
    board = Board(lambda: None)
    events = [read_row(row) for row in old_rows(path)]
    for stored in events:
        if stored.kind in board.kinds:
            board.take(stored)
    for fix_id, line in board.fixes.items():
        groups = timeline([stored for stored in events if stored.scope.fix_id == fix_id])
        page = render("timeline.html", line=line, groups=groups, more=None)
        assert page.count('id="event-') == sum(stored.scope.fix_id == fix_id for stored in events)
    assert len(board.fixes) > 1


def test_no_page_is_open_to_nobody(service: ServiceScenario) -> None:
    """Every route of the pages, those apart that sign in."""
    routes = [route for pages in PAGES for route in pages.router.routes]
    assert len(routes) > 10
    nobody = visit(service)
    names = {"{fix_id}": "fix-cap", "{seq}": "1", "{digest}": "0" * 64, "{name}": "spring"}
    for route in routes:
        assert isinstance(route, APIRoute)
        if route.path == "/portal/sign-in":
            continue
        path = reduce(lambda text, name: text.replace(name, names[name]), names, route.path)
        (method,) = route.methods
        answer = nobody.client.request(method, path, headers=SAME_ORIGIN, follow_redirects=False)
        assert (answer.status_code, answer.text) == (303, ""), path


def test_waiting_is_what_is_waiting() -> None:
    assert set(WAITING) < set(TRAILS)
    assert m.stopped_at_budget in TRAILS.values()


def test_a_defect_is_told_on_a_page_without_its_own_words(
    service: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = visit(service, Role.READ)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("what nobody should read")

    monkeypatch.setattr(Board, "newest_unfixed", broken)
    answer = reader.client.get("/portal/", headers={"Accept": "text/html"})
    assert answer.status_code == 500
    assert (
        "Something is wrong here A defect of fallback-tier itself: ZeroDivisionError."
        in text_of(answer.text)
    )
    assert "what nobody should read" not in answer.text
    assert reader.client.get("/portal/").json()["code"] == "defect"
    monkeypatch.setattr(Sessions, "signed_in", broken)  # what a page is made with is broken, too
    answer = reader.client.get("/portal/", headers={"Accept": "text/html"})
    assert answer.json()["code"] == "defect"
