"""kill -9 of a process that runs a fix as a graph, between its nodes and inside them; another goes on."""

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.engines.langgraph.fix import FixGraph
from fallback_tier.fix import Fixer
from tests.choice import a_choice
from tests.fakes.crashing import Kill, in_child
from tests.fakes.repository import git
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_scenario import KEPT, CrashScenario

FIX = "fix-of-a-graph"
GIVEN = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))

#: What only a fix that was interrupted has on record more often.
INTERRUPTED = (
    "FixResumed",
    "SandboxDisabled",
    "AttemptStarted",
    "RagSkippedOnRetry",
    "AnswerReused",
)


class CrashingSaver(SqliteSaver):
    """The real saver, in a process that dies right before or after it puts its n-th checkpoint."""

    kill: Kill | None = None
    written = 0

    def put(self, *arguments: Any) -> Any:
        self.written += 1
        self._die_at(Kill(self.written, before=True))
        done = super().put(*arguments)
        self._die_at(Kill(self.written, before=False))
        return done

    def _die_at(self, now: Kill) -> None:
        if now == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)


def run(
    scenario: CrashScenario, *, event: Kill | None = None, checkpoint: Kill | None = None
) -> int | None:
    """One process: begins the fix, or goes on with it. None: it was killed."""

    def work() -> int:
        place = scenario.root / "checkpoints.db"
        with (
            scenario.services(event) as services,
            closing(sqlite3.connect(place, check_same_thread=False)) as db,
        ):
            saver = CrashingSaver(db)
            saver.kill = checkpoint
            fixer = Fixer(services)

            def opening(fix_id: str) -> Any:
                return fixer.open(GIVEN, scenario.repo, fix_id=fix_id)

            with FixGraph(opening, services.audit, saver) as graph:
                print(graph.run(FIX).model_dump_json())
        return 0

    return in_child(work, scenario.root / "said")


def said(scenario: CrashScenario) -> dict[str, Any]:
    return dict(json.loads((scenario.root / "said").read_text()))


def settled(scenario: CrashScenario) -> list[str]:
    return [event.kind for event in scenario.events if event.kind not in INTERRUPTED]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CrashScenario:
    """The fix as a graph that nobody interrupts."""
    scenario = CrashScenario(tmp_path_factory.mktemp("whole") / "scenario")
    assert run(scenario) == 0
    return scenario


def checkpoints(scenario: CrashScenario) -> int:
    with closing(sqlite3.connect(scenario.root / "checkpoints.db")) as db:
        return int(db.execute("SELECT count(*) FROM checkpoints").fetchone()[0])


def test_the_graph_leaves_what_the_command_leaves(tmp_path: Path, whole: CrashScenario) -> None:
    command = CrashScenario(tmp_path / "command", like=whole)
    assert command.fix() == 0
    assert [event.kind for event in whole.events] == [event.kind for event in command.events]
    assert git(whole.repo, "diff") == git(command.repo, "diff")
    assert said(whole)["outcome"] == "verified"
    assert said(whole)["delivered"]


def test_run_again_after_its_end_it_says_the_same_and_records_nothing(
    tmp_path: Path, whole: CrashScenario
) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    assert run(scenario) == 0
    before, first = len(scenario.events), said(scenario)
    assert run(scenario) == 0
    assert (len(scenario.events), said(scenario)) == (before, first)


def check_goes_on(whole: CrashScenario, scenario: CrashScenario) -> None:
    """After the one kill: another process comes to the same end, and nothing happened twice."""
    assert run(scenario) == 0
    assert said(scenario) == said(whole)
    assert git(scenario.repo, "diff") == git(whole.repo, "diff")
    scenario.check()
    assert settled(scenario) == settled(whole)
    for kind in KEPT:
        assert scenario.kinds[kind] == whole.kinds[kind], kind


# The two of the suite meet each node and the delivery; isolating is killed from inside, below.
@pytest.mark.parametrize("share", a_choice((3, 0, 2, 1), step=2))
def test_killed_between_two_nodes_nothing_is_doubled_and_nothing_is_paid_twice(
    tmp_path: Path, whole: CrashScenario, share: int
) -> None:
    """Before a checkpoint its node's step is on record already; after it the next has not begun."""
    count = checkpoints(whole)
    kills = [Kill(n, before=True) for n in range(1, count + 1)]
    kills += [Kill(n, before=False) for n in range(1, count + 1, 3)]
    for kill in kills[share::4]:
        scenario = CrashScenario(tmp_path / kill.label, like=whole)
        assert run(scenario, checkpoint=kill) is None
        check_goes_on(whole, scenario)
        assert scenario.requests == whole.requests, kill
        assert scenario.kinds["ModelCalled"] == whole.kinds["ModelCalled"], kill
        shutil.rmtree(scenario.root)


@pytest.mark.parametrize("event", a_choice((1, 3, 5, 9, 13), step=2))
def test_killed_inside_a_node_its_step_goes_on_by_the_trail(
    tmp_path: Path, whole: CrashScenario, event: int
) -> None:
    scenario = CrashScenario(tmp_path / "scenario", like=whole)
    assert run(scenario, event=Kill(event, before=False)) is None
    assert run(scenario) == 0
    assert said(scenario) == said(whole)
    scenario.check()
    for kind in KEPT:
        assert scenario.kinds[kind] == whole.kinds[kind], kind
    # A call whose answer nobody heard is asked again, and is on record as another call.
    unheard = scenario.kinds["ModelCalled"] - scenario.kinds["ModelAnswered"]
    assert whole.requests <= scenario.requests <= whole.requests + unheard
