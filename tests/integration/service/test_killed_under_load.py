"""kill -9 while many submit at once: what was acknowledged is there, once, and can be asked for again."""

import json
import threading
from pathlib import Path

import httpx2

from fallback_tier.service.database import Database, service_db
from fallback_tier.service.queue import OrderQueue, OrderState
from tests.e2e.command import osv, repository
from tests.service.running import Running, served
from tests.waiting import becomes, joined

BODY = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}

#: Who submits at once, and the acknowledgements after which the service is killed.
SUBMITTERS, ENOUGH = 8, 60

#: No limit is met, and no worker begins.
CONFIG = """
[limits]
requests_per_key = "1000000/second"
requests_per_address = "1000000/second"
queued_fixes = 100000
min_free_bytes = 1152921504606846976
[repositories.app]
path = "{app}"
"""


def submit(service: Running, token: str) -> str:
    """Raises httpx2.HTTPError where no answer comes."""
    with service.client() as client:
        answer = client.post("/v1/fixes", json=BODY, headers={"Idempotency-Key": token})
    assert answer.status_code in (200, 202), answer.text
    fix_id: str = answer.json()["fix_id"]
    return fix_id


def test_what_was_acknowledged_under_load_is_there(tmp_path: Path) -> None:
    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    config, state = CONFIG.format(app=app), tmp_path / "state"
    acknowledged: dict[str, str] = {}
    cut_off: list[str] = []

    def go_on(service: Running, name: int) -> None:
        number = 0
        while True:
            token = f"{name}-{number}"
            try:
                acknowledged[token] = submit(service, token)
            except httpx2.HTTPError:
                cut_off.append(token)
                return
            number += 1

    with served(state, config) as first:
        threads = [
            threading.Thread(target=go_on, args=(first, name), daemon=True)
            for name in range(SUBMITTERS)
        ]
        for thread in threads:
            thread.start()
        becomes(lambda: len(acknowledged) >= ENOUGH, f"{ENOUGH} are acknowledged")
        first.kill()
        joined(*threads)
    assert len(cut_off) == SUBMITTERS
    with served(state, config, key=first.key) as second:
        for token, fix_id in acknowledged.items():
            assert second.get(f"/v1/fixes/{fix_id}")["state"] == "queued"
            assert submit(second, token) == fix_id
        found = {submit(second, token) for token in cut_off}  # taken before, or now: once
        every = {*acknowledged.values(), *found}
        assert len(every) == len(acknowledged) + len(cut_off)
        with Database(service_db(state)) as database:
            assert OrderQueue(database).counts()[OrderState.QUEUED] == len(every)
        assert second.post("/v1/audit/verify").json()["ok"]
