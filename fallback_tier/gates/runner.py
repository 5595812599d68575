"""The gate runner: a plain loop over keyed steps (``fallback_tier.gates.steps``).

Per attempt: ``attempt`` → ``isolate`` → ``gate:applies`` → ``gate:…`` in order → ``decide``. A failed
attempt is distilled, deterministically, into the next attempt's context; nothing else of it survives.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    AttemptFailed,
    AuditEvent,
    BudgetReached,
    FixEscalated,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    SandboxDisabled,
)
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.advisory import Advisory
from fallback_tier.attempt import Finished, Recorder, TierEvent
from fallback_tier.budget.spent import spent
from fallback_tier.errors import ToolError
from fallback_tier.gates.applies import judge_application
from fallback_tier.gates.decision import Ask, Decision, Failure, Pass, Refuse, decide
from fallback_tier.gates.isolation import Worktree
from fallback_tier.gates.result import Escalated, FixResult, RefusedFix, Verified, shown_by
from fallback_tier.gates.steps import APPLIES, FixState, StepKey, next_step
from fallback_tier.outcome import Applied, AttemptSummary, RecipeSelection
from fallback_tier.ports import ClientRunner, Gate, GateContext, Sandbox
from fallback_tier.prompt.redact import excerpt
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier

#: One gate's wall clock. Long enough for a real test suite, short enough to notice a hang.
GATE_TIMEOUT_S = 600.0

Observer = Callable[[TierEvent | StepKey], None]


def _ignore(_event: TierEvent | StepKey) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class GateRunner:
    """Runs attempts until one is proved, none can be had, or a person must decide."""

    tier: FallbackTier
    gates: Sequence[Gate]
    sandbox: Sandbox
    clients: ClientRunner
    audit: AuditStore
    evidence: EvidenceStore
    workspace: Path
    tool_version: str
    sandbox_waiver: str | None = None
    observe: Observer = _ignore
    timeout_s: float = GATE_TIMEOUT_S

    def run(
        self,
        advisory: Advisory,
        repo: RepoContext,
        selection: RecipeSelection,
        *,
        prior_attempts: Sequence[AttemptSummary] = (),
    ) -> FixResult:
        """One gate transition: a first attempt and at most MAX_RETRIES retries.

        ``prior_attempts`` is not empty only where a transition is linked to an earlier one. Raises
        SandboxError, RepositoryError, AuditStoreError: then the repository is untouched, and the fix
        stays open in the trail.
        """
        fix = _Fix(self, advisory, repo, selection)
        fix.start()
        return self._to_the_end(fix, FixState(prior_attempts=tuple(prior_attempts)))

    def resume(
        self,
        advisory: Advisory,
        repo: RepoContext,
        selection: RecipeSelection,
        state: FixState,
        *,
        unprotected_before: bool = False,
    ) -> FixResult:
        """Go on from ``state`` (``fallback_tier.gates.resume``) under the same identifiers.

        The attempt in hand begins again under its own number. ``unprotected_before``: that no sandbox
        is used is on record already. Raises as ``run`` does.
        """
        fix = _Fix(self, advisory, repo, selection)
        if not unprotected_before:
            fix.say_unprotected()
        return self._to_the_end(fix, state)

    def _to_the_end(self, fix: "_Fix", state: FixState) -> FixResult:
        names = [gate.name for gate in self.gates]
        try:
            while (key := next_step(state, names)) is not None:
                self.observe(key)
                state = fix.step(key, state)
        finally:
            fix.close()
        if state.result is None:
            raise AssertionError("the loop ends with a result")
        return state.result


class _Fix:
    """One run's resources, and how each kind of step uses them."""

    def __init__(
        self, runner: GateRunner, advisory: Advisory, repo: RepoContext, selection: RecipeSelection
    ) -> None:
        self._runner = runner
        self._advisory = advisory
        self._repo = repo
        self._selection = selection
        self._append = Recorder(runner.audit, repo)
        self._worktree: Worktree | None = None

    def start(self) -> None:
        self._record(
            FixStarted(
                advisory_id=self._advisory.id,
                advisory_ids=self._advisory.ids,
                repository=self._repo.root.name,
                base_commit=self._repo.base_commit,
                ecosystem=", ".join(self._advisory.ecosystems),
                tool_version=self._runner.tool_version,
            )
        )
        self.say_unprotected()

    def say_unprotected(self) -> None:
        if self._runner.sandbox_waiver is not None:
            self._record(SandboxDisabled(reason=self._runner.sandbox_waiver))

    def close(self) -> None:
        if self._worktree is not None:
            self._worktree.close()

    def step(self, key: StepKey, state: FixState) -> FixState:
        """Do the keyed step. A client that can't do its work is a person's question, no verdict."""
        try:
            if key.name == "attempt":
                return self._attempt(state)
            if key.name == "isolate":
                return self._isolate(state)
            if key.gate is not None:
                return self._gate(key.gate, state)
        except ToolError as error:
            said = excerpt(str(error), MAX_EXCERPT_CHARS)
            question = f"Step {key.name!r} could not be run: {said} Repair this and run again?"
            return self._carry_out(Ask(EscalationReason.GATE_INFRASTRUCTURE, question), state)
        return self._carry_out(decide(state, self._repo.fix_id), state)

    def _attempt(self, state: FixState) -> FixState:
        events = self._runner.tier.stream(
            self._advisory, self._repo, self._selection, prior_attempts=state.prior_attempts
        )
        with closing(events):
            for event in events:
                self._runner.observe(event)
                if isinstance(event, BudgetReached):
                    state = replace(state, reached=event)
                if isinstance(event, Finished):
                    return replace(state, application=event.application)
        raise AssertionError("a stream ends with Finished")

    def _isolate(self, state: FixState) -> FixState:
        """One disposable worktree a fix, reset between attempts: the repository is never written."""
        if self._worktree is None:
            place = self._runner.workspace / "worktrees" / self._repo.fix_id
            self._worktree = Worktree.create(self._repo, self._runner.clients, place)
        else:
            self._worktree.reset()
        return replace(state, isolated=True)

    def _gate(self, name: str, state: FixState) -> FixState:
        application, worktree = state.application, self._worktree
        if not isinstance(application, Applied) or worktree is None:
            raise AssertionError("gates judge an isolated patch")
        began = time.monotonic_ns()
        if name == APPLIES:
            verdict = judge_application(application, worktree)
        else:
            worktree.restore()
            gate = next(gate for gate in self._runner.gates if gate.name == name)
            verdict = gate.judge(self._context(application, worktree))
        took_ms = (time.monotonic_ns() - began) // 1_000_000
        verdict = verdict.model_copy(update={"duration_ms": took_ms})
        log = verdict.log.encode("utf-8", "replace")
        self._record(
            GateJudged(
                attempt=application.attempt,
                gate=verdict.gate,
                status=verdict.status,
                failure_kind=verdict.failure_kind,
                detail=excerpt(verdict.detail, MAX_EXCERPT_CHARS),
                evidence_sha256=self._runner.evidence.put(log) if log else None,
                duration_ms=verdict.duration_ms,
            )
        )
        return replace(state, verdicts=(*state.verdicts, verdict))

    def _context(self, application: Applied, worktree: Worktree) -> GateContext:
        return GateContext(
            advisory=self._advisory,
            repo=self._repo,
            application=application,
            worktree=worktree.path,
            cache=self._runner.workspace / "cache",
            sandbox=self._runner.sandbox,
            clients=self._runner.clients,
            timeout_s=self._runner.timeout_s,
        )

    def _carry_out(self, decision: Decision, state: FixState) -> FixState:
        """Record a decision, then act on it: the record comes first, the act always follows."""
        attempt = state.attempt
        match decision:
            case Pass(application, passed, skipped):
                self._record(
                    FixVerified(
                        attempt=attempt,
                        tier=application.tier,
                        patch_sha256=application.patch_sha256,
                        proof_level=shown_by(state.verdicts) or application.proof_level,
                        gates_passed=passed,
                        gates_skipped=skipped,
                    )
                )
                return self._end(state, Verified, application=application)
            case Refuse(reason, sentence):
                self._record(FixRefused(attempt=attempt, reason=reason, sentence=sentence))
                return self._end(state, RefusedFix, reason=reason, sentence=sentence)
            case Ask(why, question):
                evidence = self._logs(state)
                self._record(
                    FixEscalated(
                        attempt=attempt, reason=why, question=question, evidence_sha256=evidence
                    )
                )
                return self._end(state, Escalated, reason=why, question=question, evidence=evidence)
            case Failure(summary, signature, then):
                self._record(self._failed(summary, signature))
                if then is not None:
                    return self._carry_out(then, state)
                return FixState(
                    prior_attempts=(*state.prior_attempts, summary),
                    signatures=(*state.signatures, signature),
                )

    def _failed(self, summary: AttemptSummary, signature: str) -> AttemptFailed:
        text = summary.prior_failure_summary
        return AttemptFailed(
            attempt=summary.attempt,
            tier=summary.tier,
            failure_kind=summary.failure_kind,
            failing_gates=summary.failing_gates,
            failure_signature=signature,
            edit_digest=summary.edit_digest,
            summary_sha256=self._runner.evidence.put(text.encode()),
            summary_excerpt=excerpt(text, MAX_EXCERPT_CHARS),
        )

    def _end(
        self, state: FixState, kind: type[Verified | RefusedFix | Escalated], **facts: object
    ) -> FixState:
        result: FixResult = kind.model_validate(
            {
                "fix_id": self._repo.fix_id,
                "gate_transition_id": self._repo.gate_transition_id,
                "advisory_id": self._advisory.id,
                "attempts": state.attempt,
                "prior_attempts": state.prior_attempts,
                "verdicts": state.verdicts,
                **spent(self._runner.audit, self._append.scope)._asdict(),
                **facts,
            }
        )
        return replace(state, result=result)

    def _logs(self, state: FixState) -> tuple[str, ...]:
        put = self._runner.evidence.put
        return tuple(put(v.log.encode("utf-8", "replace")) for v in state.verdicts if v.log)

    def _record(self, event: AuditEvent) -> None:
        self._append(event)
        self._runner.observe(event)
