"""A recipe's next candidate: the same ladder without the rungs that led to a patch which gates refused."""

from collections.abc import Callable, Sequence

from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.outcome import Move, RecipeResult, Selected


def next_candidate(
    refused: Selected, moves: Sequence[Move], apply: Callable[[Selected], RecipeResult]
) -> Selected | None:
    """As ``ports.OffersCandidates`` says. ``apply``: the plugin's own."""
    left_out = tuple(dict.fromkeys((*refused.left_out, *(move.step for move in moves))))
    other = refused.model_copy(update={"left_out": left_out})
    try:
        result = apply(other)
    except (RecipeError, RepositoryError, ToolError):
        return None
    return None if result.left else other
