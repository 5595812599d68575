"""Several advisories planned together: what one gate transition an ecosystem would fix, and what is left.

Half a fix is none, for each advisory by itself: one that can be mended only in part is left, and the others
are planned again without it. So what a plan calls fixable is what a fix does.
"""

from collections.abc import Callable, Mapping, Sequence

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, one_per_flaw
from fallback_tier.outcome import NotApplicable
from fallback_tier.planning.concern import narrowed
from fallback_tier.planning.document import (
    EcosystemPlan,
    PlannedMove,
    Remaining,
    RemediationPlan,
)
from fallback_tier.planning.ecosystem import EcosystemPlanner
from fallback_tier.planning.untold import selected
from fallback_tier.planning.whose import Tags, no_tags, settled, whose_code
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

__all__ = [
    "EcosystemPlan",
    "PlannedMove",
    "Remaining",
    "RemediationPlan",
    "parts",
    "plan",
    "selected",
    "whose_code",
]


def plan(
    given: AdvisorySet,
    repo: RepoContext,
    plugins: Mapping[str, EcosystemPlugin],
    *,
    resolve: bool = True,
    tags: Tags = no_tags,
    observe: Callable[[str], None] = lambda _step: None,
) -> RemediationPlan:
    """Plan all advisories of a set for one repository; nothing is written.

    ``resolve`` False: no client runs, the plugins' outlines stand for what would be done. ``tags``: those
    that the base commit contains. ``observe`` is told each step in words. Never raises for an advisory or a
    project that can't be fixed: each is in ``left`` with its reason.
    """
    # 1. Sort by ecosystem; what no plugin serves is left, by name.
    served: dict[str, list[Advisory]] = {}
    left = []
    advisories = one_per_flaw(given.advisories)
    for advisory in advisories:
        found = parts(advisory, repo, plugins)
        for name, part in found.items():
            served.setdefault(name, []).append(part)
        if not found:
            left.append(_unsupported(advisory, plugins))
    # 2. Triage, from the files alone: which of them concern this repository.
    planners = []
    for name, members in sorted(served.items()):
        plugin = plugins[name]
        own = repo.model_copy(update={"manifests": plugin.manifests(repo.tracked_files)})
        observe(f"{name}: whose code is affected")
        planner = EcosystemPlanner(
            plugin,
            own,
            tuple(members),
            _settled(plugin, own, members, tags, resolve=resolve),
            resolve=resolve,
            observe=observe,
        )
        planner.triage()
        planners.append(planner)
    # 3. Climb the ladder for all of an ecosystem's together, until the ecosystems agree.
    fixes = _agreed(planners)
    # 4. What is in neither doesn't concern this repository, or only resolving tells.
    left += [item for planner in planners for item in planner.left]
    named = {name for fix in fixes for name in fix.advisory_ids}
    named |= {name for item in left for name in item.advisory_ids}
    silent = [advisory.id for advisory in advisories if advisory.id not in named]
    unknown = {name for planner in planners for name in planner.undecided if not resolve}
    return RemediationPlan(
        repository=repo.root.name,
        base_commit=repo.base_commit,
        resolved=resolve,
        offline=repo.settings.offline,
        fixes=fixes,
        left=tuple(left),
        not_affected=tuple(name for name in silent if name not in unknown),
        undecided=tuple(name for name in silent if name in unknown),
        skipped=given.skipped,
        findings=given.findings,
    )


def parts(
    advisory: Advisory, repo: RepoContext, plugins: Mapping[str, EcosystemPlugin]
) -> dict[str, Advisory]:
    """The advisory by ecosystem, each part narrowed to it: those that a plugin serves, and of several
    those that the repository has manifests of (if any)."""
    served = [name for name in advisory.ecosystems if name in plugins]
    if len(served) > 1:
        served = [it for it in served if plugins[it].manifests(repo.tracked_files)] or served
    return {name: narrowed(advisory, name) for name in served}


def _agreed(planners: Sequence[EcosystemPlanner]) -> tuple[EcosystemPlan, ...]:
    """An advisory that one ecosystem leaves, the others leave too. Each round has fewer: it ends."""
    while True:
        fixes = tuple(fix for planner in planners if (fix := planner.climb()) is not None)
        left = {name for planner in planners for name in planner.left_ids}
        changed = [planner.drop(left) for planner in planners]
        if not any(changed):
            return fixes


def _settled(
    plugin: EcosystemPlugin,
    repo: RepoContext,
    advisories: Sequence[Advisory],
    tags: Tags,
    *,
    resolve: bool,
) -> dict[str, NotApplicable]:
    """The advisories that no recipe is to be asked about, by id: not those about dependencies."""
    found = {
        advisory.id: settled(
            advisory,
            plugin.name,
            whose_code(plugin, advisory, repo, ask_registry=resolve),
            tags=tags,
        )
        for advisory in advisories
    }
    return {name: why for name, why in found.items() if why is not None}


def _unsupported(advisory: Advisory, plugins: Mapping[str, EcosystemPlugin]) -> Remaining:
    about = ", ".join(advisory.ecosystems)
    return Remaining(
        ecosystem=about,
        package="",
        advisory_ids=(advisory.id,),
        reason=RefusalReason.ECOSYSTEM_UNSUPPORTED,
        sentence=f"{advisory.id} is about {about}, and no plugin serves it.",
        next_step=f"Fix it by hand; served are {', '.join(sorted(plugins)) or 'none'}.",
    )
