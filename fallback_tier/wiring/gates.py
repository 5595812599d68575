"""Which gates a patch is put to, in order: ours, the ecosystem's (a proof before its tests), own ones."""

from collections.abc import Collection, Sequence

from fallback_audit.vocabulary import TESTS_GATE
from fallback_tier.configured import check_names, of_base
from fallback_tier.errors import ConfigurationError
from fallback_tier.execution import ClientRunner
from fallback_tier.gate_ports import APPLIES, Gate
from fallback_tier.gates.builtin.common import common_gates
from fallback_tier.gates.builtin.custom import CustomGate
from fallback_tier.gates.builtin.proof import ProofGate
from fallback_tier.gates.builtin.proof_given import PROOF
from fallback_tier.installed import installed_gates
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext
from fallback_tier.wiring.configuration import Configuration

#: Names that are taken, whether or not a gate of that name is among those of this fix.
_RESERVED = frozenset({APPLIES, PROOF})


def gates_for(
    plugin: EcosystemPlugin, repo: RepoContext, configuration: Configuration, clients: ClientRunner
) -> tuple[Gate, ...]:
    """Return the gates in the order in which they judge, the cheapest first: the common ones
    (``builtin/common.py``), the ecosystem's, those that are installed by entry point, then the user's own.

    The user's own gates come from the configuration or, if it has none, from the base commit. Raises
    ConfigurationError, RepositoryError if those can't be read; PluginError.
    """
    before_them = (*common_gates(plugin), *plugin.gates())
    by_entry_point = installed_gates(plugin)
    _check_unique(by_entry_point, _RESERVED | {gate.name for gate in before_them})
    built_in = (*before_them, *by_entry_point)
    own = of_base(repo, clients).gates if configuration.gates is None else configuration.gates
    check_names(own, _RESERVED | {gate.name for gate in built_in})
    given = configuration.proof
    proof = () if given is None else (ProofGate(given, plugin),)
    before = [gate for gate in built_in if gate.name != TESTS_GATE]
    tests = [gate for gate in built_in if gate.name == TESTS_GATE]
    return (*before, *proof, *tests, *(CustomGate(settings, plugin) for settings in own))


def _check_unique(gates: Sequence[Gate], taken: Collection[str]) -> None:
    """Raises ConfigurationError: gates are told apart by their names, in the record too."""
    seen = set(taken)
    for gate in gates:
        if gate.name in seen:
            raise ConfigurationError(
                f"A gate by entry point is called {gate.name!r}, as another gate is already.",
                next_step="Uninstall the distribution that brought it, or have it renamed.",
            )
        seen.add(gate.name)
