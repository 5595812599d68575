"""The same keyed steps by every engine leave the same trail (ADR-0086)."""

from functools import partial
from pathlib import Path

import pytest

from tests.integration.engine_scripts import (
    ENGINES,
    SCRIPTS,
    SERVED,
    Engine,
    ScriptedFix,
    by_loop,
    by_temporal,
)


@pytest.mark.parametrize("engine", [*ENGINES, *SERVED])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_engine_leaves_the_plain_loops_trail(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, engine: str
) -> None:
    if engine in SERVED:
        run: Engine = partial(by_temporal, request.getfixturevalue(SERVED[engine]))
    else:
        run = ENGINES[engine]
    expected = ScriptedFix(tmp_path / "loop", SCRIPTS[name])
    by_loop(expected, "fix-1")
    assert expected.trail[-1]["kind"] == SCRIPTS[name].ends
    fix = ScriptedFix(tmp_path / engine, SCRIPTS[name])
    run(fix, "fix-1")
    assert fix.trail == expected.trail
    assert not list((fix.root / "state" / "worktrees").glob("*"))
