"""A repository as git has it and a fix sees it: its base commit, files, tags and committed settings.

Nothing is written, and no plugin runs.
"""

import os
from collections.abc import Callable
from pathlib import Path

from fallback_tier.configured import SettingsFile, of_base, read_base
from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.trees.isolation import (
    RepositoryFacts,
    contained_tags,
    filters_of,
    inspect_repository,
)
from fallback_tier.repo import RepoContext, Settings, new_id
from fallback_tier.sandbox.clients import SubprocessClients

#: Most changed files that an error names: enough to recognise one's own work.
MAX_DIRTY_NAMED = 5


def look_at(repository: Path, clients: ClientRunner, settings: Settings) -> RepoContext:
    """Return a repository at its clean base commit, without the plugins' manifests. What ``settings`` leave
    open comes from the base commit's configuration.

    Raises RepositoryError if it is not a git repository, is dirty or has no commit; ConfigurationError.
    """
    return _configured(_clean(inspect_repository(repository, clients), clients), clients, settings)


def look_at_working_tree(
    repository: Path, clients: ClientRunner, settings: Settings
) -> tuple[RepoContext, tuple[str, ...]]:
    """Return the same as ``look_at``, with tracked files as they are in the working tree, and the names of
    those that differ from the base commit. For read-only commands: a fix starts from a commit. Settings are
    the commit's all the same. Raises as ``look_at``, but for changes."""
    facts = inspect_repository(repository, clients)
    changed = frozenset(facts.dirty)
    on_disk = {shown: odd.real for shown, odd in facts.odd_names.items()}
    existing = tuple(
        name
        for name in facts.tracked_files
        if name not in changed or os.path.lexists(facts.root / on_disk.get(name, name))
    )
    facts = facts.model_copy(update={"tracked_files": existing})
    return _configured(facts, clients, settings), facts.dirty


def _clean(facts: RepositoryFacts, clients: ClientRunner) -> RepositoryFacts:
    """Return the facts. Raises RepositoryError if there are uncommitted changes."""
    if changed := facts.dirty[:MAX_DIRTY_NAMED]:
        next_step = "Commit or stash them: a fix starts from a commit and is put on top of it."
        if filters := filters_of(changed, facts.root, clients):
            name = min(filters)
            next_step += (
                f" If `git status` shows none: their filter {name!r} counts only from your own git "
                f"configuration, not from the repository's (`git lfs install`, or `git config --global "
                f"filter.{name}.clean …`)."
            )
        if facts.hidden:
            next_step += (
                " `git status` shows them after `git update-index --no-assume-unchanged"
                " --no-skip-worktree FILE`."
            )
        raise RepositoryError(
            f"{facts.root} has uncommitted changes: {', '.join(changed)}.",
            next_step=next_step,
            kind="dirty",
        )
    return facts


def _configured(facts: RepositoryFacts, clients: ClientRunner, settings: Settings) -> RepoContext:
    repo = as_found(facts, settings)
    if not settings.has_own_file:
        committed = of_base(repo, clients)
        repo = repo.model_copy(update={"settings": committed.completing(settings)})
    repo.check_paths()
    return repo


def is_tracked(repository: Path, path: str) -> bool:
    """Return whether git tracks this file of a clean checkout. Raises RepositoryError."""
    return path in inspect_repository(repository, SubprocessClients()).tracked_files


def committed_settings(repository: Path) -> SettingsFile | None:
    """Return the settings in the current commit of a repository, whatever its working tree has, or None if
    it has none. Raises RepositoryError, ConfigurationError."""
    clients = SubprocessClients()
    return read_base(as_found(inspect_repository(repository, clients), Settings()), clients)


def tags_of(repo: RepoContext, clients: ClientRunner) -> Callable[[], tuple[str, ...]]:
    """Return a function that asks git for the tags that the base commit contains."""
    return lambda: contained_tags(repo.root, repo.base_commit, clients)


def as_found(facts: RepositoryFacts, settings: Settings) -> RepoContext:
    """Return a repository at its base commit, whatever its working tree has on top of it."""
    return RepoContext(
        root=facts.root,
        base_commit=facts.base_commit,
        tracked_files=facts.tracked_files,
        tracked_files_cut=facts.tracked_files_cut,
        odd_names=facts.odd_names,
        laid_out_with_crlf=facts.laid_out_with_crlf,
        manifests=(),
        fix_id=new_id("fix"),
        gate_transition_id=new_id("gate"),
        settings=settings,
    )
