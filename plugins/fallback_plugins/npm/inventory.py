"""Packages that npm, yarn and pnpm projects install, for ``scan``: by a lock in step, or by its client."""

import posixpath
from collections.abc import Collection, Iterator

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.entries import unlisted_names
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    INSTALLED_SECTIONS,
    MANIFEST,
    MEMBER_SECTIONS,
    entries,
    in_folder,
    parse_manifest,
)
from fallback_plugins.npm.project import NpmProject
from fallback_plugins.npm.surveying.projects import discover, scope_of
from fallback_plugins.shared.inventory import FoundProject, installed, inventory_of, not_read
from fallback_plugins.shared.resolution import unlisted
from fallback_plugins.shared.tree import Node
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.inventory import InstalledPackage, Inventory
from fallback_tier.outcome import UnreadItem
from fallback_tier.repo import RepoContext


def inventory(repo: RepoContext, clients: ClientRunner) -> Inventory:
    """Return the packages of all projects. A project that can't be read or resolved is in ``unread``."""
    return inventory_of(_found(repo, clients))


def _found(
    repo: RepoContext, clients: ClientRunner
) -> Iterator[InstalledPackage | UnreadItem | FoundProject]:
    try:
        sites = [each for site in discover(repo) for each in site.each]
    except (RecipeError, RepositoryError) as error:
        yield not_read(".", error)
        return
    for site in sites:
        is_outside = not repo.selects(scope_of(site))
        yield FoundProject(site.path, is_outside)
        if not is_outside:
            yield from _installed(NpmProject(site, repo, clients))


def _installed(project: NpmProject) -> Iterator[InstalledPackage | UnreadItem]:
    site = project.site
    try:
        if site.lock is None and not _requires_any(project.files):
            return
        files = project.command.locked
        tree = project.command.client.tree(files)
        missing = unlisted_names(site.path, files.lock_text, tree)
        development = _development(files)
    except (RecipeError, RepositoryError, ToolError) as error:
        yield not_read(site.path, error)
        return

    def development_of(root: Node) -> Collection[str]:
        # A root's key in npm's lock is its folder, relative to the lock's; in other trees its manifest.
        manifest = in_folder(posixpath.normpath(posixpath.join(site.folder, root.key)), MANIFEST)
        return development.get(root.key) or development.get(posixpath.normpath(manifest), ())

    yield from installed(tree, ECOSYSTEM, site.path, development_of)
    for part in unlisted(site.path, missing):
        yield UnreadItem(path=site.path, reason=part.reason, next_step=part.next_step)


def _requires_any(files: Files) -> bool:
    """Return whether a manifest requires anything, or has workspaces. Others may get no lock."""
    manifests = (parse_manifest(path, text) for path, text in files.manifests.items())
    return any(
        manifest.get(key) for manifest in manifests for key in (*MEMBER_SECTIONS, "workspaces")
    )


def _development(files: Files) -> dict[str, Collection[str]]:
    """Return for each manifest the names that it declares only for development."""
    names_by_manifest: dict[str, Collection[str]] = {}
    for path, text in files.manifests.items():
        manifest = parse_manifest(path, text)
        installed_too = {
            key for section in INSTALLED_SECTIONS for key, _ in entries(manifest.get(section))
        }
        names = {key for key, _ in entries(manifest.get("devDependencies"))}
        names_by_manifest[path] = frozenset(names - installed_too)
    return names_by_manifest
