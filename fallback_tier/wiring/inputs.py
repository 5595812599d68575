"""What one attempt is asked."""

from dataclasses import dataclass

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import NotApplicable, RecipeSelection
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``FallbackTier.run``, made from an advisory and a repository."""

    advisory: Advisory
    repo_ctx: RepoContext
    recipe_selection: RecipeSelection


#: Of a fix that only judges again.
NO_RECIPE_ASKED = NotApplicable(
    reason=RefusalReason.RECIPE_UNSUPPORTED,
    sentence="No recipe is asked: a patch on record is judged again.",
)
