"""How a run of the ladder may end, for a plan."""

from dataclasses import dataclass

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_tier.errors import RecipeError, RepositoryError, ToolError, ToolMissingError
from fallback_tier.outcome import ClearedPath, Left, Move

#: What a run of the ladder may end with.
ResolveError = RecipeError | RepositoryError | ToolError
RESOLVE_ERRORS = (RecipeError, RepositoryError, ToolError)


@dataclass(frozen=True)
class Resolved:
    """What a run of the ladder, or an outline in its place, came to."""

    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    files: tuple[str, ...]
    proof_level: ProofLevel | None = None
    cleared: tuple[ClearedPath, ...] = ()
    notes: tuple[str, ...] = ()


def reason_of(error: ResolveError) -> RefusalReason:
    """As the tier would refuse it."""
    match error:
        case RecipeError(reason=reason):
            return reason
        case ToolMissingError():
            return RefusalReason.TOOL_MISSING
        case ToolError():
            return RefusalReason.RESOLVER_FAILED
        case _:
            return RefusalReason.RECIPE_UNSUPPORTED
