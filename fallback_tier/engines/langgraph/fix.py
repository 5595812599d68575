"""A whole fix as a graph: a node takes the step that the audit trail says is next, if it is of its kind.

::

    begin → attempt → isolate → gate (one per gate) → decide → deliver → person
              ↑_______________ after a failure ________|          ↑__________| tried again

The state is identifiers, digests and names. A checkpoint is the state of a host's graph; the audit trail is
the state of the fix, and it decides: a node whose step was taken already does nothing and returns the next
one.
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

#: Maximum number of nodes in one call of the graph. Four attempts of a dozen gates are 60, and each
#: candidate of a recipe adds as many; more are an endless loop.
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


#: Begins a fix, or resumes one that is on record, and holds it: ``Fixer.open`` with its arguments.
Opening = Callable[[str], AbstractContextManager[OpenedFix]]


class Question(Frozen):
    """The gate transition that asks a person, and why. The question's text and the patch are in the
    audit trail and its evidence.
    """

    fix_id: str
    gate_transition_id: str
    attempt: int
    reason: EscalationReason


def question_of(trail: AuditReader, fix_id: str) -> Question | None:
    """Return the open question of a fix, or None if it asks nothing, or was answered. Raises InputError
    if there is no such fix.
    """
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
    """Return the decision: ``approved``, ``rejected`` or ``abandoned``, which are final; or
    ``goes_on``: reopened, its budget raised, or continued already.
    """
    current = read_history(trail, fix_id).current
    if current.abandoned is not None:
        return "abandoned"
    decided = current.last_of(ReviewDecided)
    return "goes_on" if decided is None else decided.verdict.value


class FixEnd(Frozen):
    """The end of a run of the graph. ``waits``: for a person, whose question is in the audit trail."""

    fix_id: str
    outcome: str
    attempts: int
    patch_sha256: str | None = None
    delivered: bool = False
    answer: str | None = None
    waits: bool = False


class FixGraph:
    """Runs fixes through a graph. Close it: that releases the fixes that it holds.

    One fix in one thread at a time. It reads strictly from the ``checkpointer``, which remains the host's;
    None: ``graph`` becomes a node of the host's own graph, which has one. Raises ConfigurationError for a
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
        """Begin the fix, or continue from its last checkpoint; to its end, or until a person must decide.

        Call it again after a decision: ``hint`` is a host's information about it, and is not read. Raises
        what a step raises: the fix can then continue by another call, or without any graph.
        """
        if self.graph.checkpointer is None:
            raise ConfigurationError(
                "This graph has no checkpointer: it is to be a node of a graph that has one.",
                next_step="Run that graph, or give FixGraph a checkpointer.",
                kind="no_checkpointer",
            )
        config: Any = {"configurable": {"thread_id": fix_id}, "recursion_limit": MAX_VISITS}
        snapshot = self.graph.get_state(config)
        graph_input: Any = {"fix_id": fix_id}
        if snapshot.next:
            graph_input = None if hint is None else Command(resume=hint)
        state = self.graph.invoke(graph_input, config, durability="sync")
        return _end(state)

    def close(self) -> None:
        """Release every fix that is open."""
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
        """Return the state of a fix that stopped at its budget before this process had it, so that it
        can't be opened: the same as ``deliver`` returns for one.
        """
        question = question_of(self._trail, fix_id)
        return {
            "attempt": 0 if question is None else question.attempt,
            "next": "person",
            "patch_sha256": "",
            "outcome": "escalated",
            "delivered": False,
        }

    def _deliver(self, state: FixFacts) -> FixFacts:
        """Deliver a fix that has ended, then release it before waiting for a person."""
        try:
            with self._in_hand(state) as fix:
                end = fix.deliver()
        except UnansweredError:
            return self._asking(state["fix_id"])
        self._let_go(state["fix_id"])
        is_waiting = question_of(self._trail, state["fix_id"]) is not None
        return {
            "outcome": end.result.outcome,
            "delivered": end.delivery.delivered,
            "next": "person" if is_waiting else END,
        }

    def _person(self, state: FixFacts) -> FixFacts:
        """Wait until the decision is on record. LangGraph runs this from its start on each resumption,
        so it only reads; the value that it is resumed with is a hint.
        """
        fix_id = state["fix_id"]
        while (question := question_of(self._trail, fix_id)) is not None:
            interrupt(question.model_dump(mode="json"))
        answer = answer_to(self._trail, fix_id)
        return {"answer": answer, "next": END if answer in _LAST_WORDS else "begin"}

    @contextmanager
    def _in_hand(self, state: FixFacts) -> Iterator[OpenedFix]:
        """Yield the fix of this thread, opening it if this process does not have it. After any error it
        is released: the next process reads the audit trail again.
        """
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
    """A node as LangGraph calls it."""

    def __call__(self, state: FixFacts) -> FixFacts: ...


#: Answers that end the fix for good.
_LAST_WORDS = frozenset({"approved", "rejected", "abandoned"})


def _node_of(key: StepKey) -> str:
    return "gate" if key.gate else key.name


def _following(state: FixFacts) -> str:
    return state["next"]


def _facts(fix: OpenedFix) -> FixFacts:
    key, state = fix.next(), fix.state
    application = state.application
    facts: FixFacts = {
        "attempt": state.attempt if fix.result is None else fix.result.attempts,
        "next": "deliver" if key is None else _node_of(key),
        "patch_sha256": application.patch_sha256 if isinstance(application, Applied) else "",
    }
    if fix.result is not None:
        facts["outcome"] = fix.result.outcome
        facts["gate_transition_id"] = fix.result.gate_transition_id
        facts["patch_sha256"] = (
            fix.result.application.patch_sha256 if isinstance(fix.result, WithPatch) else ""
        )
    return facts


def _end(state: dict[str, Any]) -> FixEnd:
    interrupts: tuple[Interrupt, ...] = tuple(state.get("__interrupt__", ()))
    return FixEnd(
        fix_id=state["fix_id"],
        outcome=state["outcome"],
        attempts=state["attempt"],
        patch_sha256=state["patch_sha256"] or None,
        delivered=state["delivered"],
        answer=state.get("answer"),
        waits=bool(interrupts),
    )


def strictly(
    checkpointer: "BaseCheckpointSaver[Any] | None",
) -> "BaseCheckpointSaver[Any] | None":
    """Return a copy over the same store, whose serializer creates only plain values and LangGraph's types.

    Checkpoints are read as data: a writer of checkpoints can't run code here. By default LangGraph's
    serializer imports any class that a checkpoint names. The host's own object is not changed: its other
    graphs may need that. Raises ConfigurationError for another serializer.
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
    strict_copy = copy.copy(checkpointer)
    strict_copy.serde = strict
    return strict_copy
