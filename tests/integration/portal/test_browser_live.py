"""Open pages in a real Chromium hear of what is recorded, and keep what their reader was doing."""

import pytest

from tests.browser.driver import Browser, why_no_browser
from tests.browser.hostile import found
from tests.service.running import Running

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
]


def test_an_open_page_hears_of_what_is_recorded(browser: Browser, server: Running) -> None:
    """Focus, scroll and what was opened stay; nothing else moves."""
    browser.open(f"{server.address}/portal/")
    browser.run("document.querySelector('.chart details').open = true")
    seen = browser.text(".tiles")
    body = {"verdict": "reject", "because": "for the overview"}
    assert server.post("/v1/reviews/fix-001/decisions", body).status_code == 201
    browser.until("return document.querySelector('.tiles').innerText !== arguments[0]", seen)
    assert browser.run("return document.querySelector('.chart details').open")
    browser.open(f"{server.address}/portal/queue")
    browser.until("return document.activeElement.matches('.row')")
    browser.press("j", "j")
    browser.run(
        "window.moved = 0; new PerformanceObserver((list) => { for (const one of list.getEntries())"
        " window.moved += one.hadRecentInput ? 0 : one.value; }).observe({ type: 'layout-shift' });"
    )
    chosen, rows = browser.run("return document.activeElement.href"), browser.count(".row")
    last = browser.run(
        "return [...document.querySelectorAll('.row')].at(-1).href.split('/').at(-2)"
    )
    assert server.post(f"/v1/reviews/{last}/decisions", body).status_code == 201
    browser.until("return document.querySelectorAll('.row').length === arguments[0]", rows - 1)
    assert browser.run("return document.activeElement.href") == chosen
    assert browser.run("return window.moved") == 0
    assert found(browser)["violations"] == []


def test_who_types_a_reason_is_told_that_somebody_was_quicker(
    browser: Browser, server: Running
) -> None:
    browser.open(f"{server.address}/portal/fixes/fix-002/triage")
    browser.press("a")
    browser.until("return document.activeElement.id === 'because'")
    browser.write("half a rea")
    assert browser.run("return document.activeElement.value") == "half a rea"
    body = {"verdict": "reject", "because": "quicker"}
    assert server.post("/v1/reviews/fix-002/decisions", body).status_code == 201
    browser.until("return document.querySelector('.meanwhile .notice')")
    assert "Answered meanwhile: rejected by key:first-admin" in browser.text(".meanwhile")
    assert browser.run("return document.activeElement.value") == "half a rea"


def test_where_nothing_is_told_the_page_asks(browser: Browser, server: Running) -> None:
    browser.devtools("Network.enable")
    browser.devtools("Network.setBlockedURLs", urls=["*/portal/changes*"])
    try:
        browser.open(f"{server.address}/portal/queue")
        rows = browser.count(".row")
        last = browser.run(
            "return [...document.querySelectorAll('.row')].at(-1).href.split('/').at(-2)"
        )
        body = {"verdict": "reject", "because": "nobody told"}
        assert server.post(f"/v1/reviews/{last}/decisions", body).status_code == 201
        browser.until("return document.querySelectorAll('.row').length < arguments[0]", rows)
    finally:
        browser.devtools("Network.setBlockedURLs", urls=[])
        browser.devtools("Network.disable")
