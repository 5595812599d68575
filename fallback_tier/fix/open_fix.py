"""A fix that is open in a process: one gate transition as keyed steps (``fallback_tier.fix.steps``), and
their loop, until an attempt is proved, none can be made, or a person must decide.

Per attempt: ``attempt`` → ``isolate`` → ``gate:applies`` → ``gate:…`` in order → ``decide``. If there is no
patch, ``decide`` follows ``attempt``. A failed attempt is distilled, deterministically, into the next
attempt's context; nothing else of it is kept.

``OpenFix.run`` takes the steps one after the other; an engine controls the steps itself (ADR-0086): ``while
(key := fix.next()): fix.step(key)``, then ``fix.deliver()``.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from fallback_audit.events import MAX_EXCERPT_CHARS, BudgetReached
from fallback_audit.vocabulary import (
    AffectedCode,
    DecidedBy,
    EscalationReason,
    RefusalReason,
    Tier,
)
from fallback_tier.advisory import Advisory
from fallback_tier.affected import Affected
from fallback_tier.attempt.chain import model_missing
from fallback_tier.attempt.task import Finished
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.errors import ToolError, ToolMissingError
from fallback_tier.execution import KnowsHosts
from fallback_tier.files.folders import writing_below
from fallback_tier.fix.decision import EndDecision, EndEscalated, Failure, decide, with_command
from fallback_tier.fix.journal.holding import resumable
from fallback_tier.fix.journal.inputs import RecordedResolution
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.journal.recording import FixRecord
from fallback_tier.fix.parts import FixParts
from fallback_tier.fix.steps import FixProgress, StepKey, next_step
from fallback_tier.fix_result import DeliveryOutcome, FixResult, OneFix, WithPatch
from fallback_tier.gate_ports import APPLIES, GateContext, GateVerdict
from fallback_tier.gates.builtin.common import judge_application
from fallback_tier.gates.trees.worktrees import (
    RunnerWorktree,
    Worktrees,
    cache_of_its_own,
    forget_cache,
)
from fallback_tier.limits import MAX_RECIPE_CANDIDATES
from fallback_tier.outcome import (
    Applied,
    AttemptSummary,
    NotApplicable,
    RecipeSelection,
    Selected,
)
from fallback_tier.ports import OffersCandidates
from fallback_tier.prompt.redact import excerpt
from fallback_tier.repo import RepoContext


def _with_code(repo: RepoContext, selection: RecipeSelection) -> RepoContext:
    """Return the context with whose code is affected, derived from the selection: callers other than
    ``Fixer`` may leave it out."""
    match selection:
        case NotApplicable(reason=RefusalReason.OWN_CODE) if repo.affected is None:
            affected = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.MANIFEST)
            return repo.model_copy(update={"affected": affected})
    return repo


class OpenFix:
    """One fix in this process: one gate transition, and its steps' resources; not thread-safe.

    Begin or resume it once, and ``close`` it at the end. After any error the fix can be resumed, but this
    object can't be used any more. ``put`` delivers a proved patch.
    """

    def __init__(
        self,
        parts: FixParts,
        advisory: Advisory,
        repo: RepoContext,
        selection: RecipeSelection,
        put: Callable[[WithPatch], DeliveryOutcome] = lambda _: DeliveryOutcome(),
    ) -> None:
        self._parts = parts
        self._advisory = advisory
        self._repo = _with_code(repo, selection)
        self._selection = selection
        self._put = put
        self.state = FixProgress()
        self._record = FixRecord(parts.audit, parts.evidence, advisory, self._repo, parts.observe)
        self._worktrees = Worktrees(
            parts.workspace,
            parts.clients,
            parts.sandbox,
            layered=parts.layered,
            report=parts.report,
        )
        self._tier = parts.tier
        self._is_resumed = False
        self._resolutions: dict[str, str] = {}
        self._recorded: set[str] = set()
        self._worktree: RunnerWorktree | None = None
        self._opened = ExitStack()
        self._delivered: OneFix | None = None

    @property
    def fix_id(self) -> str:
        """The fix's identifier."""
        return self._repo.fix_id

    @property
    def result(self) -> FixResult | None:
        """The result of the fix, or None if steps remain."""
        return self.state.result

    def begin(
        self, prior_attempts: Sequence[AttemptSummary] = (), linked: str | None = None
    ) -> None:
        """Record the beginning of a gate transition; ``linked``: the one that it continues."""
        self._begin(FixProgress(prior_attempts=tuple(prior_attempts)), linked)

    def _begin(self, state: FixProgress, linked: str | None) -> None:
        self._record.started(
            self._parts.gate_names,
            self._parts.setup,
            tool_version=self._parts.tool_version,
            linked=linked,
            recorded=state.recorded,
            allowed_hosts=self._allowed_hosts,
        )
        self.state = state
        self._say_unprotected()

    def resume(self, recorded: RecordedFix) -> None:
        """Record that the fix continues from where its trail ends, under the same identifiers.

        An attempt without an outcome begins again under its own number; recorded verdicts are not given
        again. A reopened fix starts a new transition, either from the earlier failure or to run the gates
        again on a stored patch. If something that the fix needs, now or in a later step, is missing,
        SettingMissingError or ToolMissingError is raised: the fix stays as it is, and can be resumed. A
        batch asks no model.
        """
        state, needs_model = recorded.state, recorded.needs_model and not self._parts.setup.several
        following = next_step(state, self._parts.gate_names)
        makes = following is not None and following.name == "attempt" and state.recorded is None
        asks_model = makes and needs_model and (recorded.asked_model or state.prior_attempts)
        if asks_model and self._tier.parts.leaf is None:  # before anything is recorded
            raise model_missing(self._repo.fix_id)
        self._is_resumed = True
        self._resolutions |= recorded.resolutions
        self._recorded |= recorded.resolutions.keys()
        self._tier = self._tier.resumed(needs_model=needs_model)
        if recorded.linked is not None:
            self._begin(state, recorded.linked)
            return
        self._record.resumed(recorded.after, self._parts.tool_version)
        if not recorded.unprotected:
            self._say_unprotected()
        self.state = state

    def next(self) -> StepKey | None:
        """Return the next step, or None if the fix has ended."""
        return next_step(self.state, self._parts.gate_names)

    def step(self, key: StepKey) -> None:
        """Take the step that ``next`` named. Raises SandboxError, RepositoryError, AuditStoreError."""
        with resumable(self.fix_id):
            self.state = self._step(key, self.state)

    def run(self) -> FixResult:
        """Take all remaining steps: the plain loop. Raises as ``step``."""
        while (key := self.next()) is not None:
            self.step(key)
        return self._ended_with()

    def deliver(self) -> OneFix:
        """After the last step, deliver a proved patch as requested, once. Raises the delivery's errors."""
        if self._delivered is None:
            self._delivered = OneFix.delivered(self._ended_with(), self._advisory, self._put)
        return self._delivered

    def to_the_end(self) -> OneFix:
        """Take all remaining steps, and deliver. Raises as ``step`` and ``deliver``."""
        self.run()
        return self.deliver()

    def _ended_with(self) -> FixResult:
        if self.state.result is None:
            raise AssertionError("the steps end with a result")
        if self.state.recorded is not None:
            # What gates that were run again have installed is of no use to other fixes.
            forget_cache(self._parts.workspace / "cache", self._record.scope)
        return self.state.result

    def close(self) -> None:
        """Remove all temporary files, also those of an interrupted run. Idempotent."""
        self._opened.close()
        self._worktrees.remove_leftovers()

    @property
    def _allowed_hosts(self) -> tuple[str, ...]:
        rules = map(rules_of, self._advisory.ecosystems)
        tools = [
            client.tool
            for ecosystem_rules in rules
            if ecosystem_rules is not None
            for client in ecosystem_rules.clients
        ]
        clients = self._parts.clients
        return clients.allowed_hosts(tools) if isinstance(clients, KnowsHosts) else ()

    def _say_unprotected(self) -> None:
        if self._parts.sandbox_waiver is not None:
            self._record.unprotected(self._parts.sandbox_waiver)

    def _step(self, key: StepKey, state: FixProgress) -> FixProgress:
        """Take the keyed step. If a client fails, a person is asked; there is no verdict. If a client is
        missing, a resumed fix raises ToolMissingError."""
        self._parts.observe(key)
        if key.name == "decide":
            return self._decide(state)
        try:
            if key.name == "attempt":
                return self._attempt(state)
            if key.name == "isolate":
                return self._isolate(state)
            if key.gate is not None:
                return self._gate(key.gate, state)
        except ToolError as error:
            if self._is_resumed and isinstance(error, ToolMissingError):
                raise
            message = excerpt(str(error), MAX_EXCERPT_CHARS)
            question = f"Step {key.name!r} could not be run: {message} Repair this and run again?"
            escalation = with_command(
                EndEscalated(EscalationReason.GATE_INFRASTRUCTURE, question), self._repo.fix_id
            )
            return self._ended(escalation, state)
        raise AssertionError(f"no step is named {key.name!r}")

    def _decide(self, state: FixProgress) -> FixProgress:
        code = self._repo.affected_code
        recalls, divisible = self._repo.settings.recalls_attempts, self._parts.setup.divisible
        decision = decide(state, self._repo.fix_id, code, recalls=recalls, divisible=divisible)
        if not isinstance(decision, Failure):
            return self._ended(decision, state)
        return self._other_candidate(state, decision) or self._retry(state, decision)

    def _ended(self, decision: EndDecision, state: FixProgress) -> FixProgress:
        return replace(state, result=self._record.ended(decision, state))

    def _retry(self, state: FixProgress, failure: Failure) -> FixProgress:
        if state.failed is None:  # not recorded yet
            self._record.failed(failure.summary, failure.signature)
        if failure.then is not None:
            return self._ended(failure.then, state)
        return FixProgress(
            prior_attempts=(*state.prior_attempts, failure.summary),
            signatures=(*state.signatures, failure.signature),
        )

    def _other_candidate(self, state: FixProgress, failure: Failure) -> FixProgress | None:
        """Continue with the recipe's next candidate, if gates refused one on a first attempt (ADR-0048)."""
        application, selection = state.application, self._selection_of(state)
        plugin = self._parts.tier.plugin_for(self._advisory)
        is_first = not (state.prior_attempts or state.recorded or state.failed)
        if not (
            is_first and state.candidate < MAX_RECIPE_CANDIDATES and isinstance(selection, Selected)
        ):
            return None
        if not (
            isinstance(application, Applied)
            and application.tier is Tier.RECIPE
            and application.remediation
        ):
            return None
        if not isinstance(plugin, OffersCandidates):
            return None
        moves = application.remediation.moves
        next_candidate = plugin.next_candidate(selection, moves, self._advisory, self._repo)
        if next_candidate is None:
            return None
        failed = self._record.candidate_failed(
            application, failure.summary, next_candidate, state.candidate
        )
        return FixProgress(failed_candidates=(*state.failed_candidates, failed))

    def _selection_of(self, state: FixProgress) -> RecipeSelection:
        if isinstance(self._selection, NotApplicable):
            return self._selection
        return self._selection.model_copy(update={"left_out": state.left_out})

    def _attempt(self, state: FixProgress) -> FixProgress:
        if state.recorded is not None:
            return replace(state, application=self._record.resumed_for(state.recorded))
        events = self._tier.stream(
            self._advisory,
            self._repo,
            self._selection_of(state),
            prior_attempts=state.prior_attempts,
        )
        with closing(events):
            for event in events:
                self._parts.observe(event)
                if isinstance(event, BudgetReached):
                    state = replace(state, reached=event)
                if isinstance(event, Finished):
                    return replace(state, application=event.application)
        raise AssertionError("a stream ends with Finished")

    def _isolate(self, state: FixProgress) -> FixProgress:
        """Provide the fix's one disposable worktree, reset between attempts; the repository is never
        written."""
        with writing_below(self._parts.workspace):
            if self._worktree is None:
                self._worktree = self._opened.enter_context(self._worktrees.open(self._repo))
            else:
                self._worktree.reset()
            if state.verdicts and isinstance(state.application, Applied):
                # Resumed after the verdict that it applies: applied again, but not judged again.
                self._worktree.apply(state.application.diff)
        return replace(state, isolated=True)

    def _gate(self, name: str, state: FixProgress) -> FixProgress:
        application, worktree = state.application, self._worktree
        if not isinstance(application, Applied) or worktree is None:
            raise AssertionError("gates judge an isolated patch")
        began = time.monotonic_ns()
        cache = self._parts.workspace / "cache"
        if state.recorded is not None:
            cache = cache_of_its_own(cache, self._record.scope)
        with writing_below(self._parts.workspace):
            verdict = self._judge(name, application, worktree, cache)
        took_ms = (time.monotonic_ns() - began) // 1_000_000
        verdict = verdict.model_copy(update={"duration_ms": took_ms})
        clients = self._parts.clients
        refused = clients.take_refused() if isinstance(clients, KnowsHosts) else ()
        recorded = self._record.judged(
            verdict, application.attempt, refused, self._new_resolutions()
        )
        return replace(state, verdicts=(*state.verdicts, recorded))

    def _new_resolutions(self) -> tuple[RecordedResolution, ...]:
        new = {key: text for key, text in self._resolutions.items() if key not in self._recorded}
        self._recorded |= new.keys()
        return tuple(RecordedResolution(key=key, text=text) for key, text in new.items())

    def _judge(
        self, name: str, application: Applied, worktree: RunnerWorktree, cache: Path
    ) -> GateVerdict:
        if name == APPLIES:
            return judge_application(application, worktree)
        worktree.restore()
        gate = next(gate for gate in self._parts.gates if gate.name == name)
        return gate.judge(
            GateContext(
                advisory=self._advisory,
                repo=self._repo,
                application=application,
                worktree=worktree,
                cache=cache,
                sandbox=self._parts.sandbox,
                clients=self._parts.clients,
                timeout_s=self._parts.timeout_s,
                report=self._parts.report,
                resolutions=self._resolutions,
            )
        )


def run_fix(
    parts: FixParts,
    advisory: Advisory,
    repo: RepoContext,
    selection: RecipeSelection,
    recorded: RecordedFix | None = None,
    *,
    prior_attempts: Sequence[AttemptSummary] = (),
    linked: str | None = None,
) -> FixResult:
    """Run one gate transition to its end: a first attempt and at most MAX_RETRIES retries; or the rest of a
    ``recorded`` fix (``OpenFix.resume``). Nothing is delivered.

    ``prior_attempts`` is not empty only if the transition is linked to an earlier one, ``linked``. Raises
    SandboxError, RepositoryError, AuditStoreError: then the repository is untouched, and the fix stays open
    in the trail.
    """
    with closing(OpenFix(parts, advisory, repo, selection)) as fix:
        if recorded is None:
            fix.begin(prior_attempts, linked)
        else:
            fix.resume(recorded)
        return fix.run()
