"""What is wrong with a request, or with its moment: problem+json, with the reason and the next step."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.service.http.given import cursor_of
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Limits, ServiceSettings
from tests.e2e.command import osv, repository
from tests.service.scenario import ServiceScenario, service_scenario

ADVISORY = json.loads(osv("idna", fixed="3.7"))
FIX = {"repository": "app", "advisory": ADVISORY}
LIMITS = Limits(body_bytes=20_000, queued_fixes=40)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    with service_scenario(tmp_path, ServiceSettings(limits=LIMITS), repositories=[app]) as opened:
        yield opened


def problem(answer: Any, status: int) -> Any:
    """An error's body; checks the form that every one has."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    reported = answer.json()
    assert reported["status"] == status
    assert reported["type"] == f"urn:fallback-tier:problem:{reported['code']}"
    assert reported["detail"]
    assert reported["next_step"]
    assert "Traceback" not in answer.text
    return reported


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "body.repository: Field required"),
        (FIX | {"repository": "../etc"}, "body.repository"),
        (FIX | {"repository": "/etc"}, "body.repository"),
        (FIX | {"repository": "https://example.org/x.git"}, "body.repository"),
        (FIX | {"repository": "other"}, "no repository 'other'"),
        (FIX | {"advisory": {}}, "advisory"),
        (FIX | {"advisory": {**ADVISORY, "withdrawn": "2026-01-01T00:00:00Z"}}, "withdrawn"),
        (FIX | {"advisory": json.loads(osv("x", ecosystem="Hex"))}, "no plugin here supports it"),
        (FIX | {"ref": "--upload-pack=touch /tmp/x"}, "body.ref"),
        (FIX | {"ref": "-x"}, "body.ref"),
        (FIX | {"command": "rm"}, "body.command: Extra inputs"),
        (FIX | {"whose_code": "mine"}, "body.whose_code"),
        ([FIX], "body: Input should be"),
    ],
)
def test_a_submission_that_can_not_be(service: ServiceScenario, body: object, says: str) -> None:
    reported = problem(service.client(Role.SUBMIT).post("/v1/fixes", json=body), 422)
    assert says in reported["detail"]
    assert service.service.queue.page(limit=1) == ()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/fixes", 405),
        ("GET", "/v1/fixes/fix-0", 404),
        ("GET", "/v1/fixes/fix-0/events", 404),
        ("GET", "/v1/fixes/fix-0/patch", 404),
        ("GET", "/v1/fixes/fix-0/evidence", 404),
        ("POST", "/v1/fixes/fix-0/cancel", 404),
        ("POST", "/v1/fixes/fix-0/resume", 404),
        ("GET", "/v1/fixes/..%2f..", 404),
        ("GET", "/v1/fixes/%00", 422),
        ("GET", "/v1/fixes?limit=0", 422),
        ("GET", "/v1/fixes?cursor=x", 422),
        ("GET", "/v1/fixes?state=lost", 422),
        ("GET", "/v1/reviews/fix-0", 404),
        ("GET", "/v1/fixes/fix-0/evidence/abc", 422),
        ("GET", "/v1/audit/events?cursor=%ff", 422),
        ("GET", "/v1/audit/events?since=yesterday", 422),
        ("GET", "/v1/audit/export?fix_id=fix-0", 404),
    ],
)
def test_a_path_that_leads_nowhere(
    service: ServiceScenario, method: str, path: str, status: int
) -> None:
    problem(service.client(Role.ADMIN).request(method, path), status)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"nul", b'{"repository": "\\ud800"}', b"[" * 5_000]
)
def test_a_body_that_is_no_json(service: ServiceScenario, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    client = service.client(Role.SUBMIT)
    answer = client.post("/v1/fixes", content=content, headers=headers)
    problem(answer, answer.status_code)
    assert answer.status_code in (400, 422)


ANY = json.dumps(FIX).encode()


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("/v1/fixes", Role.SUBMIT),
        ("/v1/attempts", Role.SUBMIT),
        ("/v1/attempts/stream", Role.SUBMIT),
        ("/v1/reviews/fix-0/decisions", Role.DECIDE),
        ("/v1/campaigns/spring/pause", Role.ADMIN),
        ("/v1/session", Role.READ),
    ],
)
@pytest.mark.parametrize(
    "given", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", None]
)
def test_a_body_of_another_type(
    service: ServiceScenario, path: str, role: Role, given: str | None
) -> None:
    headers = {} if given is None else {"Content-Type": given}
    reported = problem(service.client(role).post(path, content=ANY, headers=headers), 415)
    assert reported["code"] == "content_type"
    assert (given or "no content type") in reported["detail"]
    assert "application/json" in reported["next_step"]


@pytest.mark.parametrize(
    "given", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json"]
)
def test_every_spelling_of_json_is_read(service: ServiceScenario, given: str) -> None:
    client = service.client(Role.SUBMIT)
    answer = client.post("/v1/fixes", content=ANY, headers={"Content-Type": given})
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(
    "content",
    [
        b'{"repository": "app", ' + ANY[1:],
        ANY.replace(b'"id":', b'"id": "GHSA-0000-0000-0000", "id":', 1),
    ],
    ids=["its own", "the advisory's"],
)
def test_a_body_with_a_key_twice(service: ServiceScenario, content: bytes) -> None:
    client = service.client(Role.SUBMIT)
    answer = client.post("/v1/fixes", content=content, headers={"Content-Type": "application/json"})
    reported = problem(answer, 400)
    assert "twice" in reported["detail"]
    assert service.service.queue.page(limit=1) == ()


