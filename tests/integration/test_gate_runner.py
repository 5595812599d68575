"""The gate runner over a real repository and a real worktree; gates and model are scripted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.contract.table import violations
from fallback_audit.errors import AuditStoreError
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    PromptShape,
    RefusalReason,
    Tier,
)
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import ToolFailedError
from fallback_tier.fix.document import document
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix.steps import StepKey
from fallback_tier.fix_result import Escalated, FixResult, RefusedFix, Verified
from fallback_tier.gate_ports import Gate, GateContext
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.outcome import (
    AttemptSummary,
    NotApplicable,
    RecipeSelection,
    Selected,
    UnreadItem,
)
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.fakes.audit import MemoryAudit
from tests.fakes.gates import RuleGate, SkippedGate
from tests.fakes.repository import commit_all, git, write
from tests.fixtures.fallback_tier_callable import (
    ADVISORY,
    FILES,
    NO_RECIPE,
    OTHER_PLAN,
    PLAN,
    FallbackTierCallable,
    failed,
)

BUMP = Selected(recipe="direct-bump", parameters={"package": "vulnerable", "version": "1.0.1"})


def plan(line: str) -> dict[str, Any]:
    """A plan of its own kind: puts ``line`` before the vulnerable one."""
    old = "    return open('data/' + name).read()"
    return {**PLAN, "edits": [{"path": "app.py", "old": old, "new": f"    {line}\n{old}"}]}


class Bench:
    """A repository with one commit, and everything to run a fix over it."""

    def __init__(self, root: Path) -> None:
        self.repo_root = root / "repo"
        self.repo_root.mkdir()
        write(self.repo_root, FILES)
        self.commit = commit_all(self.repo_root)
        self.audit = MemoryAudit()
        self.state = root / "state"
        self.steps: list[StepKey] = []

    def fix(
        self,
        answers: Sequence[Any],
        gates: Sequence[Gate],
        *,
        selection: RecipeSelection = NO_RECIPE,
        prior_attempts: Sequence[AttemptSummary] = (),
        with_model: bool = True,
    ) -> FixResult:
        from fallback_plugins.messages_api.scripted import ScriptedModel

        tier = FallbackTierCallable(self.repo_root, audit=self.audit, with_model=with_model).build(
            ScriptedModel(answers)
        )
        parts = FixParts(
            tier=tier,
            gates=gates,
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=self.audit,
            evidence=tier.parts.evidence,
            workspace=self.state,
            tool_version="0",
            observe=self.seen,
        )
        repo = RepoContext(
            root=self.repo_root,
            base_commit=self.commit,
            tracked_files=tuple(sorted(FILES)),
            manifests=("deps.txt",),
            fix_id="fix-1",
            gate_transition_id="gate-1",
        )
        result = run_fix(
            parts, parse_advisory(ADVISORY, "test"), repo, selection, prior_attempts=prior_attempts
        )
        self.check_contract()
        return result

    def seen(self, event: object) -> None:
        if isinstance(event, StepKey):
            self.steps.append(event)

    def check_contract(self) -> None:
        """Whatever happened, the trail keeps its contract, and the repository is untouched."""
        from fallback_audit.contract.trail import Entry, Trail

        trail = Trail(
            self.audit.stored[0].scope,
            [Entry(stored.seq, stored.payload) for stored in self.audit.stored],
        )
        assert list(violations(trail)) == []
        assert git(self.repo_root, "status", "--porcelain") == ""
        assert git(self.repo_root, "rev-parse", "HEAD").strip() == self.commit
        assert list((self.state / "worktrees").glob("*")) == []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def contains(text: str) -> RuleGate:
    return RuleGate(lambda context: text in context.worktree.tree.locate("app.py").read_text())


def test_a_recipe_that_passes_is_verified(bench: Bench) -> None:
    gate = RuleGate(lambda c: "vulnerable 1.0.1" in c.worktree.tree.locate("deps.txt").read_text())
    result = bench.fix([], [gate], selection=BUMP)
    assert isinstance(result, Verified)
    assert result.application.tier is Tier.RECIPE
    assert bench.audit.kinds[-1] == "FixVerified"
    assert [step.name for step in bench.steps] == [
        "attempt",
        "isolate",
        "gate:applies",
        "gate:proof",
        "decide",
    ]


def test_a_failed_recipe_is_followed_by_a_fresh_model_run(bench: Bench) -> None:
    result = bench.fix([plan("check(name)")], [contains("check(name)")], selection=BUMP)
    assert isinstance(result, Verified)
    assert result.attempts == 2
    assert result.application.prompt_shape is PromptShape.RETRY
    assert result.prior_attempts[0].tier is Tier.RECIPE
    assert "RagSkippedOnRetry" in bench.audit.kinds
    assert "RetrievalQueried" not in bench.audit.kinds


def test_each_retry_starts_from_the_base_commit(bench: Bench) -> None:
    """The second patch must not stand on the first one's worktree."""
    gate = RuleGate(
        lambda c: (
            "two" in (text := c.worktree.tree.locate("app.py").read_text()) and "one" not in text
        )
    )
    result = bench.fix([plan("one"), plan("two")], [gate])
    assert isinstance(result, Verified)
    assert gate.judged == [1, 2]


