"""A fix with a budget: a repository, a state folder, and parts that are new in every run."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from fallback_audit.events import BudgetRaised, BudgetReached
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.verifying.verify import verify
from fallback_plugins.messages_api.scripted import ScriptedModel
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.budget.prices import Prices, read_price
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.review import raise_budget
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix_result import FixResult
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import random_nonce
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.gates import RuleGate
from tests.fakes.repository import commit_all, write
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES, NO_RECIPE, PLAN

#: Reported for each answer: less than any pre-charge here, more than two of them differ by.
USED = {"input_tokens": 4_500, "output_tokens": 500}
FIX = "fix-1"


def plan(line: str) -> dict[str, Any]:
    old = "    return open('data/' + name).read()"
    return {**PLAN, "edits": [{"path": "app.py", "old": old, "new": f"    {line}\n{old}"}]}


#: An invalid answer and a plan that fails its gate; the same again; then the one that passes.
STORY = ["no plan", plan("first(name)"), "no plan", plan("second(name)"), plan("check(name)")]


class BudgetScenario:
    """A repository, a state folder, and a model; every run gets new parts, as a new process would."""

    def __init__(self, root: Path, answers: Sequence[Any] = STORY) -> None:
        self.root = root
        write(root / "repo", FILES)
        self.commit = commit_all(root / "repo")
        self.audit = SqliteAuditStore(root / "audit.db")
        self.evidence = FileEvidenceStore(root / "evidence")
        self.author = ScriptedModel([{"answer": a, "usage": USED} for a in answers])
        self.advisory = parse_advisory(ADVISORY, "test")
        self.waiver: str | None = None

    def parts(self, **limits: int | str) -> FixParts:
        leaf = LlmLeaf(
            self.author,
            PromptBuilder(random_nonce, frozenset()),
            evidence=self.evidence,
            meter=AuditMeter(
                self.audit, BudgetLimits.model_validate(limits), Prices(read_price("1:10"))
            ),
            journal=AuditJournal(self.audit, self.evidence),
        )
        tier = FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=None,
            leaf=leaf,
            audit=self.audit,
            evidence=self.evidence,
        )
        gate = RuleGate(lambda c: "check(name)" in c.worktree.tree.locate("app.py").read_text())
        return FixParts(
            tier=tier,
            gates=[gate],
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=self.audit,
            evidence=self.evidence,
            workspace=self.root / "state",
            tool_version="0",
            sandbox_waiver=self.waiver,
        )

    @property
    def repo(self) -> RepoContext:
        return RepoContext(
            root=self.root / "repo",
            base_commit=self.commit,
            tracked_files=tuple(sorted(FILES)),
            manifests=("deps.txt",),
            fix_id=FIX,
            gate_transition_id="gate-1",
        )

    def run(self, **limits: int | str) -> FixResult:
        return run_fix(self.parts(**limits), self.advisory, self.repo, NO_RECIPE)

    def raised(self, **caps: int | str) -> BudgetReached:
        event = BudgetRaised.model_validate({"by": "Ada", "reason": "it is worth it", **caps})
        return raise_budget(self.audit, FIX, event)

    def recorded(self, advisory: Advisory | None = None, commit: str = "") -> RecordedFix:
        """What is on record of it, once it may continue."""
        recorded = RecordedFix(self.audit, self.evidence, FIX)
        recorded.check_advisory(advisory or self.advisory)
        assert recorded.state
        recorded.check_base(commit or self.commit)
        return recorded

    def resume(self, **limits: int | str) -> FixResult:
        recorded = self.recorded()
        return run_fix(self.parts(**limits), self.advisory, self.repo, NO_RECIPE, recorded)

    @property
    def kinds(self) -> list[str]:
        return [stored.kind for stored in self.audit.events()]

    @property
    def reached(self) -> BudgetReached:
        found = [e.payload for e in self.audit.events() if isinstance(e.payload, BudgetReached)]
        return found[-1]

    @property
    def least(self) -> str:
        """The cap under which the next call fits, and no call after it."""
        return f"{Decimal(self.reached.used) + Decimal(self.reached.wanted):f}"

    def check(self) -> None:
        report = verify(self.audit, checkpoints=None, evidence=self.evidence)
        assert report.ok, report.model_dump(mode="json")
