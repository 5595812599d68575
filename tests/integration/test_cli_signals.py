"""A fix in a pipe: it says what it waits for, a line an event, and how it goes on if a signal ends it."""

import os
import re
import signal
import subprocess
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from tests.e2e.command import SCRIPT, run
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_cli_proof import Scenario

pytestmark = pytest.mark.sandbox

#: Two tests that pass, and one that never ends.
HANGING = {
    "test_left.py": "import time, unittest\n\n\nclass LeftTest(unittest.TestCase):\n"
    "    def test_a(self):\n        pass\n\n    def test_b(self):\n        pass\n\n"
    "    def test_z(self):\n        time.sleep(600)\n"
}

#: Seconds for the gates before the tests, for the first line about them, and for an end on a busy machine.
_PATIENCE_S = 120


@pytest.mark.parametrize(
    ("number", "word", "code"),
    [(signal.SIGTERM, "terminated", 143), (signal.SIGINT, "interrupted", 130)],
)
def test_a_signal_ends_it_with_how_it_goes_on(
    tmp_path: Path, request: pytest.FixtureRequest, number: signal.Signals, word: str, code: int
) -> None:
    needs_sandbox()
    scenario = Scenario(tmp_path, HANGING)
    state = tmp_path / "state"
    given = ["--script", tmp_path / "script.json", "--proof", "python proof.py"]
    given += ["--proof-file", scenario.proof, "--proof-end", "nothing was run"]
    command = [SCRIPT, "fix", scenario.repo, "--advisory", scenario.advisory, *given]
    process = subprocess.Popen(
        [*map(str, command), "--state-dir", str(state)],
        env={**os.environ, "COLUMNS": "80"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Where these tests run in the background of a shell, it is ignored, and a program inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def end() -> None:
        process.kill()
        process.wait(60)
        stderr.close()

    request.addfinalizer(end)
    lines: Queue[str] = Queue()
    assert process.stderr is not None
    stderr = process.stderr

    def read() -> None:
        for line in stderr:
            lines.put(line)

    reading = Thread(target=read, daemon=True)
    reading.start()
    seen: list[str] = []
    while not any("tests so far" in line for line in seen):
        seen.append(lines.get(timeout=_PATIENCE_S))
    waiting = next(line for line in seen if "tests so far" in line)
    assert re.fullmatch(
        r"  waiting    gate:tests: \d+ s; .*unittest.*: \d+ s of at most 3,600 s; 2 tests so far\n",
        waiting,
    ), waiting
    # A line an event: a detail is longer than a pipe's 80 columns, and is not cut into pieces.
    assert all(line.startswith(("attempt", "  ", "\n")) for line in seen), seen
    process.send_signal(number)
    assert process.wait(_PATIENCE_S) == code
    reading.join(10)
    rest = "".join(lines.get() for _ in range(lines.qsize()))
    (fix,) = scenario.fixes_on_record
    assert f"{word}; the repository is as it was" in rest
    assert f"fallback-tier resume {fix['fix_id']}" in rest
    shown = run("audit", "show", fix["fix_id"], "--state-dir", state).out.splitlines()
    assert shown[0].startswith(f"open  {fix['fix_id']}")
    assert f"fallback-tier resume {fix['fix_id']}" in shown[-2]
    assert f"fallback-tier abandon {fix['fix_id']}" in shown[-1]
