"""Three `fix` at once, on one commit, with one fresh state folder: all end alike, and who waits says so."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from fallback_plugins.shared.store import MADE_AGAIN
from fallback_tier.cli import exit_codes
from tests.choice import a_choice
from tests.e2e.command import Ended, half_written, osv, repository, run, snapshot
from tests.forks import MAIN, Forked
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Universe, serve

pytestmark = pytest.mark.sandbox

AT_ONCE = 3

#: Long enough that all three come to the same place while one installs.
PAUSE_S = 2.0

PYTHON = {
    "requirements.txt": "left==1.0.0\n",
    "app.py": "import left\n",
    "test_app.py": "import unittest\n\nimport app\n\n\nclass AppTest(unittest.TestCase):\n"
    "    def test_app(self):\n        self.assertTrue(app.left)\n",
}
NPM = {
    "package.json": json.dumps(
        {
            "name": "app",
            "version": "1.0.0",
            "scripts": {"test": "node test.js"},
            "dependencies": {"left": "1.0.0"},
        }
    ),
    "test.js": "require('left'); console.log('1 passing')\n",
}


def universe() -> Universe:
    made = Universe()
    for version in ("1.0.0", "2.0.0"):
        made.pypi("left", version).npm("left", version)
    return made


def at_once(
    place: Path, repo: Path, env: Mapping[str, str], ecosystem: str, *, runs: int = AT_ONCE
) -> list[Ended]:
    advisory = place / "advisory.json"
    advisory.write_text(osv("left", ecosystem=ecosystem))
    own = ["--state-dir", place / "state", "--keys", place / "keys"]
    words = ["fix", repo, "--advisory", advisory, "--dry-run", *own]
    environ = {**os.environ, "COLUMNS": "200", **env}
    with ExitStack() as stack:
        started, outs, errs = [], [], []
        for _ in range(runs):
            log = stack.enter_context(NamedTemporaryFile("r", dir=place))
            one = Forked(MAIN, list(map(str, words)), cwd=place, env=environ, log=Path(log.name))
            assert one.stdout is not None
            outs.append(stack.enter_context(one.stdout))
            errs.append(log)
            started.append(one)
        # Each to the end of what it prints: a pipe that is full would keep it.
        printed = [out.read() for out in outs]
        codes = [one.wait(300) for one in started]
        return [
            Ended(code, out, err.read())
            for code, out, err in zip(codes, printed, errs, strict=True)
        ]


def without_its_name(message: str) -> str:
    return re.sub(r"fix-[0-9a-f]+", "FIX", message)


# What one installs for all is kept by the same code for either.
@pytest.mark.parametrize(("ecosystem", "files"), a_choice([("PyPI", PYTHON), ("npm", NPM)], step=2))
def test_three_end_alike(tmp_path: Path, ecosystem: str, files: dict[str, str]) -> None:
    needs_sandbox()
    repo = repository(tmp_path / "repo", files)
    before = snapshot(repo)
    with serve(universe(), pause_s=PAUSE_S) as registry:
        ended = at_once(tmp_path, repo, registry.environ, ecosystem)
        again = at_once(tmp_path, repo, registry.environ, ecosystem, runs=1)
    for one in (*ended, *again):
        assert one.code == exit_codes.OK, one
        assert without_its_name(one.out) == without_its_name(ended[0].out)
        assert "Traceback" not in one.err
    assert any("another run is busy with" in one.err for one in ended), ended
    assert not any(MADE_AGAIN in one.err for one in again), "what one installed serves them all"
    assert snapshot(repo) == before
    assert half_written(tmp_path / "state") == []
    verified = run(
        "audit", "verify", "--state-dir", tmp_path / "state", "--keys", tmp_path / "keys"
    )
    assert verified.code == exit_codes.OK, verified