def test_the_cap_escalates_with_a_question(bench: Bench) -> None:
    gates = [
        RuleGate(lambda c, n=n: c.application.attempt != n, name=f"g{n}")  # type: ignore[misc]
        for n in range(1, MAX_RETRIES + 2)
    ]
    result = bench.fix([plan(f"n{n}") for n in range(9)], gates)
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.RETRY_CAP_REACHED
    assert result.attempts == MAX_RETRIES + 1
    assert result.question.count("?") == 1
    assert bench.audit.kinds.count("AttemptStarted") == MAX_RETRIES + 1
    assert bench.audit.kinds[-1] == "FixEscalated"
    keys = [(step.attempt, step.name) for step in bench.steps]
    assert len(keys) == len(set(keys))


def test_three_identical_failures_stop_early(bench: Bench) -> None:
    result = bench.fix([plan(f"n{n}") for n in range(9)], [contains("never")])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.SAME_FAILURE_REPEATED
    assert result.attempts == 3


def test_a_repeated_edit_set_never_reaches_a_gate(bench: Bench) -> None:
    gate = contains("never")
    result = bench.fix([PLAN, *([PLAN] * 9)], [gate])
    assert isinstance(result, Escalated)
    assert gate.judged == [1]
    assert result.attempts == 2
    assert result.reason is EscalationReason.RETRY_REFUSED
    assert "The model repeats itself" in result.question
    assert bench.audit.kinds.count("ModelCalled") == 3


def test_the_same_unusable_answer_in_two_attempts_is_a_question(bench: Bench) -> None:
    result = bench.fix(["?"] * 9, [contains("ValueError")])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.RETRY_REFUSED
    assert result.attempts == 2
    assert bench.audit.kinds.count("ModelCalled") == 4


def test_an_unusable_answer_costs_an_attempt(bench: Bench) -> None:
    result = bench.fix(["?", "?", OTHER_PLAN], [contains("ValueError")])
    assert isinstance(result, Verified)
    assert result.attempts == 2
    assert result.prior_attempts[0].failure_kind is FailureKind.PLAN_INVALID


def test_a_transport_failure_is_not_a_gate_failure(bench: Bench) -> None:
    result = bench.fix([], [contains("x")])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.MODEL_UNAVAILABLE
    assert result.prior_attempts == ()


def test_a_refusal_on_the_first_attempt_refuses_the_fix(bench: Bench) -> None:
    reason = NotApplicable(reason=RefusalReason.NO_FIXED_VERSION, sentence="None is fixed.")
    result = bench.fix([], [contains("x")], selection=reason)
    assert isinstance(result, RefusedFix)
    assert result.reason is RefusalReason.NO_FIXED_VERSION


def test_unknown_asks_nobody_and_lists_what_was_not_read(bench: Bench) -> None:
    item = UnreadItem(path="lib/yarn.lock", reason="It is empty.", next_step="Make it anew.")
    why = NotApplicable(reason=RefusalReason.UNKNOWN, sentence="Nobody knows.", unread=(item,))
    result = bench.fix([PLAN], [contains("x")], selection=why)
    assert isinstance(result, RefusedFix)
    assert result.is_unknown
    assert result.unread == (item,)
    assert document(result)["unread"] == [item.model_dump()]


def test_without_a_model_a_failed_recipe_is_a_question(bench: Bench) -> None:
    result = bench.fix([], [contains("never")], selection=BUMP, with_model=False)
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.RETRY_REFUSED


def test_nothing_proved_is_not_verified(bench: Bench) -> None:
    result = bench.fix([PLAN], [SkippedGate()])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.NOTHING_PROVED


def test_a_broken_client_is_a_question_not_a_verdict(bench: Bench) -> None:
    class Broken:
        name = "resolves"

        def judge(self, context: GateContext) -> Any:
            raise ToolFailedError("The registry can't be reached.", next_step="Check the network.")

    result = bench.fix([PLAN], [Broken()])
    assert isinstance(result, Escalated)
    assert result.reason is EscalationReason.GATE_INFRASTRUCTURE
    assert "GateJudged" not in bench.audit.kinds[-1]


def test_a_linked_transition_starts_as_a_retry(bench: Bench) -> None:
    """It never regains RAG by emptying the list: the old summary is its first prior attempt."""
    result = bench.fix(
        [PLAN], [contains("replace")], selection=BUMP, prior_attempts=[failed(4, "OLD-SUMMARY")]
    )
    assert isinstance(result, Verified)
    assert result.application.attempt == 5
    assert bench.audit.kinds[1:3] == ["AttemptStarted", "RagSkippedOnRetry"]


@pytest.mark.parametrize("kind", ["GateJudged", "AttemptFailed", "FixVerified"])
def test_a_full_audit_disk_stops_the_fix(bench: Bench, kind: str) -> None:
    bench.audit.fail_on = kind
    with pytest.raises(AuditStoreError):
        bench.fix([PLAN] * 4, [contains("never" if kind == "AttemptFailed" else "replace")])
    assert git(bench.repo_root, "status", "--porcelain") == ""
    assert list((bench.state / "worktrees").glob("*")) == []
