"""A set of Python manifests without a lock, as one Project of the ladder.

What the manifests pin is mended by text alone (proof level *pins*). What they only bring in is known
once the real uv has resolved them; that is asked only where the advisory is about something that they
don't name, and where the set isn't closed (compiled, hash-pinned).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.bumping import Choice, unsupported, use_bump
from fallback_plugins.ladder import Climb, ProjectFix, Tried, left_behind, whole_project_left
from fallback_plugins.pypi.direct import (
    Bump,
    Changes,
    affected_places,
    changes,
    places_of,
    plan_bump,
)
from fallback_plugins.pypi.releases import Releases, lowest_safe
from fallback_plugins.pypi.resolver import UvRefusedError
from fallback_plugins.pypi.survey import ECOSYSTEM, Place, highest_named, mentioned
from fallback_plugins.pypi.transitive import Search, State
from fallback_plugins.pypi.uv_client import UvClient
from fallback_plugins.pypi.wanted import has_own_index, leaves_transitives_open
from fallback_plugins.tree import Tree
from fallback_tier.advisory import Advisory
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import ClearedPath, Left, Move, Outline
from fallback_tier.repo import RepoContext


@dataclass
class _Direct:
    """What the direct bumps did: new texts, and the account of them."""

    texts: dict[str, str] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    cleared: list[ClearedPath] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    #: At the places of the texts as they were: those are read once for all packages.
    changes: Changes = field(default_factory=Changes)


@dataclass
class ManifestProject:
    """Requirements files that include each other, or one pyproject.toml, Pipfile, setup.cfg, setup.py.

    ``unknown`` says, after a climb, why transitive versions could not be seen.
    """

    repo: RepoContext
    clients: ClientRunner
    files: tuple[str, ...]
    choice: Choice | None = None
    unknown: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The file that names the set: the one that is compiled or shortest, first by name."""
        return min(self.files, key=lambda path: (len(path), path))

    @property
    def manifests(self) -> frozenset[str]:
        """The files of the set."""
        return frozenset(self.files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The set's texts by path. Raises RepositoryError."""
        return {path: self.repo.read_text(path) for path in self.files}

    def is_open(self, advisory: Advisory) -> bool:
        """May it bring in one of the advisory's packages unnamed, and could that be found out?"""
        if self.repo.settings.offline:
            return False
        try:
            declared = {package for package, _ in self._declared(advisory)}
        except RecipeError:
            return False
        if declared.issuperset(self._packages(advisory)):
            return False
        return leaves_transitives_open(self.texts)

    def outline(self, advisory: Advisory) -> Outline:
        """The direct bumps that the texts call for; nothing is asked of a registry.

        Where only the registry could name a safe release, ``after`` says what it is to be above.
        """
        moves: list[Move] = []
        left: list[Left] = []
        for package, places in self._declared(advisory):
            try:
                bump = plan_bump(
                    advisory,
                    places,
                    package,
                    lambda name, current, fits: lowest_safe(advisory, name, current, fits),
                )
            except RecipeError as error:
                if error.reason is RefusalReason.NO_FIXED_VERSION and self._may_find(
                    advisory, package
                ):
                    above = highest_named(advisory, package, lambda _: True)
                    affected = affected_places(advisory, places, package)
                    moves += _moves(Bump(package, affected, {}), f">{above}")
                else:
                    left.append(self._left(advisory, package, places, error))
            else:
                moves += _moves(bump, bump.version) if bump else ()
        return Outline(moves=tuple(moves), left=tuple(left))

    def climb(self, advisory: Advisory) -> ProjectFix | None:
        """Direct bumps by text; for what is not declared, the search over resolved trees."""
        if self.choice and self.choice.forced:
            return self._forced(advisory)
        releases = self._releases(advisory)
        direct = self._bump(advisory, releases)
        fix = ProjectFix(
            texts=direct.texts,
            moves=tuple(direct.moves),
            left=tuple(direct.left),
            cleared=tuple(direct.cleared),
            notes=tuple(releases.notes),
        )
        if self.is_open(advisory):
            fix = self._resolved(releases, fix) or fix
        elif fix.texts and not self.repo.settings.offline:
            fix = self._untangled(releases, fix) or fix
        return fix if fix.moves or fix.left else None

    def _forced(self, advisory: Advisory) -> ProjectFix | None:
        """A constraint on what the set only brings in, as a resolver finds it. Raises RecipeError."""
        for package, places in self._declared(advisory):
            if affected_places(advisory, places, package):
                raise use_bump(package, f"declared in {places[0].path}")
        if self.repo.settings.offline:
            self.unknown.append(f"What {self.path} brings in can't be known offline.")
        if not self.is_open(advisory):
            return None
        search = self._search(self._releases(advisory))
        climb = Climb(search.judge, State(self.texts, search.resolve(self.texts)))
        if not climb.packages:
            return None
        climb.run([search.constraint])
        return self._climbed(climb, climb.start.tree)

    def _bump(self, advisory: Advisory, releases: Releases) -> _Direct:
        """Every declared package that is affected, raised in the texts."""
        done = _Direct()
        likely = {move.package: move.after or "" for move in self.outline(advisory).moves}
        releases.look_up([it for it in likely.items() if is_orderable(ECOSYSTEM, it[1])])
        for package, places in self._declared(advisory):
            try:
                bump = plan_bump(advisory, places, package, releases.lowest_safe)
                if bump is None:
                    continue
                new = changes(self.texts, package, bump.targets, self._hashes)
            except RecipeError as error:
                done.left.append(self._left(advisory, package, places, error))
            else:
                done.changes.add(new)
                done.moves += _moves(bump, bump.version)
                done.cleared += _cleared(advisory, bump)
        done.texts |= done.changes.made(self.texts)
        return done

    def _hashes(self, package: str, version: str) -> Sequence[str]:
        """The hashes of a release as the set's own registry has it. Raises RecipeError, ToolError."""
        for path, text in self.texts.items():
            if has_own_index(path, text):
                raise unsupported(
                    f"{path} names its own index, which is not asked, and {package} is pinned by hashes."
                )
        return UvClient(self.clients).hashes(package, version)

    def _search(self, releases: Releases) -> Search:
        closed = not leaves_transitives_open(self.texts)
        return Search(UvClient(self.clients), self.path, releases, self._hashes, closed=closed)

    def _untangled(self, releases: Releases, fix: ProjectFix) -> ProjectFix | None:
        """The fix with the other pins that have to move along; None: none has to, or nobody can tell."""
        search = self._search(releases)
        try:
            search.resolve({**self.texts, **fix.texts})
        except UvRefusedError:
            pass
        except (RecipeError, ToolError):
            return None
        else:
            return None
        try:
            before = search.resolve(self.texts)
        except (RecipeError, ToolError):
            return None  # as it stands it doesn't go together either
        climb = Climb(search.judge, State(self.texts, before))
        climb.run(search.strategies)
        found = self._climbed(climb, before)
        return replace(found, left=(*fix.left, *found.left), notes=fix.notes)

    def _resolved(self, releases: Releases, fix: ProjectFix) -> ProjectFix | None:
        """The fix with transitive packages mended too; None where uv can't resolve the set."""
        search = self._search(releases)
        try:
            before = search.resolve(self.texts)
        except (RecipeError, ToolError) as error:
            self.unknown.append(f"Transitive versions of {self.path} are unknown. {error.problem}")
            return None
        start, raised_by_text = self._start(search, State(self.texts, before), fix)
        climb = Climb(search.judge, start)
        climb.run(search.strategies)
        found = self._climbed(climb, before)
        account = {move.package for move in found.moves} | {it.package for it in found.left}
        if not raised_by_text and not account.issuperset(move.package for move in fix.moves):
            self.unknown.append(
                f"What {self.path} resolves to with its raised pins is unknown: they don't go"
                " together with the rest of it."
            )
            return None
        known = {item.package for item in fix.left}
        return replace(
            found,
            moves=(*(fix.moves if raised_by_text else ()), *found.moves),
            left=(*fix.left, *(item for item in found.left if item.package not in known)),
            notes=fix.notes,
        )

    def _climbed(self, climb: Climb[Mapping[str, str]], before: Tree) -> ProjectFix:
        start, at = climb.start.files, climb.at
        changed = [path for path, text in at.files.items() if text != start[path]]
        place = changed[0] if changed else self.path
        moves, left = climb.moves(place), climb.lefts(self.path)
        return ProjectFix(at.files, moves, left, before=before, after=at.tree)

    def _start(self, search: Search, found: State, fix: ProjectFix) -> tuple[State, bool]:
        """Where the search begins: with the direct bumps, where a resolver accepts them.

        Where it doesn't, something else that is declared has to move with them: the search, which
        sees the whole tree, mends them too.
        """
        if not fix.texts:
            return found, True
        texts = dict(self.texts) | dict(fix.texts)
        try:
            return State(texts, search.resolve(texts)), True
        except RecipeError:
            return found, False

    def _releases(self, advisory: Advisory) -> Releases:
        """The registry's word on releases, where it may be asked and is the one that the set uses."""
        only = self.choice.version if self.choice else None
        if self.repo.settings.offline:
            return Releases(advisory, None, only)
        foreign = [path for path, text in self.texts.items() if has_own_index(path, text)]
        if foreign:
            said = f"{foreign[0]} names its own index, so yanked releases could not be asked about."
            return Releases(advisory, None, only, [said])
        return Releases(advisory, UvClient(self.clients), only)

    def _may_find(self, advisory: Advisory, package: str) -> bool:
        """May the registry have a safe release that the record doesn't name (``last_affected``)?"""
        later_is_affected = admits_affected(advisory, ECOSYSTEM, package, lambda _: True)
        return not (self.repo.settings.offline or later_is_affected)

    def _packages(self, advisory: Advisory) -> tuple[str, ...]:
        return advisory.packages(ECOSYSTEM)

    def _named(self, advisory: Advisory) -> frozenset[str]:
        """Those of the advisory's packages that stand in one of the texts."""
        packages = frozenset(self._packages(advisory))
        return frozenset().union(*(mentioned(text, packages) for text in self.texts.values()))

    def _declared(self, advisory: Advisory) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """The advisory's packages that the set asks for, with the places. Raises RecipeError."""
        named = self._named(advisory)
        for package in self._packages(advisory):
            if package in named and (places := places_of(self.texts, package)):
                yield package, places

    def _left(
        self, advisory: Advisory, package: str, places: Sequence[Place], error: RecipeError
    ) -> Left:
        tried = Tried()
        tried.no(LadderStep.DIRECT_BUMP, error)
        affected = affected_places(advisory, places, package)
        return left_behind(
            advisory,
            ECOSYSTEM,
            package=package,
            versions=[place.current for place in affected if place.current],
            manifest=affected[0].path if affected else self.path,
            error=error,
            tried=tried,
        )


def outlined(project: "ManifestProject", advisory: Advisory) -> Outline:
    """The project's outline; one that can't be read is left, whole."""
    try:
        return project.outline(advisory)
    except RecipeError as error:
        return Outline(left=(whole_project_left(project.path, error),))


def _moves(bump: Bump, after: str) -> Iterator[Move]:
    """One a file: what it asked for, and what it asks for now."""
    for path in dict.fromkeys(place.path for place in bump.affected):
        yield Move(
            package=bump.package,
            manifest=path,
            step=LadderStep.DIRECT_BUMP,
            before=bump.held(path),
            after=after,
        )


def _cleared(advisory: Advisory, bump: Bump) -> Iterator[ClearedPath]:
    for place in bump.affected:
        held = place.current
        yield ClearedPath(
            manifest=place.path,
            advisory_ids=advisory.ids_affecting(ECOSYSTEM, bump.package, held) if held else (),
            path=(place.path, f"{bump.package} {held or 'any version'}"),
            outcome=f"now {bump.package} {bump.targets[place]}",
        )
