"""A recipe's next candidate: the same ladder without the steps that led to a patch which gates refused."""

from collections.abc import Callable, Sequence
from functools import cache

from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.outcome import Move, RecipeResult, Selected


def next_candidate(
    refused: Selected, moves: Sequence[Move], apply: Callable[[Selected], RecipeResult]
) -> Selected | None:
    """As ``ports.OffersCandidates`` says. ``apply``: the plugin's own.

    What comes to the same by another step is no other candidate: that is left out too.
    """
    other, led_to = refused, tuple(moves)
    changes_refused = cache(
        lambda: apply(refused).changes
    )  # a resolution: only where it is asked for
    while True:
        left_out = tuple(dict.fromkeys((*other.left_out, *(move.step for move in led_to))))
        if left_out == other.left_out:
            return None
        other = other.model_copy(update={"left_out": left_out})
        try:
            result = apply(other)
            led_to = result.moves
            # The same files may come about by moves with other names, where several packages move.
            if _same(led_to, moves) or result.changes == changes_refused():
                continue
        except (RecipeError, RepositoryError, ToolError):
            return None
        return None if result.left else other


def _same(moves: Sequence[Move], others: Sequence[Move]) -> bool:
    def changes(some: Sequence[Move]) -> set[tuple[object, ...]]:
        return {(one.package, one.manifest, one.before, one.after, one.raised) for one in some}

    return changes(moves) == changes(others)
