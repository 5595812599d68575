"""People sign in: with a password of this machine, or at a real (small) issuer."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import RSAKey
from pydantic import SecretStr

from fallback_tier.errors import StateFolderError
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Limits, Secrets, ServiceSettings, parse_settings
from tests.integration.service.test_requests import problem
from tests.service.issuer import CLIENT, SECRET, Issuer, issuing, sent_back
from tests.service.running import SCRIPT, served
from tests.service.scenario import ServiceScenario, service_scenario

PASSWORD = "correct horse battery"
ADA = {"name": "Ada", "password": PASSWORD}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[ServiceScenario]:
    settings = parse_settings("[people]\nlocal = true\n", "x")
    settings = settings.model_copy(update={"limits": Limits(failed_sign_ins="3/hour")})
    with service_scenario(tmp_path, settings) as opened:
        opened.service.people.put("Ada", PASSWORD, [Role.READ, Role.DECIDE])
        yield opened


def signed_in(service: ServiceScenario) -> TestClient:
    client = service.client()
    assert client.post("/v1/session", json=ADA).status_code == 200
    return client


def test_a_session_opens_what_its_roles_are_for(local: ServiceScenario) -> None:
    client = signed_in(local)
    who = client.get("/v1/session").json()
    assert who == {"name": "person:Ada", "roles": ["decide", "read"], "is_person": True}
    assert client.get("/v1/fixes").status_code == 200
    body = {"repository": "app", "advisory": {}}
    problem(client.post("/v1/fixes", json=body, headers={"Origin": "http://testserver"}), 403)


def add_person(state: Path) -> None:
    subprocess.run(
        [SCRIPT, "keys", "person", "Ada", "--role", "read", "--state-dir", state],
        input=f"{PASSWORD}\n",
        text=True,
        check=True,
    )


def from_address(service: ServiceScenario, address: str) -> TestClient:
    return TestClient(service.app, client=(address, 50_000), raise_server_exceptions=False)


def tried(client: TestClient, name: str, password: str, times: int = 1) -> list[int]:
    body = {"name": name, "password": password}
    return [client.post("/v1/session", json=body).status_code for _ in range(times)]


def test_attempts_that_arrive_together_are_limited_before_the_hash(tmp_path: Path) -> None:
    """A real service, with its slow hash: an answer of 401 is a guess that was hashed."""
    state = tmp_path / "state"
    with served(state, "[people]\nlocal = true\n") as running:
        add_person(state)
        address = str(running.client("").base_url)

        def guess(number: int) -> int:
            body = {"name": f"Ada{number % 2 or ''}", "password": f"wrong password {number}"}
            return httpx2.post(f"{address}/v1/session", json=body, timeout=60).status_code

        with ThreadPoolExecutor(100) as threads:
            answers = Counter(threads.map(guess, range(100)))
    assert answers[401] <= 10
    assert answers[401] + answers[429] == 100


def test_a_right_password_uses_up_no_limit(local: ServiceScenario) -> None:
    client = local.client()
    assert tried(client, "Ada", PASSWORD, 8) == [200] * 8
    with ThreadPoolExecutor(16) as threads:  # of those at the same time some must wait
        together = list(threads.map(lambda _: tried(local.client(), "Ada", PASSWORD)[0], range(16)))
    assert set(together) <= {200, 429}
    assert tried(client, "Ada", "wrong password", 4) == [401, 401, 401, 429]


def test_guesses_from_many_addresses_are_limited_by_name(local: ServiceScenario) -> None:
    guesses = [
        tried(from_address(local, f"198.51.100.{n}"), "Ada", "wrong word")[0] for n in range(9)
    ]
    assert guesses == [401] * 3 + [429] * 6
    unknown = [
        tried(from_address(local, f"198.51.100.{n}"), "Bob", "wrong word")[0] for n in range(9)
    ]
    assert unknown == guesses, "an unknown name is told from a known one"


def test_failures_of_others_lock_nobody_out_who_signed_in_from_there(
    local: ServiceScenario,
) -> None:
    """A person keeps the address that it works from."""
    office = from_address(local, "192.0.2.1")
    assert tried(office, "Ada", PASSWORD) == [200]
    for number in range(9):
        tried(from_address(local, f"198.51.100.{number}"), "Ada", "wrong word")
    assert tried(office, "Ada", PASSWORD) == [200]
    assert tried(from_address(local, "192.0.2.2"), "Ada", PASSWORD) == [429]
    local.service.people.put("Eve", PASSWORD, [Role.READ])
    assert tried(from_address(local, "192.0.2.2"), "Eve", PASSWORD) == [200]
    assert tried(office, "Ada", "wrong word", 4) == [401, 401, 401, 429]  # its address still counts


def test_what_is_refused_is_not_counted(local: ServiceScenario) -> None:
    client = local.client()
    assert tried(client, "Ada", "wrong word", 2) == [401, 401]
    assert tried(client, "Ada", PASSWORD, 5) == [200] * 5
    assert tried(client, "Ada", "wrong word", 3) == [401, 429, 429]


def test_no_answer_of_the_routes_is_kept_by_anybody(local: ServiceScenario) -> None:
    reader = local.client(Role.READ)
    for client, path, status in (
        (reader, "/v1/fixes", 200),
        (reader, "/v1/fixes/no-such", 404),
        (reader, "/v1/no-such", 404),
        (reader, "/v1/openapi.json", 200),
        (reader, "/v1/audit/events", 200),
        (local.client(), "/v1/fixes", 401),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer.headers.get("cache-control")) == (status, "no-store"), (
            path
        )
    large = reader.post("/v1/fixes", content=b"x", headers={"Content-Length": str(10**9)})
    assert (large.status_code, large.headers["cache-control"]) == (413, "no-store")
    assert local.client().post("/v1/session", json=ADA).headers["cache-control"] == "no-store"


def test_an_answer_that_a_defect_makes_is_not_kept(
    local: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("fallback_tier.service.operations.fixes.Fixes.page", broken)
    answer = local.client(Role.READ).get("/v1/fixes")
    assert (answer.status_code, answer.headers["cache-control"]) == (500, "no-store")


def test_no_script_reads_the_cookie(local: ServiceScenario) -> None:
    answer = local.client().post("/v1/session", json=ADA)
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert PASSWORD not in flags


def test_who_signs_out_is_out(local: ServiceScenario) -> None:
    client = signed_in(local)
    problem(client.delete("/v1/session"), 403)  # nobody knows whose page asks for it
    ours = {"Origin": "http://testserver"}
    copied = dict(client.cookies)
    assert client.delete("/v1/session", headers=ours).status_code == 204
    assert client.get("/v1/fixes").status_code == 401
    thief = local.client()
    thief.cookies.update(copied)
    problem(thief.get("/v1/fixes"), 401)
    assert signed_in(local).get("/v1/fixes").status_code == 200  # the next session is another one


def test_who_signs_out_while_the_disk_is_full_is_out_in_this_browser(
    local: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StateFolderError("The disk is full.", next_step="Make room.")

    client = signed_in(local)
    monkeypatch.setattr(local.service.people, "end_session", full)
    answer = client.delete("/v1/session", headers={"Origin": "http://testserver"})
    assert answer.status_code == 503  # copies of the cookie are not ended
    assert client.get("/v1/fixes").status_code == 401


def test_who_signs_in_again_ends_the_session_before(local: ServiceScenario) -> None:
    client, thief = signed_in(local), local.client()
    thief.cookies.update(dict(client.cookies))
    assert thief.get("/v1/fixes").status_code == 200
    assert client.post("/v1/session", json=ADA).status_code == 200
    assert client.get("/v1/fixes").status_code == 200
    problem(thief.get("/v1/fixes"), 401)


def test_who_is_removed_is_out_at_once(local: ServiceScenario) -> None:
    client = signed_in(local)
    local.service.people.remove("Ada")
    problem(client.get("/v1/fixes"), 401)


def test_a_new_password_ends_the_sessions_of_the_old_one(local: ServiceScenario) -> None:
    """It is given because the old one is known to somebody."""
    client = signed_in(local)
    local.service.people.put("Ada", PASSWORD[::-1], [Role.READ])
    problem(client.get("/v1/fixes"), 401)
    local.service.people.remove("Ada")
    local.service.people.put("Ada", PASSWORD, [Role.READ])  # another Ada
    problem(client.get("/v1/fixes"), 401)


def test_a_cookie_of_ones_own_making_opens_nothing(local: ServiceScenario, tmp_path: Path) -> None:
    client = signed_in(local)
    (cookie,) = client.cookies.jar
    assert cookie.value is not None
    body, _, signature = cookie.value.partition(".")
    forged = local.client()
    forged.cookies.set(cookie.name, f"{body[:-4]}AAAA.{signature}")
    assert forged.get("/v1/fixes").status_code == 401


def test_another_sites_page_changes_nothing(local: ServiceScenario) -> None:
    client = signed_in(local)
    body = {"verdict": "reject", "because": "no"}
    path = "/v1/reviews/fix-0/decisions"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "none"},
    ):
        reported = problem(client.post(path, json=body, headers=headers), 403)
        assert "another site's page" in reported["detail"]
        problem(client.post("/v1/session", json=ADA, headers=headers), 403)
    for headers in ({"Origin": "http://testserver"}, {"Sec-Fetch-Site": "same-origin"}):
        problem(client.post(path, json=body, headers=headers), 404)


def test_guesses_are_counted(local: ServiceScenario) -> None:
    client = local.client()
    wrong = {**ADA, "password": "wrong"}
    tried = [client.post("/v1/session", json=wrong).status_code for _ in range(4)]
    assert tried == [401, 401, 401, 429]
    problem(client.post("/v1/session", json=ADA), 429)


def test_all_sessions_end_at_once(local: ServiceScenario) -> None:
    client = signed_in(local)
    assert client.get("/v1/fixes").status_code == 200
    local.service.people.end_sessions()
    problem(client.get("/v1/fixes"), 401)
    assert signed_in(local).get("/v1/fixes").status_code == 200


def test_a_valid_key_gets_in_where_others_have_guessed(local: ServiceScenario) -> None:
    """Who shares an address with whoever tries keys is not shut out."""
    client, key = local.client(), local.key(Role.READ)
    tried = [
        client.get("/v1/fixes", headers={"X-API-Key": f"ftk_{number}"}).status_code
        for number in range(5)
    ]
    assert tried == [401, 401, 401, 429, 429]
    assert client.get("/v1/fixes", headers={"X-API-Key": key}).status_code == 200


def test_who_comes_without_a_key_shuts_nobody_out(tmp_path: Path) -> None:
    settings = ServiceSettings(limits=Limits(requests_per_address="3/hour"))
    with service_scenario(tmp_path, settings) as opened:
        client, key = opened.client(), opened.key(Role.READ)
        assert [client.get("/v1/fixes").status_code for _ in range(4)] == [401, 401, 401, 429]
        headers = {"X-API-Key": key}
        answers = [client.get("/v1/fixes", headers=headers).status_code for _ in range(4)]
        assert answers == [200, 200, 200, 429]


def test_who_is_looked_up_outside_the_event_loop(
    local: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer may hold the file for seconds; everybody else's answers go on meanwhile."""
    in_loop: set[bool] = set()
    real = local.service.database.reading

    def watched() -> object:
        try:
            asyncio.get_running_loop()
            in_loop.add(True)
        except RuntimeError:
            in_loop.add(False)
        return real()

    client, key = signed_in(local), {"X-API-Key": local.key(Role.READ)}
    monkeypatch.setattr(local.service.database, "reading", watched)
    for path in ("/v1/fixes", "/v1/session", "/v1/fixes/fix-0/events"):
        client.get(path)
        client.get(path, headers=key)
    assert in_loop == {False}


