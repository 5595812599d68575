"""An orchestrator that is not ours: it calls the tier, judges by itself, and at some point breaks a rule.

Up to there what it does is right, and admitted; the breach is refused and leaves nothing behind; and it
can go on as it should have. ``main(count)`` for the campaign.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import ContractError
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    AuditEvent,
    FixEscalated,
    FixStarted,
    FixVerified,
    GateJudged,
    ModelCalled,
    PatchDelivered,
    RagSkippedOnRetry,
    ReviewDecided,
)
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import (
    CallType,
    DeliveryPlace,
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    ProofLevel,
    Provenance,
    ReviewVerdict,
)
from fallback_tier.advisory import parse_advisory
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.llm.leaf import LlmLeaf
from fallback_tier.outcome import Applied, AttemptSummary
from fallback_tier.prompt.builder import PromptBuilder
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier
from tests.fakes.audit import MemoryEvidence
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES, NO_RECIPE, counting_nonces
from tests.integration.contract_sequences import A_STORE, check_whole
from tests.integration.leaf_sequences import VALID, Said, author_reports
from tests.places import fast_place
from tests.unit.audit.trails import digest

NO_SUCH = digest("no such thing")


class Orchestrator:
    """One fix, as another program keeps it. ``managed``: it records a fix's start and end too."""

    def __init__(self, store: SqliteAuditStore, repo: RepoContext, *, managed: bool) -> None:
        self.store, self.repo, self.managed = store, repo, managed
        self.scope = Scope(fix_id=repo.fix_id, gate_transition_id=repo.gate_transition_id)
        self.evidence = MemoryEvidence()
        self.failures: list[AttemptSummary] = []
        self.applied: Applied | None = None
        leaf = LlmLeaf(
            Said(tuple(VALID), author_reports),
            PromptBuilder(counting_nonces(), frozenset()),
            evidence=self.evidence,
            judge=None,
            meter=AuditMeter(store, BudgetLimits()),
            journal=AuditJournal(store, self.evidence),
        )
        self.tier = FallbackTier(
            plugins={"PyPI": FakeEcosystem()},
            retriever=None,
            leaf=leaf,
            audit=store,
            evidence=self.evidence,
        )

    # --- As it should be ---

    def record(self, *events: AuditEvent) -> None:
        for event in events:
            self.store.append(self.scope, event)

    def start(self) -> None:
        if self.managed:
            self.record(self.started())

    def started(self) -> FixStarted:
        return FixStarted(
            advisory_id="TEST-2026-1",
            repository="shop",
            base_commit=self.repo.base_commit,
            ecosystem="PyPI",
            tool_version="other",
            gates=("applies", "tests"),
        )

    def attempt(self, priors: list[AttemptSummary] | None = None) -> None:
        prior = self.failures if priors is None else priors
        advisory = parse_advisory(ADVISORY, "test")
        made = self.tier.run(advisory, self.repo, NO_RECIPE, prior_attempts=prior)
        assert isinstance(made, Applied)
        self.applied = made

    def verdict(self, gate: str, status: GateStatus = GateStatus.PASSED) -> GateJudged:
        return GateJudged(
            attempt=self.number,
            gate=gate,
            status=status,
            failure_kind=FailureKind.TESTS_FAILED if status is GateStatus.FAILED else None,
            detail="so it is",
            duration_ms=1,
        )

    @property
    def number(self) -> int:
        return self.applied.attempt if self.applied else 1

    def judge(self, *, passes: bool) -> None:
        status = GateStatus.PASSED if passes else GateStatus.FAILED
        self.record(self.verdict("applies"), self.verdict("tests", status))

    def fail(self) -> None:
        assert self.applied is not None
        summary = self.summary(f"attempt {self.number} failed")
        self.failures.append(summary)
        self.record(self.failure(summary))

    def summary(self, text: str) -> AttemptSummary:
        assert self.applied is not None
        return AttemptSummary(
            attempt=self.number,
            tier=self.applied.tier,
            failure_kind=FailureKind.TESTS_FAILED,
            failing_gates=("tests",),
            prior_failure_summary=text,
            edit_digest=self.applied.edit_digest,
        )

    def failure(self, summary: AttemptSummary, *gates: str) -> AttemptFailed:
        text = summary.prior_failure_summary
        return AttemptFailed(
            attempt=summary.attempt,
            tier=summary.tier,
            failure_kind=summary.failure_kind,
            failing_gates=gates or summary.failing_gates,
            failure_signature=digest(text),
            edit_digest=summary.edit_digest,
            summary_sha256=digest(text),
            summary_excerpt=text,
        )

    def verified(self) -> FixVerified:
        assert self.applied is not None
        return FixVerified(
            attempt=self.number,
            tier=self.applied.tier,
            patch_sha256=self.applied.patch_sha256,
            proof_level=ProofLevel.SOURCE,
            gates_passed=("applies", "tests"),
        )

    def escalated(self) -> FixEscalated:
        reason = EscalationReason.GATE_INFRASTRUCTURE
        return FixEscalated(attempt=self.number, reason=reason, question="What now?")

    def attempt_started(self, number: int, priors: int) -> AttemptStarted:
        return AttemptStarted(
            attempt=number,
            advisory_id="TEST-2026-1",
            prior_attempt_count=priors,
            prompt_shape=PromptShape.RETRY if priors else PromptShape.INITIAL,
        )

    def delivered(self) -> PatchDelivered:
        return PatchDelivered(patch_sha256=NO_SUCH, place=DeliveryPlace.BRANCH)

    def approved(self) -> ReviewDecided:
        patch = self.applied.patch_sha256 if self.applied else None
        return ReviewDecided(
            verdict=ReviewVerdict.APPROVED, by="Ada", reason="fine", patch_sha256=patch
        )

    def call_without_skip(self) -> Iterator[AuditEvent]:
        """A retry of its own making, which asks without saying what it skipped."""
        number, priors = self.number + 1, len(self.failures)
        yield self.attempt_started(number, priors)
        yield ModelCalled(
            attempt=number,
            call=1,
            call_type=CallType.AUTHOR,
            model="m",
            provenance=Provenance.SCRIPTED,
            prompt_shape=PromptShape.RETRY,
            prompt_sha256=NO_SUCH,
            prompt_bytes=1,
        )

    def ask_without_skip(self) -> None:
        self.record(*self.call_without_skip())

    def other_summary(self) -> None:
        last = self.failures[-1].model_copy(update={"prior_failure_summary": "all is well"})
        self.attempt([*self.failures[:-1], last])


