"""What a node does where its checkpoint lags behind the trail; whole fixes are in the integration tests."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from fallback_audit.events import FixEscalated, FixStarted, TransitionReopened
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import EscalationReason, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.engines.langgraph.fix import FixGraph
from fallback_tier.errors import UnansweredError
from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix_result import FixResult, OneFix, RefusedFix
from tests.fakes.audit import MemoryAudit

SCOPE = Scope(fix_id="fix", gate_transition_id="gate")

END = RefusedFix(
    fix_id="fix",
    gate_transition_id="gate",
    advisory_id="A",
    attempts=1,
    reason=RefusalReason.NO_FIXED_VERSION,
    sentence="None is fixed.",
)


@dataclass
class FakeFix:
    """Has these steps still to take."""

    names: list[str]
    taken: list[str] = field(default_factory=list)
    state: FixProgress = field(default_factory=FixProgress)

    @property
    def result(self) -> FixResult | None:
        return self.state.result

    def next(self) -> StepKey | None:
        return StepKey(1, self.names[0]) if self.names else None

    def step(self, key: StepKey) -> None:
        self.taken.append(self.names.pop(0))
        if not self.names:
            self.state = replace(self.state, result=END)

    def deliver(self) -> OneFix:
        return OneFix(END, Advisory(id="A", affected=()))


def visited(graph: FixGraph, given: Any, place: Any) -> list[tuple[str, str]]:
    """The nodes in order, each with what it says that follows."""
    updates = graph.graph.stream(given, place, stream_mode="updates", durability="sync")
    return [(name, facts["next"]) for update in updates for name, facts in update.items()]


class Opened:
    """What a host opens fixes with; counts."""

    def __init__(self, fix: FakeFix) -> None:
        self.fix, self.count, self.open = fix, 0, 0

    @contextmanager
    def __call__(self, _fix_id: str) -> Iterator[FakeFix]:
        self.count += 1
        self.open += 1
        yield self.fix
        self.open -= 1


class NoQuestions(MemoryAudit):
    """A trail in which the fix has begun, and nobody is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.append(
            SCOPE,
            FixStarted(
                advisory_id="A",
                repository="r",
                base_commit="0" * 40,
                ecosystem="PyPI",
                tool_version="0",
            ),
        )


PLACE: RunnableConfig = {"configurable": {"thread_id": "fix"}}


def test_each_step_is_taken_by_the_node_of_its_kind() -> None:
    fix = FakeFix(["attempt", "isolate", "gate:applies", "gate:tests", "decide"])
    opened = Opened(fix)
    with FixGraph(opened, NoQuestions(), InMemorySaver()) as graph:
        assert visited(graph, {"fix_id": "fix"}, PLACE) == [
            ("begin", "attempt"),
            ("attempt", "isolate"),
            ("isolate", "gate"),
            ("gate", "gate"),
            ("gate", "decide"),
            ("decide", "deliver"),
            ("deliver", "__end__"),
        ]
        assert opened.open == 0  # let go of at its end
    assert opened.count == 1


def test_a_node_whose_step_is_on_record_takes_none_and_says_what_follows() -> None:
    """The process died between the step and its checkpoint: the trail is ahead by one."""
    saver = InMemorySaver()
    with FixGraph(Opened(FakeFix([])), NoQuestions(), saver) as graph:
        lagging = {"fix_id": "fix", "next": "gate"}
        graph.graph.update_state(PLACE, lagging, as_node="isolate")
    fix = FakeFix(["attempt", "decide"])
    with FixGraph(Opened(fix), NoQuestions(), saver) as graph:
        assert visited(graph, None, PLACE)[:2] == [("gate", "attempt"), ("attempt", "decide")]
    assert fix.taken == ["attempt", "decide"]


def test_a_fix_that_stopped_at_its_budget_waits_where_it_cannot_be_opened() -> None:
    """Its process died behind the escalation, before the checkpoint: nobody has raised the budget yet."""
    trail = NoQuestions()
    trail.append(
        SCOPE,
        FixEscalated(attempt=2, reason=EscalationReason.BUDGET_EXHAUSTED, question="Raise it?"),
    )

    def unopened(_fix_id: str) -> AbstractContextManager[FakeFix]:
        raise UnansweredError("It stopped at its budget.", next_step="Raise it.")

    saver = InMemorySaver()
    with FixGraph(unopened, trail, saver) as graph:
        graph.graph.update_state(PLACE, {"fix_id": "fix", "next": "decide"}, as_node="gate")
        for _ in range(2):
            end = graph.run("fix")
            assert (end.outcome, end.attempts, end.waits) == ("escalated", 2, True)
    trail.append(
        SCOPE,
        TransitionReopened(by="person:ada", reason="again", opens="gate-2"),
    )
    with FixGraph(Opened(FakeFix(["decide"])), trail, saver) as graph:
        assert graph.run("fix").outcome == "refused"
