"""The one wiring module: from a configuration to objects that work together.

Everything else gets what it needs passed in. Imports that cost time (the SDK, the example store, the
gates) are made when the part is first needed: an attempt by recipe pays for neither model nor gates.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr

from fallback_audit.evidence import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.sqlite_store import SqliteAuditStore
from fallback_tier.advisory import Advisory
from fallback_tier.errors import ConfigurationError, RepositoryError
from fallback_tier.gates.clients import SubprocessClients
from fallback_tier.gates.isolation import inspect_repository
from fallback_tier.outcome import RecipeSelection
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

ECOSYSTEMS_GROUP = "fallback_tier.ecosystems"

#: Random bytes of a fence nonce (128 bit, DESIGN §6) and of an identifier (64 bit).
NONCE_BYTES, ID_BYTES = 16, 8

#: Changed files that an error names: enough to recognise one's own work.
MAX_DIRTY_NAMED = 5


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


class InstalledPlugins(Mapping[str, EcosystemPlugin]):
    """Every installed ecosystem plugin, by its OSV name (ADR-0004), loaded when it is asked for."""

    def __init__(self, clients: ClientRunner) -> None:
        self._clients = clients
        self._found: dict[str, EntryPoint] = {
            found.name: found for found in entry_points(group=ECOSYSTEMS_GROUP)
        }
        self._loaded: dict[str, EcosystemPlugin] = {}

    def __getitem__(self, ecosystem: str) -> EcosystemPlugin:
        if ecosystem not in self._loaded:
            self._loaded[ecosystem] = self._found[ecosystem].load()(self._clients)
        return self._loaded[ecosystem]

    def __contains__(self, ecosystem: object) -> bool:
        return ecosystem in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


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
    from fallback_plugins.solved_examples import ExampleStore, SolvedExampleIndex

    return SolvedExampleIndex(ExampleStore(configuration.examples))


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
        plugin serves the advisory's ecosystems.
        """
        plugin = self.plugin_for(advisory)
        facts = inspect_repository(repository, self.clients)
        if facts.dirty:
            raise RepositoryError(
                f"{facts.root} has uncommitted changes: {', '.join(facts.dirty[:MAX_DIRTY_NAMED])}.",
                next_step="Commit or stash them: a fix starts from a commit and is put on top of it.",
            )
        repo = RepoContext(
            root=facts.root,
            base_commit=facts.base_commit,
            tracked_files=facts.tracked_files,
            tracked_files_cut=facts.tracked_files_cut,
            manifests=plugin.manifests(facts.tracked_files),
            fix_id=fix_id or f"fix-{secrets.token_hex(ID_BYTES)}",
            gate_transition_id=gate_transition_id or f"gate-{secrets.token_hex(ID_BYTES)}",
            settings=self.configuration.settings,
        )
        return Inputs(advisory, repo, plugin.select(advisory, repo))

    def plugin_for(self, advisory: Advisory) -> EcosystemPlugin:
        """The plugin that serves this advisory. Raises ConfigurationError."""
        return self.tier.plugin_for(advisory)

    def gate_runner(self, advisory: Advisory, observe: "Observer") -> "GateRunner":
        """A runner with this advisory's gates. Raises SandboxError where no sandbox can be had."""
        from fallback_tier.gates.common import common_gates
        from fallback_tier.gates.runner import GateRunner

        plugin = self.plugin_for(advisory)
        return GateRunner(
            tier=self.tier,
            gates=(*common_gates(plugin), *plugin.gates()),
            sandbox=self._sandbox(),
            clients=self.clients,
            audit=self.audit,
            evidence=self.evidence,
            workspace=self.configuration.state_dir,
            tool_version=version("fallback-tier"),
            sandbox_waiver=self.configuration.sandbox_waiver,
            observe=observe,
        )

    def _sandbox(self) -> Sandbox:
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
    clients = SubprocessClients()
    plugins = InstalledPlugins(clients)
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
