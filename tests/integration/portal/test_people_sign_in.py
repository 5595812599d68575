"""People sign in to the portal as they do to the service: a password, an issuer; with the same session."""

import html
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Secrets, ServiceSettings, parse_settings
from tests.service.issuer import CLIENT, SECRET, Issuer, issuing, sent_back
from tests.service.portal import (
    SAME_ORIGIN,
    Visitor,
    form_token,
    text_of,
    visit,
    write_trails,
)
from tests.service.scenario import ServiceScenario, service_scenario

PASSWORD = "correct horse battery"
PUBLIC = "http://localhost"

#: As a browser asks for a page.
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        running.claims["groups"] = ["deciders"]
        yield running


def settings_for(issuer: Issuer) -> ServiceSettings:
    return parse_settings(
        f'[people]\nlocal = true\n[people.oidc]\nissuer = "{issuer.address}"\nclient_id = "{CLIENT}"\n'
        f'public_url = "{PUBLIC}"\nroles = {{ deciders = ["read", "decide"] }}\n',
        "x",
    )


@pytest.fixture
def service(tmp_path: Path, issuer: Issuer) -> Iterator[ServiceScenario]:
    secrets = Secrets(oidc=SecretStr(SECRET))
    with service_scenario(tmp_path, settings_for(issuer), secrets=secrets) as opened:
        write_trails(opened.service.state_dir)
        opened.service.people.put("Ada", PASSWORD, [Role.READ, Role.DECIDE])
        yield opened


def with_password(visitor: Visitor, password: str = PASSWORD, after: str = "") -> httpx2.Response:
    form = {"name": "Ada", "password": password, "next": after}
    return visitor.client.post(
        "/portal/sign-in", data=form, headers=SAME_ORIGIN, follow_redirects=False
    )


def through_the_issuer(visitor: Visitor, after: str = "/portal/queue") -> httpx2.Response:
    """To it and back, up to the service's last answer."""
    out = visitor.client.get("/v1/session/oidc", params={"next": after}, follow_redirects=False)
    back = sent_back(out.headers["location"])
    path = back.removeprefix(PUBLIC)
    return visitor.client.get(path, headers=HTML, follow_redirects=False)


def test_the_page_offers_each_way_that_there_is(service: ServiceScenario, tmp_path: Path) -> None:
    page = visit(service).get("/sign-in?next=/portal/fixes%3Ftext=a")
    assert 'href="/v1/session/oidc?next=%2Fportal%2Ffixes%3Ftext%3Da"' in page
    assert "Sign in at 127.0.0.1:" in page
    assert 'autocomplete="username"' in page
    assert "With an API key" in page
    with service_scenario(tmp_path / "keys-alone") as keys_alone:
        page = visit(keys_alone).get("/sign-in")
    assert "/v1/session/oidc" not in page
    assert 'name="password"' not in page
    assert 'id="key"' in page


def test_a_person_with_a_password_decides_under_their_name(service: ServiceScenario) -> None:
    visitor = visit(service)
    answer = with_password(visitor, after="/portal/queue")
    assert (answer.status_code, answer.headers["location"]) == (303, "/portal/queue")
    assert "person:Ada" in text_of(visitor.get("/queue"))
    assert visitor.decide("fix-cap", "reject").status_code == 303
    assert "by person:Ada" in text_of(visitor.get("/fixes/fix-cap"))
    assert visitor.client.get("/v1/session").json()["name"] == "person:Ada"


def test_a_new_password_or_removal_ends_the_pages_too(service: ServiceScenario) -> None:
    visitor = visit(service)
    with_password(visitor)
    visitor.get("/queue")
    service.service.people.put("Ada", PASSWORD[::-1], [Role.READ])
    assert visitor.client.get("/portal/queue", follow_redirects=False).status_code == 303


def test_a_wrong_password_is_told_and_counted(service: ServiceScenario) -> None:
    visitor = visit(service)
    answers = [with_password(visitor, "wrong") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429]
    assert "This name and password don't match." in html.unescape(answers[0].text)
    assert "set-cookie" not in answers[0].headers
    assert 'value="Ada"' in answers[0].text


def test_no_password_opens_anything_where_there_are_none(tmp_path: Path) -> None:
    """Those of an earlier configuration are still in the database."""
    with service_scenario(tmp_path) as opened:
        opened.service.people.put("Ada", PASSWORD, [Role.ADMIN])
        assert with_password(visit(opened)).status_code == 401


