"""The portal in a real Chromium, over a real server: what an operator does, and what no page may do."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.events import FixAbandoned, ReviewDecided
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_tier.wiring import audit_db, evidence_dir
from tests.browser.driver import ENTER, ESCAPE, TAB, Browser, why_no_browser
from tests.browser.hostile import LINES, found, pages_of
from tests.browser.pages import saved
from tests.service.portal import QUEUE
from tests.service.running import Running
from tests.unit.audit.human_trails import abandoned_between_gates
from tests.unit.fix.journal.review_record import Record

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
]


def answers(server: Running, place: Path, fix_id: str) -> list[Any]:
    with closing(open_readonly(audit_db(place / "state"), verifiers=())) as reader:
        found = [stored.payload for stored in reader.events(fix_id)]
    return [event for event in found if isinstance(event, ReviewDecided)]


def test_an_escalated_fix_is_decided_in_six_keys(
    browser: Browser, server: Running, place: Path
) -> None:
    """Choose, open, verdict, (the reason), decide: and on to the next."""
    browser.open(f"{server.address}/portal/queue")
    waiting = browser.count("[data-rows] .row")
    assert waiting >= QUEUE
    browser.until("return document.activeElement.matches('.row')")
    before = browser.pressed
    first = browser.run("return document.activeElement.href")
    browser.press("j")
    chosen = browser.run("return document.activeElement.href")
    assert chosen != first
    browser.press(ENTER)
    browser.until(
        "return location.href === arguments[0] && document.readyState === 'complete'", chosen
    )
    browser.press("r")
    assert browser.run("return document.activeElement.id") == "because"
    browser.write("looked at it")
    browser.press(ENTER)
    assert browser.pressed - before <= 6
    browser.until(
        "return location.href !== arguments[0] && document.readyState === 'complete'", chosen
    )
    fix_id = chosen.split("/")[-2]
    assert f"{fix_id}: rejected." in browser.text()
    assert "/triage" in browser.address
    (event,) = answers(server, place, fix_id)
    assert (event.reason, event.by) == ("looked at it", "key:first-admin")


def test_an_interrupted_fix_is_abandoned_with_a_reason_and_a_mark(
    browser: Browser, server: Running, place: Path
) -> None:
    """The browser itself keeps the form back until both are there."""
    with closing(SqliteAuditStore(audit_db(place / "state"))) as store:
        scope = Scope(fix_id="fix-interrupted", gate_transition_id="t")
        record = Record(store, FileEvidenceStore(evidence_dir(place / "state")))
        record.write(abandoned_between_gates()[:-1], scope)
    address = f"{server.address}/portal/fixes/fix-interrupted"
    browser.open(address)
    click = "document.querySelector('form.steer button').click()"
    browser.run("document.querySelector('#because').focus()")
    browser.write("archived")
    browser.run(click)
    assert browser.count("form.steer :invalid") == 1
    assert browser.address == address
    browser.run("document.querySelector('form.steer [type=checkbox]').click()")
    browser.run(click)
    browser.until("return document.querySelector('form.steer') === null")
    assert "abandoned by key:first-admin" in browser.text()
    with closing(open_readonly(audit_db(place / "state"), verifiers=())) as reader:
        found = [stored.payload for stored in reader.events("fix-interrupted")]
    (event,) = [event for event in found if isinstance(event, FixAbandoned)]
    assert (event.reason, event.by) == ("archived", "key:first-admin")


def test_j_and_k_turn_the_questions_and_escape_leaves_the_reason(
    browser: Browser, server: Running
) -> None:
    browser.open(f"{server.address}/portal/queue")
    links = browser.run(
        "return [...document.querySelectorAll('.row')].slice(0, 2).map((a) => a.href)"
    )
    browser.open(links[0])
    browser.press("j")
    browser.until(
        "return location.href === arguments[0] && document.readyState === 'complete'", links[1]
    )
    browser.press("r")
    browser.write("jk")
    assert browser.run("return document.activeElement.value") == "jk"
    browser.press(ESCAPE, "k")
    browser.until(
        "return location.href === arguments[0] && document.readyState === 'complete'", links[0]
    )
    browser.press("?")
    assert browser.run("return document.querySelector('#keys').open")
    browser.press("a")  # the list is open: no key of the page acts
    assert not browser.run("return document.querySelector('#decide :checked')")
    browser.press(ESCAPE)
    assert not browser.run("return document.querySelector('#keys').open")


def test_two_operators_decide_and_the_second_sees_the_first(
    browser: Browser, server: Running, place: Path
) -> None:
    browser.open(f"{server.address}/portal/fixes/fix-same/triage")
    body = {"verdict": "reject", "because": "I was first"}
    assert server.post("/v1/reviews/fix-same/decisions", body).status_code == 201
    browser.press("a")
    browser.write("looks right")
    browser.press(ENTER)
    browser.until("return document.querySelector('.notice.bad')")
    message = browser.text()
    assert "was answered already: rejected by key:first-admin" in message
    assert browser.count("#decide") == 0
    (event,) = answers(server, place, "fix-same")
    assert event.reason == "I was first"


def test_an_open_queue_is_refreshed_and_keeps_its_place(browser: Browser, server: Running) -> None:
    browser.open(f"{server.address}/portal/queue")
    before = browser.count(".row")
    browser.press("j", "j")
    chosen = browser.run("return document.activeElement.href")
    body = {"verdict": "reject", "because": "gone meanwhile"}
    assert server.post("/v1/reviews/fix-cap/decisions", body).status_code == 201
    browser.until("return document.querySelectorAll('.row').length === arguments[0]", before - 1)
    assert browser.run("return document.activeElement.href") == chosen
    seen = found(browser)
    assert (seen["violations"], seen["ran"]) == ([], [])


def test_the_policy_is_enforced(browser: Browser, server: Running) -> None:
    """What a hole in a template would let in still does not run: no inline script, no handler, no style, no
    other server, no function of text, and no text as HTML."""
    browser.open(f"{server.address}/portal/queue")
    browser.check("holes.js")
    browser.until("return window.violations.length >= 4")
    seen = " ".join(browser.run("return window.violations"))
    for directive in ("img-src", "style-src", "require-trusted-types-for"):
        assert directive in seen, seen
    assert browser.run("return [window.hole, window.t2]") == [None, 1]
    assert browser.run("return getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


def test_nothing_of_a_hostile_line_runs_in_any_field(
    browser: Browser, server: Running, place: Path
) -> None:
    addresses = ["/portal/queue", "/portal/", "/portal/fixes", "/portal/fixes?outcome=refused"]
    addresses += ["/portal/campaigns", "/portal/campaigns/hostile-0"]
    with server.client() as client:
        fixes = {
            one["fix_id"] for one in client.get("/v1/reviews?answered=true").json()["questions"]
        }
    hostile = sorted(fix_id for fix_id in fixes if fix_id.startswith("fix-hostile"))
    assert hostile
    for fix_id in (*hostile, "fix-hostile-1"):
        digest = client_evidence(server, fix_id)
        addresses += pages_of(fix_id, digest, LINES[0])
    for address in addresses:
        browser.open(server.address + address)
        seen = found(browser)
        nothing = {
            "ran": [],
            "violations": [],
            "strange": [],
            "handlers": [],
            "scripts": 0,
            "outside": [],
        }
        assert {name: seen[name] for name in nothing} == nothing, address
        assert browser.address.startswith(server.address)
    message = ""
    for fix_id in (hostile[0], "fix-hostile-1"):
        browser.open(saved(server, fix_id, place).as_uri())
        assert browser.run("return [...window.ran, ...window.violations]") == []
        assert LINES[0] in browser.text()
    for fix_id in (hostile[0], "fix-hostile-1"):
        browser.open(f"{server.address}/portal/fixes/{fix_id}")
        message += browser.text()
    for line in ("<script>alert(1)</script>", "\\u202e<script>", "\\x00<scr\\x00ipt>"):
        assert line in message, line


def client_evidence(server: Running, fix_id: str) -> str:
    items = server.get(f"/v1/fixes/{fix_id}/evidence")["evidence"]
    return str(items[0]["sha256"])


def test_tab_goes_through_a_page_in_its_order(browser: Browser, server: Running) -> None:
    # Other browsers of this run may have the focus of the machine; a key has moved it when that is seen.
    browser.devtools("Page.bringToFront")
    browser.devtools("Emulation.setFocusEmulationEnabled", enabled=True)
    browser.open(f"{server.address}/portal/fixes/fix-gates/triage")
    browser.until("return document.hasFocus() && document.readyState === 'complete'")
    places = []
    for _ in range(13):
        browser.run("window.before = document.activeElement")
        browser.press(TAB)
        browser.until("return document.activeElement !== window.before")
        places.append(
            browser.run(
                "const all = 'a, button, input, textarea, summary, [tabindex]';"
                "return [...document.querySelectorAll(all)].indexOf(document.activeElement)"
            )
        )
    assert places == sorted(places)
    assert places[0] == 0
    assert browser.run("return document.querySelector('a').className") == "skip"


def test_pages_work_without_their_scripts(browser: Browser, server: Running, place: Path) -> None:
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"{server.address}/portal/fixes/fix-model/triage")
        assert "The model gave no answer." in browser.text()
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
