"""Who may do what: every route, with every role and without any."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from fallback_tier.service.operations.feed import FeedItem
from fallback_tier.service.roles import Role
from tests.e2e.command import osv, repository
from tests.service.scenario import ServiceScenario, service_scenario

ADVISORY = json.loads(osv("idna", fixed="3.7"))
FIX = {"repository": "app", "advisory": ADVISORY}

#: Route → the role that it asks for. A new route must be added here.
NEEDS = {
    ("GET", "/v1/repositories"): Role.READ,
    ("POST", "/v1/fixes"): Role.SUBMIT,
    ("GET", "/v1/fixes"): Role.READ,
    ("GET", "/v1/fixes/{fix_id}"): Role.READ,
    ("GET", "/v1/fixes/{fix_id}/events"): Role.READ,
    ("GET", "/v1/fixes/{fix_id}/patch"): Role.READ,
    ("GET", "/v1/fixes/{fix_id}/evidence"): Role.READ,
    ("GET", "/v1/fixes/{fix_id}/evidence/{digest}"): Role.READ,
    ("POST", "/v1/fixes/{fix_id}/cancel"): Role.SUBMIT,
    ("POST", "/v1/fixes/{fix_id}/resume"): Role.SUBMIT,
    ("GET", "/v1/reviews"): Role.READ,
    ("GET", "/v1/reviews/{fix_id}"): Role.READ,
    ("POST", "/v1/reviews/{fix_id}/decisions"): Role.DECIDE,
    ("POST", "/v1/attempts"): Role.SUBMIT,
    ("POST", "/v1/attempts/stream"): Role.SUBMIT,
    ("GET", "/v1/audit/events"): Role.READ,
    ("GET", "/v1/audit/export"): Role.READ,
    ("POST", "/v1/audit/verify"): Role.READ,
    ("GET", "/v1/campaigns"): Role.READ,
    ("GET", "/v1/campaigns/{name}"): Role.READ,
    ("GET", "/v1/campaigns/{name}/fixes"): Role.READ,
    ("POST", "/v1/campaigns/{name}/pause"): Role.DECIDE,
    ("POST", "/v1/campaigns/{name}/resume"): Role.DECIDE,
}

#: Routes of people who sign in, and what each answers without a session or a key: test_sessions.py.
OPEN = {
    ("GET", "/v1/session"): 401,
    ("POST", "/v1/session"): 422,
    ("DELETE", "/v1/session"): 204,
    ("GET", "/v1/session/oidc"): 422,
    ("GET", "/v1/session/oidc/callback"): 422,
}

#: What a request needs besides, so that it gets as far as the role.
BODIES = {
    "/v1/fixes": FIX,
    "/v1/attempts": FIX,
    "/v1/attempts/stream": FIX,
    "/v1/reviews/{fix_id}/decisions": {"verdict": "reject", "because": "no"},
    "/v1/campaigns/{name}/pause": {"because": "no"},
    "/v1/campaigns/{name}/resume": {"because": "no"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceScenario]:
    place = tmp_path_factory.mktemp("roles")
    app = repository(place / "app", {"requirements.txt": "idna==3.6\n"})
    with service_scenario(place, repositories=[app]) as opened:
        yield opened


def asked(service: ServiceScenario, method: str, path: str, *roles: Role) -> int:
    real = path.format(fix_id="fix-0", digest="0" * 64, name="spring")
    body = BODIES.get(path) if method == "POST" else None
    return service.client(*roles).request(method, real, json=body).status_code


def test_every_route_is_in_the_table(service: ServiceScenario) -> None:
    paths = service.client().get("/v1/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert routes == {*NEEDS, *OPEN}


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_what_is_open_tells_nothing(service: ServiceScenario, method: str, path: str) -> None:
    assert asked(service, method, path) == OPEN[method, path]


@pytest.mark.parametrize(("method", "path"), NEEDS)
def test_nobody_gets_in_without_a_key(service: ServiceScenario, method: str, path: str) -> None:
    assert asked(service, method, path) == 401


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("method", "path"), NEEDS)
def test_a_role_opens_what_it_is_for(
    service: ServiceScenario, method: str, path: str, role: Role
) -> None:
    if path.startswith("/v1/attempts") and role in (Role.SUBMIT, Role.ADMIN):
        pytest.skip("an attempt with real clients: test_attempts.py")
    opens = role in (NEEDS[method, path], Role.ADMIN)
    assert (asked(service, method, path, role) not in (401, 403)) == opens


def test_a_revoked_key_is_told_nothing(service: ServiceScenario) -> None:
    made = service.service.keys.new("gone", [Role.ADMIN])
    service.service.keys.revoke(made.record.key_id)
    answer = service.client().get("/v1/fixes/fix-0", headers={"X-API-Key": made.secret})
    assert answer.status_code == 401
    assert answer.json()["detail"] == "This key is not valid, or not any more."
    assert answer.headers["www-authenticate"].startswith("ApiKey")


def test_a_stream_ends_with_the_right_to_it(
    service: ServiceScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fix takes hours, and a key is revoked at once."""
    client, keys, feed = service.client(Role.READ), service.service.keys, service.service.feed

    async def check(_: str) -> None:
        """There is such a fix."""

    async def follow(_: str, after: int) -> AsyncIterator[FeedItem]:
        yield FeedItem(after + 1, "Before", "{}")
        keys.revoke(keys.all()[-1].key_id)
        yield FeedItem(after + 2, "After", "{}")

    monkeypatch.setattr(feed, "check", check)
    monkeypatch.setattr(feed, "follow", follow)
    text = client.get("/v1/fixes/fix-0/events").text
    assert "event: Before" in text
    assert "event: After" not in text