def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    settings = parse_settings("[people]\nlocal = true\nsession_s = 0.05\n", "x")
    with service_scenario(tmp_path, settings) as opened:
        opened.service.people.put("Ada", PASSWORD, [Role.READ])
        client = opened.client()
        client.app.state.sessions._clock = lambda: 10.0  # type: ignore[attr-defined]
        cookie = client.post("/v1/session", json=ADA).headers["set-cookie"]
        name, _, value = cookie.partition(";")[0].partition("=")
        client.app.state.sessions._clock = lambda: 10.06  # type: ignore[attr-defined]
        assert client.get("/v1/fixes", headers={"Cookie": f"{name}={value}"}).status_code == 401


# --- An issuer ------------------------------------------------------------------------------------

PUBLIC = "http://localhost:8765"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture
def remote(tmp_path: Path, issuer: Issuer) -> Iterator[ServiceScenario]:
    with service_scenario(
        tmp_path, settings_for(issuer), secrets=Secrets(oidc=SecretStr(SECRET))
    ) as opened:
        yield opened


def settings_for(issuer: Issuer) -> ServiceSettings:
    return parse_settings(
        f'[people.oidc]\nissuer = "{issuer.address}"\nclient_id = "{CLIENT}"\n'
        f'public_url = "{PUBLIC}"\nroles = {{ security = ["read"], platform = ["admin"] }}\n',
        "x",
    )


