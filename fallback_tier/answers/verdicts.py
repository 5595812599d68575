"""A judge's grades in a model's words."""

from fallback_tier.answers.reading import read_one
from fallback_tier.grounding.support import Verdicts, verdicts_adapter
from fallback_tier.ports import ModelAnswer

#: What every judge's answer has, and little else in one.
_KEY = "claims"


def read_graded(answer: ModelAnswer) -> tuple[Verdicts | None, tuple[str, ...]]:
    """The grades in an answer, or what is wrong with it: exactly one of the two. Never raises.

    Whether each claim is graded once is ``grounding.support.read_verdicts``'s to say.
    """
    return read_one(answer, _KEY, verdicts_adapter)
