"""``fallback-tier worker`` as a process: what it prints, and how it ends, without its server."""

import re
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from fallback_tier.cli import exit_codes
from fallback_tier.engines.temporal.dev import dev_server, server_binary
from fallback_tier.errors import ConfigurationError
from tests.e2e.command import SCRIPT
from tests.ports import free_port
from tests.waiting import PATIENCE_S, next_line

#: How the SDK's core and Python's loggers begin a line.
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT|WARN|ERROR|Traceback|Fatal Python")


@pytest.mark.parametrize("_again", range(2))
def test_worker_without_its_server_ends_with_a_reason(tmp_path: Path, _again: int) -> None:
    """The SDK's threads may be at work while the interpreter ends: once it aborted there."""
    port = free_port()
    words = [
        "worker",
        "--temporal",
        f"127.0.0.1:{port}",
        "--state-dir",
        tmp_path,
        "--keys",
        tmp_path,
    ]
    done = subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert done.returncode == exit_codes.ENVIRONMENT, done.stderr
    problem, step = done.stderr.splitlines()
    assert problem.endswith("can't be reached: Connection refused")
    assert step.startswith("  next: ")


def test_worker_says_once_that_its_server_is_gone(tmp_path: Path) -> None:
    try:
        server_binary()
    except ConfigurationError as error:
        pytest.skip(str(error))
    port = free_port()
    words = ["worker", "--temporal", f"127.0.0.1:{port}", "--state-dir", tmp_path / "state"]
    with ExitStack() as stack:
        with dev_server(tmp_path / "server", port):
            worker = subprocess.Popen(
                [SCRIPT, *words, "--keys", tmp_path / "keys"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(worker.communicate)
            stack.callback(worker.kill)
            assert next_line(worker).startswith("working: ")
        assert "does not answer" in next_line(worker)
        with dev_server(tmp_path / "server-2", port):
            assert "answers again" in next_line(worker)
            worker.send_signal(signal.SIGTERM)
            rest, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == exit_codes.OK
    assert _LOG_LINE.search(rest) is None, rest
