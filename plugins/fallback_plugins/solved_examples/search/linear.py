"""A small learned ranker: a logistic regression over what the components said of a candidate.

Its score is a calibrated probability that the candidate is relevant, the same scale for every
question, which the fused score is not: floors stand on it. Coefficients are committed beside this
module with their provenance; ``training`` makes them again.
"""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from fallback_audit.frozen import Frozen

#: The score that it gives, as ``Candidate.scores`` and floors name it.
PROBABILITY = "probability"


class Coefficients(Frozen):
    """One mode's. ``weights``: component → weight; a component that did not run counts as 0."""

    bias: float
    weights: Mapping[str, float]
    #: What they were learned from and how.
    provenance: str

    def probability(self, scores: Mapping[str, float]) -> float:
        """Of being relevant, by these component scores."""
        total = self.bias + sum(
            weight * scores.get(name, 0.0) for name, weight in self.weights.items()
        )
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


@cache
def shipped(mode: str) -> Coefficients:
    """The committed coefficients of a mode (``hybrid``, ``lexical``)."""
    text = files("fallback_plugins.solved_examples.search").joinpath("linear.json").read_bytes()
    return TypeAdapter(dict[str, Coefficients]).validate_json(text)[mode]
