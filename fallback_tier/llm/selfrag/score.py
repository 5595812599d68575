"""From reflections to a number (Asai et al. 2023, section 3.3 and appendix A.3).

::

    score = sum(weight * part) / sum(weight)      over the parts that there are

    part         weight  value
    ISREL        1       1 relevant, 0 not; absent where no example was shown
    ISSUP        1       1 full, 0.5 partial, 0 none
    ISUSE        0.5     -1, -0.5, 0, 0.5, 1 for 1 to 5
    likelihood   1       exp(mean log-probability of a token); absent where the server gives none

Weights and values are the paper's; dividing by the sum of the weights lets a segment with an absent
part be compared with one that has it. Of two segments with the same parts,
the one that is worse in none of them does not score less.
"""

import math
from typing import Final

from fallback_audit.vocabulary import Support
from fallback_tier.answers.critique import Critique

WEIGHT_RELEVANCE: Final = 1.0
WEIGHT_SUPPORT: Final = 1.0
WEIGHT_USEFULNESS: Final = 0.5
WEIGHT_LIKELIHOOD: Final = 1.0

_SUPPORT: Final = {Support.FULL: 1.0, Support.PARTIAL: 0.5, Support.NONE: 0.0}

#: Decimal places: below this it is noise of floating point, and records must not differ by machine.
_PLACES: Final = 6


def likelihood(mean_logprob: float | None) -> float | None:
    """The normalised likelihood of an answer, above 0 to 1; None where the server gave none."""
    if mean_logprob is None or math.isnan(mean_logprob):
        return None
    return round(math.exp(min(mean_logprob, 0.0)), _PLACES)


def segment_score(critique: Critique, lm_score: float | None) -> float:
    """The weighted mean of the parts that there are: -1/3 (the worst, of two parts) to 1."""
    parts = [
        (WEIGHT_SUPPORT, _SUPPORT[critique.support]),
        (WEIGHT_USEFULNESS, (critique.usefulness - 3) / 2),
    ]
    if critique.relevant is not None:
        parts.append((WEIGHT_RELEVANCE, float(critique.relevant)))
    if lm_score is not None:
        parts.append((WEIGHT_LIKELIHOOD, lm_score))
    total = sum(weight * value for weight, value in parts)
    return round(total / sum(weight for weight, _ in parts), _PLACES)


def unread(*, shown: bool) -> Critique:
    """What a segment counts as whose critique can't be read: the worst, whether an example was shown
    or not."""
    return Critique(
        relevant=False if shown else None, support=Support.NONE, usefulness=1, is_final=False
    )
