"""Fixing, from advisories and a repository to a delivered, proved patch: called by the command line, a
service and a fleet (ADR-0063)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.events import FixStarted
from fallback_audit.ports import AuditReader
from fallback_tier.advisory import Advisory, AdvisorySet
from fallback_tier.errors import ConfigurationError, InputError
from fallback_tier.fix.advisories import unused
from fallback_tier.fix.delivery import Deliver, Delivery, Fixed, deliver_fixes
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix.journal.recorded_fix import RecordedFix
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.fix.parts import check_proof_fails, fix_parts
from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix.watching import UNWATCHED, Watch
from fallback_tier.fix_result import DeliveryOutcome, FixResult, OneFix, WithPatch
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.handover.working_tree import complete, put_on_working_tree
from fallback_tier.inspection import as_found, look_at
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Configuration, Services, open_services

if TYPE_CHECKING:
    from fallback_tier.attempt.task import Inputs
    from fallback_tier.budget.limiter import CallLimiter

_DEFAULT = Delivery()


class SeveralFixesError(ConfigurationError):
    """One advisory's fix in one ecosystem was required, but several would be planned together."""


@dataclass
class EndedFix:
    """A fix whose end is recorded. Only the delivery of its proved patch may be missing."""

    result: FixResult
    state: FixProgress
    _advisory: Advisory
    _put: Callable[[WithPatch], DeliveryOutcome]
    _delivered: OneFix | None = field(default=None, init=False)

    def next(self) -> StepKey | None:
        """Return None: no step remains."""
        return None

    def step(self, key: StepKey) -> None:
        """Raise AssertionError: no step remains."""
        raise AssertionError(f"a fix that has ended takes no step, such as {key}")

    def deliver(self) -> OneFix:
        """Deliver the patch as requested, once, unless its delivery is recorded."""
        if self._delivered is None:
            self._delivered = OneFix.delivered(self.result, self._advisory, self._put)
        return self._delivered

    def to_the_end(self) -> OneFix:
        """Deliver."""
        return self.deliver()


