"""The direct bumps that the texts of a project's manifests need, without a resolution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.resolving.registry import (
    Fits,
    Releases,
    lowest_safe,
)
from fallback_plugins.pypi.strategies.direct import (
    Bump,
    Changes,
    Hashes,
    affected_places,
    changes,
    held,
    places_of,
    plan_bump,
)
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Place,
    highest_named,
    mentioned,
    only_affected,
    pinned_versions,
)
from fallback_plugins.shared.ladder import (
    ProjectFix,
    Tried,
    left_behind,
)
from fallback_plugins.shared.tree import grouped
from fallback_tier.advisory import Advisory, is_affected, sort_key
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import ClearedPath, Left, Move, Outline


@dataclass(frozen=True)
class TextBump:
    """The packages of an advisory that a project's texts require. ``path`` names the project.

    ``beside``: the texts of locks in its folder, which decide what is installed there.
    """

    advisory: Advisory
    path: str
    texts: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)

    def declared(self) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """Yield the advisory's packages that the texts require, with their places. Raises RecipeError."""
        packages = self.advisory.packages(ECOSYSTEM)
        names = frozenset(packages)
        mentioned_names = frozenset().union(
            *(mentioned(text, names) for text in self.texts.values())
        )
        for package in packages:
            if package in mentioned_names and (places := places_of(self.texts, package)):
                yield package, self._beside_locks(package, places)

    def outline(self, *, may_ask: bool) -> Outline:
        """Return the bumps that the texts need, without querying a registry.

        ``may_ask``: a fix may query it. Then, if only the registry can name a safe release, ``after`` is
        the version that the release must be above (``>1.0``).
        """
        moves: list[Move] = []
        left: list[Left] = []

        def choose(package: str, current: str, fits: Fits) -> str:
            return lowest_safe(self.advisory, package, current, fits)

        for package, places in self.declared():
            try:
                bump = plan_bump(self.advisory, places, package, choose)
            except RecipeError as error:
                unnamed = error.reason is RefusalReason.NO_FIXED_VERSION
                # A registry may have a safe release that the advisory doesn't name (``last_affected``).
                may_find = not admits_affected(self.advisory, ECOSYSTEM, package, lambda _: True)
                if may_ask and unnamed and may_find:
                    highest = highest_named(self.advisory, package, lambda _: True)
                    affected = affected_places(self.advisory, places, package)
                    moves += _moves(self.advisory, Bump(package, affected, {}), f">{highest}")
                else:
                    left.append(self._left(package, places, error))
            else:
                moves += _moves(self.advisory, bump) if bump else ()
        return Outline(moves=tuple(moves), left=tuple(left))

    def fix(self, releases: Releases, hashes: Hashes) -> ProjectFix:
        """Return the fix that raises every affected place; those that can't be raised are left. Raises
        RecipeError, ToolError."""
        moves: list[Move] = []
        cleared: list[ClearedPath] = []
        left: list[Left] = []
        all_changes = Changes()
        likely = {move.package: move.after or "" for move in self.outline(may_ask=True).moves}
        releases.look_up(
            [release for release in likely.items() if is_orderable(ECOSYSTEM, release[1])]
        )
        for package, places in self.declared():
            try:
                bump = plan_bump(self.advisory, places, package, releases.lowest_safe)
                if bump is None:
                    continue
                # All changes are by positions in the original texts, so they are applied once for all
                # packages.
                all_changes.add(changes(self.texts, package, bump.targets, hashes))
            except RecipeError as error:
                left.append(self._left(package, places, error))
            else:
                moves += _moves(self.advisory, bump)
                cleared += _cleared(self.advisory, bump)
        return ProjectFix(
            all_changes.made(self.texts),
            tuple(moves),
            tuple(left),
            cleared=tuple(cleared),
            notes=tuple(releases.notes),
        )

    def _beside_locks(self, package: str, places: tuple[Place, ...]) -> tuple[Place, ...]:
        """Return the places, marked as decided if they are ranges that admit the version which a lock in
        the folder holds, or will hold once it is fixed."""
        try:
            locked_versions = [
                version
                for lock in self.beside.items()
                for version in pinned_versions(*lock, package)
            ]
            chosen = max(
                locked_versions, key=lambda version: sort_key(ECOSYSTEM, version), default=None
            )
            if chosen is None:
                return places
            if is_affected(self.advisory, ECOSYSTEM, package, chosen):
                chosen = lowest_safe(self.advisory, package, chosen)
        except RecipeError:
            return places  # the lock's own project reports why
        return tuple(
            replace(place, decided=True) if place.is_range and place.admits(chosen) else place
            for place in places
        )

    def _left(self, package: str, places: Sequence[Place], error: RecipeError) -> Left:
        tried = Tried()
        tried.no(LadderStep.DIRECT_BUMP, error)
        affected = affected_places(self.advisory, places, package)
        versions = [place.current for place in affected if place.current]
        manifest = affected[0].path if affected else self.path
        return left_behind(
            self.advisory, ECOSYSTEM, package, versions, manifest=manifest, error=error, tried=tried
        )


def _moves(advisory: Advisory, bump: Bump, after: str | None = None) -> Iterator[Move]:
    """Yield a move for each file and target version. ``after``: used in place of a version if none is
    chosen yet."""
    lines = grouped(((place.path, after or bump.targets[place]), place) for place in bump.affected)
    for (path, version), places in lines.items():
        yield Move(
            package=bump.package,
            manifest=path,
            step=LadderStep.DIRECT_BUMP,
            before=held(places),
            after=version,
            range_admits=all(_admits_both(advisory, place, bump.package) for place in places),
        )


def _admits_both(advisory: Advisory, place: Place, package: str) -> bool:
    """Return whether a range admits safe versions as well as affected ones."""
    declaration = place.declaration
    if declaration is None or not place.is_range:
        return False
    return not only_affected(advisory, package, declaration)


def _cleared(advisory: Advisory, bump: Bump) -> Iterator[ClearedPath]:
    for place in bump.affected:
        current = place.current
        yield ClearedPath(
            manifest=place.path,
            advisory_ids=advisory.ids_affecting(ECOSYSTEM, bump.package, current)
            if current
            else (),
            path=(place.path, f"{bump.package} {current or 'any version'}"),
            outcome=f"now {bump.package} {bump.targets[place]}",
        )
