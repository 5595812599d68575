"""The choice of a recipe: which of an advisory's ecosystems concern a repository, and what a plugin does
about each."""

from collections.abc import Callable, Mapping

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, AdvisoryBundle
from fallback_tier.affected import Affected
from fallback_tier.outcome import NotApplicable, RecipeSelection, Selected
from fallback_tier.planning.concern import by_ecosystem, manifest_texts
from fallback_tier.planning.whose import Tags, no_tags, settled, whose_code
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: Used instead of a selection if a patch on record is judged again.
NO_RECIPE_ASKED = NotApplicable(
    reason=RefusalReason.RECIPE_UNSUPPORTED,
    sentence="No recipe is asked: a patch on record is judged again.",
)


def concerning_parts(
    advisory: Advisory,
    repo: RepoContext,
    plugins: Mapping[str, EcosystemPlugin],
    select: Callable[[Advisory], RecipeSelection],
) -> tuple[Advisory, ...]:
    """Return the advisory's parts, one per ecosystem, that concern the repository; the first part if none
    does. ``select`` returns the recipe of a part, or why there is none."""
    parts = tuple(by_ecosystem(advisory, repo, plugins).values())
    if len(parts) == 1:
        return parts
    return tuple(part for part in parts if not _is_unaffected(select(part))) or parts[:1]


def _is_unaffected(selection: RecipeSelection) -> bool:
    return isinstance(selection, NotApplicable) and selection.reason is RefusalReason.NOT_AFFECTED


def for_plugin(
    plugin: EcosystemPlugin, advisory: Advisory, repo: RepoContext, affected: Affected | None = None
) -> RepoContext:
    """Return the repository with the plugin's manifests, and whose code is affected. ``affected``: the
    earlier decision, for a fix that is resumed."""
    # Only a plan leaves packages outside the chosen folders, and only a plan has a bundle.
    if repo.settings.paths and not isinstance(advisory, AdvisoryBundle):
        whole = repo.settings.model_copy(update={"paths": ()})
        repo = repo.model_copy(update={"settings": whole})
    plugin_repo = repo.model_copy(update={"manifests": plugin.manifests(repo.tracked_files)})
    return plugin_repo.model_copy(
        update={"affected": affected or whose_code(plugin, advisory, plugin_repo)}
    )


def ask_recipe(
    plugin: EcosystemPlugin,
    advisory: Advisory,
    repo: RepoContext,
    *,
    tags: Tags = no_tags,
    believe_version: bool = True,
) -> RecipeSelection:
    """Ask the plugin for its recipe, unless the repository's own code is affected, or the recipe would say
    "not affected" though the advisory names no version of the package. That refusal is final: no gate could
    show that the package is fixed. ``tags`` and ``believe_version`` as for ``settled``."""
    if repo.affected is not None:
        refusal = settled(
            advisory, plugin.name, repo.affected, tags=tags, believe_version=believe_version
        )
        if refusal is not None:
            return refusal
    selection = plugin.select(advisory, repo)
    match selection:
        case Selected() if advisory.says_nothing:
            return unnamed(plugin.name, advisory, advisory.packages(plugin.name))
        case NotApplicable(reason=RefusalReason.NOT_AFFECTED | RefusalReason.NO_FIXED_VERSION):
            return unnamed_here(plugin.name, advisory, repo) or selection
        case _:
            return selection


def unnamed_here(ecosystem: str, advisory: Advisory, repo: RepoContext) -> NotApplicable | None:
    """Return the refusal if a manifest names a package of which the advisory names no version, or None."""
    silent = [
        name for name in advisory.packages(ecosystem) if advisory.says_nothing_of(ecosystem, name)
    ]
    if not silent:
        return None
    texts = manifest_texts(ecosystem, repo)
    names = tuple(name for name in silent if any(name in text for text in texts))
    return unnamed(ecosystem, advisory, names) if names else None


def unnamed(ecosystem: str, advisory: Advisory, names: tuple[str, ...]) -> NotApplicable:
    """Return the refusal for packages of which the advisory names no version: it is unknown whether they
    are affected."""
    matchers = (advisory.matcher(ecosystem, name) for name in names)
    foreign = sorted(
        {bound for matcher in matchers if matcher is not None for bound in matcher.foreign}
    )
    clause = (
        f"numbers {', '.join(names)} otherwise than {ecosystem} does ({', '.join(foreign)[:80]})"
        if foreign
        else f"names no version of {', '.join(names)} ({ecosystem}) as affected or fixed (commits, at most)"
    )
    return NotApplicable(
        reason=RefusalReason.NO_FIXED_VERSION,
        sentence=f"{advisory.id} {clause}, so it does not show whether this repository is affected.",
    )
