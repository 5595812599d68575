"""The whole road over PostgreSQL, from the outside: set up, an attempt, its log, verification."""

import json
import os
import shutil
from pathlib import Path

import psycopg
import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import SCRIPT, osv, repository, run
from tests.postgres.server import Server


@pytest.fixture
def record(tmp_path: Path) -> list[str]:
    """Options, but for --audit-store. Checkpoints and keys are files beside the database."""
    return [f"--{name}={tmp_path / name}" for name in ("state-dir", "checkpoints", "keys")]


def attempt(repo: Path, store: str, record: list[str], fix_id: str) -> int:
    request = {
        "advisory": json.loads(osv("left")),
        "repository": str(repo),
        "fix_id": fix_id,
        "gate_transition_id": "gate-1",
    }
    ended = run("attempt", f"--audit-store={store}", *record, stdin=json.dumps(request))
    return ended.code


def test_a_trail_in_postgresql(
    tmp_path: Path, record: list[str], postgres_server: Server, postgres_url: str
) -> None:
    repo = repository(tmp_path / "repo", {"requirements.txt": "left==1.0.0\n"})
    made = run("audit", "init-postgres", f"--audit-store={postgres_url}", "--json")
    roles = made.json["roles"]
    users = {}
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        for name in ("writer", "reader"):
            connection.execute(f"CREATE ROLE {roles[name]}_user LOGIN IN ROLE {roles[name]}")
            users[name] = postgres_url.replace("postgres@", f"{roles[name]}_user@")
    assert attempt(repo, users["writer"], record, "fix-1") == exit_codes.OK
    assert attempt(repo, users["reader"], record, "fix-2") == exit_codes.ENVIRONMENT

    read = [f"--audit-store={users['reader']}", *record, "--json"]
    assert [fix["fix_id"] for fix in run("audit", "log", *read).json["fixes"]] == ["fix-1"]
    assert run("audit", "show", "fix-1", *read).code == exit_codes.OK
    verified = run("audit", "verify", *read)
    assert (verified.code, verified.json["ok"]) == (exit_codes.OK, True)
    assert not (tmp_path / "state-dir" / "audit.db").exists()

    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        table = f"{postgres_url.rpartition('=')[2]}.audit_payload"
        connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        connection.execute(f"UPDATE {table} SET payload = '{{}}' WHERE seq = 1")
    broken = run("audit", "verify", *read)
    assert broken.code == exit_codes.TRAIL_BROKEN
    assert broken.json["first_bad"]["seq"] in {None, 1}


@pytest.mark.parametrize("verb", [["log"], ["verify"], ["init-postgres"]])
def test_a_server_that_is_not_there(record: list[str], verb: list[str]) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/db"
    ended = run("audit", *verb, f"--audit-store={url}", *record, "--json")
    assert ended.code == exit_codes.ENVIRONMENT
    assert ended.json["error"]["code"] == "audit_store"
    assert "postgresql://me@127.0.0.1:1/db" in ended.problem
    assert "s3cret" not in str(ended)


def test_no_database_named(record: list[str]) -> None:
    ended = run("audit", "init-postgres", *record, "--json")
    assert ended.code == exit_codes.BAD_INPUT
    assert "--audit-store" in ended.next_step


def test_evidence_of_the_other_machine_is_named(tmp_path: Path, postgres_url: str) -> None:
    """Two machines write one audit trail; each keeps its own evidence."""
    if os.geteuid() != 0:
        pytest.skip("only root may give a process another host name")
    repo = repository(tmp_path / "repo", {"requirements.txt": "left==1.0.0\n"})
    here, there = (
        [f"--{name}={tmp_path / place / name}" for name in ("state-dir", "checkpoints", "keys")]
        for place in ("here", "there")
    )
    assert attempt(repo, postgres_url, here, "fix-1") == exit_codes.OK
    # Another patch: the same one would be the same evidence.
    repo = repository(tmp_path / "repo-2", {"requirements.txt": "left==1.0.0  # once\n"})
    other = tmp_path / "other-machine"
    other.write_text(f'#!/bin/sh\nhostname other\nexec {SCRIPT} "$@"\n')
    other.chmod(0o700)
    request = {
        "advisory": json.loads(osv("left")),
        "repository": str(repo),
        "fix_id": "fix-2",
        "gate_transition_id": "gate-1",
    }
    words = ["--uts", str(other), "attempt", f"--audit-store={postgres_url}", *there]
    ended = run(*words, script=Path("/usr/bin/unshare"), stdin=json.dumps(request))
    assert ended.code == exit_codes.OK, ended
    read = [f"--audit-store={postgres_url}", *here]
    verified = run("audit", "verify", *read, "--json")
    assert (verified.code, verified.json["evidence_problem_count"]) == (exit_codes.OK, 0), verified
    assert any("another machine, other: " in note for note in verified.json["notes"]), verified.out
    checked = run("audit", "evidence", "check", *read, "--json")
    assert (checked.code, list(checked.json["elsewhere"])) == (exit_codes.OK, ["other"])
    # What this machine stored itself, and lacks now, is missing.
    shutil.rmtree(tmp_path / "here" / "state-dir" / "evidence")
    assert run("audit", "verify", *read).code == exit_codes.TRAIL_BROKEN
