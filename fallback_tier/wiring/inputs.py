"""What one attempt is asked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallback_tier.advisory import Advisory
from fallback_tier.outcome import RecipeSelection
from fallback_tier.repo import RepoContext

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``FallbackTier.run``, made from an advisory and a repository."""

    advisory: Advisory
    repo_ctx: RepoContext
    recipe_selection: RecipeSelection
