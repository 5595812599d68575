"""The attempt as a graph: the steps that ``fallback_tier.tier`` calls as nodes, its order as edges.

::

    start ─┬─ first attempt ─→ recipe ─→ rag ─→ llm ─→ seal
           └─ retry ─→ fresh_context ───────────↗

A step that has a patch leads to ``seal``, one that ends the attempt to ``refuse``. No path leads from
``fresh_context`` to ``recipe`` or ``rag`` (ADR-0011). The steps share their data in memory: an attempt is
run as a whole, and one without an outcome is restarted (ADR-0028).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from fallback_audit.events import ConsumerLeft
from fallback_tier.advisory import Advisory
from fallback_tier.attempt import chain, rag
from fallback_tier.attempt.task import AttemptTask, Proposal, Recorder, Refusal, TierEvent
from fallback_tier.outcome import AttemptSummary, NotApplicable, RecipeApplication, RecipeSelection
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot
from fallback_tier.tier import RESUME_RULE, FallbackTier, TierParts

Observer = Callable[[TierEvent], None]


class AttemptFacts(TypedDict, total=False):
    """The graph's state, which its edges read."""

    is_retry: bool
    has_patch: bool
    is_refused: bool


@dataclass
class AttemptInHand:
    """Data that the nodes of one run share; never in a checkpoint."""

    task: AttemptTask
    parts: TierParts
    record: Recorder
    observe: Observer
    declined: NotApplicable | None = None
    examples: tuple[FewShot, ...] = ()
    proposal: Proposal | None = None
    refusal: Refusal | None = None
    application: RecipeApplication | None = None

    @property
    def facts(self) -> AttemptFacts:
        """Return the state for the edges."""
        return {
            "is_retry": self.task.is_retry,
            "has_patch": self.proposal is not None,
            "is_refused": self.refusal is not None,
        }


#: A step of the chain, which stores its result in the ``AttemptInHand``.
ChainStep = Callable[[AttemptInHand], Generator[TierEvent, None, None]]


class Node(Protocol):
    """A node as LangGraph calls it."""

    def __call__(self, state: AttemptFacts, *, runtime: Runtime[AttemptInHand]) -> AttemptFacts:
        """Return the state for the edges."""
        ...


def _start(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    chain.check_cap(hand.task)
    yield hand.record(chain.started(hand.task))


def _fresh_context(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    yield hand.record(chain.rag_skipped(hand.task))


def _recipe(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    hand.proposal, hand.declined = yield from chain.apply_recipe(hand.task, hand.record)


def _rag(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    task, parts, record = hand.task, hand.parts, hand.record
    hand.examples = yield from rag.retrieve(parts.retriever, task, parts.evidence, record)
    hand.proposal = yield from rag.replay(hand.examples, task, record)


def _llm(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    hand.proposal = yield from hand.parts.ask_model(
        hand.task, hand.examples, hand.declined, hand.record
    )


def _seal(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    if hand.proposal is None:
        raise AssertionError("what is sealed was proposed")
    hand.application = yield from chain.seal(
        hand.proposal, hand.task, hand.parts.evidence, hand.record
    )


def _refuse(hand: AttemptInHand) -> Generator[TierEvent, None, None]:
    if hand.refusal is None:
        raise AssertionError("what is refused has a reason")
    hand.application = yield from chain.refuse(hand.task, hand.refusal, hand.record)


def _node(step: ChainStep) -> Node:
    """Return a step as a node. A Refusal is not an error of the graph: the edges lead to ``refuse``."""

    def node(state: AttemptFacts, *, runtime: Runtime[AttemptInHand]) -> AttemptFacts:  # noqa: ARG001
        hand = runtime.context
        try:
            for event in step(hand):
                hand.observe(event)
        except Refusal as refusal:
            hand.refusal = refusal
        return hand.facts

    return node


def _after_start(state: AttemptFacts) -> str:
    if state["is_refused"]:
        return "refuse"
    return "fresh_context" if state["is_retry"] else "recipe"


def _or_else(following: str) -> Callable[[AttemptFacts], str]:
    """Return the edges of a step: a patch leads to ``seal``, a refusal to ``refuse``, and neither to
    the next step.
    """

    def route(state: AttemptFacts) -> str:
        if state["is_refused"]:
            return "refuse"
        return "seal" if state["has_patch"] else following

    return route


def attempt_graph() -> (
    "CompiledStateGraph[AttemptFacts, AttemptInHand, AttemptFacts, AttemptFacts]"
):
    """Return the nodes and edges of every attempt, of any tier. As a node of a host's own graph it is
    not checkpointed, even if that graph is.
    """
    graph = StateGraph(AttemptFacts, context_schema=AttemptInHand)
    nodes: dict[str, ChainStep] = {
        "start": _start,
        "fresh_context": _fresh_context,
        "recipe": _recipe,
        "rag": _rag,
        "llm": _llm,
        "seal": _seal,
        "refuse": _refuse,
    }
    for name, step in nodes.items():
        graph.add_node(name, _node(step))
    graph.add_edge(START, "start")
    graph.add_conditional_edges("start", _after_start, ["refuse", "fresh_context", "recipe"])
    graph.add_edge("fresh_context", "llm")
    graph.add_conditional_edges("recipe", _or_else("rag"), ["refuse", "seal", "rag"])
    graph.add_conditional_edges("rag", _or_else("llm"), ["refuse", "seal", "llm"])
    graph.add_conditional_edges("llm", _or_else("seal"), ["refuse", "seal"])
    graph.add_conditional_edges("seal", _after_seal, ["refuse", END])
    graph.add_edge("refuse", END)
    return graph.compile(checkpointer=False)


def _after_seal(state: AttemptFacts) -> str:
    """Return the node after ``seal``: a patch that changes nothing, or too much, is refused at the end."""
    return "refuse" if state["is_refused"] else END


def _ignore(_event: TierEvent) -> None:
    """Ignore an event."""


class AttemptGraph:
    """Runs a tier's attempts through the graph. Safe to share, as the tier is."""

    def __init__(self, tier: FallbackTier) -> None:
        self._tier = tier
        #: The graph, for a host that draws it, or embeds it with its own context.
        self.graph = attempt_graph()

    def run(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
        observe: Observer = _ignore,
    ) -> RecipeApplication:
        """Run one attempt, as ``FallbackTier.run``, with the same events and the same errors.

        ``observe`` is called with each event once it is durable, in this thread.
        """
        hand = self.in_hand(
            advisory, repo_ctx, recipe_selection, prior_attempts=prior_attempts, observe=observe
        )
        try:
            self.graph.invoke({}, context=hand)
        except KeyboardInterrupt:
            if not hand.record.has_outcome:
                hand.record(ConsumerLeft(attempt=hand.task.number, resume_rule=RESUME_RULE))
            raise
        if hand.application is None:
            raise AssertionError("every path ends in an application")
        return hand.application

    def in_hand(
        self,
        advisory: Advisory,
        repo_ctx: RepoContext,
        recipe_selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
        observe: Observer = _ignore,
    ) -> AttemptInHand:
        """Return the context for one run of ``graph``. Raises AttemptHistoryError, ConfigurationError."""
        task = self._tier.task(advisory, repo_ctx, recipe_selection, prior_attempts)
        parts = self._tier.parts
        return AttemptInHand(task, parts, Recorder(parts.audit, repo_ctx), observe)
