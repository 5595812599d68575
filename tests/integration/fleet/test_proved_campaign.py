"""The example campaign, as a user runs it: whose flaw a test shows ends as fixed, and seen to be."""

import json
from pathlib import Path

import pytest

from fallback_audit.stores.sqlite import open_readonly
from tests.e2e.command import run_with_workers


@pytest.mark.sandbox
def test_a_proof_shows_the_flaw_gone(tmp_path: Path) -> None:
    place = tmp_path / "try"
    asked("example", str(place))
    state = ("--state-dir", str(place / "state"))
    done = asked("run", str(place / "CAMPAIGN.toml"), *state, "--json", code=8)
    fixes = {fix["repository"]: fix for fix in json.loads(done)["fixes"]}
    assert {name: fix["state"] for name, fix in fixes.items()} == {
        "archive": "partly",
        "intranet": "partly",
        "shop": "fixed",
    }
    reader = open_readonly(place / "state" / "audit.db")
    try:
        verified = [*reader.events(kinds=frozenset({"FixVerified"}))]
        begun = [*reader.events(kinds=frozenset({"FixStarted"}))]
    finally:
        reader.close()
    assert [it.scope.fix_id for it in verified] == [fixes["shop"]["fix_id"]]
    # The record names a repository as the campaign does, not after a passing checkout.
    named = {it.scope.fix_id: it.payload.model_dump()["repository"] for it in begun}
    assert named == {fix["fix_id"]: name for name, fix in fixes.items()}


def asked(*words: str, code: int = 0) -> str:
    done = run_with_workers("fleet", *words)
    assert done.code == code, done
    return done.out
