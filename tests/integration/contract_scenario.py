"""Fixes told by a seed: what recipe, memory, author, judge and gates say, who leaves, what a person says.

Tier, leaf, gate runner, guard and store are the real ones; only models, memory, ecosystem, gates and
worktrees are words. The tier and the runner write through ``Watched``, which asks the model first.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import AuditEvent, TransitionReopened
from fallback_audit.ports import Scope, StoredEvent
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import EscalationReason, RefusalReason
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.errors import PatchError
from fallback_tier.fix.decision import SAME_FAILURE_LIMIT
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.review import (
    Signature,
    approve,
    reject,
    reopen,
    run_gates_again,
)
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix_result import Escalated, FixResult, Verified
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.llm.judging import PlanJudge
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import SearchReplace, Selected
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import RagHit, RagMiss, Retrieval, SolvedExample
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from fallback_tier.tier import FallbackTier
from tests.fakes.audit import MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import SkippedGate
from tests.fixtures.examples import WRITTEN, shown
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES, NO_RECIPE, counting_nonces
from tests.integration.contract_model import Protocol
from tests.integration.leaf_sequences import (
    AUTHOR_SAYS,
    INVALID,
    JUDGE_SAYS,
    VALID,
    Case,
    Said,
    attempt,
    author_reports,
    judge_reports,
)
from tests.integration.test_fix_sequences import NOT_FAILED, SayingGate, repeats_itself

GATES = ("applies", "proof", "tests")
GATE_SAYS = {"fails": 9, "fails otherwise": 7, "passes": 2, "is skipped": 1, "has no tool": 1}
SIGNED = Signature(by="Ada", because="looked at it")

EXAMPLE = SolvedExample(
    example_id="e0",
    advisory_id="TEST-2025-9",
    advisory_text="it joins a user-supplied name without checking it",
    ecosystem="PyPI",
    package="another",
    edits=(SearchReplace(path="app.py", old="'data/' + name", new="'data/' + safe(name)"),),
    file_sha256={"app.py": hashlib.sha256(FILES["app.py"].encode()).hexdigest()},
    provenance=WRITTEN,
    licence="Apache-2.0",
)


@dataclass(frozen=True)
class Story:
    """``memory``: None, or how many examples it returns; -1: one to replay. ``leaves``: after how many
    events each process dies. ``then``: what a person says at the end."""

    seed: int
    recipe: str
    memory: int | None
    case: Case
    gate: tuple[str, ...]
    leaves: tuple[int, ...]
    then: str


def told(seed: int) -> Story:
    """The story of this seed."""
    random = Random(seed)
    reported = random.choices((tuple(VALID), tuple(INVALID), AUTHOR_SAYS), (85, 8, 7), k=16)
    author = tuple(random.choice(words) for words in reported)
    judge = [random.choice(("doubted", "supported", *JUDGE_SAYS)) for _ in range(8)]
    interrupted = random.random() < 0.25
    return Story(
        seed=seed,
        recipe=random.choice(("selected", "declined", "declined")),
        memory=random.choice((None, 0, 1, 3, -1)),
        case=Case(author, tuple(judge) if random.random() < 0.5 else None),
        gate=tuple(random.choices(list(GATE_SAYS), list(GATE_SAYS.values()), k=8)),
        leaves=tuple(random.randint(1, 25) for _ in range(random.randint(1, 3)))
        if interrupted
        else (),
        then=random.choice(("nothing", "approve", "reject", "reopen", "reopen", "again")),
    )


def predicted(story: Story, *, priors: int = 0, inherited: str | None = None) -> Iterator[str]:
    """How each gate transition of an uninterrupted fix must end (ADR-0014, -0022, -0070), over words."""
    author, gate = iter(story.case.author), iter(story.gate)
    judge = None if story.case.judge is None else iter(story.case.judge)
    while True:
        first = "recipe" if story.recipe == "selected" else "replay" if story.memory == -1 else None
        end, inherited = _transition(author, judge, gate, priors, inherited, first)
        yield end
        if story.then == "again":
            word = next(gate, "passes")
            yield NOT_FAILED.get(word, EscalationReason.GATES_FAILED_AGAIN)
            return
        priors = 1


def _transition(
    author: Iterator[str],
    judge: Iterator[str] | None,
    gate: Iterator[str],
    priors: int,
    inherited: str | None,
    first: str | None,
) -> tuple[str, str | None]:
    tried = [inherited] if inherited else []
    failures: list[tuple[str, ...]] = []
    last = inherited
    while True:
        retry = priors + len(failures) > 0
        plan: str | None = None if retry else first
        if plan is None:
            came = attempt(author, judge, tried)
            if came.plan is None and not came.why:
                if came.reason is RefusalReason.MODEL_UNAVAILABLE:
                    return EscalationReason.MODEL_UNAVAILABLE, last
                return (EscalationReason.RETRY_REFUSED if retry else str(came.reason)), last
            plan = came.plan
            if plan is None:
                failures.append((str(came.reason), came.why))
                last = ""
        if plan is not None:
            word = next(gate, "passes")
            if word not in ("fails", "fails otherwise"):
                return NOT_FAILED[word], last
            failures.append((word,))
            tried.append(plan)
            last = plan
        if priors + len(failures) > MAX_RETRIES:
            return EscalationReason.RETRY_CAP_REACHED, last
        if len(failures) >= SAME_FAILURE_LIMIT and len(set(failures[-SAME_FAILURE_LIMIT:])) == 1:
            return EscalationReason.SAME_FAILURE_REPEATED, last
        if repeats_itself(failures):
            return EscalationReason.RETRY_REFUSED, last


class Watched:
    """An AuditStore that asks the model of the protocol before the store itself is asked."""

    def __init__(self, store: SqliteAuditStore) -> None:
        self.store = store
        self.protocols: dict[Scope, Protocol] = {}
        self.opened_with: str | None = None
        self.opened_again: str | None = None
        self.last: Protocol | None = None

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        protocol = self.protocols.get(scope)
        if protocol is None:
            protocol = Protocol(GATES, inherited=self.opened_with, again=self.opened_again)
            self.protocols[scope] = protocol
        protocol.take(event)
        self.last = protocol
        stored = self.store.append(scope, event)
        if isinstance(event, TransitionReopened):
            self.opened_with = protocol.failures[-1] if protocol.failures else protocol.inherited
            self.opened_again = event.judges_again
        return stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass
class Memory:
    """Implements SolvedExampleRetriever; looked at on a retry, it fails the test (ADR-0011)."""

    watched: Watched
    answer: Retrieval
    queries: int = 0

    def __getattribute__(self, name: str) -> Any:
        watched = object.__getattribute__(self, "__dict__").get("watched")
        if name == "query" and watched is not None:
            assert watched.last is not None
            assert not watched.last.is_retry, "the memory was touched on a retry"
        return object.__getattribute__(self, name)

    def query(
        self, advisory: Advisory, repo_ctx: RepoContext, *, beyond: frozenset[str] = frozenset()
    ) -> Retrieval:
        self.queries += 1
        return self.answer


class WordTree:
    """A worktree of which nothing is read."""

    tree = None

    def apply(self, diff: str) -> None:
        if not diff:
            raise PatchError("Nothing to apply.", next_step="Propose something.")

    def restore(self) -> None:
        pass

    reset = close = restore


class WordTrees:
    """In the place of ``Worktrees``: isolation has tests of its own, and takes all the time."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    @contextmanager
    def open(self, _repo: RepoContext) -> Iterator[WordTree]:
        yield WordTree()

    def remove_leftovers(self) -> None:
        pass


