"""``serve --demo``: a record with questions to decide, made by real fixes."""

from pathlib import Path

import pytest

from tests.service.portal import text_of
from tests.service.running import served


@pytest.mark.sandbox
def test_the_demo_asks_what_there_is_to_decide(tmp_path: Path) -> None:
    with served(tmp_path / "state", options=("--demo", "--keys", str(tmp_path / "keys"))) as server:
        asked = {
            question["repository"]: question["reason"]
            for question in server.get("/v1/reviews")["questions"]
        }
        with server.client("") as client:
            headers = {"Sec-Fetch-Site": "same-origin"}
            client.post("/portal/sign-in", data={"key": server.key}, headers=headers)
            page = text_of(client.get("/portal/fixes/demo-settings-service/triage").text)
        report = server.post("/v1/audit/verify").json()
    assert asked == {
        "settings-service": "retry_cap_reached",
        "billing": "same_failure_repeated",
        "reports": "same_failure_repeated",
        "intranet": "model_unavailable",
        "archive": "budget_exhausted",
    }
    assert "Not proved: that the flaw is gone and that the tests pass. Gates skipped: " in page
    assert "test_value (tests.test_knobfile.KnobfileTest.test_value) AssertionError: " in page
    assert report["ok"]
    assert report["uncovered_events"] == 0
