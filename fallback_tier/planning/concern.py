"""Index of advisories: which of them each move, and each item left, is about."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, bundle, canonical_name
from fallback_tier.ecosystem_rules import base_ecosystem, rules_of
from fallback_tier.errors import RepositoryError
from fallback_tier.outcome import Left, Move, NotApplicable, RecipeSelection
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext

#: The package of an item left whose package is unknown.
UNKNOWN = ""


class Concern:
    """An index of advisories by the packages that they name, in one ecosystem."""

    def __init__(self, ecosystem: str, advisories: Sequence[Advisory], repo: RepoContext) -> None:
        self._ecosystem, self._advisories, self._repo = ecosystem, advisories, repo
        self._naming: dict[str, list[Advisory]] = {}
        for advisory in advisories:
            for package in advisory.packages(ecosystem):
                self._naming.setdefault(package, []).append(advisory)

    def ids(self, item: Move | Left) -> tuple[str, ...]:
        """Return the ids of the advisories that a move clears, or that an item left keeps open."""
        if isinstance(item, Left) and item.advisory_ids:
            return item.advisory_ids
        if not item.package:
            return self._named_in(item.manifest)
        naming = self._naming.get(self.canonical(item.package), ())
        versions = item.before if isinstance(item, Move) else ()
        covering_ids = (
            advisory.id
            for advisory in naming
            if not versions or self._covers(advisory, item.package, versions)
        )
        return tuple(dict.fromkeys(covering_ids))

    def is_cleared(self, advisory: Advisory, move: Move) -> bool:
        """Return whether a move leads from versions that an advisory covers to one that it does not."""
        after = () if move.after is None else (move.after,)
        return advisory.id in self.ids(move) and not self._covers(advisory, move.package, after)

    def canonical(self, package: str) -> str:
        """Return the name that identifies a package; UNKNOWN for an unknown one."""
        return canonical_name(self._ecosystem, package) if package else UNKNOWN

    def of_silent(
        self, advisories: Sequence[Advisory], plugin: EcosystemPlugin
    ) -> Iterator[tuple[Advisory, RecipeSelection]]:
        """Yield those that may concern the repository although its files show no affected version: by
        commits alone, or (Selected) by what isn't locked. Selects for all at once, then by halves: the
        first selection is nearly always the last."""
        if not advisories:
            return
        selection = plugin.select(bundle(advisories), self._repo)
        if isinstance(selection, NotApplicable):
            if selection.reason is RefusalReason.NOT_AFFECTED:
                return
            alike = selection.reason is RefusalReason.MANIFEST_MISSING
            unsettled: Sequence[Advisory] = () if alike else advisories
        else:
            unsettled = self._named_anywhere(advisories)
        unsettled_ids = {advisory.id for advisory in unsettled}
        yield from (
            (advisory, selection) for advisory in advisories if advisory.id not in unsettled_ids
        )
        if len(unsettled) == 1:
            yield unsettled[0], plugin.select(unsettled[0], self._repo)
        elif unsettled:
            middle = len(unsettled) // 2
            yield from self.of_silent(unsettled[:middle], plugin)
            yield from self.of_silent(unsettled[middle:], plugin)

    def _named_anywhere(self, advisories: Sequence[Advisory]) -> list[Advisory]:
        """Return the advisories of which any manifest names a package."""
        texts = manifest_texts(self._ecosystem, self._repo)
        return [
            advisory
            for advisory in advisories
            if any(name in text for name in advisory.packages(self._ecosystem) for text in texts)
        ]

    def brought_in(self, moves: Sequence[Move], left_ids: AbstractSet[str]) -> tuple[Left, ...]:
        """Return the moves to a version that an advisory of ``left_ids`` covers, from versions that it does
        not: a fix of one manifest must not bring in what has to stay in another manifest."""
        items = []
        for move in moves:
            left_advisories = (
                [advisory for advisory in self._advisories if advisory.id in left_ids]
                if move.after
                else []
            )
            for advisory in left_advisories:
                is_covered_after = self._covers(advisory, move.package, (move.after or "",))
                if is_covered_after and not self._covers(advisory, move.package, move.before):
                    items.append(self._comes_in(move, advisory.id, left_ids))
        return tuple(items)

    def _comes_in(self, move: Move, advisory_id: str, left_ids: AbstractSet[str]) -> Left:
        return Left(
            package=move.package,
            manifest=move.manifest,
            advisory_ids=tuple(name for name in self.ids(move) if name not in left_ids),
            reason=RefusalReason.RESOLVER_FAILED,
            sentence=f"{move.package} {move.after} would come in, affected by {advisory_id}.",
            next_step=f"Fix {advisory_id} first, or require another release of {move.package}.",
        )

    def _covers(self, advisory: Advisory, package: str, versions: Sequence[str]) -> bool:
        return any(
            advisory.ids_affecting(self._ecosystem, package, version) for version in versions
        )

    def _named_in(self, manifest: str | None) -> tuple[str, ...]:
        """Return the ids of the advisories that a manifest's text names; all if the text can't be read."""
        text = manifest_text(self._ecosystem, self._repo, manifest or "")
        if text is None:
            return tuple(dict.fromkeys(advisory.id for advisory in self._advisories))
        naming = (advisories for name, advisories in self._naming.items() if name in text)
        return tuple(dict.fromkeys(advisory.id for advisories in naming for advisory in advisories))


def manifest_texts(ecosystem: str, repo: RepoContext) -> list[str]:
    """Return the texts of the manifests that can be read."""
    texts = (manifest_text(ecosystem, repo, path) for path in repo.manifests)
    return [text for text in texts if text is not None]


def manifest_text(ecosystem: str, repo: RepoContext, path: str) -> str | None:
    """Return a manifest's text with canonical package names, or None if it can't be read."""
    try:
        return canonical_text(ecosystem, repo.read_text(path))
    except RepositoryError:
        return None


def canonical_text(ecosystem: str, text: str) -> str:
    """Return a text with every package name in its canonical form."""
    rules = rules_of(ecosystem)
    return text if rules is None else rules.canonical_text(text)


def by_ecosystem(
    advisory: Advisory, repo: RepoContext, plugins: Mapping[str, EcosystemPlugin]
) -> dict[str, Advisory]:
    """Return the advisory's parts by ecosystem, each narrowed to it: those that a plugin serves, and of
    several those that the repository has manifests of (if any)."""
    served = [name for name in advisory.ecosystems if name in plugins]
    if len(served) > 1:
        served = [name for name in served if plugins[name].manifests(repo.tracked_files)] or served
    return {name: narrowed(advisory, name) for name in served}


def narrowed(advisory: Advisory, ecosystem: str, packages: Sequence[str] | None = None) -> Advisory:
    """Return the advisory with one ecosystem's packages only, or only these of them (canonical names)."""
    entries = tuple(
        entry
        for entry in advisory.affected
        if entry.package is not None
        and base_ecosystem(entry.package.ecosystem) == ecosystem
        and (packages is None or canonical_name(ecosystem, entry.package.name) in packages)
    )
    if len(entries) == len(advisory.affected):
        return advisory
    return Advisory.model_validate({**dict(advisory), "affected": entries})
