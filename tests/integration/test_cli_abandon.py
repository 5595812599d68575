"""``abandon`` as a user meets it: a fix was killed, and nobody wants it to continue."""

import hashlib
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.events import FixAbandoned
from fallback_audit.retention.ended import ended_fixes
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.cli import exit_codes
from fallback_tier.fix.journal.holding import holding
from fallback_tier.wiring import audit_db, evidence_dir
from tests.e2e.command import Ended, run
from tests.integration.test_cli_budget import Scenario
from tests.integration.test_cli_resume import killed

WHY = ("--by", "Ada", "--reason", "the project is archived")

#: Events before which the command is killed: at the beginning, in an attempt, while a model answers,
#: between two verdicts of gates.
KILLED_BEFORE = (2, 4, 7, 15)

#: The fix has its worktree by then.
BETWEEN_GATES = 15


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def told(scenario: Scenario, *words: str) -> Ended:
    return run(*words, "--state-dir", scenario.state)


def evidence(scenario: Scenario) -> dict[str, str]:
    """Every file of the evidence, with its digest."""
    folder = evidence_dir(scenario.state)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def abandonments(scenario: Scenario) -> list[FixAbandoned]:
    with closing(SqliteAuditStore(audit_db(scenario.state))) as store:
        events = [stored.payload for stored in store.events()]
    return [event for event in events if isinstance(event, FixAbandoned)]


@pytest.mark.parametrize("event", KILLED_BEFORE)
def test_a_killed_fix_is_abandoned_for_good(scenario: Scenario, event: int) -> None:
    fix_id = killed(scenario, "before", event)
    kept, tree = evidence(scenario), (scenario.repo / "left.py").read_text()
    assert told(scenario, "audit", "verify", "--json").json["open_fix_count"] == 1
    ended = told(scenario, "abandon", fix_id, *WHY, "--json")
    assert ended.code == exit_codes.OK, ended
    assert (ended.json["fix_id"], ended.json["by"]) == (fix_id, "Ada")
    assert [one.reason for one in abandonments(scenario)] == ["the project is archived"]
    assert kept.items() <= evidence(scenario).items()
    assert (scenario.repo / "left.py").read_text() == tree
    assert not [path for path in (scenario.state / "worktrees").glob("*") if path.is_dir()]

    verified = told(scenario, "audit", "verify", "--json")
    assert verified.code == exit_codes.OK, verified
    assert verified.json["open_fix_count"] == 0
    (logged,) = told(scenario, "audit", "log", "--json").json["fixes"]
    assert logged["outcome"] == "abandoned by Ada"
    shown = told(scenario, "audit", "show", fix_id)
    assert shown.out.startswith(f"abandoned by Ada  {fix_id}")
    assert "resume" not in shown.out
    assert told(scenario, "review", "list", "--all", "--json").json == {"questions": []}
    with closing(SqliteAuditStore(audit_db(scenario.state))) as store:
        assert set(ended_fixes(store)) == {fix_id}

    for words in (
        ("resume", fix_id),
        ("abandon", fix_id, *WHY),
        ("review", "reject", fix_id, "--by", "Ada", "--because", "no"),
    ):
        refused = told(scenario, *words, "--json")
        assert refused.code == exit_codes.BAD_INPUT, refused
        assert refused.json["error"]["code"] == "input"
        assert f"`fallback-tier audit show {fix_id}" in refused.next_step
    assert len(abandonments(scenario)) == 1


def test_a_worktree_of_the_killed_fix_is_removed(scenario: Scenario) -> None:
    fix_id = killed(scenario, "before", BETWEEN_GATES)
    assert [path.name for path in (scenario.state / "worktrees").glob("*")] == [fix_id]
    assert told(scenario, "abandon", fix_id, *WHY).code == exit_codes.OK
    assert list((scenario.state / "worktrees").iterdir()) == []


def test_a_fix_that_runs_is_not_abandoned(scenario: Scenario) -> None:
    fix_id = killed(scenario, "before", 5)
    with holding(scenario.state, fix_id):
        refused = told(scenario, "abandon", fix_id, *WHY, "--json")
    assert refused.code == exit_codes.BAD_INPUT
    assert refused.json["error"]["code"] == "held"
    assert abandonments(scenario) == []
    ended = told(scenario, "resume", fix_id)
    assert ended.code == exit_codes.PATCHED, ended
    refused = told(scenario, "abandon", fix_id, *WHY, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (exit_codes.BAD_INPUT, "input")
    assert abandonments(scenario) == []


def test_without_by_it_is_the_users_name(scenario: Scenario) -> None:
    fix_id = killed(scenario, "before", 5)
    ended = run(
        "abandon", fix_id, "--reason", "x", "--state-dir", scenario.state, env={"LOGNAME": "grace"}
    )
    assert ended.code == exit_codes.OK, ended
    assert [one.by for one in abandonments(scenario)] == ["grace"]


def test_where_there_is_no_store_none_is_made(tmp_path: Path) -> None:
    state = tmp_path / "nowhere"
    ended = run("abandon", "fix-1", *WHY, "--state-dir", state)
    assert ended.code == exit_codes.ENVIRONMENT
    assert not state.exists()