class Breach(NamedTuple):
    """``at``: where in an attempt it can be made. ``rules``: one of these is named. ``of_managed``: only
    of an orchestrator that records starts and ends. ``leaves``: events that were right before it."""

    at: str
    do: Callable[[Orchestrator], object]
    rules: set[str]
    of_managed: bool = True
    leaves: int = 0


def _append(make: Callable[[Orchestrator], AuditEvent]) -> Callable[[Orchestrator], None]:
    return lambda it: it.record(make(it))


#: ``proposed``: a patch, not judged. ``judged bad``, ``failed``, ``judged well``, ``ended``.
BREACHES: dict[str, Breach] = {
    "a verified patch that nobody judged": Breach(
        "proposed", _append(Orchestrator.verified), {"proposals-are-judged", "verified-is-proved"}
    ),
    "a failure out of nothing": Breach(
        "proposed",
        lambda it: it.record(it.failure(it.summary("it failed"))),
        {"failures-have-grounds", "proposals-are-judged"},
    ),
    "a verdict on another attempt": Breach(
        "proposed",
        lambda it: it.record(it.verdict("applies").model_copy(update={"attempt": it.number + 1})),
        {"events-stand-in-their-attempt"},
    ),
    "a delivery before the proof": Breach(
        "proposed", _append(Orchestrator.delivered), {"deliveries-are-earned"}
    ),
    "a verified patch that a gate failed": Breach(
        "judged bad", _append(Orchestrator.verified), {"failed-gates-act", "verified-is-proved"}
    ),
    "another attempt, and the gate's verdict forgotten": Breach(
        "judged bad",
        lambda it: it.record(it.attempt_started(it.number + 1, len(it.failures) + 1)),
        {"failed-gates-act", "retries-follow-failures"},
    ),
    "an end, and the gate's verdict forgotten": Breach(
        "judged bad", _append(Orchestrator.escalated), {"failed-gates-act"}
    ),
    "another gate's failure": Breach(
        "judged bad",
        lambda it: it.record(it.failure(it.summary("it failed"), "build")),
        {"failures-have-grounds"},
    ),
    "a verdict given twice": Breach(
        "judged bad", lambda it: it.record(it.verdict("tests")), {"gates-judge-proposals"}
    ),
    "a retry that starts as if nothing had failed": Breach(
        "failed",
        lambda it: it.attempt([]),
        {"history-grows", "attempts-in-order"},
        of_managed=False,
    ),
    "a retry with another summary": Breach(
        "failed", Orchestrator.other_summary, {"retry-carries-last-failure"}, leaves=1
    ),
    "a retry that asks without the skip": Breach(
        "failed", Orchestrator.ask_without_skip, {"rag-skip-recorded"}, leaves=1
    ),
    "a retry over the cap": Breach(
        "failed",
        lambda it: it.record(it.attempt_started(it.number + 1, 4)),
        {"retry-cap-holds"},
        of_managed=False,
    ),
    "another gate transition, unasked": Breach(
        "failed",
        lambda it: it.store.append(
            Scope(fix_id=it.scope.fix_id, gate_transition_id="mine"), it.started()
        ),
        {"transitions-are-opened"},
    ),
    "a person's word that nobody asked for": Breach(
        "judged well", _append(Orchestrator.approved), {"reviews-are-signed"}
    ),
    "a second start": Breach("judged well", _append(Orchestrator.started), {"fix-starts-first"}),
    "a second end": Breach("ended", _append(Orchestrator.verified), {"one-terminal-event"}),
    "an attempt after the end": Breach(
        "ended", Orchestrator.attempt, {"one-terminal-event", "attempts-in-order"}
    ),
    "a delivery of another patch": Breach(
        "ended", _append(Orchestrator.delivered), {"deliveries-are-earned"}
    ),
}


