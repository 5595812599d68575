"""The policy gate's rules for whole changes, which plans must keep too."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.judging import Judging
from fallback_tier.patch.manifests import manifest_problems
from fallback_tier.patch.plain_text import misread_reason
from fallback_tier.patch.policy import changes_versions_only, check_policy, forbidden_reason
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext


def path_problems(
    paths: Collection[str], pins: Iterable[str], plugin: EcosystemPlugin, repo: RepoContext
) -> list[str]:
    """Return the problems of changing these files. ``pins``: those of which only versions change."""
    manifests = frozenset(path for path in paths if plugin.editable_keys(path) is not None)
    problems = list(check_policy(paths, allowed=manifests, pins=frozenset(pins)))
    judging = Judging.of(repo)
    return problems + [
        f"{path!r} may not be changed: {reason}."
        for path in paths
        if forbidden_reason(path) is None and (reason := judging.reason(path))
    ]


def text_problems(
    path: str, before: str | None, after: str, plugin: EcosystemPlugin, repo: RepoContext
) -> Iterator[str]:
    """Yield the problems of a file's new text. ``before`` None: there is no readable one."""
    keys = plugin.editable_keys(path)
    if keys is not None and before is not None:
        rules, exempt = rules_of(plugin.name), repo.settings.age_exceptions
        dates = (
            key
            for exception in exempt
            if rules
            for key in rules.age_exception_keys(exception.package)
        )
        yield from manifest_problems(path, keys, before, after, rules, dates)
    if (reason := misread_reason(path, before, after)) is not None:
        yield f"{path!r} does not read as it runs: {reason}."


def check_recipe(changes: Iterable[FileChange], plugin: EcosystemPlugin, repo: RepoContext) -> None:
    """Raise RecipeError if the policy gate would refuse a recipe's change."""
    texts = {change.path: (change.before, change.after) for change in changes}
    pins = (
        path
        for path, (before, after) in texts.items()
        if before is not None and after is not None and changes_versions_only(before, after)
    )
    problems = path_problems(texts, pins, plugin, repo)
    for path, (before, after) in texts.items():
        problems += text_problems(path, before, after, plugin, repo) if after is not None else ()
    _check(problems)


def check_planned(paths: Collection[str], plugin: EcosystemPlugin, repo: RepoContext) -> None:
    """Do the same as ``check_recipe`` for files whose new texts are unknown. Raises RecipeError."""
    _check(path_problems(paths, paths, plugin, repo))


def _check(problems: Sequence[str]) -> None:
    if problems:
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED,
            f"A fix has to change a file that no fix may change. {problems[0]}",
            next_step="Raise the affected version there in a commit of its own, and have that reviewed.",
        )
