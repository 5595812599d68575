"""A fix that is open: begun or resumed, held by this process, its steps taken one by one (ADR-0086).

Whatever engine takes them: ``while (key := fix.next()): fix.step(key)``, then ``fix.deliver()``.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fallback_tier.advisory import Advisory
from fallback_tier.errors import InputError
from fallback_tier.fix.delivery import Deliver, hand_over
from fallback_tier.fix.ends import OneFix
from fallback_tier.fix.watching import Watch
from fallback_tier.gates.fix_steps import FixSteps
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.journal.resume import (
    ResumedFix,
    check_base,
    check_gates,
    resume_from_trail,
)
from fallback_tier.gates.journal.stopped import resumable
from fallback_tier.gates.result import FixResult, WithPatch
from fallback_tier.gates.steps import FixState, StepKey
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.handover.delivery import deliver
from fallback_tier.handover.interrupted_delivery import complete
from fallback_tier.installed import as_found, look_at
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services
from fallback_tier.wiring.gates import check_proofs
from fallback_tier.wiring.inputs import Inputs


@dataclass(frozen=True)
class Asked:
    """What an open fix is about, and what it is worked on with."""

    advisory: Advisory
    services: Services
    setup: Setup
    watch: Watch


class OpenFix:
    """One fix in this process's hands. ``begun`` and ``resumed`` make it, and close it.

    Not for two threads at once. Whatever a step raises, the fix can be resumed, and this object is of no
    further use.
    """

    def __init__(self, asked: Asked, repo: RepoContext) -> None:
        self._asked = asked
        self._repo = repo
        self._steps: FixSteps | None = None
        self._how: Deliver = deliver
        self._delivered: OneFix | None = None
        self.state = FixState()
        #: Who watches, and the worktree: until it is delivered.
        self.working = ExitStack()
        #: That it is in this process's hands, in the record as on this machine.
        self.held = ExitStack()

    @property
    def fix_id(self) -> str:
        """Its identifier."""
        return self._repo.fix_id

    @property
    def result(self) -> FixResult | None:
        """How it has ended; None: there are steps to take."""
        return self.state.result

    def next(self) -> StepKey | None:
        """The step that follows; None where the fix has ended."""
        return None if self._steps is None else self._steps.next(self.state)

    def step(self, key: StepKey) -> None:
        """Take the step that ``next`` named. Raises SandboxError, RepositoryError, AuditStoreError."""
        if self._steps is None:
            raise AssertionError("a fix that has ended takes no step")
        with resumable(self.fix_id):
            self.state = self._steps.step(key, self.state)

    def to_the_end(self) -> OneFix:
        """The plain loop: every step, then the delivery."""
        while (key := self.next()) is not None:
            self.step(key)
        return self.deliver()

    def deliver(self) -> OneFix:
        """After the last step: put the patch, where there is one, where it was asked for.

        What is on record as delivered is not delivered again, nor what this object has delivered. Raises
        what delivering raises.
        """
        if self._delivered is None:
            self._delivered = self._deliver()
        return self._delivered

    def _deliver(self) -> OneFix:
        asked, result = self._asked, self._ended_with()
        self.working.close()
        if not isinstance(result, WithPatch):
            return OneFix(result)
        fixed = [(result, asked.advisory)]
        patch, how = result.application, self._how
        return OneFix(result, hand_over(fixed, patch, self._repo, asked.services, asked.setup, how))

    def _ended_with(self) -> FixResult:
        if self._steps is not None:
            return self._steps.result(self.state)
        if self.state.result is None:
            raise AssertionError("a fix without steps has ended")
        return self.state.result

    def start(self, inputs: Inputs, taken: ResumedFix | None) -> None:
        """Put the beginning on record, or that it goes on. Raises what looking at the gates raises."""
        asked, services = self._asked, self._asked.services
        watcher = self.working.enter_context(asked.watch.fixing())
        runner = services.gate_runner(
            asked.advisory, watcher, asked.setup, repo=inputs.repo_ctx, report=watcher.report
        )
        if taken is None:
            failure = check_proofs(runner, inputs, watcher.report_proof)
        else:
            check_gates(taken, runner.gate_names, runner.setup.configuration, self.fix_id)
            failure = taken.proof_failure
        self._known_up_to(0 if taken is None else taken.seen)
        kept = runner.setup.model_copy(update={"proof_failure": failure})
        repo = inputs.repo_ctx.model_copy(update={"proof_failure": failure})
        steps = FixSteps(
            replace(runner, setup=kept), inputs.advisory, repo, inputs.recipe_selection
        )
        self.state = steps.begin(FixState()) if taken is None else steps.resume(taken)
        self._steps = steps
        self.working.callback(steps.close)

    def _known_up_to(self, seen: int) -> None:
        """Whatever others have put on record behind event ``seen`` has overtaken this process."""
        if (fence := self._asked.services.fence) is not None:
            fence.expect(self.fix_id, seen)
            self.held.callback(fence.let_go, self.fix_id)

    def has_ended(self, taken: ResumedFix) -> None:
        """Its end is on record. What may be missing is the delivery of a proved patch."""
        self._known_up_to(taken.seen)
        self.state = replace(taken.state, result=taken.result)
        self._how = taken.delivered or complete


@contextmanager
def begun(asked: Asked, repo: RepoContext) -> Iterator[OpenFix]:
    """Begin the fix that ``repo`` names, in a repository that was looked at.

    Raises InputError where another process holds it, ProofError, and what the parts raise.
    """
    inputs = asked.services.inputs_on(repo, asked.advisory, fix_id=repo.fix_id)
    fix = OpenFix(asked, inputs.repo_ctx)
    with holding(asked.services.configuration.state_dir, fix.fix_id), fix.held, fix.working:
        fix.start(inputs, None)
        yield fix


@contextmanager
def resumed(asked: Asked, fix_id: str, repository: Path) -> Iterator[OpenFix]:
    """Go on with a fix from where the record says that it stands; one that has ended has only its delivery.

    Raises InputError where there is nothing to go on with, or another process holds it; RepositoryError
    where the repository is at another commit; and what the parts raise.
    """
    services = asked.services
    with holding(services.configuration.state_dir, fix_id):
        taken = resume_from_trail(
            services.audit, services.evidence, fix_id, advisory=asked.advisory
        )
        if taken.result is not None:
            fix = _ended(asked, taken, fix_id, repository)
            with fix.held:
                yield fix
            return
        services.check_raised(taken.raised)
        _check_whose(taken, services)
        repo = look_at(repository, services.clients, services.configuration.settings)
        check_base(taken, repo.base_commit, fix_id)
        inputs = services.inputs_on(
            repo,
            asked.advisory,
            fix_id=fix_id,
            gate_transition_id=taken.gate_transition_id,
            affected=taken.affected,
            makes=taken.state.recorded is None,
        )
        fix = OpenFix(asked, inputs.repo_ctx)
        with fix.held, fix.working:
            fix.start(inputs, taken)
            yield fix


def _ended(asked: Asked, taken: ResumedFix, fix_id: str, repository: Path) -> OpenFix:
    services = asked.services
    remove_leftovers(services.configuration.state_dir)
    facts = inspect_repository(repository, services.clients)
    repo = as_found(facts, services.configuration.settings).model_copy(update={"fix_id": fix_id})
    check_base(taken, repo.base_commit, fix_id)
    asked.watch.note(f"fix {fix_id} has ended ({taken.after}): no gate is run again")
    fix = OpenFix(asked, repo)
    fix.has_ended(taken)
    return fix


def _check_whose(taken: ResumedFix, services: Services) -> None:
    """Decided once: raises InputError where the options say now that somebody else's code is affected."""
    now = services.configuration.settings.whose_code
    if now is not None and taken.affected is not None and now is not taken.affected.code:
        raise InputError(
            f"The fix began as one of {taken.affected.code} code, and the options say {now} now.",
            next_step="Resume it without them, or start a new fix.",
        )
