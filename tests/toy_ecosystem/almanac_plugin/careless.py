"""The same ecosystem with a recipe that takes the next day, affected or not: what gates are there for."""

from collections.abc import Iterable
from dataclasses import dataclass

import almanac_plugin
from almanac_plugin import recipe
from almanac_plugin.ecosystem import AlmanacEcosystem
from almanac_plugin.files import Release
from almanac_plugin.rules import parse

from fallback_tier.advisory import Advisory
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import RecipeResult, Selected
from fallback_tier.repo import RepoContext


def next_day(advisory: Advisory, old: Release, versions: Iterable[str]) -> str | None:
    later = (it for it in versions if parse(it) > parse(old.version))
    return min(later, key=parse, default=None)


@dataclass(frozen=True)
class Careless(AlmanacEcosystem):
    def apply(self, selection: Selected, advisory: Advisory, repo: RepoContext) -> RecipeResult:
        return recipe.apply(selection, advisory, repo, self.clients, choose=next_day)


class _Factory(almanac_plugin.Factory):
    def __call__(self, clients: ClientRunner) -> Careless:
        return Careless(clients)


build_ecosystem = _Factory()
