"""The same keyed steps by every engine leave the same trail (ADR-0086)."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def trail_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """The trail that the plain loop leaves of a script: each is run once."""

    @cache
    def of(name: str) -> list[dict[str, Any]]:
        expected = ScriptedFix(tmp_path_factory.mktemp("loop") / "loop", SCRIPTS[name])
        by_loop(expected, "fix-1")
        assert expected.trail[-1]["kind"] == SCRIPTS[name].ends
        return expected.trail

    return of


#: Of the scripts on a server, with the suite: one way to each end, of the fix and of its workflow.
SERVED_WITH_THE_SUITE = {
    "each retry from the base commit",  # verified, after steps of every sort
    "the cap",  # a person is waited for
    "no fixed version",  # refused, without a step that asks anybody
    "a client that can't work",  # a gate that raises
}


def of_each_engine() -> Iterator[Any]:
    for name in SCRIPTS:
        for engine in (*ENGINES, *SERVED):
            is_left = engine in SERVED and name not in SERVED_WITH_THE_SUITE
            yield pytest.param(name, engine, marks=[pytest.mark.campaign] if is_left else [])


@pytest.mark.parametrize(("name", "engine"), [*of_each_engine()])
def test_every_engine_leaves_the_plain_loops_trail(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    trail_of: Callable[[str], list[dict[str, Any]]],
    name: str,
    engine: str,
) -> None:
    if engine in SERVED:
        run: Engine = partial(by_temporal, request.getfixturevalue(SERVED[engine]))
    else:
        run = ENGINES[engine]
    fix = ScriptedFix(tmp_path / engine, SCRIPTS[name])
    run(fix, "fix-1")
    assert fix.trail == trail_of(name)
    assert not list((fix.root / "state" / "worktrees").glob("*"))
