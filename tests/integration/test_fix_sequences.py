"""Any sequence of answers, judgements and gate verdicts: the fix ends as it must, and on record."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fallback_audit.events import BudgetRaised, BudgetReached
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    GateStatus,
    ProofLevel,
    RefusalReason,
)
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import ToolFailedError
from fallback_tier.fix.decision import SAME_FAILURE_LIMIT
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.review import raise_budget
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix_result import Escalated, FixResult, Verified
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.limits import MAX_RETRIES
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.fakes.repository import commit_all, git
from tests.fixtures.fallback_tier_callable import ADVISORY, NO_RECIPE
from tests.integration.leaf_sequences import (
    AUTHOR_SAYS,
    INVALID,
    JUDGE_SAYS,
    VALID,
    Case,
    LeafScenario,
    attempt,
)

#: Each case is a real worktree, and up to four attempts on it.
SLOW = settings(
    deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

GATE_SAYS = ("passes", "fails", "fails otherwise", "is skipped", "is undecided", "has no tool")
ENDS = {"FixVerified", "FixRefused", "FixEscalated"}

#: How a patch ends a fix that its gate does not fail.
NOT_FAILED: dict[str, str] = {
    "passes": "verified",
    "is skipped": EscalationReason.NOTHING_PROVED,
    "is undecided": EscalationReason.GATES_UNDECIDED,
    "has no tool": EscalationReason.GATE_INFRASTRUCTURE,
}


_NOT_FAILED = {
    "passes": GateStatus.PASSED,
    "is skipped": GateStatus.SKIPPED,
    "is undecided": GateStatus.UNDECIDED,
}


class Story(NamedTuple):
    """A fix: what is said to it, in order."""

    case: Case
    gate: tuple[str, ...]


@dataclass
class SayingGate:
    """Implements Gate over words; at the end of them it passes."""

    words: Iterator[str]
    name: str = "proof"

    def judge(self, context: GateContext) -> GateVerdict:
        word = next(self.words, "passes")
        if word == "has no tool":
            raise ToolFailedError("The registry can't be reached.", next_step="Wait.")
        status = _NOT_FAILED.get(word)
        if status is not None:
            level = ProofLevel.PROOF_TEST if status is GateStatus.PASSED else None
            return GateVerdict(gate=self.name, status=status, detail=word, proof_level=level)
        return GateVerdict(
            gate=self.name,
            status=GateStatus.FAILED,
            failure_kind=FailureKind.TESTS_FAILED,
            detail="tests failed",
            log=f"E       AssertionError: it {word}\nFAILED tests/test_app.py::test_it",
        )


@dataclass
class Fix(LeafScenario):
    """A fix over a real repository; ``gate`` goes on where it was, as a repository's tests would."""

    gate: SayingGate = field(default_factory=lambda: SayingGate(iter(())))
    commit: str = ""
    seen: int = 0
    leave_after: int | None = None

    def parts(self) -> FixParts:
        return FixParts(
            tier=self.tier(),
            gates=[self.gate],
            sandbox=UnsandboxedRunner(),
            clients=SubprocessClients(),
            audit=self.audit,
            evidence=self.evidence,
            workspace=self.root.parent / "state",
            tool_version="0",
            observe=self.watch,
        )

    def watch(self, _event: object) -> None:
        self.seen += 1
        if self.seen == self.leave_after:
            raise KeyboardInterrupt

    def start(self) -> FixResult:
        return self.checked(
            lambda: run_fix(self.parts(), parse_advisory(ADVISORY, "test"), self.based, NO_RECIPE)
        )

    def go_on(self) -> FixResult:
        """A person lets the next call through, and no call after it."""
        reached = [e for e in self.audit.payloads if isinstance(e, BudgetReached)][-1]
        least = int(Decimal(reached.used) + Decimal(reached.wanted))
        raised = BudgetRaised(by="Ada", reason="worth it", tokens_per_fix=least)
        raise_budget(self.audit, self.repo.fix_id, raised)
        advisory = parse_advisory(ADVISORY, "test")
        recorded = RecordedFix(self.audit, self.evidence, self.repo.fix_id)
        return self.checked(
            lambda: run_fix(self.parts(), advisory, self.based, NO_RECIPE, recorded)
        )

    @property
    def based(self) -> RepoContext:
        return self.repo.model_copy(update={"base_commit": self.commit})

    def checked(self, run: Callable[[], FixResult]) -> FixResult:
        try:
            return run()
        finally:
            self.check()
            assert git(self.root, "status", "--porcelain") == ""
            assert not list((self.root.parent / "state" / "worktrees").glob("*"))


class Came(NamedTuple):
    """How a gate transition must end. ``proposed``: its last plan that became a patch. ``failed``: the plan
    of its last failed attempt, "" for none made; None: no attempt failed."""

    end: str
    proposed: str | None
    failed: str | None


def expected(story: Story) -> str:
    """How a fix must end that nobody interrupts."""
    judge = None if story.case.judge is None else iter(story.case.judge)
    return transition(iter(story.case.author), judge, iter(story.gate)).end


