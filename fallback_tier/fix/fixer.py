"""From advisories and a repository to a proved patch, delivered: what the command line, a service and a
fleet call (ADR-0063)."""

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
    """One advisory's fix in one ecosystem was required, and several would be planned together."""


@dataclass
class EndedFix:
    """A fix whose end is recorded. Only the delivery of its proved patch may be missing."""

    result: FixResult
    state: FixProgress
    _advisory: Advisory
    _put: Callable[[WithPatch], DeliveryOutcome]
    _delivered: OneFix | None = field(default=None, init=False)

    def next(self) -> StepKey | None:
        """None: no step is left."""
        return None

    def step(self, key: StepKey) -> None:
        """Not called: no step is left."""
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
    """Opens and runs fixes. Not for two fixes at once in one process; two processes wait for each other if
    they must."""

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
        """Fix in a clean git checkout. An interrupted run over several advisories continues.

        One advisory in one ecosystem goes down the whole chain; several are planned at once. ``fix_id``: an
        unused identifier for the fix of one (default: a new one). Raises RepositoryError;
        ConfigurationError, also if no plugin serves the advisory's ecosystem; SandboxError if there is no
        sandbox; ToolError; ModelError; ProofError if the given proof can't prove anything; and what the
        stores raise. The repository is then as it was, and a fix that has begun can be resumed.
        """
        repo, one = self._look(given, repository, fix_id)
        if one is None:
            if self.services.configuration.proof is not None:
                raise ConfigurationError(
                    "--proof shows one advisory's flaw in one ecosystem, and this is about several.",
                    next_step="Fix that advisory alone with --proof, then the others.",
                    kind="proof_of_several",
                )
            from fallback_tier.fix.several import fix_several

            return fix_several(given, repo, self.services, delivery, self.watch)
        self._note_unused(given)
        with self._begun(one, repo, self._checked(delivery, one, repo)) as fix:
            return fix.to_the_end()

    def resume(
        self,
        fix_id: str,
        *,
        given: AdvisorySet | None = None,
        repository: Path | None = None,
        delivery: Delivery = _DEFAULT,
    ) -> Fixed:
        """Continue an interrupted or reopened fix by its record. ``repository``: its checkout now;
        ``given``: its advisory, to configure and deliver it anew. Raises as ``fix``, and InputError if
        nothing is to be continued."""
        if given is not None:
            if repository is None:
                raise ConfigurationError(
                    "An advisory is given for a fix that is resumed, and no repository.",
                    next_step="Give both, or neither.",
                )
            repo, one = self._look(given, repository, None)
            if one is None:
                raise ConfigurationError(
                    "--resume continues the fix of one advisory, and several are given.",
                    next_step="Give the advisory that the fix began with.",
                )
            self._note_unused(given)
            setup, place = self._checked(delivery, one, repo), repo.root
        else:
            recorded = self._recorded(fix_id)
            recorded.check_not_abandoned()
            inputs = recorded.inputs
            if inputs.setup.several:
                return self._resume_several(recorded, repository, delivery)
            one, place = inputs.advisory, repository or inputs.repository
            setup = delivery.instead_of(inputs.setup)
        with self._resumed(fix_id, one, place, setup) as fix:
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
        """Open (begin or resume) one advisory's fix under this identifier for an engine that takes the
        steps (ADR-0086), and hold it. A resumed fix is delivered as it began. Raises as ``fix`` and
        ``resume``, and SeveralFixesError."""
        if is_on_record(self.services.audit, fix_id):
            inputs = self._recorded(fix_id).inputs
            with self._resumed(fix_id, inputs.advisory, repository, inputs.setup) as fix:
                yield fix
            return
        repo, one = self._look(given, repository, fix_id, for_engine=True)
        if one is None:
            raise SeveralFixesError(
                "An engine takes the steps of one advisory's fix in one ecosystem, and these are several.",
                next_step="Give each of them an identifier of its own.",
            )
        with self._begun(one, repo, self._checked(delivery, one, repo)) as fix:
            yield fix

    def _look(
        self,
        given: AdvisorySet,
        repository: Path,
        fix_id: str | None,
        *,
        for_engine: bool = False,
    ) -> tuple[RepoContext, Advisory | None]:
        """Return the repository, and the one advisory, narrowed to the one ecosystem that it concerns
        there; None: several are planned together."""
        services, is_one = self.services, len(given.advisories) == 1 and not given.findings
        if is_one:
            services.plugin_for(given.advisories[0])  # an ecosystem without a plugin: bad input
        repo = look_at(repository, services.clients, services.configuration.settings)
        # A plan leaves what is outside of the chosen folders; an engine has no plan, and fixes all of it.
        is_one = is_one and (for_engine or not repo.settings.paths)
        if fix_id is not None:
            repo = repo.model_copy(update={"fix_id": fix_id})
        concerned = services.concerned(given.advisories[0], repo) if is_one else ()
        return repo, concerned[0] if len(concerned) == 1 else None

    def _note_unused(self, given: AdvisorySet) -> None:
        for note in unused(given):
            self.watch.note(note)

    def _checked(self, delivery: Delivery, one: Advisory, repo: RepoContext) -> Setup:
        return delivery.checked([one.id], repo, self.services.clients)

    def _recorded(self, fix_id: str) -> RecordedFix:
        return RecordedFix(self.services.audit, self.services.evidence, fix_id)

    # Of one advisory.

    @contextmanager
    def _begun(self, advisory: Advisory, repo: RepoContext, setup: Setup) -> Iterator[OpenFix]:
        """Begin the fix that ``repo`` names. Raises InputError if another process holds it, ProofError, and
        what the parts raise."""
        inputs = self.services.choose_recipe(repo, advisory, fix_id=repo.fix_id)
        with holding(self.services.configuration.state_dir, repo.fix_id), ExitStack() as held:
            yield self._opened(inputs, setup, None, held)

    @contextmanager
    def _resumed(
        self, fix_id: str, advisory: Advisory, repository: Path, setup: Setup
    ) -> Iterator[OpenFix | EndedFix]:
        """Continue a fix from its record; an ended one is only delivered. Raises InputError if there is
        nothing to continue or another process holds it; RepositoryError at another commit; and what the
        parts raise."""
        services = self.services
        with holding(services.configuration.state_dir, fix_id), ExitStack() as held:
            recorded = self._recorded(fix_id)
            recorded.check_advisory(advisory)
            if (result := recorded.result) is not None:
                yield self._ended(recorded, result, advisory, repository, setup, held)
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
            yield self._opened(inputs, setup, recorded, held)

    def _opened(
        self, inputs: "Inputs", setup: Setup, recorded: RecordedFix | None, held: ExitStack
    ) -> OpenFix:
        """Record the beginning, or that the fix continues. ``held``: released at the end; watcher and
        worktree before delivery."""
        services, advisory, repo = self.services, inputs.advisory, inputs.repo_ctx
        working = held.enter_context(ExitStack())
        watcher = working.enter_context(self.watch.fixing())
        parts = fix_parts(services, advisory, watcher, setup, repo=repo, report=watcher.report)
        if recorded is None:
            failure = check_proof_fails(parts, inputs, watcher.report_proof)
        else:
            recorded.check_gates(parts.gate_names, parts.setup.configuration)
            failure = recorded.setup.proof_failure
        self._known_up_to(repo.fix_id, 0 if recorded is None else recorded.seen, held)
        kept = parts.setup.model_copy(update={"proof_failure": failure})
        repo = repo.model_copy(update={"proof_failure": failure})
        put = partial(self._put, working, advisory, repo, setup, put_on_working_tree)
        fix = OpenFix(replace(parts, setup=kept), advisory, repo, inputs.recipe_selection, put)
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
        held: ExitStack,
    ) -> EndedFix:
        services, fix_id = self.services, recorded.fix_id
        remove_leftovers(services.configuration.state_dir)
        facts = inspect_repository(repository, services.clients)
        repo = as_found(facts, services.configuration.settings)
        repo = repo.model_copy(update={"fix_id": fix_id})
        recorded.check_base(repo.base_commit)
        self.watch.note(f"fix {fix_id} has ended ({recorded.after}): no gate is run again")
        self._known_up_to(fix_id, recorded.seen, held)
        put = partial(self._put, ExitStack(), advisory, repo, setup, recorded.delivered or complete)
        return EndedFix(result, replace(recorded.state, result=result), advisory, put)

    def _put(
        self,
        working: ExitStack,
        advisory: Advisory,
        repo: RepoContext,
        setup: Setup,
        how: Deliver,
        result: WithPatch,
    ) -> DeliveryOutcome:
        working.close()
        proved = [(result, advisory)]
        return deliver_fixes(proved, result.application, repo, self.services, setup, how)

    def _known_up_to(self, fix_id: str, seen: int, held: ExitStack) -> None:
        """If another process recorded events after ``seen``, this one may no longer write."""
        if (guard := self.services.write_guard) is not None:
            guard.expect(fix_id, seen)
            held.callback(guard.let_go, fix_id)

    # Of several; imported here, as most fixes are of one.

    def _resume_several(
        self, recorded: RecordedFix, repository: Path | None, delivery: Delivery
    ) -> Fixed:
        """Continue the run over several advisories of which this fix is a part."""
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
    """Return whether a fix has begun, whichever process did that."""
    return any(audit.events(fix_id, kinds=frozenset({FixStarted.__name__})))


@contextmanager
def open_fixer(
    configuration: Configuration,
    given: AdvisorySet | None = None,
    watch: Watch = UNWATCHED,
    *,
    limiter: "CallLimiter | None" = None,
) -> Iterator[Fixer]:
    """A fixer with stores and models opened; closed at the end. ``given``: what is to be fixed, so that
    what its ecosystems need is checked first; ``limiter``: what the provider allows in a minute, shared
    with others. Raises ConfigurationError, StateFolderError."""
    about = {name for one in given.advisories for name in one.ecosystems} if given else set()
    with open_services(configuration, ecosystems=about, limiter=limiter) as services:
        yield Fixer(services, watch)