def through(service: ServiceScenario, path: str = "/v1/session/oidc") -> tuple[TestClient, Any]:
    """A browser's way to the issuer and back, up to the last answer."""
    client = service.client()
    out = client.get(path, follow_redirects=False)
    assert out.status_code == 302, out.text
    back = sent_back(out.headers["location"])
    assert back.startswith(f"{PUBLIC}/v1/session/oidc/callback?")
    return client, client.get(back.removeprefix(PUBLIC), follow_redirects=False)


def test_who_comes_back_from_the_issuer_has_its_roles(remote: ServiceScenario) -> None:
    client, answer = through(remote)
    assert (answer.status_code, answer.headers["location"]) == (303, "/v1/session")
    who = client.get("/v1/session").json()
    assert remote.service.settings.people.oidc is not None
    name = f"oidc:{remote.service.settings.people.oidc.issuer}#ada@example.org"
    assert who == {"name": name, "roles": ["read"], "is_person": True}


def test_nobody_of_an_issuers_is_taken_for_somebody_of_this_machine(
    remote: ServiceScenario,
) -> None:
    """The record tells them apart, whatever names the issuer gives."""
    remote.service.people.put("ada@example.org", PASSWORD, [Role.READ])
    local = remote.service.people.caller("ada@example.org")
    client, _ = through(remote)
    assert local is not None
    assert client.get("/v1/session").json()["name"] != local.name == "person:ada@example.org"


