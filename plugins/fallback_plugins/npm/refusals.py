"""The refusals of npm's readers and clients, typed."""

from collections.abc import Iterable

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.shared.bumping import unreadable as unreadable
from fallback_plugins.shared.bumping import unsupported as unsupported
from fallback_tier.errors import RecipeError


def unresolved(problem: str, next_step: str) -> RecipeError:
    """For what a client, or the registry, did not resolve."""
    return RecipeError(RefusalReason.RESOLVER_FAILED, problem, next_step=next_step)


def no_project_affected(packages: Iterable[str], kept: Iterable[str] = ()) -> RecipeError:
    """For a repository whose install commands were all resolved or read. ``kept``: sentences on those that
    were resolved earlier."""
    return RecipeError(
        RefusalReason.NOT_AFFECTED,
        " ".join(
            (
                f"No npm project here requires or installs an affected version of {', '.join(packages)}.",
                *kept,
            )
        ),
        next_step="Nothing needs to be done.",
        kind="not_affected",
    )
