"""A fix over HTTP, with all real parts: submit, follow, take the proved patch."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command import osv, repository, snapshot
from tests.e2e.command import run as command
from tests.service.running import Running, events, served

pytestmark = [pytest.mark.registry("uv"), pytest.mark.sandbox]

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})


@pytest.fixture
def service(tmp_path: Path, app: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """Of one test, with what a start imports; of the other, in a fork."""
    config, started = f'[repositories.app]\npath = "{app}"\n', getattr(request, "param", False)
    with served(tmp_path / "state", config, as_command=started) as running:
        yield running


@pytest.mark.parametrize("service", [True], indirect=True, ids=["as a command"])
def test_from_submission_to_patch(service: Running, app: Path, tmp_path: Path) -> None:
    before = snapshot(app)
    answer = service.post("/v1/fixes", BODY)
    assert answer.status_code == 202, answer.text
    fix = answer.json()
    assert (fix["state"], fix["advisory_id"], fix["cached"]) == ("queued", "TEST-2026-1", False)
    assert answer.headers["location"] == f"/v1/fixes/{fix['fix_id']}"

    with (
        service.client() as client,
        client.stream("GET", f"/v1/fixes/{fix['fix_id']}/events") as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        reported = [event for event in events(stream.iter_lines()) if "comment" not in event]
    kinds = [event["event"] for event in reported]
    assert kinds[0] == "FixStarted"
    assert kinds[-2:] == ["FixVerified", "ended"]
    numbers = [int(event["id"]) for event in reported[:-1]]
    assert numbers == sorted(numbers)
    assert "id" not in reported[-1]

    ended = service.get(f"/v1/fixes/{fix['fix_id']}")
    assert json.loads(reported[-1]["data"]) == ended
    assert (ended["state"], ended["outcome"]) == ("ended", "verified")
    assert ended["ended"]["headline"].startswith("fixed")
    with service.client() as client:
        patch = client.get(f"/v1/fixes/{fix['fix_id']}/patch")
    assert patch.headers["content-disposition"].startswith("attachment")
    assert "+idna==3.7" in patch.text
    done = subprocess.run(["git", "apply", "--check"], cwd=app, input=patch.content)
    assert done.returncode == 0

    assert snapshot(app) == before
    assert not list((tmp_path / "state" / "service" / "checkouts").iterdir())
    assert service.end() == 0
    shown = command("audit", "show", fix["fix_id"], "--state-dir", tmp_path / "state")
    assert shown.code == 0, shown
    assert " in app at" in " ".join(shown.out.split())  # named as it is configured
    assert command("audit", "verify", "--state-dir", tmp_path / "state").code == 0


def test_a_stream_goes_on_behind_the_last_event_that_was_seen(service: Running) -> None:
    fix_id = service.post("/v1/fixes", BODY).json()["fix_id"]
    service.until_over(fix_id)

    def followed(**headers: str) -> list[dict[str, str]]:
        with service.client() as client:
            answer = client.get(f"/v1/fixes/{fix_id}/events", headers=headers)
        return list(events(iter(answer.text.split("\n"))))

    whole = followed()
    middle = whole[len(whole) // 2]["id"]
    assert followed(**{"Last-Event-ID": middle}) == whole[len(whole) // 2 + 1 :]
    assert [event["event"] for event in followed(**{"Last-Event-ID": "999999"})] == ["ended"]
