"""The npm plugin, as the tier sees it (``ports.EcosystemPlugin``)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_plugins.npm.manifests.manifest import ECOSYSTEM, MANIFEST, SECTIONS, is_manifest
from fallback_plugins.npm.manifests.pnpm_workspace import FILE as WORKSPACE
from fallback_plugins.npm.rules import mentions
from fallback_plugins.shared.plugin_base import Recipe, RecipeEcosystem
from fallback_tier.advisory import Advisory
from fallback_tier.affected import OwnPackage
from fallback_tier.gate_ports import Gate, GateContext, TargetRun
from fallback_tier.inventory import Inventory
from fallback_tier.outcome import Outline
from fallback_tier.repo import RepoContext

#: Keys by which a fix decides what is installed, by file: npm's, yarn's, pnpm's.
_EDITABLE = {
    MANIFEST: (*SECTIONS, "overrides", "resolutions", "pnpm.overrides"),
    WORKSPACE: ("catalog", "catalogs.*", "overrides"),
}


@dataclass(frozen=True)
class NpmEcosystem(RecipeEcosystem):
    """package.json and its locks, resolved by the clients that wrote them (npm, yarn, pnpm)."""

    _package = "fallback_plugins.npm"

    @property
    def name(self) -> str:
        """Return OSV's name of the ecosystem."""
        return ECOSYSTEM

    def manifests(self, tracked_files: Sequence[str]) -> tuple[str, ...]:
        """Return manifests and locks, also those of clients that are not supported, which are refused."""
        return tuple(path for path in tracked_files if is_manifest(path))

    def own_packages(self, repo: RepoContext, names: Collection[str]) -> tuple[OwnPackage, ...]:
        """Return the root's package, its workspaces' members, and other folders that may be published."""
        from fallback_plugins.npm.identity import own_packages

        return own_packages(repo, names)

    def source_links(self, package: str) -> tuple[str, ...]:
        """Return repository, homepage and bug tracker, as ``npm view`` prints them."""
        from fallback_plugins.npm.identity import source_links

        return source_links(package, self.clients)

    @property
    def _recipe(self) -> Recipe:
        from fallback_plugins.npm import recipe

        return recipe

    def outline(self, advisory: Advisory, repo: RepoContext) -> Outline:
        """Return the steps that would be tried first, from the files alone."""
        from fallback_plugins.npm import recipe

        return recipe.outline(advisory, repo, self.clients)

    def inventory(self, repo: RepoContext) -> Inventory:
        """Return what is installed by locks in step; without one, by the clients."""
        from fallback_plugins.npm.inventory import inventory

        return inventory(repo, self.clients)

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        """Return a manifest's dependency sections, catalogs and overrides; none of a lock."""
        name = PurePosixPath(path).name
        if name != WORKSPACE and not is_manifest(path):
            return None
        return _EDITABLE.get(name, ())

    def gates(self) -> Sequence[Gate]:
        """Return npm's gates, cheapest first."""
        from fallback_plugins.npm.gates.all_gates import build_gates

        return build_gates()

    def run(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],
        timeout_s: float | None = None,
    ) -> TargetRun:
        """Run a command in the root, with ``node_modules/.bin`` first on the path."""
        from fallback_plugins.npm.gates import testing

        return testing.run(context, tree, argv, timeout_s)

    def runs_on(
        self,
        context: GateContext,
        tree: RepoContext,
        argv: Sequence[str],  # noqa: ARG002 (nothing more is installed for a command)
    ) -> str:
        """Return the identity of what is installed, to the byte."""
        from fallback_plugins.npm.gates import testing

        return testing.runs_on(context, tree)

    def tests_ran(self, output: str) -> int | None:
        """Return the number of tests by the last lines of node's runner, jest, vitest, mocha and the like.

        Files that node counts as tests are left out: one that stops before its first test counts as well.
        So are tests that are to do or to fail: code under test can say so of the one that runs.
        """
        from fallback_plugins.npm.gates.summaries import files_as_tests, summary

        totals = summary(output)
        if totals is None:
            return None
        return max(0, totals.ran - totals.expected - files_as_tests(output))

    def mentions(self, package: str, path: str, text: str) -> bool:
        """Return whether this source file imports or requires the package."""
        return mentions(package, path, text)
