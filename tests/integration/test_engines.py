"""The same keyed steps by every engine leave the same trail (ADR-0086)."""

from pathlib import Path

import pytest

from tests.integration.engine_scripts import ENGINES, SCRIPTS, ScriptedFix, by_loop


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_engine_leaves_the_plain_loops_trail(tmp_path: Path, name: str) -> None:
    expected = ScriptedFix(tmp_path / "loop", SCRIPTS[name])
    by_loop(expected, "fix-1")
    assert expected.trail[-1]["kind"] == SCRIPTS[name].ends
    for engine, run in ENGINES.items():
        fix = ScriptedFix(tmp_path / engine, SCRIPTS[name])
        run(fix, "fix-1")
        assert fix.trail == expected.trail, engine
        assert not list((fix.root / "state" / "worktrees").glob("*"))
