"""The one wiring module: from a configuration to objects that work together.

Everything else gets what it needs passed in. Imports that cost time (the SDK, the example store, the
gates) are made when the part is first needed: an attempt by recipe pays for neither model nor gates.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr

from fallback_audit.evidence import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.sqlite_store import SqliteAuditStore
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.errors import AdvisoryError, ConfigurationError
from fallback_tier.installed import clients_and_plugins, look_at, new_id
from fallback_tier.outcome import NotApplicable, RecipeSelection
from fallback_tier.planning import parts, selected
from fallback_tier.ports import (
    ClientRunner,
    EcosystemPlugin,
    NonceSource,
    PlanAuthor,
    Sandbox,
    SolvedExampleRetriever,
)
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.tier import FallbackTier

if TYPE_CHECKING:
    from fallback_tier.gates.runner import GateRunner, Observer
    from fallback_tier.leaf import LlmLeaf

#: Random bytes of a fence nonce (128 bit, DESIGN §6).
NONCE_BYTES = 16


class Configuration(Frozen):
    """What a host or the command line decides. Secrets are SecretStr: they don't print.

    ``api_key`` goes to the model's server; ``secrets`` are further values that no prompt may carry.
    """

    state_dir: Path
    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    secrets: tuple[SecretStr, ...] = ()
    script: Path | None = None
    examples: Path | None = None
    routing_floor: float | None = None
    sandbox_waiver: str | None = None
    settings: Settings = Field(default_factory=Settings)


def audit_db(state_dir: Path) -> Path:
    """Where the audit trail is."""
    return state_dir / "audit.db"


def evidence_dir(state_dir: Path) -> Path:
    """Where the evidence store is."""
    return state_dir / "evidence"


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``FallbackTier.run``, made from an advisory and a repository."""

    advisory: Advisory
    repo_ctx: RepoContext
    recipe_selection: RecipeSelection


def random_nonce() -> str:
    """A fresh fence nonce."""
    return secrets.token_hex(NONCE_BYTES)


def build_author(configuration: Configuration) -> PlanAuthor | None:
    """The model that is configured: a script, a Messages API server, or none.

    Raises ConfigurationError for a model without a key on the provider's own server.
    """
    if configuration.script is not None:
        from fallback_plugins.claude.scripted import load_script

        return load_script(configuration.script)
    if configuration.model is None:
        if configuration.base_url is not None:
            raise ConfigurationError(
                f"--base-url {configuration.base_url} is given without a model.",
                next_step="Name the model that this server serves with --model.",
            )
        return None
    if configuration.base_url is None and configuration.api_key is None:
        raise ConfigurationError(
            f"Model {configuration.model!r} needs a key, and ANTHROPIC_API_KEY is not set.",
            next_step="Set ANTHROPIC_API_KEY, or point --base-url at a Messages API server of yours.",
        )
    from fallback_plugins.claude.author import ClaudeAuthor

    key = configuration.api_key.get_secret_value() if configuration.api_key else None
    return ClaudeAuthor(configuration.model, base_url=configuration.base_url, api_key=key)


def build_retriever(configuration: Configuration) -> SolvedExampleRetriever | None:
    """The solved-example memory, where one is configured."""
    if configuration.examples is None:
        return None
    if not configuration.examples.exists():
        raise ConfigurationError(
            f"There is no example store at {configuration.examples}.",
            next_step="Make one with `fallback-tier examples ingest`, or leave --examples out.",
        )
    from fallback_plugins.solved_examples.retriever import open_index

    return open_index(configuration.examples, routing_floor=configuration.routing_floor)


