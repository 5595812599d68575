"""A whole fix as a graph: a node takes the step that the trail says is next, if it is of its kind.

::

    begin → attempt → isolate → gate (once a gate) → decide → deliver → person
              ↑______________ after a failure ________|          ↑__________| tried again

The state is identifiers, digests and names. Checkpoints say where a host's graph stands; the trail says
where the fix stands, and it decides: a node that finds its step taken does nothing and says what follows.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, Self, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, interrupt

from fallback_audit.events import FixEscalated, ReviewDecided
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.engines.opened import OpenedFix
from fallback_tier.errors import ConfigurationError, InputError, UnansweredError
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.steps import StepKey
from fallback_tier.fix_result import WithPatch
from fallback_tier.outcome import Applied

#: Nodes of one call of the graph. Four attempts of a dozen gates are 60, and each candidate of a recipe
#: adds as many; past this something goes in circles.
MAX_VISITS = 1_000


class FixFacts(TypedDict, total=False):
    """The graph's state. ``next``: the node that follows; ``outcome``: how the fix has ended."""

    fix_id: str
    gate_transition_id: str
    attempt: int
    next: str
    patch_sha256: str
    outcome: str
    delivered: bool
    answer: str


#: Begins a fix, or resumes it where it is on record, and holds it: ``Fixer.open`` with its arguments.
Opening = Callable[[str], AbstractContextManager[OpenedFix]]


class Question(Frozen):
    """Which gate transition asks, and why. Its words and the patch are in the trail and its evidence."""

    fix_id: str
    gate_transition_id: str
    attempt: int
    reason: EscalationReason


def question_of(trail: AuditReader, fix_id: str) -> Question | None:
    """What nobody has answered yet; None: nothing is asked, or it was answered. Raises InputError: no such
    fix."""
    current = read_history(trail, fix_id).current
    end = current.end
    if not isinstance(end, FixEscalated) or current.reopened or current.of(ReviewDecided):
        return None
    return Question(
        fix_id=fix_id,
        gate_transition_id=current.scope.gate_transition_id,
        attempt=end.attempt,
        reason=end.reason,
    )


def answer_to(trail: AuditReader, fix_id: str) -> str:
    """What was decided: ``approved``, ``rejected`` or ``abandoned``, the last words; or ``goes_on``:
    reopened, its budget raised, or somebody has gone on with it already."""
    current = read_history(trail, fix_id).current
    if current.abandoned is not None:
        return "abandoned"
    decided = current.last_of(ReviewDecided)
    return "goes_on" if decided is None else decided.verdict.value


class FixEnd(Frozen):
    """Where a run of the graph came to. ``waits``: for a person, whose question is in the trail."""

    fix_id: str
    outcome: str
    attempts: int
    patch_sha256: str | None = None
    delivered: bool = False
    answer: str | None = None
    waits: bool = False


