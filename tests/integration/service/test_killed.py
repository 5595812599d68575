"""kill -9, of the service and of its workers: what was acknowledged goes on, nothing is done twice."""

import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.choice import a_choice
from tests.e2e.command import osv, repository
from tests.e2e.command import run as command
from tests.service.running import Running, served, waited

pytestmark = [pytest.mark.registry("uv"), pytest.mark.sandbox]

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}

#: Of these a fix that was killed has as many as one that nobody interrupts.
ONCE = ("FixStarted", "AttemptStarted", "PatchProposed", "FixVerified")


@pytest.fixture
def config(tmp_path: Path) -> str:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    return f"""
[limits]
concurrent_fixes = 2
[repositories.app]
path = "{app}"
[[repositories.app.gates]]
name = "wait"
command = ["sleep", "3"]
"""


def submitted(service: Running, number: int) -> str:
    answer = service.post("/v1/fixes", BODY, **{"Idempotency-Key": f"order-{number}"})
    fix_id: str = answer.json()["fix_id"]
    return fix_id


def kinds(service: Running, fix_id: str) -> Counter[str]:
    events = service.get(f"/v1/audit/events?fix_id={fix_id}&limit=500")["events"]
    return Counter(event["kind"] for event in events)


def judged(service: Running, fix_id: str) -> list[tuple[str, str]]:
    events = service.get(f"/v1/audit/events?fix_id={fix_id}&kind=GateJudged")["events"]
    return [(event["payload"]["gate"], event["payload"]["status"]) for event in events]


def workers(state: Path) -> list[int]:
    """Processes that hold a fix of this state folder now."""
    found = []
    for path in (state / "service" / "workers").glob("*.lock"):
        with contextlib.suppress(ValueError, OSError):
            pid = int(path.read_text())
            os.kill(pid, 0)
            found.append(pid)
    return found


def nobody_works(state: Path) -> None:
    """At once, or when the parent of a worker that is a fork, a server of forks, has seen its end."""
    waited(lambda: workers(state), lambda found: not found)


def test_the_service_dies_and_its_successor_goes_on(tmp_path: Path, config: str) -> None:
    state = tmp_path / "state"
    with served(state, config) as first:
        made = [submitted(first, number) for number in range(3)]
        first.until(made[1], lambda fix: fix["state"] == "running")
        waited(lambda: judged(first, made[0]), lambda verdicts: len(verdicts) > 1)
        first.kill()
    with served(state, config, key=first.key) as second:
        assert [submitted(second, number) for number in range(3)] == made  # taken before
        for fix_id in made:
            ended = second.until_over(fix_id)
            assert (ended["state"], ended["outcome"]) == ("ended", "verified"), ended
            count = kinds(second, fix_id)
            assert [count[kind] for kind in ONCE] == [1, 1, 1, 1], count
            assert len(judged(second, fix_id)) == len(set(judged(second, fix_id)))
        assert len(second.get("/v1/fixes")["fixes"]) == 3
    assert command("audit", "verify", "--state-dir", state).code == 0


@pytest.mark.parametrize("store", a_choice(("postgresql", "sqlite"), step=2))
def test_all_of_it_dies_and_what_was_judged_is_not_judged_again(
    tmp_path: Path, config: str, store: str, request: pytest.FixtureRequest
) -> None:
    state, env = tmp_path / "state", {}
    if store == "postgresql":
        env["FALLBACK_TIER_AUDIT_STORE"] = request.getfixturevalue("postgres_url")
    with served(state, config, env=env) as first:
        fix_id = submitted(first, 0)
        before = waited(lambda: judged(first, fix_id), lambda verdicts: len(verdicts) > 1)
        pids = workers(state)
        first.kill()
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)
    assert len(pids) == 1
    with served(state, config, env=env, key=first.key) as second:
        ended = second.until_over(fix_id)
        assert (ended["state"], ended["outcome"]) == ("ended", "verified"), ended
        assert ended["takes"] == 2
        count = kinds(second, fix_id)
        assert [count[kind] for kind in ONCE] == [1, 1, 1, 1], count
        assert count["FixResumed"] == 1
        after = judged(second, fix_id)
        assert after[: len(before)] == before
        assert len(after) == len(set(after))
        assert second.post("/v1/audit/verify").json()["ok"]
        assert (state / "audit.db").exists() == (store == "sqlite")
    nobody_works(state)


def test_a_worker_that_dies_is_said_and_can_be_resumed(tmp_path: Path, config: str) -> None:
    state = tmp_path / "state"
    with served(state, config) as service:
        fix_id = submitted(service, 0)
        waited(lambda: judged(service, fix_id), lambda verdicts: len(verdicts) > 1)
        (pid,) = workers(state)
        os.killpg(pid, signal.SIGKILL)
        failed = service.until_over(fix_id)
        assert failed["state"] == "failed"
        assert "without a word (SIGKILL)" in failed["problem"]["problem"]
        assert service.post(f"/v1/fixes/{fix_id}/resume").json()["state"] == "queued"
        assert service.until_over(fix_id)["outcome"] == "verified"
        assert kinds(service, fix_id)["FixResumed"] == 1


def test_the_end_in_good_order_loses_nothing(tmp_path: Path, config: str) -> None:
    state = tmp_path / "state"
    with served(state, config) as first:
        made = [submitted(first, number) for number in range(3)]
        waited(lambda: judged(first, made[0]), lambda verdicts: len(verdicts) > 1)
        assert first.end() == 0
    nobody_works(state)
    with served(state, config, key=first.key) as second:
        for fix_id in made:
            assert second.until_over(fix_id)["outcome"] == "verified"


def test_a_cancelled_fix_leaves_no_process_and_goes_on_when_asked(
    tmp_path: Path, config: str
) -> None:
    state = tmp_path / "state"
    with served(state, config) as service:
        fix_id = submitted(service, 0)
        waited(lambda: judged(service, fix_id), lambda verdicts: len(verdicts) > 1)
        reported: Any = service.post(f"/v1/fixes/{fix_id}/cancel").json()
        assert reported["cancelling"]
        assert service.until_over(fix_id)["state"] == "cancelled"
        nobody_works(state)
        assert not list((state / "service" / "checkouts").iterdir())
        service.post(f"/v1/fixes/{fix_id}/resume")
        ended = service.until_over(fix_id)
        assert ended["outcome"] == "verified"
        assert (ended["cancelled_by"], ended["resumed_by"]) == ("key:first-admin",) * 2


def test_a_fix_whose_service_has_died_takes_no_longer_either(tmp_path: Path, config: str) -> None:
    """The limit is kept by the worker, and what it says is there for the next service."""
    limited = config.replace("concurrent_fixes = 2", "fix_s = 15").replace('"3"', '"600"')
    state = tmp_path / "state"
    with served(state, limited) as first:
        fix_id = submitted(first, 0)
        (pid,) = waited(lambda: workers(state), bool)
        first.kill()
    waited(lambda: workers(state), lambda found: pid not in found)
    with served(state, limited, key=first.key) as second:
        failed = second.until_over(fix_id)
    assert (failed["state"], failed["problem"]["code"]) == ("failed", "time_limit")


def test_a_fix_that_takes_too_long_is_ended(tmp_path: Path, config: str) -> None:
    limited = config.replace("concurrent_fixes = 2", "fix_s = 2.5").replace('"3"', '"600"')
    with served(tmp_path / "state", limited) as service:
        failed = service.until_over(submitted(service, 0))
        assert (failed["state"], failed["problem"]["code"]) == ("failed", "time_limit")
        nobody_works(tmp_path / "state")
