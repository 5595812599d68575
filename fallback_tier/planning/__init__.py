"""Several advisories planned together: what one gate transition per ecosystem would fix, and what is left.

A single advisory is not fixed in part. Among several, or if a person limits the fix to some folders, what
can be fixed of an advisory is fixed, and the rest of it is left by name (ADR-0051, ADR-0143). So a fix does
what a plan calls fixable.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, AdvisorySet, one_per_flaw
from fallback_tier.errors import StoppedError
from fallback_tier.limits import MAX_UNREAD_LISTED
from fallback_tier.outcome import NotApplicable, UnreadItem
from fallback_tier.planning.concern import by_ecosystem
from fallback_tier.planning.document import EcosystemPlan as EcosystemPlan
from fallback_tier.planning.document import PlannedMove as PlannedMove
from fallback_tier.planning.document import Remaining as Remaining
from fallback_tier.planning.document import RemediationPlan as RemediationPlan
from fallback_tier.planning.ecosystem import EcosystemPlanner, open_items
from fallback_tier.planning.whose import Tags, no_tags, settled
from fallback_tier.planning.whose import whose_code as whose_code
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class DivisiblePlan:
    """A plan that can be divided: what gates refuse in one patch is proved in smaller parts."""

    plan: RemediationPlan
    _planners: Mapping[str, EcosystemPlanner]

    def only(
        self, ecosystem: str, advisory_ids: Collection[str]
    ) -> tuple[EcosystemPlan | None, tuple[Remaining, ...]]:
        """Return the fix of these of an ecosystem's planned advisories without the others, and what is
        left. If the fix is None, what is left says why they can't be fixed without the others."""
        return self._planners[ecosystem].only(advisory_ids)


def divisible_plan(
    advisory_set: AdvisorySet,
    repo: RepoContext,
    plugins: Mapping[str, EcosystemPlugin],
    *,
    resolve: bool = True,
    tags: Tags = no_tags,
    observe: Callable[[str], None] = lambda _step: None,
) -> DivisiblePlan:
    """Plan all advisories of a set for one repository; write nothing. ``resolve`` False: use the plugins'
    outlines and run no client. ``tags``: those in the base commit. ``observe``: called with each step. What
    can't be fixed raises no error: it is in ``left``. If clients are stopped (``StoppableClients``), the
    plan has what was resolved until then, and the rest is left with the kind ``NOT_RESOLVED``."""
    # 1. Sort by ecosystem; advisories that no plugin serves are left, by name.
    served: dict[str, list[Advisory]] = {}
    left = []
    advisories = one_per_flaw(advisory_set.advisories)
    # A fix that is limited to some folders may be partial.
    whole = len(advisories) == 1 and not repo.settings.paths
    for advisory in advisories:
        parts = by_ecosystem(advisory, repo, plugins)
        for name, part in parts.items():
            served.setdefault(name, []).append(part)
        if not parts:
            left.append(_unsupported(advisory, plugins))
    # 2. Triage: which of them concern this repository.
    planners = {}
    for name, members in sorted(served.items()):
        plugin = plugins[name]
        plugin_repo = repo.model_copy(update={"manifests": plugin.manifests(repo.tracked_files)})
        observe(f"{name}: whose code is affected")
        try:
            planner = EcosystemPlanner(
                plugin,
                plugin_repo,
                tuple(members),
                _settled(plugin, plugin_repo, members, tags, resolve=resolve),
                resolve=resolve,
                whole=whole,
                observe=observe,
            )
            planner.triage()
        except StoppedError as error:
            for advisory in members:
                left += open_items(name, advisory, error.problem, error.next_step)
        else:
            planners[name] = planner
    # 3. Run the ladder for all advisories of an ecosystem together.
    fixes = _resolved([*planners.values()], whole=whole)
    # 4. Other advisories don't concern this repository, or only a resolution can tell.
    left += [item for planner in planners.values() for item in planner.left]
    planned_ids = {name for fix in fixes for name in fix.advisory_ids}
    planned_ids |= {name for item in left for name in item.advisory_ids}
    silent = [advisory.id for advisory in advisories if advisory.id not in planned_ids]
    unknown = {name for planner in planners.values() for name in planner.undecided if not resolve}
    undecided = tuple(name for name in silent if name in unknown)
    not_affected = tuple(name for name in silent if name not in unknown)
    by_files = not_affected and (repo.settings.offline or not resolve)
    notes = [note for planner in planners.values() for note in planner.notes if by_files]
    unread = [item for remaining in left for item in remaining.unread]
    unread += [item for fix in fixes for item in fix.unread]
    unread += [item for planner in planners.values() for item in planner.unread]
    unread += [_unresolved(repo)] if undecided else []
    plan = RemediationPlan(
        repository=repo.root.name,
        base_commit=repo.base_commit,
        resolved=resolve,
        offline=repo.settings.offline,
        fixes=fixes,
        left=tuple(left),
        not_affected=not_affected,
        undecided=undecided,
        skipped=advisory_set.skipped,
        findings=advisory_set.findings,
        unread=tuple(dict.fromkeys(unread))[:MAX_UNREAD_LISTED],
        notes=tuple(dict.fromkeys(notes)),
    )
    return DivisiblePlan(plan, planners)


def _resolved(planners: Sequence[EcosystemPlanner], *, whole: bool) -> tuple[EcosystemPlan, ...]:
    """Return each ecosystem's fix. ``whole``: if one ecosystem leaves anything of the one advisory, nothing
    is fixed. What is unknown in one ecosystem does not prevent a fix in another."""
    fixes = tuple(fix for planner in planners if (fix := planner.resolve()) is not None)
    left_items = (item for planner in planners for item in planner.left if not item.is_unknown)
    return () if whole and any(left_items) else fixes


def _settled(
    plugin: EcosystemPlugin,
    repo: RepoContext,
    advisories: Sequence[Advisory],
    tags: Tags,
    *,
    resolve: bool,
) -> dict[str, NotApplicable]:
    """Return why no recipe is asked about an advisory, by id: about those that concern no dependency."""
    refusals = {
        advisory.id: settled(
            advisory,
            plugin.name,
            whose_code(plugin, advisory, repo, ask_registry=resolve),
            tags=tags,
        )
        for advisory in advisories
    }
    return {name: why for name, why in refusals.items() if why is not None}


def _unresolved(repo: RepoContext) -> UnreadItem:
    offline = repo.settings.offline
    return UnreadItem(
        path=".",
        reason="Not everything is locked, so only resolving tells what is installed.",
        next_step=f"Run it without {'--offline' if offline else '--no-resolve'}, or commit a lock.",
    )


def _unsupported(advisory: Advisory, plugins: Mapping[str, EcosystemPlugin]) -> Remaining:
    about = ", ".join(advisory.ecosystems)
    return Remaining(
        ecosystem=about,
        package="",
        advisory_ids=(advisory.id,),
        reason=RefusalReason.ECOSYSTEM_UNSUPPORTED,
        sentence=f"{advisory.id} is about {about}, and no plugin supports it.",
        next_step=f"Install a plugin for {about}; supported are {', '.join(sorted(plugins)) or 'none'}.",
    )
