"""A look at a repository for a campaign's list: which advisories may concern it, by its manifests' text."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fallback_tier.advisory import Advisory
from fallback_tier.ecosystem_rules import rules_of
from fallback_tier.fleet.model import LeftOut
from fallback_tier.planning.concern import narrowed
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.workers.checkouts import Checkouts
from fallback_tier.workers.repositories import RepositorySettings

#: What follows from a manifest that was not read.
_UNREAD = "An advisory whose package nothing else names is not in the list."


@dataclass(frozen=True)
class Looked:
    """A repository at a commit. ``pairs``: ecosystem and advisory, narrowed to it; ``skipped``: how many
    advisories don't concern it; ``left_out``: what of it was not read."""

    commit: str
    pairs: tuple[tuple[str, Advisory], ...]
    skipped: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class Look:
    """``manifests``: how many are read of a repository, of each ecosystem."""

    checkouts: Checkouts
    plugins: Mapping[str, EcosystemPlugin]
    manifests: int

    def at(
        self, name: str, repository: RepositorySettings, advisories: Sequence[Advisory]
    ) -> Looked:
        """Raises RepositoryError, ToolError."""
        commit = self.checkouts.commit_of(name, repository)
        tracked = self.checkouts.tracked(name, repository, commit)
        reading = _Reading(self.checkouts, name, repository, commit)
        named: dict[str, set[str]] = {}
        for ecosystem in dict.fromkeys(it for one in advisories for it in one.ecosystems):
            if (plugin := self.plugins.get(ecosystem)) is not None:
                wanted = {it for one in advisories for it in one.packages(ecosystem)}
                paths = reading.some(ecosystem, plugin.manifests(tracked), self.manifests)
                named[ecosystem] = reading.named(ecosystem, paths, wanted)
        pairs = tuple(
            (ecosystem, narrowed(one, ecosystem))
            for one in advisories
            for ecosystem in one.ecosystems
            if not named.get(ecosystem, set()).isdisjoint(one.packages(ecosystem))
        )
        concerned = {one.id for _, one in pairs}
        skipped = sum(one.id not in concerned for one in advisories)
        return Looked(commit, pairs, skipped, tuple(reading.left_out))


@dataclass(frozen=True)
class _Reading:
    checkouts: Checkouts
    name: str
    repository: RepositorySettings
    commit: str
    left_out: list[LeftOut] = field(default_factory=list)

    def some(self, ecosystem: str, paths: Collection[str], most: int) -> list[str]:
        """As many as may be read, those next to the root first; the others are told."""
        if len(paths) > most:
            self._say(
                f"{len(paths) - most:,} of its {len(paths):,} manifests of {ecosystem} were not read "
                "(limits.manifests_per_repository)."
            )
        return sorted(paths, key=lambda it: (it.count("/"), it))[:most]

    def named(self, ecosystem: str, paths: Sequence[str], wanted: Iterable[str]) -> set[str]:
        """Which of the ``wanted`` packages these files name."""
        rules, found = rules_of(ecosystem), set[str]()
        for read in self.checkouts.texts(self.name, self.repository, self.commit, paths):
            text = read.text if rules is None else rules.canonical_text(read.text)
            found |= {it for it in wanted if it in text}
            if read.cut is not None:
                self._say(f"{read.cut} is too large to be read to its end.")
        return found

    def _say(self, what: str) -> None:
        self.left_out.append(LeftOut(what=f"repository {self.name}", why=f"{what} {_UNREAD}"))
