"""``audit`` from the outside: what is not there, what is damaged, and how each ends."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import osv, repository, run, snapshot


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with one recorded attempt; tests work on copies."""
    place = tmp_path_factory.mktemp("recorded")
    repo = repository(place / "repo", {"requirements.txt": "left==1.0.0\n"})
    request = {
        "advisory": json.loads(osv("left")),
        "repository": str(repo),
        "fix_id": "fix-1",
        "gate_transition_id": "gate-1",
    }
    ended = run("attempt", "--state-dir", place / "state", stdin=json.dumps(request))
    assert ended.code == exit_codes.OK, ended
    return place / "state"


@pytest.fixture
def state(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "state"))


@pytest.mark.parametrize("verb", [["log"], ["show", "fix-1"], ["verify"], ["stats"]])
def test_reading_changes_nothing(state: Path, verb: list[str]) -> None:
    """Not one byte; SQLite's own lock files beside the database may come and go."""
    before = snapshot(state).digests
    assert "audit.db" in before
    assert run("audit", *verb, "--state-dir", state).code == exit_codes.OK
    assert run("audit", *verb, "--state-dir", state, "--json").json
    after = snapshot(state).digests
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) <= {"audit.db-shm", "audit.db-wal"}


@pytest.mark.parametrize("verb", [["log"], ["show", "fix-1"], ["verify"], ["stats"]])
def test_no_trail_yet(tmp_path: Path, verb: list[str]) -> None:
    ended = run("audit", *verb, "--state-dir", tmp_path / "none", "--json")
    assert ended.code == exit_codes.ENVIRONMENT
    assert ended.json["error"]["code"] == "audit_store"
    assert ended.kind == "no_such_file"
    assert "fallback-tier fix" in ended.next_step
    assert not (tmp_path / "none").exists()


def test_an_unknown_fix(state: Path) -> None:
    ended = run("audit", "show", "fix-2", "--state-dir", state, "--json")
    assert ended.code == exit_codes.BAD_INPUT
    assert ended.problem == "There is no fix 'fix-2' in the audit trail."
    assert "audit log" in ended.next_step


@pytest.mark.parametrize("verb", [["log"], ["show", "fix-1"], ["verify"], ["stats"]])
def test_a_trail_that_is_no_database(state: Path, verb: list[str]) -> None:
    (state / "audit.db").write_bytes(b"This was an audit trail once." * 200)
    before = snapshot(state)
    ended = run("audit", *verb, "--state-dir", state, "--json")
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ended.json["error"]["code"] == "audit_integrity"
    assert ended.kind == "not_a_database"
    assert snapshot(state).digests == before.digests


def test_a_fix_is_not_recorded_on_a_damaged_trail(state: Path, tmp_path: Path) -> None:
    (state / "audit.db").write_bytes(b"This was an audit trail once." * 200)
    repo = repository(tmp_path / "repo", {"requirements.txt": "left==1.0.0\n"})
    advisory = tmp_path / "advisory.json"
    advisory.write_text(osv("left"))
    before = snapshot(repo)
    ended = run("fix", repo, "--advisory", advisory, "--state-dir", state, "--json")
    assert ended.code == exit_codes.TRAIL_BROKEN
    assert ended.kind == "not_a_database"
    assert snapshot(repo) == before


def edit(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    assert len(old) == len(new)
    return data.replace(old, new)


def flip_a_payload(data: bytes) -> bytes:
    return edit(data, b'"advisory_id":"TEST-2026-1"', b'"advisory_id":"TEST-2026-2"')


def flip_a_header(data: bytes) -> bytes:
    return edit(data, b'"fix_id":"fix-1"', b'"fix_id":"fix-9"')


def flip_the_structure(data: bytes) -> bytes:
    """Every page's type byte but the first's (https://sqlite.org/fileformat2.html, 1.6)."""
    size = int.from_bytes(data[16:18], "big")
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    return pages[0] + b"".join(bytes([page[0] ^ 0x40]) + page[1:] for page in pages[1:])


def cut_in_the_middle(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    "damage", [flip_a_payload, flip_a_header, flip_the_structure, cut_in_the_middle]
)
def test_damage_is_found(state: Path, damage: Callable[[bytes], bytes]) -> None:
    assert run("audit", "verify", "--state-dir", state).code == exit_codes.OK
    db = state / "audit.db"
    with sqlite3.connect(db) as connection:  # everything into the one file
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    db.write_bytes(damage(db.read_bytes()))
    ended = run("audit", "verify", "--state-dir", state)
    assert ended.code == exit_codes.TRAIL_BROKEN, ended
    assert "Traceback" not in ended.out + ended.err


def test_altered_evidence_is_found(state: Path) -> None:
    evidence = next(path for path in (state / "evidence").rglob("*") if path.is_file())
    evidence.write_bytes(evidence.read_bytes()[:-1] + b"?")
    ended = run("audit", "verify", "--state-dir", state, "--json")
    assert ended.code == exit_codes.TRAIL_BROKEN
    report: dict[str, Any] = ended.json
    assert not report["ok"]
    assert report["evidence_problem_count"] == 1
    assert "was altered" in report["evidence_problems"][0]["reason"]


def test_an_attempt_of_another_orchestrator_is_not_called_interrupted(state: Path) -> None:
    """Its fix has not begun here, so that nothing could resume it."""
    shown = run("audit", "show", "fix-1", "--state-dir", state)
    assert shown.code == exit_codes.OK
    assert shown.out.startswith("open  fix-1  TEST-2026-1")
    assert "+left==2.0.0" in shown.out
    assert "fallback-tier resume" not in shown.out
