"""Every page of the portal, in every state: what tests look at, and pictures are made of."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from fallback_tier.wiring import audit_db
from tests.browser.driver import ENTER, Browser
from tests.service.campaigns import write_campaign
from tests.service.portal import SAME_ORIGIN, TRAILS, WITH_EXAMPLES, write_trails
from tests.service.running import Running

#: Pages of a record as tests/service/portal.py writes it, with the campaign of tests/service/campaigns.py,
#: that nothing has to be known for.
PLAIN = {
    "queue": "/portal/queue",
    "overview": "/portal/",
    "fixes": "/portal/fixes",
    "no-such-fix": "/portal/fixes?text=no-such",
    "fix": "/portal/fixes/fix-cap",
    "fix-with-model": "/portal/fixes/fix-budget",
    "triage": "/portal/fixes/fix-same/triage",
    "triage-of-budget": "/portal/fixes/fix-budget/triage",
    "triage-of-gates": "/portal/fixes/fix-gates/triage",
    "event": "/portal/fixes/fix-cap/events/8",
    "alike": "/portal/fixes/fix-gates/alike",
    "campaigns": "/portal/campaigns",
    "campaign": "/portal/campaigns/spring",
    "campaign-state": "/portal/campaigns/spring?state=failed",
    "verification": "/portal/verification",
    "example": "/portal/example?id=e1",
    "settings": "/portal/settings",
    "error": "/portal/no-such-page",
}

#: Of a service with nothing on record.
EMPTY = {
    "empty-queue": "/portal/queue",
    "empty-overview": "/portal/",
    "empty-fixes": "/portal/fixes",
    "empty-campaigns": "/portal/campaigns",
    "empty-verification": "/portal/verification",
}

#: Pages that have the parts of another, which is looked at with the suite: of evidence a patch and a log,
#: of fixes one with a model and the broken one, of questions those with forms of their own and one with its
#: attempt open.
_ALIKE = {
    *("fix", "triage", "campaign-state", "no-such-fix", "error"),
    *("empty-campaigns", "empty-verification"),
}
_EVIDENCE = {"evidence-PatchProposed", "evidence-GateJudged"}


def is_like_another(name: str) -> bool:
    """Of a page's name."""
    return name in _ALIKE or (name.startswith("evidence-") and name not in _EVIDENCE)


def is_of_its_own(name: str) -> bool:
    """Of a page's name."""
    return not is_like_another(name)


#: A configuration with every way to sign in.
EVERY_WAY = (
    '[people]\nlocal = true\n[people.oidc]\nissuer = "https://id.example.org"\nclient_id = "x"\n'
    'public_url = "https://fixes.example.org"\nroles = { security = ["read"] }\n'
)


def write_all(state: Path) -> None:
    """The record that these pages are of: every kind of question, solved examples, a campaign."""
    write_trails(state, (*TRAILS, *WITH_EXAMPLES))
    write_campaign(state)


def pages(server: Running) -> dict[str, str]:
    """By name; with those whose addresses the record tells."""
    found = dict(PLAIN)
    for name in ("fix-same", "fix-cap"):
        items = server.get(f"/v1/fixes/{name}/evidence")["evidence"]
        for item in items:
            found[f"evidence-{item['kind']}"] = f"/portal/fixes/{name}/evidence/{item['sha256']}"
    question = server.get("/v1/reviews/fix-same")["question"]
    found["advisory"] = f"/portal/advisory?id={quote(question['advisory_id'], safe='')}"
    found["repository"] = f"/portal/repository?name={quote(question['repository'], safe='')}"
    return found


def saved(server: Running, fix_id: str, place: Path) -> Path:
    """The page of a fix that needs no server, as a person saves it."""
    with server.client("") as client:
        client.post("/portal/sign-in", data={"key": server.key}, headers=SAME_ORIGIN)
        answer = client.get(f"/portal/fixes/{fix_id}/export.html")
    assert answer.status_code == 200, answer.text
    (file := place / f"{fix_id}.html").write_bytes(answer.content)
    return file


def _attempt(browser: Browser, server: Running) -> None:
    browser.open(f"{server.address}/portal/fixes/fix-cap/triage")
    browser.run("document.querySelectorAll('.attempt')[1].open = true")


def _keys(browser: Browser, server: Running) -> None:
    browser.open(f"{server.address}/portal/fixes/fix-cap/triage")
    browser.press("?")


def _forbidden(browser: Browser, server: Running) -> None:
    """403: a form that no page of this session made."""
    browser.open(f"{server.address}/portal/verification")
    browser.run("document.querySelector('main [name=form_token]').value = 'another'")
    _send(browser, "main form")


def _verified(browser: Browser, server: Running) -> None:
    browser.open(f"{server.address}/portal/verification")
    _send(browser, "main form")


def _wrong_password(browser: Browser, server: Running) -> None:
    """401."""
    browser.devtools("Network.clearBrowserCookies")
    browser.open(f"{server.address}/portal/sign-in")
    browser.run("document.getElementById('name').focus()")
    browser.write("Ada")
    browser.run("document.getElementById('password').focus()")
    browser.write("not the one")
    browser.press(ENTER)
    browser.until("return document.querySelector('.notice.bad')")


def _answered(browser: Browser, server: Running) -> None:
    """409: somebody was quicker."""
    path = "/v1/reviews/fix-model/decisions"
    browser.open(f"{server.address}/portal/fixes/fix-model/triage")
    server.post(path, {"verdict": "reject", "because": "seen by hand"})
    browser.press("r")
    browser.write("no model")
    browser.press(ENTER)
    browser.until("return document.querySelector('main > .notice.bad')")


def _send(browser: Browser, form: str) -> None:
    browser.run("window.before = 1; document.querySelector(arguments[0]).requestSubmit()", form)
    browser.until("return !window.before && document.readyState === 'complete'")


#: What has to be done before it is seen, by name; some change the record, and come after the pages.
STATES: dict[str, Callable[[Browser, Running], None]] = {
    "attempt": _attempt,
    "keys": _keys,
    "forbidden": _forbidden,
    "verified": _verified,
    "answered": _answered,
    "wrong-password": _wrong_password,
}


#: Pages of a record that is not what was written, from an event in the middle of ``fix-cap`` on.
BROKEN = {"defect": "/portal/fixes/fix-cap", "overview-of-broken": "/portal/"}


def break_record(state: Path) -> None:
    """One word of event 20 is another."""
    with closing(sqlite3.connect(audit_db(state))) as db, db:
        db.execute("DROP TRIGGER audit_payload_no_update")
        db.execute(
            "UPDATE audit_payload SET payload = CAST(replace(CAST(payload AS TEXT), 'a', 'b') AS BLOB) "
            "WHERE seq = 20"
        )
