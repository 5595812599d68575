"""A repository with two flaws, and models that write and judge its fix edit by edit.

Both answer by what they are asked, in whatever thread. Examples are told apart by their ids.
"""

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fallback_audit.contract.table import violations
from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.events import (
    AuditEvent,
    ModelCalled,
    RetrieveDecided,
    SegmentScored,
    StrategyDegraded,
)
from fallback_audit.vocabulary import CallType, ModelFailureKind, RefusalReason
from fallback_tier.advisory import parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.errors import ModelError
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.llm.selfrag import SelfRag
from fallback_tier.outcome import AttemptSummary, NotApplicable, RecipeApplication, SearchReplace
from fallback_tier.ports import LanguageModel, ModelRequest, SolvedExampleRetriever
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.prompt.self_rag import SelfRagPrompts
from fallback_tier.repo import Settings, Strategy
from fallback_tier.retrieval import FewShot, RagHit, SolvedExample
from fallback_tier.tier import FallbackTier, Finished, TierEvent
from tests.fakes.answering import AnsweringModel, Said
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.memory import FixedRetriever
from tests.fakes.repository import context
from tests.fixtures.examples import WRITTEN, shown
from tests.fixtures.fallback_tier_callable import ADVISORY, counting_nonces

FILES = {
    "deps.txt": "vulnerable 1.0.0\n",
    "app.py": "import vulnerable\n\n\n"
    "def read_file(name):\n    return open('data/' + name).read()\n\n\n"
    "def write_file(name, text):\n    open('data/' + name, 'w').write(text)\n",
}

READ = {
    "action": "edit",
    "path": "app.py",
    "old": "    return open('data/' + name).read()",
    "new": "    return open(inside(name)).read()",
    "rationale": "Reading stays inside.",
}
WRITE = {
    "action": "edit",
    "path": "app.py",
    "old": "    open('data/' + name, 'w')",
    "new": "    open(inside(name), 'w')",
    "rationale": "Writing stays inside.",
}
BUMP = {"action": "dependency_bump", "package": "vulnerable", "version": "1.0.1"}
ELSEWHERE = {**READ, "old": "nowhere"}


def example(name: str) -> SolvedExample:
    return SolvedExample(
        example_id=name,
        advisory_id="TEST-2025-9",
        advisory_text=f"the {name} joins a user-supplied name without checking it",
        ecosystem="PyPI",
        package="another",
        edits=(SearchReplace(path="a.py", old=f"open({name})", new="open(safe)"),),
        file_sha256={},
        provenance=WRITTEN,
        licence="Apache-2.0",
    )


def shots(*names: str) -> tuple[FewShot, ...]:
    return tuple(shown(example(name)) for name in names)


def hit(*names: str) -> FixedRetriever:
    return FixedRetriever(RagHit(examples=shots(*names), evidence="fixed"))


def critique(**fields: object) -> str:
    """A good mark, and not the last step, unless ``fields`` say otherwise."""
    return json.dumps(
        {"relevant": True, "support": "full", "usefulness": 4, "is_final": False, **fields}
    )


def tail(request: ModelRequest) -> str:
    """The part of a request that differs: the last turn."""
    return request.messages[-1].content


def is_retrieve(request: ModelRequest) -> bool:
    return "Does the next step need examples?" in tail(request)


def steps_taken(request: ModelRequest) -> int:
    """How many segments the plan so far has."""
    return tail(request).split("# Step to judge")[0].count('"action":')


def writes(request: ModelRequest) -> Said:
    """The author that reads first, then writes."""
    return json.dumps(WRITE if steps_taken(request) else READ)


def judges(request: ModelRequest) -> Said:
    """The critic that wants examples at first, then goes on; the second step is the last."""
    if is_retrieve(request):
        return json.dumps({"retrieve": "continue" if steps_taken(request) else "yes"})
    return critique(is_final=steps_taken(request) > 0)


def two_ways(request: ModelRequest) -> Said:
    """The author that makes another edit from each example."""
    return json.dumps(READ if "(first)" in tail(request) else WRITE)


