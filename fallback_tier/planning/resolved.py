"""How a run of the ladder may end, for a plan."""

from dataclasses import dataclass

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_tier.errors import RecipeError, RepositoryError, ToolError, ToolMissingError
from fallback_tier.outcome import (
    ChangedDeclaration,
    ClearedPath,
    Left,
    Move,
    NotApplicable,
    UnreadItem,
    declined_by,
)

#: What a run of the ladder may end with.
ResolveError = RecipeError | RepositoryError | ToolError
RESOLVE_ERRORS = (RecipeError, RepositoryError, ToolError)


@dataclass(frozen=True)
class Resolved:
    """Result of a run of the ladder, or of an outline in its place. ``unread``: what may hold the packages
    and was not read."""

    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    files: tuple[str, ...]
    proof_level: ProofLevel | None = None
    cleared: tuple[ClearedPath, ...] = ()
    declarations: tuple[ChangedDeclaration, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()


def refusal_of(error: ResolveError) -> NotApplicable:
    """As the tier would refuse it, without the next step."""
    match error:
        case RecipeError(reason=reason, problem=problem, unread=unread):
            declined = declined_by(error)
            return NotApplicable(reason=reason, sentence=problem, unread=unread, declined=declined)
        case ToolMissingError():
            reason = RefusalReason.TOOL_MISSING
        case ToolError():
            reason = RefusalReason.RESOLVER_FAILED
        case _:
            reason = RefusalReason.RECIPE_UNSUPPORTED
    return NotApplicable(reason=reason, sentence=error.problem)