def test_a_body_that_says_it_is_too_large_is_not_read(service: ServiceScenario) -> None:
    answer = service.client(Role.SUBMIT).post("/v1/fixes", content=b"x" * 20_001)
    assert "20,000 bytes" in problem(answer, 413)["detail"]


def test_a_body_that_is_too_large_without_saying_so(service: ServiceScenario) -> None:
    pieces = (b"x" * 1_000 for _ in range(50))
    problem(service.client(Role.SUBMIT).post("/v1/fixes", content=pieces), 413)


def test_the_same_submission_again_is_the_same_fix(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT, Role.READ)
    key = {"Idempotency-Key": "order 7"}
    first = client.post("/v1/fixes", json=FIX, headers=key)
    spaced = {**key, "Content-Type": "application/json"}
    again = client.post("/v1/fixes", content=json.dumps(FIX, indent=3), headers=spaced)
    assert (first.status_code, again.status_code) == (202, 200)
    assert (first.json()["cached"], again.json()["cached"]) == (False, True)
    assert again.json()["fix_id"] == first.json()["fix_id"]
    assert len(client.get("/v1/fixes").json()["fixes"]) == 1
    other = client.post("/v1/fixes", json=FIX | {"offline": True}, headers=key)
    assert first.json()["fix_id"] in problem(other, 409)["detail"]


def test_a_full_queue_takes_no_more(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT)
    for _ in range(40):
        assert client.post("/v1/fixes", json=FIX).status_code == 202
    assert "40 fixes wait already" in problem(client.post("/v1/fixes", json=FIX), 503)["detail"]


def test_pages_have_every_fix_once(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT, Role.READ)
    made = [client.post("/v1/fixes", json=FIX).json()["fix_id"] for _ in range(7)]
    seen, cursor = [], ""
    while True:
        page = client.get(f"/v1/fixes?limit=3{cursor}").json()
        seen += [fix["fix_id"] for fix in page["fixes"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == made[::-1]
    assert client.get(f"/v1/fixes?cursor={cursor_of(1)}").json() == {"fixes": [], "next": None}


def test_what_waits_can_be_cancelled_once(service: ServiceScenario) -> None:
    client = service.client(Role.SUBMIT, Role.READ)
    path = f"/v1/fixes/{client.post('/v1/fixes', json=FIX).json()['fix_id']}"
    assert client.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert "is over" in problem(client.post(f"{path}/cancel"), 409)["detail"]
    assert client.post(f"{path}/resume").json()["state"] == "queued"
    problem(client.post(f"{path}/resume"), 409)
    assert "no proved patch" in problem(client.get(f"{path}/patch"), 404)["detail"]


def test_too_many_requests_of_one_key(tmp_path: Path) -> None:
    settings = ServiceSettings(limits=Limits(requests_per_key="3/hour"))
    with service_scenario(tmp_path, settings) as service:
        client, other = service.client(Role.READ), service.client(Role.READ)
        assert [client.get("/v1/fixes").status_code for _ in range(3)] == [200] * 3
        answer = client.get("/v1/fixes")
        assert "More than 3 per 1 hour from this caller" in problem(answer, 429)["detail"]
        assert 1 <= int(answer.headers["retry-after"]) <= 3601
        assert other.get("/v1/fixes").status_code == 200


def test_wrong_keys_are_counted_by_address(tmp_path: Path) -> None:
    settings = ServiceSettings(limits=Limits(failed_sign_ins="2/hour"))
    with service_scenario(tmp_path, settings) as service:
        client = service.client()
        wrong = {"X-API-Key": "ftk_wrong"}
        tried = [client.get("/v1/fixes", headers=wrong).status_code for _ in range(3)]
        assert tried == [401, 401, 429]
        right = {"X-API-Key": service.key(Role.READ)}
        assert client.get("/v1/fixes", headers=right).status_code == 200


def test_too_many_requests_of_one_address(tmp_path: Path) -> None:
    settings = ServiceSettings(limits=Limits(requests_per_address="4/hour"))
    with service_scenario(tmp_path, settings) as service:
        client = service.client()
        assert [client.get("/v1/fixes").status_code for _ in range(5)] == [401] * 4 + [429]


def test_a_defect_is_told_as_one(service: ServiceScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr("fallback_tier.service.operations.fixes.Fixes.page", broken)
    answer = service.client(Role.READ).get("/v1/fixes")
    assert "ZeroDivisionError" in problem(answer, 500)["detail"]
    assert "secret words" not in answer.text


def test_an_answer_that_does_not_begin_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def hangs(*_: object, **__: object) -> None:
        await asyncio.sleep(3_600)

    settings = ServiceSettings(limits=Limits(request_s=0.2))
    monkeypatch.setattr("fallback_tier.service.operations.feed.Feed.check", hangs)
    with service_scenario(tmp_path, settings) as service:
        problem(service.client(Role.READ).get("/v1/fixes/fix-0/events"), 504)


def test_the_description_has_examples_that_are_valid(service: ServiceScenario) -> None:
    described = service.client().get("/v1/openapi.json").json()
    posts = [methods["post"] for methods in described["paths"].values() if "post" in methods]
    bodies = [post["requestBody"] for post in posts if "requestBody" in post]
    assert len(bodies) == 7
    assert "examples" in json.dumps(bodies)
    for methods in described["paths"].values():
        for operation in methods.values():
            assert "application/problem+json" in json.dumps(operation["responses"]["401"])
