"""The recipe that an ecosystem selects for an advisory. A record that names no versions of a package
(commits only), or foreign ones, is never "not affected".
"""

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.outcome import NotApplicable, RecipeSelection, Selected
from fallback_tier.planning.concern import manifest_texts
from fallback_tier.planning.whose import Tags, no_tags, settled
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext


def ask_recipe(
    plugin: EcosystemPlugin,
    advisory: Advisory,
    repo: RepoContext,
    *,
    tags: Tags = no_tags,
    believe_version: bool = True,
) -> RecipeSelection:
    """Ask the plugin for its recipe, unless the repository's own code is affected, or the recipe would say
    "not affected" though the record names no version of the package. That refusal is final: no gate could
    tell that the package is fixed. ``tags`` and ``believe_version`` as for ``settled``."""
    if repo.affected is not None:
        about_own = settled(
            advisory, plugin.name, repo.affected, tags=tags, believe_version=believe_version
        )
        if about_own is not None:
            return about_own
    selection = plugin.select(advisory, repo)
    match selection:
        case Selected() if advisory.says_nothing:
            return unnamed(plugin.name, advisory, advisory.packages(plugin.name))
        case NotApplicable(reason=RefusalReason.NOT_AFFECTED | RefusalReason.NO_FIXED_VERSION):
            found = unnamed_here(plugin.name, advisory, repo)
            return found or selection
        case _:
            return selection


def unnamed_here(ecosystem: str, advisory: Advisory, repo: RepoContext) -> NotApplicable | None:
    """The refusal where some manifest names a package of which the record names no version."""
    silent = [it for it in advisory.packages(ecosystem) if advisory.says_nothing_of(ecosystem, it)]
    if not silent:
        return None
    texts = manifest_texts(ecosystem, repo)
    named = tuple(name for name in silent if any(name in text for text in texts))
    return unnamed(ecosystem, advisory, named) if named else None


def unnamed(ecosystem: str, advisory: Advisory, names: tuple[str, ...]) -> NotApplicable:
    """The refusal: which package, and why nobody can say."""
    matchers = (advisory.matcher(ecosystem, name) for name in names)
    foreign = sorted({bound for it in matchers if it is not None for bound in it.foreign})
    said = (
        f"numbers {', '.join(names)} otherwise than {ecosystem} does ({', '.join(foreign)[:80]})"
        if foreign
        else f"names no version of {', '.join(names)} ({ecosystem}) as affected or fixed (commits, at most)"
    )
    return NotApplicable(
        reason=RefusalReason.NO_FIXED_VERSION,
        sentence=f"{advisory.id} {said}, so it does not show whether this repository is affected.",
    )