def run_story(seed: int, store: SqliteAuditStore, repo: RepoContext) -> str:
    """One fix with one breach, refused. Returns the breach's name; raises AssertionError."""
    random = Random(seed)
    name = random.choice(sorted(BREACHES))
    breach = BREACHES[name]
    it = Orchestrator(store, repo, managed=breach.of_managed or random.random() < 0.5)
    retries = random.randint(0, 1 if breach.at == "failed" else 2)  # the author knows three plans
    it.start()
    for number in range(retries + 1):
        it.attempt()
        last = number == retries
        well = last and breach.at in ("judged well", "ended")
        if last and breach.at == "proposed":
            _refused(it, breach)
        if it.managed:
            it.judge(passes=well)
        if last and breach.at in ("judged bad", "judged well"):
            _refused(it, breach)
        if well:
            break
        if it.managed:
            it.fail()
        else:
            it.failures.append(it.summary(f"attempt {it.number} failed"))
        if last and breach.at == "failed":
            _refused(it, breach)
    if it.managed:
        it.record(it.verified() if well else _end(it))
    if breach.at == "ended":
        _refused(it, breach)
    return name


def _end(it: Orchestrator) -> FixEscalated:
    """Who was stopped in the middle of a retry asks a person about it."""
    events = [stored.payload for stored in it.store.events(it.scope.fix_id)]
    begun = [event for event in events if isinstance(event, AttemptStarted)]
    if isinstance(events[-1], AttemptStarted | RagSkippedOnRetry):
        it.attempt()  # the attempt that was begun is resumed, as it should be
        it.judge(passes=False)
        it.fail()
    return it.escalated().model_copy(update={"attempt": max(it.number, begun[-1].attempt)})


def _refused(it: Orchestrator, breach: Breach) -> None:
    before = it.store.tip()[0]
    with pytest.raises(ContractError) as refused:
        breach.do(it)
    message = refused.value.problem
    assert any(f"rule {rule} " in message for rule in breach.rules), message
    assert it.store.tip()[0] == before + breach.leaves


def main(count: int, first_seed: int = 0) -> Counter[str]:
    """Tell ``count`` stories. Returns how often each breach was refused."""
    done: Counter[str] = Counter()
    for start in range(first_seed, first_seed + count, A_STORE):
        seeds = range(start, min(start + A_STORE, first_seed + count))
        with tempfile.TemporaryDirectory(dir=fast_place()) as place:
            path = Path(place) / "audit.db"
            repo = context(Path(place) / "repo", FILES)
            with closing(SqliteAuditStore(path, guard=ContractGuard())) as store:
                for seed in seeds:
                    mine = repo.model_copy(update={"fix_id": f"fix-{seed}"})
                    try:
                        done[run_story(seed, store, mine)] += 1
                    except BaseException as error:
                        error.add_note(f"seed {seed}")
                        raise
            check_whole(path, len(seeds))
    return done


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]))}\n")