@dataclass(frozen=True)
class Services:
    """The parts, wired. Made by ``open_services``, which also closes them."""

    configuration: Configuration
    clients: ClientRunner
    plugins: Mapping[str, EcosystemPlugin]
    audit: AuditStore
    evidence: EvidenceStore
    tier: FallbackTier

    def inputs(
        self,
        advisory: Advisory,
        repository: Path,
        *,
        fix_id: str | None = None,
        gate_transition_id: str | None = None,
    ) -> Inputs:
        """Look at a repository and choose the recipe.

        Raises RepositoryError (not a git repository, dirty, no commit), ConfigurationError where no
        plugin serves the advisory's ecosystems, AdvisoryError where it concerns two of them here.
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
        return self.inputs_on(
            repo, concerned[0], fix_id=fix_id, gate_transition_id=gate_transition_id
        )

    def concerned(self, advisory: Advisory, repo: RepoContext) -> tuple[Advisory, ...]:
        """The advisory's parts, by ecosystem, that concern the repository; the first where none does.

        Raises ConfigurationError where no plugin serves any of them.
        """
        self.plugin_for(advisory)
        found = tuple(parts(advisory, repo, self.plugins).values())
        if len(found) == 1:
            return found
        return tuple(part for part in found if self._affected(part, repo)) or found[:1]

    def _affected(self, advisory: Advisory, repo: RepoContext) -> bool:
        match self.inputs_on(repo, advisory).recipe_selection:
            case NotApplicable(reason=RefusalReason.NOT_AFFECTED):
                return False
            case _:
                return True

    def inputs_on(
        self,
        repo: RepoContext,
        advisory: Advisory,
        *,
        fix_id: str | None = None,
        gate_transition_id: str | None = None,
    ) -> Inputs:
        """As ``inputs``, on a repository that was looked at already. Raises ConfigurationError."""
        plugin = self.plugin_for(advisory)
        own = repo.model_copy(
            update={
                "manifests": plugin.manifests(repo.tracked_files),
                "fix_id": fix_id or new_id("fix"),
                "gate_transition_id": gate_transition_id or new_id("gate"),
            }
        )
        return Inputs(advisory, own, selected(plugin, advisory, own))

    def plugin_for(self, advisory: Advisory) -> EcosystemPlugin:
        """The plugin that serves this advisory. Raises ConfigurationError."""
        return self.tier.plugin_for(advisory)

    @property
    def has_model(self) -> bool:
        """A model is configured."""
        return bool(self.configuration.model or self.configuration.script)

    def recipes_only(self) -> "Services":
        """The same, without a model to ask: for several advisories at once, which no plan of a
        model's can fix."""
        tier = FallbackTier(
            plugins=self.plugins,
            retriever=None,
            leaf=None,
            audit=self.audit,
            evidence=self.evidence,
        )
        return replace(self, tier=tier)

    def gate_runner(self, advisory: Advisory, observe: "Observer") -> "GateRunner":
        """A runner with this advisory's gates. Raises SandboxError where no sandbox can be had."""
        from fallback_tier.gates.common import common_gates
        from fallback_tier.gates.runner import GateRunner

        plugin = self.plugin_for(advisory)
        return GateRunner(
            tier=self.tier,
            gates=(*common_gates(plugin), *plugin.gates()),
            sandbox=self.sandbox(),
            clients=self.clients,
            audit=self.audit,
            evidence=self.evidence,
            workspace=self.configuration.state_dir,
            tool_version=version("fallback-tier"),
            sandbox_waiver=self.configuration.sandbox_waiver,
            observe=observe,
        )

    def sandbox(self) -> Sandbox:
        """The sandbox, or what was chosen in its place. Raises SandboxError where none can be had."""
        from fallback_tier.gates.sandbox import BubblewrapSandbox, UnsandboxedRunner

        if self.configuration.sandbox_waiver is not None:
            return UnsandboxedRunner()
        sandbox = BubblewrapSandbox()
        sandbox.probe()
        return sandbox


def wire(
    configuration: Configuration,
    *,
    nonces: NonceSource = random_nonce,
    author: PlanAuthor | None = None,
) -> Services:
    """Put the parts together. ``author`` stands in for the configured model (demo, tests)."""
    clients, plugins = clients_and_plugins()
    author = author or build_author(configuration)
    retriever = build_retriever(configuration)
    leaf = None if author is None else _build_leaf(author, configuration, nonces)
    # Opened last: whatever is wrong with the configuration, no store is left open.
    audit = SqliteAuditStore(audit_db(configuration.state_dir))
    evidence = FileEvidenceStore(evidence_dir(configuration.state_dir))
    tier = FallbackTier(
        plugins=plugins,
        retriever=retriever,
        leaf=leaf,
        audit=audit,
        evidence=evidence,
    )
    return Services(configuration, clients, plugins, audit, evidence, tier)


def _build_leaf(author: PlanAuthor, configuration: Configuration, nonces: NonceSource) -> "LlmLeaf":
    from fallback_tier.leaf import LlmLeaf
    from fallback_tier.prompt.builder import PromptBuilder

    known = (*configuration.secrets, *filter(None, [configuration.api_key]))
    prompts = PromptBuilder(nonces, frozenset(secret.get_secret_value() for secret in known))
    return LlmLeaf(author, prompts)


@contextmanager
def open_services(
    configuration: Configuration,
    *,
    nonces: NonceSource = random_nonce,
    author: PlanAuthor | None = None,
) -> Iterator[Services]:
    """``wire``, and close the stores at the end."""
    services = wire(configuration, nonces=nonces, author=author)
    try:
        yield services
    finally:
        services.audit.close()