def test_an_issuers_session_ends_with_all_others(remote: ServiceScenario) -> None:
    client, _ = through(remote)
    assert client.get("/v1/fixes").status_code == 200
    remote.service.people.end_sessions()
    problem(client.get("/v1/fixes"), 401)


@pytest.mark.parametrize(
    ("changed", "is_in"),
    [
        ({}, 200),
        ({"session_s": 60.0}, 200),
        ({"issuer": "https://id.example.org"}, 401),
        ({"client_id": "another"}, 401),
        ({"roles": {"security": (Role.ADMIN,)}}, 401),
    ],
)
def test_a_session_is_of_the_issuer_that_is_configured(
    tmp_path: Path, issuer: Issuer, changed: dict[str, object], is_in: int
) -> None:
    """What one let in, or gave roles, is not believed where the configuration names another."""
    settings, secrets = settings_for(issuer), Secrets(oidc=SecretStr(SECRET))
    with service_scenario(tmp_path, settings, secrets=secrets) as before:
        client, _ = through(before)
        assert client.get("/v1/fixes").status_code == 200
    assert settings.people.oidc is not None
    oidc = settings.people.oidc.model_copy(update=changed)
    people = settings.people.model_copy(update={"oidc": oidc})
    settings = settings.model_copy(update={"people": people})
    with service_scenario(tmp_path, settings, secrets=secrets) as after:
        again = after.client()
        again.cookies = client.cookies
        assert again.get("/v1/fixes").status_code == is_in


def test_an_issuers_session_is_a_short_one(remote: ServiceScenario) -> None:
    client, _ = through(remote)
    sessions = client.app.state.sessions  # type: ignore[attr-defined]
    now = sessions._clock()
    sessions._clock = lambda: now + 3_590
    assert client.get("/v1/fixes").status_code == 200
    sessions._clock = lambda: now + 3_601
    problem(client.get("/v1/fixes"), 401)


def test_groups_add_up(remote: ServiceScenario, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["security", "platform", "other", 7]
    client, _ = through(remote)
    assert client.get("/v1/session").json()["roles"] == ["admin", "read"]


def test_a_browser_comes_back_to_where_it_was(remote: ServiceScenario) -> None:
    _, answer = through(remote, "/v1/session/oidc?next=/reviews?page=2")
    assert answer.headers["location"] == "/reviews?page=2"
    for elsewhere in ("https://evil.example", "//evil.example", "/\\evil.example", "evil"):
        answer = remote.client().get("/v1/session/oidc", params={"next": elsewhere})
        problem(answer, 422)


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"email": None},
        {"email": "a\nb"},
        {"email_verified": False},
        {"email_verified": "false"},
    ],
)
def test_an_answer_that_is_not_to_be_believed(
    remote: ServiceScenario, issuer: Issuer, claims: dict[str, object]
) -> None:
    issuer.claims.update(claims)
    client, answer = through(remote)
    assert "not to be believed" in problem(answer, 401)["detail"]
    assert client.get("/v1/session").status_code == 401


def test_a_token_that_somebody_else_signed(remote: ServiceScenario, issuer: Issuer) -> None:
    issuer.signs_with = RSAKey.generate_key(2048)
    _, answer = through(remote)
    problem(answer, 401)


def test_who_is_in_no_group_has_no_role(remote: ServiceScenario, issuer: Issuer) -> None:
    issuer.claims["groups"] = ["guests"]
    client, answer = through(remote)
    assert "none of your groups" in problem(answer, 403)["detail"]
    assert client.get("/v1/session").status_code == 401


def test_the_way_back_belongs_to_one_browser(remote: ServiceScenario) -> None:
    out = remote.client().get("/v1/session/oidc", follow_redirects=False)
    back = sent_back(out.headers["location"]).removeprefix(PUBLIC)
    problem(remote.client().get(back, follow_redirects=False), 401)


def test_an_issuer_that_is_away_is_said(tmp_path: Path) -> None:
    with issuing() as gone:
        settings = settings_for(gone)
    with service_scenario(tmp_path, settings) as service:
        problem(service.client().get("/v1/session/oidc"), 503)