def test_another_sites_page_signs_nobody_in_with_a_password(service: ServiceScenario) -> None:
    form = {"name": "Ada", "password": PASSWORD}
    client = visit(service).client
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.post("/portal/sign-in", data=form, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_who_comes_from_the_issuer_decides_under_its_name(
    service: ServiceScenario, issuer: Issuer
) -> None:
    visitor = visit(service)
    answer = through_the_issuer(visitor)
    assert (answer.status_code, answer.headers["location"]) == (303, "/portal/queue")
    assert visitor.decide("fix-cap", "reject").status_code == 303
    assert f"by oidc:{issuer.address}#ada@example.org" in text_of(visitor.get("/fixes/fix-cap"))


def test_the_cookie_is_stricter_where_no_issuer_leads_back(service: ServiceScenario) -> None:
    assert "samesite=lax" in with_password(visit(service)).headers["set-cookie"]


@pytest.mark.parametrize(
    ("claims", "status", "words"),
    [
        ({"groups": ["guests"]}, 403, "none of your groups has a role here"),
        ({"nonce": "another"}, 401, "not to be believed"),
    ],
)
def test_what_the_issuer_is_refused_for_is_a_page(
    service: ServiceScenario, issuer: Issuer, claims: dict[str, object], status: int, words: str
) -> None:
    issuer.claims.update(claims)
    answer = through_the_issuer(visit(service))
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert words in text_of(answer.text)
    assert "/portal/sign-in" in answer.text


def test_a_program_is_told_as_before(service: ServiceScenario) -> None:
    answer = visit(service).client.get("/v1/fixes", headers={"Accept": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"


def test_one_session_takes_the_place_of_the_other(service: ServiceScenario) -> None:
    """Whoever signs in next on this browser is not taken for the one before."""
    visitor = visit(service, Role.ADMIN)
    page = visitor.get("/queue")
    with_password(visitor)
    assert visitor.client.get("/v1/session").json()["name"] == "person:Ada"
    assert visitor.send("/sign-out", page).status_code == 403


def test_with_tls_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    """And is sent over TLS alone: browsers take ``__Host-`` with Secure, Path=/ and no Domain only."""
    settings = parse_settings('[listen]\ntrusted_proxies = ["127.0.0.1"]\n', "x")
    with service_scenario(tmp_path, settings) as opened:
        form = {"key": opened.key(Role.READ)}
        client = visit(opened).client
        client.base_url = httpx2.URL("https://testserver")
        answer = client.post(
            "/portal/sign-in", data=form, headers=SAME_ORIGIN, follow_redirects=False
        )
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-fallback_tier_session=")
        assert "; path=/; " in cookie
        assert "; secure" in cookie
        assert "domain" not in cookie
        assert client.get("/portal/queue").status_code == 200


def test_settings_show_who_has_which_role_and_not_the_secret(service: ServiceScenario) -> None:
    page = visit(service, Role.ADMIN).get("/settings")
    assert "deciders read, decide file or option" in text_of(page)
    assert SECRET not in page


@pytest.mark.parametrize("roles", [[Role.DECIDE], [Role.SUBMIT], [Role.READ]])
def test_sign_out_needs_no_role(service: ServiceScenario, roles: list[Role]) -> None:
    service.service.people.put("Ada", PASSWORD, roles)
    visitor = visit(service)
    assert with_password(visitor).status_code == 303
    token = form_token(visitor.client.get("/portal/queue").text)
    fields = {"form_token": token}
    answer = visitor.client.post(
        "/portal/sign-out", data=fields, headers=SAME_ORIGIN, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/portal/sign-in")
    assert visitor.client.get("/v1/session").status_code == 401


def test_sign_out_takes_no_form_of_another_page(service: ServiceScenario) -> None:
    visitor = visit(service)
    with_password(visitor)
    for headers, token in (({}, "x"), (SAME_ORIGIN, "x"), ({"Origin": "https://evil.example"}, "")):
        fields = {"form_token": token}
        answer = visitor.client.post("/portal/sign-out", data=fields, headers=headers)
        assert answer.status_code == 403
    assert visitor.client.get("/v1/session").status_code == 200
