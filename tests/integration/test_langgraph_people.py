"""A fix as a graph that waits for a person: the decision in the trail is what lets it go on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.engines.langgraph.fix import FixGraph
from fallback_tier.errors import ConfigurationError, InputError, SandboxError
from fallback_tier.fix import Fixer
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.review import Signature, approve, reject, reopen
from fallback_tier.gate_ports import GateContext
from fallback_tier.wiring import Services
from tests.fakes.gates import RuleGate
from tests.fixtures.fallback_tier_callable import ADVISORY
from tests.integration.crash_scenario import CrashScenario
from tests.kinds import OfKind

FIX = "fix-that-asks"
GIVEN = AdvisorySet(advisories=(parse_advisory(ADVISORY, "test"),))
PERSON = Signature(by="person:ada", because="seen")


@contextmanager
def opened(scenario: CrashScenario) -> Iterator[tuple[FixGraph, Services]]:
    """As a process of a host's has it; each call is like another one."""
    place = scenario.root / "checkpoints.db"
    with (
        scenario.services() as services,
        closing(sqlite3.connect(place, check_same_thread=False)) as db,
    ):
        fixer = Fixer(services)

        def opening(fix_id: str) -> Any:
            return fixer.open(GIVEN, scenario.repo, fix_id=fix_id)

        with FixGraph(opening, services.audit, SqliteSaver(db)) as graph:
            yield graph, services


@pytest.fixture
def asking(tmp_path: Path) -> CrashScenario:
    """A fix whose attempts have all failed: a person is asked."""
    scenario = CrashScenario(tmp_path / "scenario")
    scenario.gates = (RuleGate(lambda _context: False),)
    with opened(scenario) as (graph, _):
        end = graph.run(FIX)
        assert (end.outcome, end.waits, end.answer) == ("escalated", True, None)
        state = graph.graph.get_state({"configurable": {"thread_id": FIX}})
        assert state.next == ("person",)
        # Of the question only identifiers, a number and the reason, which the trail has as well.
        (asked,) = state.interrupts
        assert set(asked.value) == {"fix_id", "gate_transition_id", "attempt", "reason"}
        with holding(scenario.state, FIX):
            """It is nobody's while it waits."""
    return scenario


def kinds(scenario: CrashScenario) -> list[str]:
    return [event.kind for event in scenario.events]


@pytest.mark.parametrize("hint", [None, "approved", {"verdict": "approved"}])
def test_a_hint_without_a_decision_wakes_nobody(asking: CrashScenario, hint: object) -> None:
    before = kinds(asking)
    for _ in range(3):
        with opened(asking) as (graph, _services):
            graph._opening = lambda _: pytest.fail("the fix was opened")
            assert graph.run(FIX, hint=hint).waits
    assert kinds(asking) == before


@pytest.mark.parametrize("hint", [None, "it was answered"])
def test_a_decision_ends_the_wait_with_or_without_its_hint(
    asking: CrashScenario, hint: object
) -> None:
    with opened(asking) as (graph, services):
        approve(services.audit, services.evidence, FIX, PERSON)
        end = graph.run(FIX, hint=hint)
    assert (end.answer, end.waits) == ("approved", False)
    assert kinds(asking)[-1] == "ReviewDecided"


def test_what_the_hint_says_is_not_believed(asking: CrashScenario) -> None:
    with opened(asking) as (graph, services):
        reject(services.audit, FIX, PERSON)
        assert graph.run(FIX, hint="approved").answer == "rejected"


def test_a_reopened_fix_goes_on_in_the_same_graph(asking: CrashScenario) -> None:
    with opened(asking) as (graph, services):
        reopen(services.audit, FIX, PERSON, opens="gate-2")
        del graph
    asking.gates = (RuleGate(lambda _context: True),)
    with opened(asking) as (graph, _):
        end = graph.run(FIX)
    assert (end.outcome, end.delivered, end.waits) == ("verified", True, False)
    again = kinds(asking)[kinds(asking).index("TransitionReopened") :]
    assert "RagSkippedOnRetry" in again
    assert "RetrievalQueried" not in again
    asking.check()


def test_a_fix_that_others_went_on_with_is_taken_as_it_is(asking: CrashScenario) -> None:
    """By the command, while the graph waited: its checkpoints know nothing of that."""
    with opened(asking) as (_, services):
        reopen(services.audit, FIX, PERSON, opens="gate-2")
    asking.gates = (RuleGate(lambda _context: True),)
    assert asking.resume() == 0
    before = kinds(asking)
    with opened(asking) as (graph, _):
        end = graph.run(FIX, hint="go on")
    assert (end.outcome, end.waits) == ("verified", False)
    assert kinds(asking) == before


def test_a_step_that_raises_lets_go_of_the_fix(tmp_path: Path) -> None:
    """So that another process, or this one, goes on by the trail."""
    scenario = CrashScenario(tmp_path / "scenario")
    failing = [SandboxError("It is gone.", next_step="Look.")]

    def judge(_context: GateContext) -> bool:
        if failing:
            raise failing.pop()
        return True

    scenario.gates = (RuleGate(judge),)
    with opened(scenario) as (graph, _):
        with pytest.raises(SandboxError):
            graph.run(FIX)
        with holding(scenario.state, FIX):
            """It is nobody's."""
        end = graph.run(FIX)
    assert (end.outcome, end.delivered) == ("verified", True)
    assert kinds(scenario).count("FixResumed") == 1
    scenario.check()


def test_a_graph_without_a_checkpointer_is_a_part_of_another(asking: CrashScenario) -> None:
    with asking.services() as services:
        graph = FixGraph(lambda _: pytest.fail("opened"), services.audit)
        with pytest.raises(ConfigurationError, check=OfKind("no_checkpointer")):
            graph.run(FIX)


def test_a_graph_that_is_given_no_fix_says_so(tmp_path: Path) -> None:
    scenario = CrashScenario(tmp_path / "scenario")
    with opened(scenario) as (graph, _), pytest.raises(InputError, check=OfKind("no_fix_id")):
        graph.graph.invoke({}, {"configurable": {"thread_id": "x"}})