class FixGraph:
    """Runs fixes through a graph. Close it: what it holds is let go of.

    One fix in one thread at a time. Strict about what it reads from the ``checkpointer``, which stays the
    host's; None: ``graph`` becomes a node of the host's own, which has one. Raises ConfigurationError for a
    checkpointer whose serializer can't be made strict.
    """

    def __init__(
        self,
        opening: Opening,
        trail: AuditReader,
        checkpointer: "BaseCheckpointSaver[Any] | None" = None,
    ) -> None:
        self._opening = opening
        self._trail = trail
        self._open: dict[str, tuple[OpenedFix, ExitStack]] = {}
        self.graph = self._built(strictly(checkpointer))

    def run(self, fix_id: str, *, hint: object = None) -> FixEnd:
        """Begin the fix, or go on from its last checkpoint; to its end, or until a person must decide.

        Call it again when somebody has decided: ``hint`` is what a host was told of that, and is not looked
        at. Raises what a step raises: the fix can then go on by calling again, or without any graph.
        """
        if self.graph.checkpointer is None:
            raise ConfigurationError(
                "This graph has no checkpointer: it is to be a node of a graph that has one.",
                next_step="Run that graph, or give FixGraph a checkpointer.",
                kind="no_checkpointer",
            )
        place: Any = {"configurable": {"thread_id": fix_id}, "recursion_limit": MAX_VISITS}
        at = self.graph.get_state(place)
        given: Any = {"fix_id": fix_id}
        if at.next:
            given = None if hint is None else Command(resume=hint)
        state = self.graph.invoke(given, place, durability="sync")
        return _end(state)

    def close(self) -> None:
        """Let go of every fix that is in hand."""
        for fix_id in tuple(self._open):
            self._let_go(fix_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _built(
        self, checkpointer: "BaseCheckpointSaver[Any] | None"
    ) -> "CompiledStateGraph[FixFacts, None, FixFacts, FixFacts]":
        graph = StateGraph(FixFacts)
        graph.add_node("begin", self._begin)
        kinds = ("attempt", "isolate", "gate", "decide")
        for kind in kinds:
            graph.add_node(kind, self._taking(kind))
        graph.add_node("deliver", self._deliver)
        graph.add_node("person", self._person)
        graph.add_edge(START, "begin")
        for node in ("begin", *kinds):
            graph.add_conditional_edges(node, _following, [*kinds, "deliver", "person"])
        graph.add_conditional_edges("deliver", _following, ["person", END])
        graph.add_conditional_edges("person", _following, ["begin", END])
        return graph.compile(checkpointer=checkpointer)

    def _begin(self, state: FixFacts) -> FixFacts:
        return self._taking("")(state)

    def _taking(self, kind: str) -> "_Node":
        def take(state: FixFacts) -> FixFacts:
            try:
                with self._in_hand(state) as fix:
                    key = fix.next()
                    if key is not None and _node_of(key) == kind:
                        fix.step(key)
                    return _facts(fix)
            except UnansweredError:
                return self._asking(state["fix_id"])

        return take

    def _asking(self, fix_id: str) -> FixFacts:
        """It stopped at its budget before this process had it, so it can't be opened: as ``deliver`` leaves
        such a fix."""
        asked = question_of(self._trail, fix_id)
        return {
            "attempt": 0 if asked is None else asked.attempt,
            "next": "person",
            "patch_sha256": "",
            "outcome": "escalated",
            "delivered": False,
        }

    def _deliver(self, state: FixFacts) -> FixFacts:
        """The last act of a fix that has ended; then it is let go of, before anybody is waited for."""
        try:
            with self._in_hand(state) as fix:
                end = fix.deliver()
        except UnansweredError:
            return self._asking(state["fix_id"])
        self._let_go(state["fix_id"])
        waits = question_of(self._trail, state["fix_id"]) is not None
        return {
            "outcome": end.result.outcome,
            "delivered": end.delivery.delivered,
            "next": "person" if waits else END,
        }

    def _person(self, state: FixFacts) -> FixFacts:
        """Wait until the decision is on record. LangGraph runs this from its start each time that it is
        resumed, so it only reads; what it is resumed with is a hint."""
        fix_id = state["fix_id"]
        while (asked := question_of(self._trail, fix_id)) is not None:
            interrupt(asked.model_dump(mode="json"))
        answer = answer_to(self._trail, fix_id)
        return {"answer": answer, "next": END if answer in _LAST_WORDS else "begin"}

    @contextmanager
    def _in_hand(self, state: FixFacts) -> Iterator[OpenedFix]:
        """The fix of this thread, opened where this process does not have it. Whatever is raised, it is let
        go of: who goes on reads the trail again."""
        fix_id = state.get("fix_id")
        if not fix_id:
            raise InputError(
                "The graph of a fix was started without a fix_id.",
                next_step='Give it as {"fix_id": "…"}: a new one, or one on record.',
                kind="no_fix_id",
            )
        if fix_id not in self._open:
            with ExitStack() as stack:
                opened = stack.enter_context(self._opening(fix_id))
                self._open[fix_id] = opened, stack.pop_all()
        try:
            yield self._open[fix_id][0]
        except BaseException:
            self._let_go(fix_id)
            raise

    def _let_go(self, fix_id: str) -> None:
        if fix_id in self._open:
            self._open.pop(fix_id)[1].close()


class _Node(Protocol):
    """As LangGraph calls one."""

    def __call__(self, state: FixFacts) -> FixFacts: ...


#: Answers after which nothing of the fix goes on.
_LAST_WORDS = frozenset({"approved", "rejected", "abandoned"})


def _node_of(key: StepKey) -> str:
    return "gate" if key.gate else key.name


def _following(state: FixFacts) -> str:
    return state["next"]


def _facts(fix: OpenedFix) -> FixFacts:
    key, state = fix.next(), fix.state
    made = state.application
    facts: FixFacts = {
        "attempt": state.attempt if fix.result is None else fix.result.attempts,
        "next": "deliver" if key is None else _node_of(key),
        "patch_sha256": made.patch_sha256 if isinstance(made, Applied) else "",
    }
    if fix.result is not None:
        facts["outcome"] = fix.result.outcome
        facts["gate_transition_id"] = fix.result.gate_transition_id
        facts["patch_sha256"] = (
            fix.result.application.patch_sha256 if isinstance(fix.result, WithPatch) else ""
        )
    return facts


def _end(state: dict[str, Any]) -> FixEnd:
    asked: tuple[Interrupt, ...] = tuple(state.get("__interrupt__", ()))
    return FixEnd(
        fix_id=state["fix_id"],
        outcome=state["outcome"],
        attempts=state["attempt"],
        patch_sha256=state["patch_sha256"] or None,
        delivered=state["delivered"],
        answer=state.get("answer"),
        waits=bool(asked),
    )


def strictly(
    checkpointer: "BaseCheckpointSaver[Any] | None",
) -> "BaseCheckpointSaver[Any] | None":
    """Return a copy over the same store, whose serializer makes plain values and LangGraph's types alone.

    Checkpoints are read as data: whoever can write them can't run code here. By default LangGraph's
    serializer imports whatever class a checkpoint names. The host's own object is
    left as it is: its other graphs may need that. Raises ConfigurationError for another serializer.
    """
    if checkpointer is None:
        return None
    strict: Any = JsonPlusSerializer(allowed_msgpack_modules=None)
    serde = checkpointer.serde
    if isinstance(serde, EncryptedSerializer):
        strict = EncryptedSerializer(serde.cipher, strict)
    elif not isinstance(serde, JsonPlusSerializer):
        raise ConfigurationError(
            f"Checkpoints are written by {type(serde).__name__}, which can't be told to make no objects.",
            next_step="Give a checkpointer with LangGraph's JsonPlusSerializer, encrypted or not.",
            kind="not_strict",
        )
    made = copy.copy(checkpointer)
    made.serde = strict
    return made
