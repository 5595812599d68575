"""What code reaches for beyond its own process: read from its syntax, nothing is run."""

from fallback_tier.gates.judges.reach.compare import compare
from fallback_tier.gates.judges.reach.project import Project
from fallback_tier.gates.judges.reach.reader import Reach, reach
from fallback_tier.gates.judges.reach.uses import Use

__all__ = ["Project", "Reach", "Use", "compare", "reach"]
