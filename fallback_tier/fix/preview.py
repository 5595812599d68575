"""The preview of a fix: the ladder is run with real clients, in scratch folders. No gate runs, and nothing
is written to the repository or the audit trail."""

from collections.abc import Callable, Mapping
from pathlib import Path

from fallback_tier.advisory import AdvisorySet
from fallback_tier.execution import ClientRunner
from fallback_tier.files.entries import say_nothing
from fallback_tier.inspection import look_at_working_tree, tags_of
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.planning import RemediationPlan, divisible_plan
from fallback_tier.planning.concern import by_ecosystem
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext, Settings
from fallback_tier.wiring.places import check_caches


def plan_fixes(
    given: AdvisorySet,
    repository: Path,
    settings: Settings | None = None,
    *,
    resolve: bool = True,
    observe: Callable[[str], None] = say_nothing,
) -> RemediationPlan:
    """Plan each move, and what can't be fixed, in a checkout as it is (changed files are in
    ``uncommitted``). ``resolve`` False: from the files alone; ``observe``: called with each step. Raises
    RepositoryError, StateFolderError if a cache isn't writable, ToolError."""
    chosen = settings or Settings()
    clients, plugins = clients_and_plugins(chosen.allow_hosts)
    repo, uncommitted = look_at_working_tree(repository, clients, chosen)
    if resolve and not repo.settings.offline:  # offline, a client may not be needed at all
        check_clients(given, repo, clients, plugins)
    tags = tags_of(repo, clients)
    planned = divisible_plan(given, repo, plugins, resolve=resolve, tags=tags, observe=observe)
    return planned.plan.model_copy(update={"uncommitted": uncommitted})


def check_clients(
    given: AdvisorySet,
    repo: RepoContext,
    clients: ClientRunner,
    plugins: Mapping[str, EcosystemPlugin],
) -> None:
    """Raise StateFolderError if a client that is about to run can't write its cache."""
    ecosystems = {
        ecosystem
        for advisory in given.advisories
        for ecosystem in by_ecosystem(advisory, repo, plugins)
    }
    used_ecosystems = [name for name in ecosystems if plugins[name].manifests(repo.tracked_files)]
    check_caches(clients, used_ecosystems, offline=repo.settings.offline)
