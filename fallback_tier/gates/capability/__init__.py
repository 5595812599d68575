"""What code reaches for beyond its own process: read from its syntax, nothing is run."""

from fallback_tier.gates.capability.compare import compare
from fallback_tier.gates.capability.project import Project
from fallback_tier.gates.capability.reader import Reach, reach
from fallback_tier.gates.capability.uses import Use

__all__ = ["Project", "Reach", "Use", "compare", "reach"]
