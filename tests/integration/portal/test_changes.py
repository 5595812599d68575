"""The stream of changes over a real server: who may listen, where it goes on, and that it ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.portal import SAME_ORIGIN, write_trails
from tests.service.running import Running, events, served

FIXES = ("fix-cap", "fix-same", "fix-gates", "fix-budget")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    write_trails(tmp_path / "state", FIXES)
    config = "[limits]\nfollowers = 2\nshutdown_s = 600\n"
    with served(tmp_path / "state", config, options=("--keys", str(tmp_path / "keys"))) as running:
        yield running


def reject(server: Running, fix_id: str) -> None:
    body = {"verdict": "reject", "because": "no"}
    assert server.post(f"/v1/reviews/{fix_id}/decisions", body).status_code == 201


def test_a_page_is_told_of_what_comes_and_goes_on_behind_it(server: Running) -> None:
    with server.client("") as client:
        assert client.get("/portal/changes").status_code == 303  # nobody has signed in
        form = {"key": server.key}
        client.post("/portal/sign-in", data=form, headers=SAME_ORIGIN)
        queue = client.get("/portal/queue").text
        at = queue.partition('data-changes="/portal/changes?after=')[2].partition('"')[0]
        assert int(at) > 0
        with client.stream("GET", f"/portal/changes?after={at}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            reject(server, "fix-cap")
            first = next(one for one in events(answer.iter_lines()) if "data" in one)
        assert (first["event"], json.loads(first["data"])) == ("changed", ["fix-cap"])
        reject(server, "fix-same")
        headers = {"Last-Event-ID": first["id"]}
        with client.stream("GET", f"/portal/changes?after={at}", headers=headers) as answer:
            second = next(one for one in events(answer.iter_lines()) if "data" in one)
        assert json.loads(second["data"]) == ["fix-same"]
        assert int(second["id"]) > int(first["id"])


def test_it_ends_with_the_service(server: Running) -> None:
    """``shutdown_s`` is ten minutes here: nothing waits for an open page."""
    with server.client("") as client:
        client.post("/portal/sign-in", data={"key": server.key}, headers=SAME_ORIGIN)
        page = client.get("/portal/queue").text
        at = page.partition("changes?after=")[2].partition('"')[0]
        with client.stream("GET", f"/portal/changes?after={at}") as answer:
            assert server.end() == 0
            assert not [one for one in events(answer.iter_lines()) if "data" in one]


def test_more_pages_than_may_are_told_to_ask(server: Running) -> None:
    with server.client("") as client:
        client.post("/portal/sign-in", data={"key": server.key}, headers=SAME_ORIGIN)
        with (
            client.stream("GET", "/portal/changes") as one,
            client.stream("GET", "/portal/changes") as two,
        ):
            told = [events(one.iter_lines()), events(two.iter_lines())]
            assert all(next(messages) for messages in told)
            assert client.get("/portal/changes").status_code == 503