def transition(
    author: Iterator[str],
    judge: Iterator[str] | None,
    gate: Iterator[str],
    inherited: str | None = None,
) -> Came:
    """The gate runner's contract once more (ADR-0014, -0070), over words alone.

    ``inherited``: the failure that a reopened one starts with."""
    tried: list[str] = [inherited] if inherited else []
    priors = 0 if inherited is None else 1
    failures: list[tuple[str, ...]] = []
    proposed: str | None = None
    failed: str | None = None
    while True:
        came = attempt(author, judge, tried)
        if came.plan is None:
            if came.reason is RefusalReason.MODEL_UNAVAILABLE:
                return Came(EscalationReason.MODEL_UNAVAILABLE, proposed, failed)
            if not came.why:
                assert came.reason is not None
                retried = priors + len(failures) > 0
                return Came(
                    EscalationReason.RETRY_REFUSED if retried else came.reason, proposed, failed
                )
            failures.append((str(came.reason), came.why))
            failed = ""
        else:
            word = next(gate, "passes")
            proposed = came.plan
            if word not in ("fails", "fails otherwise"):
                return Came(NOT_FAILED[word], proposed, failed)
            failures.append((word,))
            tried.append(came.plan)
            failed = came.plan
        if priors + len(failures) > MAX_RETRIES:
            return Came(EscalationReason.RETRY_CAP_REACHED, proposed, failed)
        if len(failures) >= SAME_FAILURE_LIMIT and len(set(failures[-SAME_FAILURE_LIMIT:])) == 1:
            return Came(EscalationReason.SAME_FAILURE_REPEATED, proposed, failed)
        if repeats_itself(failures):
            return Came(EscalationReason.RETRY_REFUSED, proposed, failed)


def repeats_itself(failures: Sequence[tuple[str, ...]]) -> bool:
    """Whether the model gave a plan again that had failed, or the same unusable answer in two attempts."""
    reason = failures[-1][0]
    return reason == RefusalReason.REPEATED_PATCH or (
        reason == RefusalReason.PLAN_INVALID and failures[-2:] == [failures[-1]] * 2
    )


def ended(result: FixResult) -> str:
    return "verified" if isinstance(result, Verified) else result.reason


plans = st.sampled_from(sorted(VALID))
invalid = st.sampled_from(sorted(INVALID))
stories = st.builds(
    lambda author, judge, gate: Story(
        Case(tuple(author), None if judge is None else tuple(judge)), tuple(gate)
    ),
    st.lists(plans | plans | invalid | st.sampled_from(AUTHOR_SAYS), min_size=3, max_size=12),
    st.none() | st.lists(st.sampled_from(("doubted", "supported", *JUDGE_SAYS)), max_size=8),
    st.lists(st.sampled_from(("fails", *GATE_SAYS)), min_size=1, max_size=4),
)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[Story], Fix]":
    root = tmp_path_factory.mktemp("scenario") / "repo"
    root.mkdir()
    commits: list[str] = []

    def make(story: Story) -> Fix:
        fix = Fix(root, story.case, gate=SayingGate(iter(story.gate)))
        commits[:] = commits or [commit_all(root)]
        fix.commit = commits[0]
        return fix

    return make


@SLOW
@given(story=stories)
@example(story=Story(Case(("plan 0",), None), ("is skipped",)))
@example(story=Story(Case(("plan 0",), None), ("has no tool",)))
@example(story=Story(Case(("plan 0", "plan 1", "plan 2"), None), ("fails",) * 3))
@example(
    story=Story(Case(("plan 0", "plan 1", "plan 2"), None), ("fails", "fails", "fails otherwise"))
)
def test_every_fix_ends_as_it_must(scenario: "Callable[[Story], Fix]", story: Story) -> None:
    fix = scenario(story)
    assert ended(fix.start()) == expected(story), fix.audit.kinds
    assert len(ENDS & set(fix.audit.kinds)) == 1


@SLOW
@given(story=stories)
def test_a_fix_that_stops_at_each_call_ends_as_it_must(
    scenario: "Callable[[Story], Fix]", story: Story
) -> None:
    # A judge's failure is no answer, so after a stop it is asked again; and one without room is none.
    # Who asks for code that the cap has no room for has declined (ADR-0044): here it declines at once.
    author = tuple("refuse" if word == "ask" else word for word in story.case.author)
    fix = scenario(story._replace(case=Case(author, judge=None)))
    fix.tokens_per_fix = 0
    result = fix.start()
    while isinstance(result, Escalated) and result.reason is EscalationReason.BUDGET_EXHAUSTED:
        result = fix.go_on()
    assert ended(result) == expected(Story(fix.case, story.gate)), fix.audit.kinds
    answered = [word for word in fix.author.heard if word in {*VALID, *INVALID, "refuse"}]
    assert fix.audit.kinds.count("ModelAnswered") == len(answered)


@SLOW
@given(story=stories, leave_after=st.integers(1, 60))
def test_whoever_interrupts_leaves_an_open_fix_and_a_whole_trail(
    scenario: "Callable[[Story], Fix]", story: Story, leave_after: int
) -> None:
    fix = scenario(story)
    fix.leave_after = leave_after
    try:
        fix.start()
    except KeyboardInterrupt:
        last = fix.audit.kinds[-1]
        assert last in ENDS or not ENDS & set(fix.audit.kinds)
