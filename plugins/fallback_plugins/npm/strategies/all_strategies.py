"""The npm ladder: its strategies, cheapest first (ADR-0016), for whichever client resolves the project.

A new step is also a ``LadderStep``, whose order is the ladder's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.strategies.overriding import Forced, Override
from fallback_plugins.npm.strategies.parents import ParentBump
from fallback_plugins.npm.strategies.refresh_or_bump import RefreshOrBump
from fallback_plugins.npm.strategies.resolving import NpmPosition, NpmStep
from fallback_plugins.shared.ladder import Strategy
from fallback_tier.errors import RecipeError


@dataclass(frozen=True)
class Strategies(NpmStep):
    """What may be tried in one resolution."""

    @property
    def all(self) -> list[Strategy[Files]]:
        """The whole ladder."""
        parents = ParentBump(self.resolver, self.targets, self.judge, self.refresh_or_bump)
        override = Override(self.resolver, self.targets, self.judge)
        return [
            *self.refresh_or_bump,
            Strategy(LadderStep.PARENT_BUMP, parents.attempt, weighed=True),
            Strategy(LadderStep.OVERRIDE, override.attempt, override.refusal, together=False),
        ]

    @property
    def refresh_or_bump(self) -> list[Strategy[Files]]:
        """In-range refresh and direct bump; a fresh lock has the highest of each range already."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        direct = Strategy(LadderStep.DIRECT_BUMP, near.direct, near.not_declared)
        if self.resolver.fresh:
            return [direct]
        return [Strategy(LadderStep.LOCK_REFRESH, near.refresh), direct]

    @property
    def lock_alone(self) -> Strategy[Files]:
        """Where the manifest is elsewhere: only what its ranges admit can be changed."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        return Strategy(LadderStep.LOCK_EDIT, near.refresh)

    def forced(self, version: str) -> Strategy[Files]:
        """An override to the version that a model chose."""
        forced = Forced(self.resolver, self.targets, self.judge, version)
        return Strategy(LadderStep.OVERRIDE, forced.attempt, together=False)

    def pruned(self, at: NpmPosition, originals: Mapping[str, str]) -> NpmPosition:
        """Without each changed manifest without which the tree is still as clear."""
        left = {node.key for node in self.judge.affected(at.tree)}
        changed = [path for path, text in originals.items() if at.files.manifests[path] != text]
        for path in changed if len(changed) > 1 else ():
            try:
                less = self.resolver.resolve(at.files.with_manifest(path, originals[path]), {})
            except RecipeError:
                continue
            if {node.key for node in self.judge.affected(less.tree)} <= left:
                at = less
        return at