@dataclass(frozen=True)
class Fixer:
    """Opens and runs fixes. One process must not run two fixes at once; two processes wait for each other
    if needed."""

    services: Services
    watch: Watch = UNWATCHED

    def fix(
        self,
        given: AdvisorySet,
        repository: Path,
        delivery: Delivery = _DEFAULT,
        *,
        fix_id: str | None = None,
    ) -> Fixed:
        """Fix in a clean git checkout. An interrupted batch continues.

        One advisory in one ecosystem goes through the whole chain; several are planned together.
        ``fix_id``: an unused identifier for the fix of one advisory (default: a new one).

        Raises RepositoryError; ConfigurationError, also if no plugin serves the advisory's ecosystem;
        SandboxError if there is no sandbox; ToolError; ModelError; ProofError if the given proof can't
        prove anything; and the stores' errors. The repository is then unchanged, and a fix that has begun
        can be resumed.
        """
        repo, advisory = self._look(given, repository, fix_id)
        if advisory is None:
            if self.services.configuration.proof is not None:
                raise ConfigurationError(
                    "--proof shows one advisory's flaw in one ecosystem, and this is about several.",
                    next_step="Fix that advisory alone with --proof, then the others.",
                    kind="proof_of_several",
                )
            from fallback_tier.fix.several import fix_several

            return fix_several(given, repo, self.services, delivery, self.watch)
        self._note_unused(given)
        with self._begun(advisory, repo, self._checked(delivery, advisory, repo)) as fix:
            return fix.to_the_end()

    def resume(
        self,
        fix_id: str,
        *,
        given: AdvisorySet | None = None,
        repository: Path | None = None,
        delivery: Delivery = _DEFAULT,
    ) -> Fixed:
        """Continue an interrupted or reopened fix by its record.

        ``repository``: its checkout now; ``given``: its advisory, to configure and deliver it anew. Raises
        as ``fix``, and InputError if there is nothing to continue.
        """
        if given is not None:
            if repository is None:
                raise ConfigurationError(
                    "An advisory is given for a fix that is resumed, and no repository.",
                    next_step="Give both, or neither.",
                )
            repo, advisory = self._look(given, repository, None)
            if advisory is None:
                raise ConfigurationError(
                    "--resume continues the fix of one advisory, and several are given.",
                    next_step="Give the advisory that the fix began with.",
                )
            self._note_unused(given)
            setup, checkout = self._checked(delivery, advisory, repo), repo.root
        else:
            recorded = self._recorded(fix_id)
            recorded.check_not_abandoned()
            inputs = recorded.inputs
            if inputs.setup.several:
                return self._resume_several(recorded, repository, delivery)
            advisory, checkout = inputs.advisory, repository or inputs.repository
            setup = delivery.instead_of(inputs.setup)
        with self._resumed(fix_id, advisory, checkout, setup) as fix:
            return fix.to_the_end()

    @contextmanager
    def open(
        self,
        given: AdvisorySet,
        repository: Path,
        *,
        fix_id: str,
        delivery: Delivery = _DEFAULT,
    ) -> Iterator[OpenFix | EndedFix]:
        """Open (begin or resume) one advisory's fix under this identifier, and hold it.

        The caller is an engine that takes the steps (ADR-0086). A resumed fix is delivered as it began.
        Raises as ``fix`` and ``resume``, and SeveralFixesError.
        """
        if is_on_record(self.services.audit, fix_id):
            inputs = self._recorded(fix_id).inputs
            with self._resumed(fix_id, inputs.advisory, repository, inputs.setup) as fix:
                yield fix
            return
        repo, advisory = self._look(given, repository, fix_id, for_engine=True)
        if advisory is None:
            raise SeveralFixesError(
                "An engine takes the steps of one advisory's fix in one ecosystem, and these are several.",
                next_step="Give each of them an identifier of its own.",
            )
        with self._begun(advisory, repo, self._checked(delivery, advisory, repo)) as fix:
            yield fix

    def _look(
        self,
        given: AdvisorySet,
        repository: Path,
        fix_id: str | None,
        *,
        for_engine: bool = False,
    ) -> tuple[RepoContext, Advisory | None]:
        """Return the repository, and the advisory narrowed to the one ecosystem that it concerns there, or
        None if several are planned together."""
        services, is_one = self.services, len(given.advisories) == 1 and not given.findings
        if is_one:
            services.plugin_for(given.advisories[0])  # raises for an ecosystem without a plugin
        repo = look_at(repository, services.clients, services.configuration.settings)
        # A plan omits what is outside of the chosen folders; an engine has no plan, and fixes all of it.
        is_one = is_one and (for_engine or not repo.settings.paths)
        if fix_id is not None:
            repo = repo.model_copy(update={"fix_id": fix_id})
        concerned = services.concerned(given.advisories[0], repo) if is_one else ()
        return repo, concerned[0] if len(concerned) == 1 else None

    def _note_unused(self, advisories: AdvisorySet) -> None:
        for note in unused(advisories):
            self.watch.note(note)

    def _checked(self, delivery: Delivery, advisory: Advisory, repo: RepoContext) -> Setup:
        return delivery.checked([advisory.id], repo, self.services.clients)

    def _recorded(self, fix_id: str) -> RecordedFix:
        return RecordedFix(self.services.audit, self.services.evidence, fix_id)

    # Fixes of one advisory.

    @contextmanager
    def _begun(self, advisory: Advisory, repo: RepoContext, setup: Setup) -> Iterator[OpenFix]:
        """Begin the fix that ``repo`` names. Raises InputError if another process holds it, ProofError, and
        the errors of the parts."""
        inputs = self.services.choose_recipe(repo, advisory, fix_id=repo.fix_id)
        with holding(self.services.configuration.state_dir, repo.fix_id), ExitStack() as exit_stack:
            yield self._opened(inputs, setup, None, exit_stack)

    @contextmanager
    def _resumed(
        self, fix_id: str, advisory: Advisory, repository: Path, setup: Setup
    ) -> Iterator[OpenFix | EndedFix]:
        """Continue a fix from its record; an ended one is only delivered.

        Raises InputError if there is nothing to continue or another process holds it; RepositoryError at
        another commit; and the errors of the parts.
        """
        services = self.services
        with holding(services.configuration.state_dir, fix_id), ExitStack() as exit_stack:
            recorded = self._recorded(fix_id)
            recorded.check_advisory(advisory)
            if (result := recorded.result) is not None:
                yield self._ended(recorded, result, advisory, repository, setup, exit_stack)
                return
            services.check_raised(recorded.raised)
            now = self.services.configuration.settings.whose_code
            began = recorded.affected
            if now is not None and began is not None and now is not began.code:
                raise InputError(
                    f"The fix began as one of {began.code} code, and the options say {now} now.",
                    next_step="Resume it without them, or start a new fix.",
                )
            repo = look_at(repository, services.clients, services.configuration.settings)
            recorded.check_base(repo.base_commit)
            inputs = services.choose_recipe(
                repo,
                advisory,
                fix_id=fix_id,
                gate_transition_id=recorded.gate_transition_id,
                affected=recorded.affected,
                makes=recorded.state.recorded is None,
            )
            yield self._opened(inputs, setup, recorded, exit_stack)

    def _opened(
        self, inputs: "Inputs", setup: Setup, recorded: RecordedFix | None, exit_stack: ExitStack
    ) -> OpenFix:
        """Record that the fix begins or continues. ``exit_stack`` is closed at the end; watcher and
        worktree are closed before delivery."""
        services, advisory, repo = self.services, inputs.advisory, inputs.repo_ctx
        working = exit_stack.enter_context(ExitStack())
        watcher = working.enter_context(self.watch.fixing())
        parts = fix_parts(services, advisory, watcher, setup, repo=repo, report=watcher.report)
        if recorded is None:
            failure = check_proof_fails(parts, inputs, watcher.report_proof)
        else:
            recorded.check_gates(parts.gate_names, parts.setup.configuration)
            failure = recorded.setup.proof_failure
        self._known_up_to(repo.fix_id, 0 if recorded is None else recorded.seen, exit_stack)
        kept_setup = parts.setup.model_copy(update={"proof_failure": failure})
        repo = repo.model_copy(update={"proof_failure": failure})
        put = partial(self._put, working, advisory, repo, setup, put_on_working_tree)
        fix = OpenFix(
            replace(parts, setup=kept_setup), advisory, repo, inputs.recipe_selection, put
        )
        working.callback(fix.close)
        if recorded is None:
            fix.begin()
        else:
            fix.resume(recorded)
        return fix

    def _ended(
        self,
        recorded: RecordedFix,
        result: FixResult,
        advisory: Advisory,
        repository: Path,
        setup: Setup,
        exit_stack: ExitStack,
    ) -> EndedFix:
        services, fix_id = self.services, recorded.fix_id
        remove_leftovers(services.configuration.state_dir)
        facts = inspect_repository(repository, services.clients)
        repo = as_found(facts, services.configuration.settings)
        repo = repo.model_copy(update={"fix_id": fix_id})
        recorded.check_base(repo.base_commit)
        self.watch.note(f"fix {fix_id} has ended ({recorded.after}): no gate is run again")
        self._known_up_to(fix_id, recorded.seen, exit_stack)
        put = partial(self._put, ExitStack(), advisory, repo, setup, recorded.delivered or complete)
        return EndedFix(result, replace(recorded.state, result=result), advisory, put)

    def _put(
        self,
        working: ExitStack,
        advisory: Advisory,
        repo: RepoContext,
        setup: Setup,
        deliver: Deliver,
        result: WithPatch,
    ) -> DeliveryOutcome:
        working.close()
        proved = [(result, advisory)]
        return deliver_fixes(proved, result.application, repo, self.services, setup, deliver)

    def _known_up_to(self, fix_id: str, seen: int, exit_stack: ExitStack) -> None:
        """Forbid this process to write if another process recorded events after ``seen``."""
        if (guard := self.services.write_guard) is not None:
            guard.expect(fix_id, seen)
            exit_stack.callback(guard.let_go, fix_id)

    # Fixes of several advisories; imported here because most fixes are of one.

    def _resume_several(
        self, recorded: RecordedFix, repository: Path | None, delivery: Delivery
    ) -> Fixed:
        """Continue the batch of which this fix is a part."""
        digest = recorded.inputs.setup.batch_sha256
        if digest is None or recorded.is_reopened:
            ids = ", ".join(recorded.inputs.advisory.ids)
            alone = f"Run `fallback-tier fix` for {ids} alone."
            again = "Run that `fallback-tier fix` again: recipes ask no model, so nothing is paid twice."
            raise InputError(
                f"Fix {recorded.fix_id} is one part of a run over several advisories, whose patches are "
                "delivered together.",
                next_step=alone if recorded.is_reopened else again,
                kind="part_of_several",
            )
        from fallback_tier.fix.several import resume_several

        fix_id = recorded.fix_id
        return resume_several(digest, fix_id, repository, self.services, delivery, self.watch)


def is_on_record(audit: AuditReader, fix_id: str) -> bool:
    """Return whether a fix has begun, in any process."""
    return any(audit.events(fix_id, kinds=frozenset({FixStarted.__name__})))


@contextmanager
def open_fixer(
    configuration: Configuration,
    given: AdvisorySet | None = None,
    watch: Watch = UNWATCHED,
    *,
    limiter: "CallLimiter | None" = None,
) -> Iterator[Fixer]:
    """Yield a fixer with stores and models opened; they are closed at the end.

    ``given``: what is to be fixed, so that requirements of its ecosystems are checked first; ``limiter``:
    the provider's limits per minute, shared with other fixers. Raises ConfigurationError, StateFolderError.
    """
    ecosystems = (
        {name for advisory in given.advisories for name in advisory.ecosystems} if given else set()
    )
    with open_services(configuration, ecosystems=ecosystems, limiter=limiter) as services:
        yield Fixer(services, watch)
