"""What every recipe says in the same words: a chosen version that can't be, and what it doesn't do.

Ecosystem plugins don't see each other; what they share over ports and models stands here.
"""

from collections.abc import Sequence

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, compare_versions, is_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError


def check_target(
    ecosystem: str, advisory: Advisory, package: str, version: str, current: str
) -> None:
    """A version that somebody else chose (a model): real, not affected, no downgrade. Or RecipeError."""
    if not is_orderable(ecosystem, version):
        raise unsupported(f"{version!r} is not a version of {package}.")
    if is_affected(advisory, ecosystem, package, version):
        raise unsupported(f"{package} {version} is itself affected by {advisory.id}.")
    if compare_versions(ecosystem, version, current) <= 0:
        raise unsupported(f"{package} {version} would be a downgrade from {current}.")


def unsupported(problem: str) -> RecipeError:
    """The typed refusal for what the recipe doesn't do."""
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        problem,
        next_step="Change it by hand, or let a model propose the change.",
    )


def own_code(names: Sequence[str]) -> RecipeError:
    """The repository is the affected package: there is nothing to bump, its source is to be edited."""
    return RecipeError(
        RefusalReason.OWN_CODE,
        f"This repository is {', '.join(names)} itself: its own source is affected.",
        next_step="A model can propose an edit; no dependency is to be raised.",
    )