class LeftError(KeyboardInterrupt):
    """The process dies here."""


@dataclass
class ContractScenario:
    """One fix of a store."""

    story: Story
    watched: Watched
    repo: RepoContext
    workspace: Path
    evidence: MemoryEvidence = field(default_factory=MemoryEvidence)

    def __post_init__(self) -> None:
        self.nonces = counting_nonces()
        self.author = Said(self.story.case.author, author_reports, "author")
        self.judge = Said(self.story.case.judge or (), judge_reports, "judge")
        self.gate = SayingGate(iter(self.story.gate))
        self.advisory = parse_advisory(ADVISORY, "test")
        self.memory = Memory(self.watched, self._answer())
        self.leave_after: int | None = None

    def _answer(self) -> Retrieval:
        count = self.story.memory
        if not count:
            return RagMiss(evidence="nothing near")
        package = "vulnerable" if count < 0 else "another"
        shots = tuple(
            shown(EXAMPLE.model_copy(update={"example_id": f"e{n}", "package": package}))
            for n in range(abs(count))
        )
        return RagHit(examples=shots, evidence="near")

    @property
    def selection(self) -> Any:
        bump = {"package": "vulnerable", "version": "1.0.1"}
        chosen = Selected(recipe="direct-bump", parameters=bump)
        return chosen if self.story.recipe == "selected" else NO_RECIPE

    def parts(self) -> FixParts:
        """New parts, as a new process has them; models and gates go on where they were."""
        judge = None
        if self.story.case.judge is not None:
            judge = PlanJudge(self.judge, self.nonces, self.evidence)
        leaf = LlmLeaf(
            self.author,
            PromptBuilder(self.nonces, frozenset()),
            evidence=self.evidence,
            judge=judge,
            meter=AuditMeter(self.watched, BudgetLimits()),
            journal=AuditJournal(self.watched, self.evidence),
        )
        tier = FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=None if self.story.memory is None else self.memory,
            leaf=leaf,
            audit=self.watched,
            evidence=self.evidence,
        )
        return FixParts(
            tier=tier,
            gates=[self.gate, SkippedGate(name="tests")],
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=self.watched,
            evidence=self.evidence,
            workspace=self.workspace,
            tool_version="0",
            observe=self._observe,
        )

    def _observe(self, _event: object) -> None:
        if self.leave_after is not None:
            self.leave_after -= 1
            if self.leave_after <= 0:
                raise LeftError

    def run(self) -> FixResult:
        """From the start to the end of a gate transition, in as many processes as it takes."""
        leaves = list(self.story.leaves)
        self.leave_after = leaves.pop(0) if leaves else None
        with patch("fallback_tier.fix.open_fix.Worktrees", WordTrees):
            try:
                return run_fix(self.parts(), self.advisory, self.repo, self.selection)
            except LeftError:
                pass
            while True:
                self.leave_after = leaves.pop(0) if leaves else None
                try:
                    return self.go_on()
                except LeftError:
                    continue

    def run_again(self) -> FixResult:
        """The gate transition that a person opened."""
        with patch("fallback_tier.fix.open_fix.Worktrees", WordTrees):
            return self.go_on()

    def go_on(self) -> FixResult:
        """Another process resumes it: a store and a guard that know nothing of what was."""
        path = self.watched.store._path
        self.watched.store.close()
        self.watched.store = SqliteAuditStore(path, guard=ContractGuard())
        recorded = RecordedFix(self.watched, self.evidence, self.repo.fix_id)
        recorded.check_advisory(self.advisory)
        if recorded.result is not None:
            return recorded.result
        repo = self.repo.model_copy(update={"gate_transition_id": recorded.gate_transition_id})
        return run_fix(self.parts(), self.advisory, repo, self.selection, recorded)

    def answer(self, result: FixResult) -> str:
        """A person's word, where one was asked for; returns what was done."""
        fix_id, then = self.repo.fix_id, self.story.then
        last = self.watched.last
        if not isinstance(result, Escalated) or last is None:
            return "nothing"
        if then == "approve" and "PatchProposed" in self._kinds():
            approve(self.watched, self.evidence, fix_id, SIGNED)
        elif then == "reject":
            reject(self.watched, fix_id, SIGNED)
        elif then == "again" and "PatchProposed" in self._kinds():
            run_gates_again(self.watched, self.evidence, fix_id, SIGNED, opens="gate-2")
        elif then == "reopen" and (last.failures or last.inherited):
            reopen(self.watched, fix_id, SIGNED, opens="gate-2")
        else:
            return "nothing"
        return then

    def _kinds(self) -> set[str]:
        return {stored.kind for stored in self.watched.events(self.repo.fix_id)}


def ended(result: FixResult) -> str:
    """In the words of ``predicted``."""
    return "verified" if isinstance(result, Verified) else str(result.reason)
