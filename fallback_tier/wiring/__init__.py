"""Wiring, all in this package: from a configuration to objects that work together.

All other code gets what it needs passed in. Imports that cost time (the SDK, the example store) are made
when the part is first needed: an attempt by recipe pays for no model.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from fallback_audit.contract.guard import ContractGuard
from fallback_audit.events import BudgetRaised
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_tier.advisory import Advisory
from fallback_tier.affected import Affected
from fallback_tier.errors import AdvisoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.inspection import look_at, tags_of
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.planning.recipe_choice import (
    NO_RECIPE_ASKED,
    ask_recipe,
    concerning_parts,
    for_plugin,
)
from fallback_tier.ports import EcosystemPlugin, LanguageModel, NonceSource
from fallback_tier.repo import RepoContext, new_id
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring.configuration import Configuration as Configuration
from fallback_tier.wiring.models import (
    build_leaf,
    build_models,
    build_retriever,
    check_forms,
    check_prices,
)
from fallback_tier.wiring.models import random_nonce as random_nonce
from fallback_tier.wiring.places import check_caches, check_places
from fallback_tier.wiring.trail import RecordSettings as RecordSettings
from fallback_tier.wiring.trail import audit_db as audit_db
from fallback_tier.wiring.trail import evidence_dir as evidence_dir
from fallback_tier.wiring.trail import guard_of, open_evidence, open_trail

if TYPE_CHECKING:
    from fallback_tier.budget.limiter import CallLimiter
    from fallback_tier.sandbox.runners import BubblewrapSandbox, UnsandboxedRunner
from fallback_tier.attempt.task import Inputs as Inputs

_P = ParamSpec("_P")


@dataclass(frozen=True)
class Services:
    """The parts, connected. ``open_services`` makes and closes them."""

    configuration: Configuration
    clients: ClientRunner
    plugins: Mapping[str, EcosystemPlugin]
    audit: AuditStore
    evidence: EvidenceStore
    tier: FallbackTier
    models: tuple[LanguageModel, ...] = ()
    #: The write guard of ``audit``; None if the store has none.
    write_guard: ContractGuard | None = None

    def close(self) -> None:
        """Release stores and models. Idempotent."""
        with ExitStack() as stack:  # closes the others even if closing one fails
            stack.callback(self.audit.close)
            for model in self.models:
                stack.callback(model.close)

    def inputs(
        self,
        advisory: Advisory,
        repository: Path,
        *,
        fix_id: str | None = None,
        gate_transition_id: str | None = None,
    ) -> Inputs:
        """Look at a repository and choose the recipe.

        Raises RepositoryError (not a git repository, dirty, no commit), ConfigurationError if no plugin
        serves the advisory's ecosystems, AdvisoryError if it concerns two of them here.
        """
        self.plugin_for(advisory)
        repo = look_at(repository, self.clients, self.configuration.settings)
        concerned = self.concerned(advisory, repo)
        if len(concerned) > 1:
            names = " and ".join(part.ecosystems[0] for part in concerned)
            raise AdvisoryError(
                f"{advisory.id} concerns {names} packages of this repository, and one attempt is for "
                "one ecosystem.",
                next_step="Use `fallback-tier fix`, which proves one patch an ecosystem.",
            )
        return self.choose_recipe(
            repo, concerned[0], fix_id=fix_id, gate_transition_id=gate_transition_id
        )

    def concerned(self, advisory: Advisory, repo: RepoContext) -> tuple[Advisory, ...]:
        """Return the advisory's parts, one per ecosystem, that concern the repository; the first if none
        does. Raises ConfigurationError if no plugin serves any of them."""
        self.plugin_for(advisory)
        return concerning_parts(
            advisory,
            repo,
            self.plugins,
            lambda part: self.choose_recipe(repo, part).recipe_selection,
        )

    def choose_recipe(
        self,
        repo: RepoContext,
        advisory: Advisory,
        *,
        fix_id: str | None = None,
        gate_transition_id: str | None = None,
        affected: Affected | None = None,
        makes: bool = True,
    ) -> Inputs:
        """Choose the recipe, as ``inputs``, for a repository that ``look_at`` returned.

        Raises ConfigurationError, and StateFolderError if the ecosystem's client can't write its cache.

        ``affected``: whose code it is, if that was decided before (a fix that is resumed). ``makes`` False:
        a patch on record is judged again, so no recipe is needed.
        """
        plugin = self.plugin_for(advisory)
        ids = {
            "fix_id": fix_id or new_id("fix"),
            "gate_transition_id": gate_transition_id or new_id("gate"),
        }
        plugin_repo = for_plugin(plugin, advisory, repo.model_copy(update=ids), affected)
        if plugin_repo.manifests:
            check_caches(self.clients, (plugin.name,), offline=repo.settings.offline)
        if not makes:
            return Inputs(advisory, plugin_repo, NO_RECIPE_ASKED)
        tags = tags_of(repo, self.clients)
        # A proof that fails here shows the vulnerability, whatever version the manifest states.
        believed = self.configuration.proof is None
        selection = ask_recipe(plugin, advisory, plugin_repo, tags=tags, believe_version=believed)
        return Inputs(advisory, plugin_repo, selection)

    def plugin_for(self, advisory: Advisory) -> EcosystemPlugin:
        """Return the plugin that serves this advisory. Raises ConfigurationError."""
        return self.tier.plugin_for(advisory)

    @property
    def has_model(self) -> bool:
        """Whether a model is configured."""
        return bool(self.configuration.model or self.configuration.script)

    def check_raised(self, raised: tuple[BudgetRaised, ...]) -> None:
        """Check that all prices are known if a cap was raised in dollars, as for a configured cap. Raises
        ConfigurationError."""
        from fallback_tier.budget.audited import effective

        budget = effective(self.configuration.budget, raised)
        check_prices(self.configuration.model_copy(update={"budget": budget}), self.models)

    def recipes_only(self) -> "Services":
        """Return the same services without a model: no plan of a model can fix several advisories at
        once."""
        plugins, audit, evidence = self.plugins, self.audit, self.evidence
        tier = FallbackTier(
            plugins=plugins, retriever=None, leaf=None, audit=audit, evidence=evidence
        )
        return replace(self, tier=tier)

    def sandbox(self) -> "BubblewrapSandbox | UnsandboxedRunner":
        """Return the sandbox, or what was chosen instead. Raises SandboxError if none is available."""
        from fallback_tier.sandbox.runners import BubblewrapSandbox, UnsandboxedRunner

        if self.configuration.sandbox_waiver is not None:
            return UnsandboxedRunner()
        sandbox = BubblewrapSandbox()
        sandbox.probe()
        return sandbox


def wire(
    configuration: Configuration,
    *,
    nonces: NonceSource = random_nonce,
    author: LanguageModel | None = None,
    asks: bool = True,
    ecosystems: Collection[str] = (),
    limiter: "CallLimiter | None" = None,
) -> Services:
    """Connect the parts. ``author`` replaces the configured model (demo, tests). ``asks`` False: only gates
    run, so no model is made and no memory opened, whatever is configured. ``ecosystems``: those to be
    fixed, as far as known. ``limiter``: what the provider allows per minute, shared with other fixes.
    Raises StateFolderError if a folder can't be written."""
    check_forms(configuration)
    clients, plugins = clients_and_plugins(configuration.settings.allow_hosts)
    author, judge = build_models(configuration, author, limiter) if asks else (author, None)
    models = tuple(model for model in (author, judge) if model is not None)
    check_prices(configuration, models)
    retriever = build_retriever(configuration) if asks else None
    check_places(configuration, clients, ecosystems)
    # Opened last, so that no store is left open if the configuration is wrong.
    evidence = open_evidence(configuration.state_dir)
    guard = guard_of(configuration.record)
    audit = open_trail(configuration.state_dir, configuration.record, guard)
    leaf = None
    if author is not None:
        leaf = build_leaf(configuration, author, judge, retriever, nonces, audit, evidence)
    tier = FallbackTier(
        plugins=plugins, retriever=retriever, leaf=leaf, audit=audit, evidence=evidence
    )
    return Services(configuration, clients, plugins, audit, evidence, tier, models, guard)


def _closed_at_its_end(
    wire: Callable[_P, Services],
) -> Callable[_P, AbstractContextManager[Services]]:
    return lambda *args, **kwargs: closing(wire(*args, **kwargs))


#: ``with open_services(…) as services``: as ``wire``, and closed at the end of the block.
open_services = _closed_at_its_end(wire)
