"""``fallback-tier resume`` as a user meets it: the command dies, and another one ends its work."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import FixStarted
from fallback_audit.evidence.store import FileEvidenceStore, put_document
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.advisory import load_advisory
from fallback_tier.cli import exit_codes
from fallback_tier.cli.ending import explained
from fallback_tier.cli.output import notes_of
from fallback_tier.fix.journal.holding import resumable
from fallback_tier.fix.journal.inputs import FixInputs, Setup
from fallback_tier.wiring import audit_db, evidence_dir
from tests.e2e.command import half_written, run
from tests.integration.test_cli_budget import Scenario

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-api03-not-a-real-key-0123456789"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def killed(scenario: Scenario, when: str, event: int) -> str:
    """`fix`, killed; returns what it had recorded of its fix: the identifier."""
    command = [sys.executable, "-m", "tests.fakes.crashing_command", when, str(event)]
    command += ["fix", str(scenario.repo), "--advisory", scenario.advisory.name]
    command += ["--state-dir", scenario.state.name, "--script", scenario.script.name]
    command += ["--base-url", "http://user:secret-word@localhost:9/v1"]
    done = subprocess.run(
        [*command, "--no-sandbox", "--price", "1:10", "--json"],
        cwd=scenario.script.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ANTHROPIC_API_KEY": KEY},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = SqliteAuditStore(audit_db(scenario.state))
    fix_id = next(store.events()).scope.fix_id
    store.close()
    return fix_id


def test_a_killed_command_is_resumed_from_anywhere(scenario: Scenario, tmp_path: Path) -> None:
    """Relative paths were given to the first; the second names nothing but the fix."""
    (place := tmp_path / "elsewhere").mkdir()
    fix_id = killed(scenario, "before", 12)
    refused = run("audit", "verify", "--state-dir", scenario.state)
    assert refused.code == exit_codes.OK, refused  # an open fix breaks no rule
    ended = run("resume", fix_id, "--state-dir", scenario.state, "--json", cwd=place)
    assert ended.code == exit_codes.PATCHED, ended
    assert ended.json["fix_id"] == fix_id
    assert ended.json["delivered"]
    assert (scenario.repo / "left.py").read_text().endswith("return int(text)\n")
    assert run("audit", "verify", "--state-dir", scenario.state).code == exit_codes.OK
    assert half_written(scenario.state, scenario.repo) == []
    again = run("resume", fix_id, "--state-dir", scenario.state)
    assert again.code == exit_codes.PATCHED
    assert "has ended (PatchDelivered): no gate is run again" in again.err


def test_a_store_that_fails_midway_names_the_way_on(scenario: Scenario) -> None:
    """No file may grow beyond 200 KB: some events in, the store takes no more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    words = ["fix", scenario.repo, "--advisory", scenario.advisory, "--state-dir", scenario.state]
    words += ["--script", scenario.script, "--no-sandbox", "--price", "1:10", "--json"]
    stopped = run(*words, before=limit)
    assert stopped.code == exit_codes.ENVIRONMENT, stopped
    error = stopped.json["error"]
    assert error["code"] == "audit_store"
    named = re.search(r"`fallback-tier (resume fix-[^`]+)` continues where it stopped", stopped.err)
    assert named
    assert named[0] in error["next_step"]
    ended = run(*shlex.split(named[1]), "--json")
    assert ended.code == exit_codes.PATCHED, ended


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), OSError("disk"), AuditStoreError("a", next_step="b")]
)
def test_whatever_stops_a_fix_names_the_way_on_once(stop: BaseException) -> None:
    """It keeps its kind; delivery after the gates is inside, too, so that it may pass twice."""
    with pytest.raises(type(stop)) as caught, resumable("fix-1"), resumable("fix-1"):
        raise stop
    assert notes_of(caught.value) == ("`fallback-tier resume fix-1` continues where it stopped.",)


def test_an_error_that_nobody_explained_keeps_its_note() -> None:
    with pytest.raises(OSError, match="disk") as caught, resumable("fix-1"):
        raise OSError("disk")
    (note,) = notes_of(explained(caught.value))
    assert "`fallback-tier resume fix-1`" in note


def test_no_secret_is_kept_to_resume_with(scenario: Scenario) -> None:
    killed(scenario, "after", 3)
    kept = b"".join(path.read_bytes() for path in scenario.state.rglob("*") if path.is_file())
    assert b"localhost:9/v1" in kept
    for secret in (KEY, "secret-word"):
        assert secret.encode() not in kept


def test_a_part_of_several_is_not_resumed_alone(scenario: Scenario) -> None:
    scenario.state.mkdir()
    evidence = FileEvidenceStore(evidence_dir(scenario.state))
    inputs = FixInputs(
        repository=scenario.repo,
        advisory=load_advisory(scenario.advisory),
        setup=Setup(several=True),
    )
    started = FixStarted(
        advisory_id="A+B",
        repository="repo",
        base_commit="0" * 40,
        ecosystem="PyPI",
        tool_version="0",
        inputs_sha256=put_document(evidence, inputs),
    )
    store = SqliteAuditStore(audit_db(scenario.state))
    store.append(Scope(fix_id="fix-1", gate_transition_id="gate-1"), started)
    store.close()
    ended = run("resume", "fix-1", "--state-dir", scenario.state, "--json")
    assert (ended.code, ended.kind) == (exit_codes.BAD_INPUT, "part_of_several")
    assert "`fallback-tier fix` again" in ended.next_step


def test_what_is_not_on_record(scenario: Scenario) -> None:
    ended = run("resume", "fix-1", "--state-dir", scenario.state)
    assert ended.code == exit_codes.ENVIRONMENT
    assert not scenario.state.exists()
    assert scenario.fix("--dry-run").code == exit_codes.PATCHED
    ended = run("resume", "fix-9", "--state-dir", scenario.state, "--json")
    assert ended.code == exit_codes.BAD_INPUT
    assert "no fix 'fix-9'" in json.loads(ended.out)["error"]["problem"]
