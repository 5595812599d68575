"""From advisories and a repository to a proved patch, delivered: what the command line, a service and a
fleet call (ADR-0063)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.events import FixStarted
from fallback_audit.ports import AuditReader
from fallback_tier.advisory import Advisory, AdvisorySet
from fallback_tier.errors import ConfigurationError
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.ends import Fixed, OneFix
from fallback_tier.fix.one import fix_one
from fallback_tier.fix.opened import Asked, OpenFix, begun, resumed
from fallback_tier.fix.watching import UNWATCHED, Watch
from fallback_tier.gates.journal.resume import inputs_of
from fallback_tier.installed import look_at
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Configuration, Services, open_services

if TYPE_CHECKING:
    from fallback_tier.budget.limiter import CallLimiter

_DEFAULT = Delivery()


@dataclass(frozen=True)
class Task:
    """Advisories in a repository that was looked at. ``one``: the one advisory, narrowed to the one
    ecosystem that it concerns there; None: several are planned together."""

    given: AdvisorySet
    repo: RepoContext
    one: Advisory | None
    services: Services
    watch: Watch

    def run(self, delivery: Delivery = _DEFAULT) -> Fixed:
        """Fix it, from the start; or, of several, where the same call was interrupted.

        Raises ConfigurationError, SandboxError where no sandbox can be had, ToolError, ModelError,
        ProofError where the proof that was given can't prove anything, and what the stores raise. The
        repository is then as it was, and a fix that has begun can be resumed.
        """
        if self.one is not None:
            setup = delivery.checked([self.one.id], self.repo, self.services.clients)
            return fix_one(self.one, self.repo, self.services, setup, self.watch)
        if self.services.configuration.proof is not None:
            raise ConfigurationError(
                "--proof shows one advisory's flaw in one ecosystem, and this is about several.",
                next_step="Fix that advisory alone with --proof, then the others.",
            )
        from fallback_tier.fix.several import fix_several

        return fix_several(self.given, self.repo, self.services, delivery, self.watch)

    def resume(self, fix_id: str, delivery: Delivery = _DEFAULT) -> OneFix:
        """Go on with the fix of this advisory, as configured now. Raises as ``run``."""
        if self.one is None:
            raise ConfigurationError(
                "--resume continues the fix of one advisory, and several are given.",
                next_step="Give the advisory that the fix began with.",
            )
        from fallback_tier.fix.resuming import resume_one

        setup = delivery.checked([self.one.id], self.repo, self.services.clients)
        return resume_one(fix_id, self.one, self.repo.root, self.services, setup, self.watch)


@dataclass(frozen=True)
class Fixer:
    """Fixes, with these parts. Not for two fixes at once in one process; two processes wait for each other
    where they must."""

    services: Services
    watch: Watch = UNWATCHED

    def task(self, given: AdvisorySet, repository: Path, *, fix_id: str | None = None) -> Task:
        """Look at a clean git checkout. One advisory goes down the whole chain; several are planned at
        once. ``fix_id``: an identifier that nobody has used, for the fix of one (default: a new one).

        Raises RepositoryError, ConfigurationError where no plugin serves the advisory's ecosystem.
        """
        services = self.services
        if len(given.advisories) == 1 and not given.findings:
            services.plugin_for(given.advisories[0])  # an ecosystem that nobody serves: bad input
        repo = look_at(repository, services.clients, services.configuration.settings)
        if fix_id is not None:
            repo = repo.model_copy(update={"fix_id": fix_id})
        return Task(given, repo, self._only_one(given, repo), services, self.watch)

    def fix(self, given: AdvisorySet, repository: Path, delivery: Delivery = _DEFAULT) -> Fixed:
        """``task``, run."""
        return self.task(given, repository).run(delivery)

    def resume(
        self, fix_id: str, *, repository: Path | None = None, delivery: Delivery = _DEFAULT
    ) -> Fixed:
        """Go on with a fix that was interrupted, or that a person let go on, by what is on record.

        ``repository``: where its checkout is now. Raises as ``Task.run``, and InputError where there is
        nothing to go on with.
        """
        from fallback_tier.fix.resuming import check_is_whole_run, recorded_start, resume_one

        services = self.services
        found = recorded_start(services.audit, services.evidence, fix_id)
        inputs = found.inputs
        if not inputs.setup.several:
            setup = delivery.instead_of(inputs.setup)
            place = repository or inputs.repository
            return resume_one(fix_id, inputs.advisory, place, services, setup, self.watch)
        from fallback_tier.fix.several import resume_several

        digest = check_is_whole_run(fix_id, found)
        return resume_several(digest, fix_id, repository, services, delivery, self.watch)

    @contextmanager
    def open(
        self,
        given: AdvisorySet,
        repository: Path,
        *,
        fix_id: str,
        delivery: Delivery = _DEFAULT,
    ) -> Iterator[OpenFix]:
        """For an engine that takes the steps itself (ADR-0086): the fix of one advisory under this
        identifier, begun, or resumed where it is on record. It is held while it is open.

        ``delivery`` with a branch or a report counts where the fix begins; one that goes on is delivered as
        it began. Raises as ``task`` and ``resume``, and ConfigurationError where several would be planned
        together.
        """
        services = self.services
        if is_on_record(services.audit, fix_id):
            inputs = inputs_of(services.audit, services.evidence, fix_id)
            asked = Asked(inputs.advisory, services, inputs.setup, self.watch)
            with resumed(asked, fix_id, repository) as fix:
                yield fix
            return
        task = self.task(given, repository, fix_id=fix_id)
        if task.one is None:
            raise ConfigurationError(
                "An engine takes the steps of one advisory's fix in one ecosystem, and these are several.",
                next_step="Give each of them an identifier of its own.",
            )
        setup = delivery.checked([task.one.id], task.repo, services.clients)
        with begun(Asked(task.one, services, setup, self.watch), task.repo) as fix:
            yield fix

    def _only_one(self, given: AdvisorySet, repo: RepoContext) -> Advisory | None:
        if len(given.advisories) != 1 or given.findings:
            return None
        concerned = self.services.concerned(given.advisories[0], repo)
        return concerned[0] if len(concerned) == 1 else None


def is_on_record(audit: AuditReader, fix_id: str) -> bool:
    """It has begun, whoever did that."""
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
