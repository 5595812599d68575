"""The capabilities that code uses outside its own process: read from its syntax, nothing is run."""

from fallback_tier.gates.capability.compare import compare
from fallback_tier.gates.capability.project import Project
from fallback_tier.gates.capability.reader import CapabilityUse, CapabilityUses, capability_uses

__all__ = ["CapabilityUse", "CapabilityUses", "Project", "capability_uses", "compare"]
