"""What each keyed step of a fix does (``fallback_tier.gates.steps``): an engine takes them, one by one.

The plain loop is one engine (``fallback_tier.gates.runner``), a fleet's workers are others (ADR-0086).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from fallback_audit.events import MAX_EXCERPT_CHARS, BudgetReached
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.vocabulary import (
    AffectedCode,
    DecidedBy,
    EscalationReason,
    RefusalReason,
    Tier,
)
from fallback_tier.advisory import Advisory
from fallback_tier.affected import Affected
from fallback_tier.attempt.task import Finished, TierEvent
from fallback_tier.chain import model_missing
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.errors import ToolError, ToolMissingError
from fallback_tier.execution import ClientRunner, KnowsHosts, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.gates.builtin.applies import judge_application
from fallback_tier.gates.decision import AskPerson, Failure, decide, with_command
from fallback_tier.gates.journal.inputs import RecordedResolution, Setup
from fallback_tier.gates.journal.recording import FixRecord, Observer
from fallback_tier.gates.journal.resume import ResumedFix
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.steps import APPLIES, FixState, StepKey, next_step
from fallback_tier.gates.trees.own_cache import cache_of_its_own, forget_cache
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.gates.trees.worktrees import Worktree, Worktrees
from fallback_tier.limits import MAX_RECIPE_CANDIDATES
from fallback_tier.outcome import Applied, NotApplicable, RecipeSelection, Selected
from fallback_tier.ports import OffersCandidates
from fallback_tier.prompt.redact import excerpt
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier

#: One gate's wall clock. Long enough for a real test suite, short enough to notice a hang.
GATE_TIMEOUT_S = 600.0


def _ignore(_event: TierEvent | StepKey) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class GateParts:
    """What a fix is made and judged with.

    ``setup``: what a run that resumes the fix must know of this one, kept as evidence. ``report`` is
    told what is waited for.
    """

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
    report: Callable[[str], None] = say_nothing
    timeout_s: float = GATE_TIMEOUT_S
    #: Worktrees in layers, or plain checkouts; None: layers where they can be mounted.
    layered: bool | None = None
    setup: Setup = field(default_factory=Setup)

    @property
    def gate_names(self) -> tuple[str, ...]:
        """In order, without ``applies``."""
        return tuple(gate.name for gate in self.gates)


def _with_code(repo: RepoContext, selection: RecipeSelection) -> RepoContext:
    """A host that makes its own context may not have asked whose code is affected: its selection tells."""
    match selection:
        case NotApplicable(reason=RefusalReason.OWN_CODE) if repo.affected is None:
            own = Affected(code=AffectedCode.OWN, decided_by=DecidedBy.MANIFEST)
            return repo.model_copy(update={"affected": own})
    return repo


class FixSteps:
    """One gate transition's steps, and the resources that they share: ``close`` when no more are taken.

    Not for two threads at once. A fix is begun or resumed once, before its first step.
    """

    def __init__(
        self, parts: GateParts, advisory: Advisory, repo: RepoContext, selection: RecipeSelection
    ) -> None:
        self._parts = parts
        self._advisory = advisory
        self._repo = _with_code(repo, selection)
        self._selection = selection
        self.record = FixRecord(parts.audit, parts.evidence, advisory, self._repo, parts.observe)
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
        self._worktree: Worktree | None = None
        self._opened = ExitStack()

    def begin(self, state: FixState, linked: str | None = None) -> FixState:
        """Put the beginning of a gate transition on record; ``linked``: the one that it goes on from."""
        self.record.started(
            self._parts.gate_names,
            self._parts.setup,
            tool_version=self._parts.tool_version,
            linked=linked,
            recorded=state.recorded,
            allowed_hosts=self._allowed_hosts,
        )
        self._say_unprotected()
        return state

    @property
    def _allowed_hosts(self) -> tuple[str, ...]:
        rules = map(rules_of, self._advisory.ecosystems)
        tools = [client.tool for one in rules if one is not None for client in one.clients]
        clients = self._parts.clients
        return clients.allowed_hosts(tools) if isinstance(clients, KnowsHosts) else ()

    def resume(self, taken: ResumedFix) -> FixState:
        """Put on record that the fix continues from where the trail says that it is.

        What it needs and is missing, now or in a later step, raises SettingMissingError or
        ToolMissingError: the fix stays as it is, and can be resumed. A batch asks no model.
        """
        needs_model = taken.needs_model and not self._parts.setup.several
        following, state = self.next(taken.state), taken.state
        makes = following is not None and following.name == "attempt" and state.recorded is None
        if makes and needs_model and (taken.asked_model or state.prior_attempts):
            self._check_model()
        self._is_resumed = True
        self._resolutions |= taken.resolutions
        self._recorded |= taken.resolutions.keys()
        self._tier = self._tier.resumed(needs_model=needs_model)
        if taken.linked is not None:
            return self.begin(taken.state, taken.linked)
        self.record.resumed(taken.after, self._parts.tool_version)
        if not taken.unprotected:
            self._say_unprotected()
        return taken.state

    def next(self, state: FixState) -> StepKey | None:
        """The step that follows; None where the fix has ended."""
        return next_step(state, self._parts.gate_names)

    def _check_model(self) -> None:
        """Before anything is on record: raises SettingMissingError if there is no model to ask."""
        if self._tier.parts.leaf is None:
            raise model_missing(self._repo.fix_id)

    def _say_unprotected(self) -> None:
        if self._parts.sandbox_waiver is not None:
            self.record.unprotected(self._parts.sandbox_waiver)

    def result(self, state: FixState) -> FixResult:
        """The end that the last step left."""
        if state.result is None:
            raise AssertionError("the steps end with a result")
        if state.recorded is not None:
            # What gates that were run again had installed is of no use to anybody else.
            forget_cache(self._parts.workspace / "cache", self.record.scope)
        return state.result

    def close(self) -> None:
        """Leave nothing behind, nor what an interrupted run had left."""
        self._opened.close()
        self._worktrees.remove_leftovers()

    def step(self, key: StepKey, state: FixState) -> FixState:
        """Do the keyed step. A client that can't do its work is a person's question, not a verdict. If
        it is missing, a resumed fix raises ToolMissingError."""
        self._parts.observe(key)
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
            ask = with_command(
                AskPerson(EscalationReason.GATE_INFRASTRUCTURE, question), self._repo.fix_id
            )
            return self.record.carry_out(ask, state)
        affected = self._repo.affected
        code = affected.code if affected else AffectedCode.DEPENDENCY
        recalls, divisible = self._repo.settings.recalls_attempts, self._parts.setup.divisible
        decision = decide(state, self._repo.fix_id, code, recalls=recalls, divisible=divisible)
        if isinstance(decision, Failure) and (after := self._handed_on(state, decision)):
            return after
        return self.record.carry_out(decision, state)

    def _handed_on(self, state: FixState, failure: Failure) -> FixState | None:
        """On to the recipe's next candidate, where gates refused one on a first attempt (ADR-0048)."""
        made, selection = state.application, self._selection_of(state)
        plugin = self._parts.tier.plugin_for(self._advisory)
        is_first = not (state.prior_attempts or state.recorded or state.failed)
        if not (
            is_first and state.candidate < MAX_RECIPE_CANDIDATES and isinstance(selection, Selected)
        ):
            return None
        if not (isinstance(made, Applied) and made.tier is Tier.RECIPE and made.remediation):
            return None
        if not isinstance(plugin, OffersCandidates):
            return None
        moves = made.remediation.moves
        other = plugin.next_candidate(selection, moves, self._advisory, self._repo)
        if other is None:
            return None
        return self.record.handed_on(made, failure.summary, other, state)

    def _selection_of(self, state: FixState) -> RecipeSelection:
        if isinstance(self._selection, NotApplicable):
            return self._selection
        return self._selection.model_copy(update={"left_out": state.left_out})

    def _attempt(self, state: FixState) -> FixState:
        if state.recorded is not None:
            return replace(state, application=self.record.resumed_for(state.recorded))
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

    def _isolate(self, state: FixState) -> FixState:
        """One disposable worktree a fix, reset between attempts: the repository is never written."""
        with writing_below(self._parts.workspace):
            if self._worktree is None:
                self._worktree = self._opened.enter_context(self._worktrees.open(self._repo))
            else:
                self._worktree.reset()
            if state.verdicts and isinstance(state.application, Applied):
                # Resumed behind the verdict that it applies: put on again, and not judged again.
                self._worktree.apply(state.application.diff)
        return replace(state, isolated=True)

    def _gate(self, name: str, state: FixState) -> FixState:
        application, worktree = state.application, self._worktree
        if not isinstance(application, Applied) or worktree is None:
            raise AssertionError("gates judge an isolated patch")
        began = time.monotonic_ns()
        with writing_below(self._parts.workspace):
            verdict = self._judge(name, application, worktree, self._cache(state))
        took_ms = (time.monotonic_ns() - began) // 1_000_000
        verdict = verdict.model_copy(update={"duration_ms": took_ms})
        clients = self._parts.clients
        refused = clients.take_refused() if isinstance(clients, KnowsHosts) else ()
        kept = self.record.judged(verdict, application.attempt, refused, self._new_resolutions())
        return replace(state, verdicts=(*state.verdicts, kept))

    def _new_resolutions(self) -> tuple[RecordedResolution, ...]:
        """Those that are not on record yet."""
        new = {key: it for key, it in self._resolutions.items() if key not in self._recorded}
        self._recorded |= new.keys()
        return tuple(RecordedResolution(key=key, text=text) for key, text in new.items())

    def _judge(
        self, name: str, application: Applied, worktree: Worktree, cache: Path
    ) -> GateVerdict:
        if name == APPLIES:
            return judge_application(application, worktree)
        worktree.restore()
        gate = next(gate for gate in self._parts.gates if gate.name == name)
        return gate.judge(self._context(application, worktree, cache))

    def _context(self, application: Applied, worktree: Worktree, cache: Path) -> GateContext:
        return GateContext(
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

    def _cache(self, state: FixState) -> Path:
        cache = self._parts.workspace / "cache"
        return cache if state.recorded is None else cache_of_its_own(cache, self.record.scope)
