"""The dependencies of a fix: the tier, the gates in order (ours, the ecosystem's with a proof before its
tests, the user's own), a sandbox, the audit trail; and the check of the proof at the base commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from fallback_audit.ports import AuditStore, EvidenceStore
from fallback_audit.vocabulary import TESTS_GATE
from fallback_tier.advisory import Advisory
from fallback_tier.attempt.task import Inputs, TierEvent
from fallback_tier.configured import check_names, of_base
from fallback_tier.errors import ConfigurationError
from fallback_tier.execution import ClientRunner, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix.journal.recording import Observer
from fallback_tier.fix.steps import StepKey
from fallback_tier.gate_ports import APPLIES, Gate
from fallback_tier.gates.builtin.common import common_gates
from fallback_tier.gates.builtin.custom import CustomGate
from fallback_tier.gates.builtin.proof import ProofGate, check_proof
from fallback_tier.gates.builtin.proof_given import PROOF
from fallback_tier.gates.failure_summary.proof_failure import proof_failure
from fallback_tier.installed_plugins import installed_gates
from fallback_tier.outcome import RecipeSelection, Selected
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import ProofFailure, RepoContext
from fallback_tier.tier import FallbackTier
from fallback_tier.wiring import Services
from fallback_tier.wiring.configuration import Configuration

#: The wall-clock limit of one gate: long enough for a real test suite, short enough to notice a hang.
GATE_TIMEOUT_S = 600.0

#: Names that no other gate may have, whether or not this fix has a gate of that name.
_RESERVED = frozenset({APPLIES, PROOF})


def _ignore(_event: TierEvent | StepKey) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class FixParts:
    """The dependencies of a fix. ``setup``: evidence for a resumed process; ``report``: called with a
    sentence on work that takes long; ``layered`` None: layered worktrees if they can be mounted."""

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
    layered: bool | None = None
    setup: Setup = field(default_factory=Setup)

    @property
    def gate_names(self) -> tuple[str, ...]:
        """The gates' names in order, without ``applies``."""
        return tuple(gate.name for gate in self.gates)


def fix_parts(
    services: Services,
    advisory: Advisory,
    observe: Observer,
    setup: Setup | None = None,
    *,
    repo: RepoContext,
    report: Callable[[str], None] = say_nothing,
) -> FixParts:
    """Return the parts for a fix of ``advisory``, with the gates that ``repo``'s base commit configures.
    ``setup``: evidence for a resumed run. Raises SandboxError if there is no sandbox, ConfigurationError if
    the user's gates can't be read."""
    configuration = services.configuration
    plugin, sandbox = services.plugin_for(advisory), services.sandbox()
    recorded_setup = {"configuration": configuration.recorded(), "bounds": sandbox.bounds}
    return FixParts(
        tier=services.tier,
        gates=gates_for(plugin, repo, configuration, services.clients),
        sandbox=sandbox,
        clients=services.clients,
        audit=services.audit,
        evidence=services.evidence,
        workspace=configuration.state_dir,
        tool_version=version("fallback-tier"),
        sandbox_waiver=configuration.sandbox_waiver,
        observe=observe,
        report=report,
        setup=(setup or Setup()).model_copy(update=recorded_setup),
    )


def gates_for(
    plugin: EcosystemPlugin, repo: RepoContext, configuration: Configuration, clients: ClientRunner
) -> tuple[Gate, ...]:
    """Return the gates in order, the cheapest first: the common ones, the ecosystem's, those by entry
    point, the user's own (by the configuration, otherwise the base commit).

    Raises ConfigurationError, RepositoryError, PluginError.
    """
    first_gates = (*common_gates(plugin), *plugin.gates())
    by_entry_point = installed_gates(plugin)
    # Gates are identified by their names, also in the record.
    seen = set(_RESERVED | {gate.name for gate in first_gates})
    for gate in by_entry_point:
        if gate.name in seen:
            raise ConfigurationError(
                f"A gate by entry point is called {gate.name!r}, as another gate is already.",
                next_step="Uninstall the distribution that brought it, or have it renamed.",
            )
        seen.add(gate.name)
    built_in = (*first_gates, *by_entry_point)
    custom_settings = (
        of_base(repo, clients).gates if configuration.gates is None else configuration.gates
    )
    check_names(custom_settings, _RESERVED | {gate.name for gate in built_in})
    configured_proof = configuration.proof
    proof = () if configured_proof is None else (ProofGate(configured_proof, plugin),)
    gates_before_tests = [gate for gate in built_in if gate.name != TESTS_GATE]
    tests = [gate for gate in built_in if gate.name == TESTS_GATE]
    return (
        *gates_before_tests,
        *proof,
        *tests,
        *(CustomGate(settings, plugin) for settings in custom_settings),
    )


def check_proof_fails(
    parts: FixParts, inputs: Inputs, report: Callable[[str], None]
) -> ProofFailure | None:
    """Check that the proof fails at the base commit, before anything is spent, and return its failure.

    None without a proof, or if no tier can make a patch. Raises ProofError if it can't prove anything;
    SandboxError, RepositoryError, ToolError.
    """
    if not _may_be_patched(parts.tier, inputs.recipe_selection):
        return None
    for gate in parts.gates:
        if isinstance(gate, ProofGate):
            report("checking that it fails at the base commit")
            output = check_proof(
                gate,
                inputs.advisory,
                inputs.repo_ctx,
                clients=parts.clients,
                sandbox=parts.sandbox,
                workspace=parts.workspace,
                timeout_s=parts.timeout_s,
                report=parts.report,
            )
            return proof_failure(output, gate.proof.files, inputs.repo_ctx.tracked_files)
    return None


def _may_be_patched(tier: FallbackTier, selection: RecipeSelection) -> bool:
    if isinstance(selection, Selected):
        return True
    has_more = tier.parts.leaf is not None or tier.parts.retriever is not None
    return has_more and not selection.reason.ends_chain