def silent() -> ModelError:
    """What a server says that can't answer now."""
    return ModelError("The server is busy.", next_step="Wait.", failure=ModelFailureKind.OVERLOADED)


@dataclass
class SelfRagCase:
    """A tier whose leaf searches. ``author`` and ``critic``: what they say to a request."""

    root: Path
    author: Callable[[ModelRequest], Said] = writes
    critic: Callable[[ModelRequest], Said] = judges
    retriever: SolvedExampleRetriever | None = field(default_factory=lambda: hit("first", "second"))
    beam_width: int = 1
    meter: AuditMeter | None = None
    judge: Callable[[ModelRequest], Said] | None = None
    with_journal: bool = False
    more_files: dict[str, str] = field(default_factory=dict)
    selection: NotApplicable = field(
        default_factory=lambda: NotApplicable(
            reason=RefusalReason.RECIPE_UNSUPPORTED, sentence="No recipe."
        )
    )

    def __post_init__(self) -> None:
        self.audit = MemoryAudit()
        self.evidence = MemoryEvidence()
        self.author_model = AnsweringModel(self.author, model="author")
        self.critic_model = AnsweringModel(self.critic, model="critic")
        self.streamed: list[TierEvent] = []

    def stream(self, prior: Sequence[AttemptSummary] = ()) -> Generator[TierEvent, None, None]:
        """One attempt as it happens."""
        settings = Settings(strategy=Strategy.SELF_RAG, beam_width=self.beam_width)
        repo = context(self.root, {**FILES, **self.more_files}).model_copy(
            update={"settings": settings}
        )
        advisory = parse_advisory(ADVISORY, "test")
        return self.tier().stream(advisory, repo, self.selection, prior_attempts=prior)

    def __call__(self, *, prior: Sequence[AttemptSummary] = ()) -> RecipeApplication:
        """One attempt. Whatever a test is about, its trail keeps the trace contract."""
        self.streamed = list(self.stream(prior))
        trail = Trail(
            self.audit.stored[0].scope,
            [Entry(stored.seq, stored.payload) for stored in self.audit.stored],
        )
        assert not [broken.detail for broken in violations(trail)]
        last = self.streamed[-1]
        assert isinstance(last, Finished)
        return last.application

    def tier(self) -> FallbackTier:
        nonces = counting_nonces()
        author: LanguageModel = self.author_model
        search = SelfRag(
            author,
            self.critic_model,
            SelfRagPrompts(nonces),
            self.retriever,
            self.evidence,
            self.meter,
        )
        leaf = LlmLeaf(
            author,
            PromptBuilder(nonces),
            evidence=self.evidence,
            judge=None
            if self.judge is None
            else PlanJudge(AnsweringModel(self.judge, model="judge"), nonces, self.evidence),
            meter=self.meter,
            journal=AuditJournal(self.audit, self.evidence) if self.with_journal else None,
            self_rag=search,
        )
        return FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=self.retriever,
            leaf=leaf,
            audit=self.audit,
            evidence=self.evidence,
        )

    def recorded(self, kind: str) -> list[AuditEvent]:
        return [event for event in self.audit.payloads if event.kind == kind]


def scored(case: SelfRagCase) -> list[SegmentScored]:
    """Every candidate, in the order of the record."""
    return [event for event in case.recorded("SegmentScored") if isinstance(event, SegmentScored)]


def decided(case: SelfRagCase) -> list[RetrieveDecided]:
    found = case.recorded("RetrieveDecided")
    return [event for event in found if isinstance(event, RetrieveDecided)]


def degraded(case: SelfRagCase) -> list[StrategyDegraded]:
    found = case.recorded("StrategyDegraded")
    return [event for event in found if isinstance(event, StrategyDegraded)]


def called(case: SelfRagCase, call_type: CallType) -> list[ModelCalled]:
    found = case.recorded("ModelCalled")
    return [e for e in found if isinstance(e, ModelCalled) and e.call_type is call_type]
