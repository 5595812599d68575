"""A key becomes a session, and only what a session's own pages send is taken."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from limits import parse

from fallback_tier.service.roles import Role
from tests.service.portal import SAME_ORIGIN, form_token, portal_scenario, visit
from tests.service.running import served
from tests.service.scenario import ServiceScenario


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with portal_scenario(tmp_path) as opened:
        yield opened


def test_nobody_is_led_to_the_sign_in_and_back(service: ServiceScenario) -> None:
    nobody = visit(service)
    answer = nobody.client.get("/portal/queue", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/portal/sign-in?next=/portal/queue",
    )
    page = nobody.get("/sign-in?next=/portal/queue")
    assert 'name="next" value="/portal/queue"' in page
    fields = {"key": service.key(Role.READ), "next": "/portal/queue"}
    answer = nobody.client.post(
        "/portal/sign-in", data=fields, headers=SAME_ORIGIN, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/portal/queue")
    cookie = answer.headers["set-cookie"]
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert fields["key"] not in cookie


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/",
        "//evil.example/portal/",
        "/v1/fixes",
        "/portal/\\evil",
        "javascript:1",
    ],
)
def test_a_sign_in_leads_nowhere_else(service: ServiceScenario, place: str) -> None:
    fields = {"key": service.key(Role.READ), "next": place}
    answer = visit(service).client.post(
        "/portal/sign-in", data=fields, headers=SAME_ORIGIN, follow_redirects=False
    )
    assert answer.headers["location"] == "/portal/"


def test_wrong_keys_are_told_and_counted(service: ServiceScenario) -> None:
    client = visit(service).client
    answers = [
        client.post("/portal/sign-in", data={"key": f"ftk_{n}"}, headers=SAME_ORIGIN)
        for n in range(11)
    ]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert "This key is not valid" in answers[0].text
    assert "More than 10 per 1 minute" in answers[-1].text


def test_another_sites_page_signs_nobody_in(service: ServiceScenario) -> None:
    client = visit(service).client
    fields = {"key": service.key(Role.READ)}
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/portal/sign-in", data=fields, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_a_session_ends_with_its_key(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ)
    visitor.get("/queue")
    service.service.keys.revoke(service.service.keys.all()[-1].key_id)
    answer = visitor.client.get("/portal/queue", follow_redirects=False)
    assert answer.status_code == 303


def test_a_session_ends_with_the_day(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ)
    sessions = visitor.client.app.state.sessions  # type: ignore[attr-defined]
    ends = time.time() + service.service.settings.people.session_s
    sessions._clock = lambda: ends - 60
    assert visitor.client.get("/portal/sign-in", follow_redirects=False).status_code == 303
    sessions._clock = lambda: ends
    assert visitor.client.get("/portal/sign-in", follow_redirects=False).status_code == 200


def test_signing_out_ends_it(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ)
    page = visitor.get("/queue")
    copied = dict(visitor.client.cookies)
    thief = visit(service).client
    thief.cookies.update(copied)
    assert thief.get("/portal/queue", follow_redirects=False).status_code == 200
    assert visitor.send("/sign-out", page).status_code == 303
    for client in (visitor.client, thief):
        answer = client.get("/portal/queue", follow_redirects=False)
        assert answer.status_code == 303


@pytest.mark.parametrize("role", list(Role))
def test_whoever_has_signed_in_can_sign_out(service: ServiceScenario, role: Role) -> None:
    """Whatever they may do, and over every limit; on a page that they may not read is the form, too."""
    visitor = visit(service, role)
    form = {"form_token": form_token(visitor.client.get("/portal/queue").text)}
    doorman = service.portal.state.doorman
    doorman._per_caller = doorman._per_address = parse("1/hour")
    doorman._count(doorman._per_address, "address", "testclient")

    def sent(origin: str) -> httpx2.Response:
        headers = {"Origin": origin}
        return visitor.client.post(
            "/portal/sign-out", data=form, headers=headers, follow_redirects=False
        )

    assert sent("https://evil.example").status_code == 403
    copied = dict(visitor.client.cookies)
    for _ in range(2):  # who is out is led to the sign-in again
        ended = sent("http://testserver")
        assert (ended.status_code, ended.headers["location"]) == (303, "/portal/sign-in")
    doorman._per_caller = doorman._per_address = parse("100/hour")
    visitor.client.cookies.update(copied)
    assert visitor.client.get("/v1/session").status_code == 401


def test_signing_out_of_one_process_is_being_out_of_all(tmp_path: Path) -> None:
    """Two processes of the service on one state folder, as after a restart, or behind one address."""
    state = tmp_path / "state"
    keys = ("--keys", str(tmp_path / "keys"))
    with (
        served(state, options=keys) as one,
        served(state, options=keys, key=one.key) as other,
        one.client("") as browser,
        other.client("") as thief,
    ):
        signed = browser.post("/portal/sign-in", data={"key": one.key}, headers=SAME_ORIGIN)
        thief.cookies.update(dict(browser.cookies))
        assert thief.get("/portal/queue").status_code == 200
        form = {"form_token": form_token(browser.get("/portal/queue").text)}
        ended = browser.post("/portal/sign-out", data=form, headers=SAME_ORIGIN)
        assert (signed.status_code, ended.status_code) == (303, 303)
        assert thief.get("/portal/queue").status_code == 303


def test_a_decision_comes_from_a_page_of_the_session(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ, Role.DECIDE)
    page = visitor.get("/fixes/fix-cap/triage")
    path = "/portal/fixes/fix-cap/decisions"
    fields = {"verdict": "reject", "because": "no"}
    good = {**fields, "form_token": form_token(page)}
    other = {**fields, "form_token": form_token(visit(service, Role.READ).get("/queue"))}
    for data, headers in (
        (fields, SAME_ORIGIN),
        (other, SAME_ORIGIN),
        (good, {}),
        (good, {"Origin": "https://evil.example"}),
        (good, {"Sec-Fetch-Site": "same-site"}),
    ):
        answer = visitor.client.post(path, data=data, headers=headers)
        assert answer.status_code == 403, (data, headers)
    assert len(service.service.reviews.questions()) == 5
    assert visitor.client.post(path, data=good, headers=SAME_ORIGIN).status_code == 200
    assert len(service.service.reviews.questions()) == 4


def test_the_routes_take_a_session_too_from_our_own_pages(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ, Role.DECIDE)
    assert visitor.client.get("/v1/reviews").status_code == 200
    body = {"verdict": "reject", "because": "no"}
    path = "/v1/reviews/fix-cap/decisions"
    assert visitor.client.post(path, json=body).status_code == 403
    assert visitor.client.post(path, json=body, headers=SAME_ORIGIN).status_code == 201


def test_every_page_carries_the_policy(service: ServiceScenario) -> None:
    visitor = visit(service, Role.READ)
    for path in ("/sign-in", "/queue", "/fixes/fix-cap/triage", "/fixes/no-such/triage", "/no"):
        answer = visitor.client.get(f"/portal{path}")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';"), path
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'; trusted-types portal" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
