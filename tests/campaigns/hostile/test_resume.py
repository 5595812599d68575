"""The campaign of kills in small: so many boundaries, and one run that is killed again."""

from pathlib import Path

import pytest

from tests.campaigns.hostile.resume import run
from tests.integration.gate_setup import needs_sandbox

pytestmark = pytest.mark.sandbox


def test_so_many_boundaries_of_a_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_sandbox()
    chosen, every = run(tmp_path, long=False, pairs=1, seed=3, limit=2)
    assert (chosen, every > chosen) == (2, True)
    assert "2 boundaries of" in capsys.readouterr().out
