"""PyPI's gates: the requirements install, have no affected version, and the tests still pass."""

from fallback_plugins.pypi.gates.checks import (
    ImportsGate,
    NotVulnerableGate,
    ResolvesGate,
    TypecheckGate,
)
from fallback_plugins.pypi.gates.testing import TestsGate
from fallback_tier.gate_ports import Gate


def build_gates() -> tuple[Gate, ...]:
    """Return the gates in order: each uses the environment that those before it made."""
    return (ResolvesGate(), NotVulnerableGate(), ImportsGate(), TypecheckGate(), TestsGate())
