"""What code reaches for beyond its own process: read from its syntax, nothing is run."""

from fallback_tier.gates.judges.reach.compare import compare
from fallback_tier.gates.judges.reach.reader import Reach, Use, reach

__all__ = ["Reach", "Use", "compare", "reach"]
