"""Signing in to the portal in a real Chromium, in each way, over a real server and a real issuer."""

import socket
from collections.abc import Iterator

import pytest

from fallback_tier.service.database import Database, service_db
from fallback_tier.service.people import People
from fallback_tier.service.roles import Role
from tests.browser.driver import ENTER, TAB, Browser, why_no_browser
from tests.service.issuer import CLIENT, SECRET, Issuer, issuing
from tests.service.portal import write_trails
from tests.service.running import Running, served

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.xdist_group("browser"),
]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path_factory.mktemp("sign-in")
    state = place / "state"
    write_trails(state)
    config = (
        f'[people]\nlocal = true\n[people.oidc]\nissuer = "{issuer.address}"\nclient_id = "{CLIENT}"\n'
        f'public_url = "http://127.0.0.1:{port}"\nroles = {{ deciders = ["read", "decide"] }}\n'
    )
    options = ("--port", str(port), "--keys", str(place / "keys"))
    with served(
        state, config, options=options, env={"FALLBACK_TIER_OIDC_SECRET": SECRET}
    ) as running:
        with Database(service_db(state)) as database:
            People(database).put("Ada", PASSWORD, [Role.READ, Role.DECIDE])
        yield running


@pytest.fixture
def browser(driver: Browser, server: Running) -> Iterator[Browser]:
    """Nobody has signed in; at the end nothing was against the policy."""
    driver.devtools("Network.clearBrowserCookies")
    driver.open(f"{server.address}/portal/queue")
    assert "/portal/sign-in?next=" in driver.address
    yield driver
    assert driver.run("return window.violations") == []


def arrived(browser: Browser, who: str) -> None:
    """On the page that was asked for first, under this name."""
    browser.until("return location.pathname === '/portal/queue'")
    assert browser.text(".who span") == who


def test_with_a_password(browser: Browser) -> None:
    browser.until("return document.activeElement.id === 'name'")
    browser.write("Ada")
    browser.press(TAB)
    browser.write("not this one")
    browser.press(ENTER)
    browser.until("return document.querySelector('.notice.bad')")
    assert "name and password don't match" in browser.text()
    browser.until("return document.activeElement.id === 'password'")
    browser.write(PASSWORD)
    browser.press(ENTER)
    arrived(browser, "person:Ada")


def test_at_the_issuer(browser: Browser, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["deciders"]
    browser.run("document.querySelector('.sign-in a.main').click()")
    arrived(browser, f"oidc:{issuer.address}#ada@example.org")


def test_the_issuer_knows_somebody_who_has_no_role_here(browser: Browser, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["guests"]
    browser.run("document.querySelector('.sign-in a.main').click()")
    browser.until("return location.pathname.endsWith('/callback') && document.querySelector('h1')")
    assert "none of your groups has a role here" in browser.text()
    browser.run("document.querySelector('main a').click()")
    browser.until("return location.pathname === '/portal/sign-in'")


def test_with_a_key_and_out_again(browser: Browser, server: Running) -> None:
    browser.sign_in(server.address, server.key)
    assert browser.text(".who span") == "key:first-admin"
    browser.run("document.querySelector('.who button').click()")
    browser.until("return location.pathname === '/portal/sign-in'")
    browser.open(f"{server.address}/portal/queue")
    assert "/portal/sign-in" in browser.address
