"""A test that waits for what never comes fails, and says for what."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import waiting

TESTS = Path(__file__).parents[1]

#: A wait without a limit. (``str.join`` has an argument.)
ENDLESS = re.compile(r"\.(?:wait|join|communicate)\(\)|os\.waitpid\(")

#: Where one may be: a program for a sandbox, which ends it; a program of its own, which is no test.
ALLOWED = {
    "campaigns/bench",
    "campaigns/eval_repos/sources",
    "campaigns/hostile/escapes",
    "campaigns/local_model/serve.py",
    "campaigns/measuring/process.py",
    "campaigns/retry/peers/inside.py",
    "campaigns/retry/peers/model.py",
    "e2e/forked.py",
    "integration/test_sandbox.py",
    "integration/test_sandbox_layers.py",
    "unit/shared/gates/test_reports.py",
    "unit/test_waiting.py",
    "waiting.py",
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.01)
    monkeypatch.setattr(waiting, "_LAST_WORDS_S", 5.0)


@pytest.mark.usefixtures("impatient")
def test_what_never_comes_is_told() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match="nobody has set the event: it hangs"):
        waiting.came(never)
    with pytest.raises(TimeoutError, match="has not ended: it hangs"):
        waiting.at_once([lambda: never.wait(60)])
    never.set()


@pytest.mark.usefixtures("impatient")
def test_a_process_that_hangs_is_told_and_ended() -> None:
    hangs = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    with (
        subprocess.Popen(hangs, stdout=subprocess.PIPE) as silent,
        pytest.raises(TimeoutError, match=f"process {silent.pid} has said nothing"),
    ):
        waiting.next_line(silent)
    child = os.posix_spawn(sys.executable, hangs, os.environ)
    with pytest.raises(TimeoutError, match=rf"\b{child}\b"):
        waiting.exit_code(child)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_what_comes_in_time_is_handed_on() -> None:
    command = ["sh", "-c", "echo one; exit 3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert (waiting.next_line(process), waiting.next_line(process)) == (b"one\n", b"")
    assert waiting.exit_code(os.posix_spawn("/bin/sh", command, os.environ)) == 3
    killed = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -9 $$"], os.environ)
    assert waiting.exit_code(killed) == -signal.SIGKILL


def test_no_test_waits_without_a_limit() -> None:
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if ENDLESS.search(path.read_text("utf-8"))
    }
    assert [one for one in sorted(found) if not any(map(one.startswith, ALLOWED))] == []
