"""A service without the model that a fix needs keeps the fix: it can be resumed once the model is back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import osv, repository, run
from tests.integration.test_cli_budget import OWN_CODE, PLAN
from tests.service.running import Running, served
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.sandbox]

BODY = {"repository": "app", "advisory": json.loads(osv("left"))}


def ended(service: Running, fix_id: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE_S
    while (fix := service.get(f"/v1/fixes/{fix_id}"))["state"] in {"queued", "running"}:
        assert time.monotonic() < until
        time.sleep(0.05)
    return dict(fix)


def test_a_missing_model_fails_the_order_and_never_ends_the_fix(tmp_path: Path) -> None:
    app, state = repository(tmp_path / "app", OWN_CODE), tmp_path / "state"
    (script := tmp_path / "script.json").write_text("[]")
    plain = f'[repositories.app]\npath = "{app}"\n'
    with_model = f'{plain}[model]\nscript = "{script}"\n'
    keys = ("--keys", str(tmp_path / "keys"))
    with served(state, with_model, options=keys) as service:
        fix_id = service.post("/v1/fixes", BODY).json()["fix_id"]
        assert ended(service, fix_id)["outcome"] == "escalated"
        question = service.get(f"/v1/reviews/{fix_id}")["question"]
        assert (question["reason"], question["why"]) == (
            "model_unavailable",
            "The model gave no answer.",
        )
        body = {"verdict": "reopen", "because": "the model is back"}
        assert service.post(f"/v1/reviews/{fix_id}/decisions", body).status_code == 201
        key = service.key
    with served(state, plain, options=keys) as service:
        service.key = key
        assert service.post(f"/v1/fixes/{fix_id}/resume", {}).status_code in {200, 202}
        failed = ended(service, fix_id)
        assert failed["state"] == "failed"
        assert "needs a model to continue" in failed["problem"]["problem"]
        assert "[model]" in failed["problem"]["next_step"]
    script.write_text(json.dumps([{"answer": PLAN}]))
    with served(state, with_model, options=keys) as service:
        service.key = key
        service.post(f"/v1/fixes/{fix_id}/resume", {})
        assert ended(service, fix_id)["outcome"] == "patched"
    assert run("audit", "verify", "--state-dir", state, *keys).code == 0
