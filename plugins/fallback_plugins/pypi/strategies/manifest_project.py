"""A set of Python manifests without a lock, as one Project of the ladder.

Pins in the manifests are fixed by text alone (proof level *pins*). What they bring in is in their
resolution (ADR-0099), unless a declaration that holds in every case admits no affected version.

A transitive version is fixed by raising a declared ancestor to the lowest version whose tree is clear. uv
does that search: the ancestors may be higher than they are, the affected packages get a lower bound, and
``lowest-direct`` resolution takes the lowest that fits. The result is then written into the manifests and
resolved once more, as pip would: only that second tree counts.
"""

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

from packaging.requirements import Requirement
from packaging.version import Version

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set, kind_of
from fallback_plugins.pypi.manifests.requirements import at_least, with_requirement
from fallback_plugins.pypi.resolving.registry import (
    Fits,
    Releases,
    ages_of,
    as_options,
    lowest_safe,
)
from fallback_plugins.pypi.resolving.resolutions import CommandResolution, UnknownPartError, resolve
from fallback_plugins.pypi.resolving.uv_client import (
    UvClient,
    UvRefusedError,
    blocker_of,
    resolver_failed,
)
from fallback_plugins.pypi.resolving.wanted import (
    Reading,
    constraint_files,
    installs_folders,
    loosened,
    name_of,
    wanted,
)
from fallback_plugins.pypi.strategies.all_strategies import State, Step, cheapest_first
from fallback_plugins.pypi.strategies.direct import (
    Bump,
    Changes,
    Hashes,
    affected_places,
    changes,
    held,
    is_unaffected,
    place_of,
    places_of,
    plan_bump,
    plan_raise,
    raised,
)
from fallback_plugins.pypi.strategies.locked import required_by_others
from fallback_plugins.pypi.surveying.deciding import DECIDING_LOCKS, METADATA, compiled_for, steps
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Place,
    highest_named,
    mentioned,
    only_affected,
    pinned_versions,
)
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import FREE, Terms, no_override, unsupported, use_bump
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    PROJECT,
    ProjectFix,
    Reached,
    ResultRules,
    Strategy,
    Tried,
    admits_already,
    blocked,
    copies,
    does_not_apply,
    does_not_serve,
    left_behind,
    never_worse,
    ordered,
    worse,
)
from fallback_plugins.shared.ladder import Resolution as Ladder
from fallback_plugins.shared.resolution import (
    STILL_INSTALLED,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
    SharedResolutions,
    Unresolved,
)
from fallback_plugins.shared.tree import DependencyTree, Node, grouped
from fallback_tier.advisory import Advisory, compare_versions, is_affected, sort_key
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Blocker, ClearedPath, Left, Move, Outline
from fallback_tier.repo import RepoContext


@dataclass
class ManifestProject:
    """Requirements files that include each other, or one pyproject.toml, Pipfile, setup.cfg, setup.py.

    ``unknown`` says, after a resolution, why transitive versions could not be seen.
    """

    repo: RepoContext
    clients: ClientRunner
    files: tuple[str, ...]
    terms: Terms = FREE
    #: No client may run: what was kept answers.
    only_kept: bool = False
    unknown: list[str] = field(default_factory=list)
    #: What a resolution left, if it is affected in some environments alone: a fix of another set goes on.
    limited: list[Left] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The file that names the set: the shortest path of those that are manifests by their names."""
        return min(self.files, key=lambda path: (kind_of(path) is None, len(path), path))

    @property
    def manifests(self) -> frozenset[str]:
        """The paths of the set's files."""
        return frozenset(self.files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The set's texts by path. Raises RepositoryError."""
        return {path: self.repo.read_text(path) for path in self.files}

    #: Whether the command installs only what environments of other tools, builds and CI require.
    _ONLY_TOOLS: ClassVar = False

    @property
    def command(self) -> CommandResolution:
        """The set's resolution, made once for the base commit. Raises RepositoryError."""
        of_tools, only_kept = self._ONLY_TOOLS, self.only_kept

        def command() -> CommandResolution:
            ages = Ages(ECOSYSTEM) if of_tools else self.ages
            own = (self.repo, self.clients, self.path, self.texts, of_tools, only_kept)
            return CommandResolution(*own, ages=ages)

        key = (CommandResolution, self.path, of_tools, only_kept)
        return self.repo.once((*key, self.clients, self.repo.settings), command)

    @cached_property
    def ages(self) -> Ages:
        """The set's rules on the age of releases. Raises RepositoryError."""
        may_ask = not any(has_own_index(path, text) for path, text in self.texts.items())
        return ages_of(self.repo, self.clients, self.path, may_ask=may_ask, by_lock=False)

    @property
    def resolution(self) -> Resolution:
        """What its install command installs. Raises RecipeError, RepositoryError for a file that can't be
        read."""
        made = self.command.made
        for doubt in filter(None, (step.doubt() for step in steps(self.texts))):
            made = made.doubted(doubt.problem, doubt.next_step)
        return made

    def awaits_client(self, advisory: Advisory) -> bool:
        """As ``DecidedByLock`` says."""
        asks = not self.repo.settings.offline and self.command.known is None
        return asks and bool(self.unsettled(advisory))

    def unsettled(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS
    ) -> tuple[str, ...]:
        """Return as ``DecidedByLock`` says. Python installs one version, so a declaration that holds in
        every case and admits no affected version settles its package."""
        bump = self._bump(advisory, patched)
        places = dict(bump.declared())
        roots = tuple(self.command.roots)
        return tuple(
            package
            for package in advisory.packages(ECOSYSTEM)
            if not all(
                any(
                    place.path in files and is_unaffected(advisory, place, package)
                    for place in places.get(package, ())
                )
                for files in roots
            )
        )

    def outline(self, advisory: Advisory) -> Outline:
        """Return the direct bumps that the texts require, without asking a registry. Raises RecipeError."""
        return self._checked_bump(advisory).outline(may_ask=not self.repo.settings.offline)

    @property
    def installs_folders(self) -> bool:
        """Whether the set installs folders of the repository. One that can't be read does not."""
        try:
            return any(map(installs_folders, self.texts.items()))
        except RepositoryError:
            return False

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Direct bumps by text; for what is not declared, the search over resolved trees.

        Raises RecipeError.
        """
        bump = self._checked_bump(advisory)
        self.limited.clear()
        if self.terms.choice and self.terms.choice.forced:
            return self._forced(bump, patched)
        search = self._search(self._releases(advisory), patched)
        fix = ProjectFix({}, ())
        if LadderStep.DIRECT_BUMP not in self.terms.left_out:
            fix = bump.fix(search.releases, self._hashes)
        raised = {move.package for move in fix.moves}
        if not raised.issuperset(self.unsettled(advisory)):
            fix = self._resolved(search, fix) or fix
        elif fix.texts and not self.repo.settings.offline:
            fix = self._untangled(search, fix) or fix
        if fix.left and not fix.moves and self._are_limited(advisory, fix.left):
            self.limited[:] = fix.left
            return None
        return fix if fix.moves or fix.left else None

    def _are_limited(self, advisory: Advisory, left: Sequence[Left]) -> bool:
        """Return whether the client chooses a safe release of each package, except for some environments,
        such as a Python that no fixed release supports."""
        affected = {it.key: it for it in self.resolution.affected(advisory)}
        for one in left:
            found = self.resolution.by_name.get(one.package, ())
            held = [affected[it.key] for it in found if it.key in affected]
            if len(held) == len(found) or not all(it.environments for it in held):
                return False
        return True

    def stuck(self, advisory: Advisory) -> Iterator[Unresolved]:
        """Yield what stays installed in an affected version after a fix of another set. Raises
        RecipeError."""
        names = {it.package for it in self.limited}
        for one in self.resolution.affected(advisory):
            if one.name in names:
                why = f": no fixed release was found for {one.environments}"
                step = f"Raise the lowest Python here, {self.command.python}, to one of a fixed release."
                yield self._still_installed(one, step, why)

    def _still_installed(self, one: ResolvedPackage, step: str, why: str = "") -> Unresolved:
        reason = f"{self.path} installs {one.name} {one.version}{STILL_INSTALLED}{why}."
        names = frozenset({one.name})
        return Unresolved(subject=self.path, reason=reason, next_step=step, names=names)

    def _bump(self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS) -> "_TextBump":
        texts = {path: patched.get(path, text) for path, text in self.texts.items()}
        return _TextBump(advisory, self.path, texts, self._locks_beside)

    def _checked_bump(self, advisory: Advisory) -> "_TextBump":
        """Return the bump, if compiled files answer what they were compiled from. Raises RecipeError."""
        for step in steps(self.texts):
            step.check(advisory)
        return self._bump(advisory)

    @cached_property
    def _locks_beside(self) -> Mapping[str, str]:
        """The locks in the folder of a project's own metadata, and what was compiled from that: they decide
        what is installed."""
        if kind_of(self.path) not in METADATA:
            return {}
        folder = posixpath.dirname(self.path)
        locks = {
            path: self.repo.read_text(path)
            for path in self.repo.tracked_files
            if posixpath.dirname(path) == folder and kind_of(path) in DECIDING_LOCKS
        }
        return {**locks, **compiled_for(self.repo, self.path)}

    def _forced(self, bump: "_TextBump", patched: Mapping[str, str]) -> ProjectFix | None:
        """Constrain what the set only brings in, as a resolver finds it. Raises RecipeError."""
        for package, places in bump.declared():
            if affected_places(bump.advisory, places, package):
                raise use_bump(package, f"declared in {places[0].path}")
        if self.repo.settings.offline:
            raise no_override(
                f"What {self.path} depends on can't be resolved offline.", kind="no_lock"
            )
        if self.resolution.by is not ResolvedBy.CLIENT or self.resolution.unresolved:
            return None
        search = self._search(self._releases(bump.advisory), patched)
        resolve = Ladder(search.judge, State(self.texts, self.resolution.tree))
        if not resolve.packages:
            return None
        resolve.run(search.forced)
        return self._fix_of(resolve, resolve.start.tree)

    def _hashes(self, package: str, version: str) -> Sequence[str]:
        """Return the hashes of a release in the set's own registry. Raises RecipeError, ToolError."""
        for path, text in self.texts.items():
            if has_own_index(path, text):
                raise unsupported(
                    f"{path} names its own index, which is not asked, and {package} is pinned by hashes."
                )
        return UvClient(self.clients).hashes(package, version)

    def _search(self, releases: Releases, patched: Mapping[str, str]) -> "_Search":
        command = self.command
        reading, unresolved = command.strict(patched), lambda: self.resolution.unresolved
        ages = as_options(self.ages, excepting=True) if command.is_by_ages else ()
        return _Search(command, releases, self._hashes, reading, ages, unresolved)

    def _check_ages(self, search: "_Search", bumped: State) -> None:
        """Raise RecipeError if a fix by text brings in a release that is too new, in whatever way."""
        before = self._before(search) if self.ages.rules else None
        if before is None:
            return
        new = copies(bumped.tree.nodes.values()) - copies(before.nodes.values())
        if (too_new := self.ages.first_problem(new)) is not None:
            raise too_new

    def _before(self, search: "_Search") -> DependencyTree | None:
        """Return the tree of the unchanged texts; None: they conflict, or it is unknown."""
        with suppress(RecipeError, ToolError):
            return search.resolve(self.texts)
        return None

    def _untangled(self, search: "_Search", fix: ProjectFix) -> ProjectFix | None:
        """Return the fix with the other pins that have to move along; None: none has to, or it is
        unknown."""
        bumped = {**self.texts, **fix.texts}
        try:
            after = search.resolve(bumped)
        except UvRefusedError:
            pass
        except UnknownPartError as error:
            self.unknown.append(error.problem)
            return None
        except (RecipeError, ToolError):
            return None
        else:
            self._check_named(search, State(bumped, after))
            self._check_ages(search, State(bumped, after))
            return None
        if (before := self._before(search)) is None:
            return None
        found = self._climbed(search, State(self.texts, before), before)
        return replace(found, left=(*fix.left, *found.left), notes=fix.notes)

    def _check_named(self, search: "_Search", bumped: State) -> None:
        """Raise RecipeError if a closed set would get a package that it does not name: with hashes no
        installer would take it, and its compiler would write more."""
        if not self.command.is_compiled:
            return
        named = set(map(name_of, wanted(bumped.files, search.reading).requirements))
        if named.issuperset(bumped.tree.by_name) or (before := self._before(search)) is None:
            return
        if message := search.unnamed(State(self.texts, before), bumped):
            refusal = does_not_serve(message)
            raise RecipeError(
                RefusalReason.MANIFEST_MISSING,
                refusal.problem,
                next_step="Compile it again, with the package upgraded.",
                blockers=refusal.blockers,
                kind="not_named",
            )

    def _resolved(self, search: "_Search", fix: ProjectFix) -> ProjectFix | None:
        """Return the fix with what the set brings in fixed too; None: nothing of that is known to be
        affected, or the resolution of a fix is unknown."""
        base = self.resolution
        raised = {move.package for move in fix.moves}
        advisory = search.releases.advisory
        affected = [it for it in base.affected(advisory) if it.name not in raised]
        try:
            if self.repo.settings.offline or base.by is ResolvedBy.LOCK or base.unresolved:
                raise unsupported(f"What a fix of {self.path} brings in is unknown.")
            before = search.resolve(self.texts)
        except (RecipeError, ToolError) as error:
            why = error if isinstance(error, RecipeError) else unsupported(error.problem)
            left = tuple(
                left_behind(
                    advisory, ECOSYSTEM, it.name, [it.version], manifest=self.path, error=why
                )
                for it in affected
            )
            return replace(fix, left=(*fix.left, *left)) if left else None
        # Begin with the direct bumps, if uv accepts them. Otherwise something else that is declared has to
        # move with them: the search, which sees the whole tree, fixes them too.
        start, raised_by_text = State(self.texts, before), not fix.texts
        if fix.texts:
            with suppress(RecipeError):
                bumped = {**self.texts, **fix.texts}
                start, raised_by_text = State(bumped, search.resolve(bumped)), True
        found = self._climbed(search, start, before)
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

    def _climbed(self, search: "_Search", start: State, before: DependencyTree) -> ProjectFix:
        """Return the result of the strategies from a start."""
        resolve = Ladder(search.judge, start)
        resolve.run(ordered(search.strategies, self.repo.settings.prefer, self.terms.left_out))
        return self._fix_of(resolve, before)

    def _fix_of(self, resolve: Ladder[Mapping[str, str]], before: DependencyTree) -> ProjectFix:
        start, at = resolve.start.files, resolve.at
        changed = [path for path, text in at.files.items() if text != start[path]]
        place = changed[0] if changed else self.path
        moves, left = resolve.moves(place), resolve.lefts(self.path)
        return ProjectFix(at.files, moves, left, before=before, after=at.tree)

    def _releases(self, advisory: Advisory) -> Releases:
        """Return the registry's releases, if it may be asked and is the one that the set uses."""
        online = not self.repo.settings.offline
        foreign = [path for path, text in self.texts.items() if has_own_index(path, text)]
        may_ask = online and not foreign
        found = Releases.of(advisory, self.terms, self.clients, self.ages, may_ask=may_ask)
        if online and foreign:
            found.notes.append(
                f"{foreign[0]} names its own index, so yanked releases could not be asked about."
            )
        return found


@dataclass
class ReadOnlyProject(ManifestProject):
    """Packages that commands of CI install, or environments of tools beside a lock: no fix changes them, so
    that what they bring in is unknown if it is affected."""

    @property
    def manifests(self) -> frozenset[str]:
        """None: other projects account for the file."""
        return frozenset()

    _ONLY_TOOLS = True

    def unsettled(
        self,
        advisory: Advisory,
        patched: Mapping[str, str] = NO_TEXTS,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """As ``DecidedByLock`` says: all."""
        return advisory.packages(ECOSYSTEM)

    def outline(self, advisory: Advisory) -> Outline:  # noqa: ARG002
        """As ``LockedProject`` says: no change."""
        return Outline()

    def resolve(
        self,
        advisory: Advisory,  # noqa: ARG002
        patched: Mapping[str, str] = NO_TEXTS,  # noqa: ARG002
        /,
    ) -> ProjectFix | None:
        """As ``ladder.Project`` says: None."""
        return None

    def stuck(self, advisory: Advisory) -> Iterator[Unresolved]:
        """Yield what it installs in an affected version, as unknown. Raises RecipeError."""
        for one in self.resolution.affected(advisory):
            yield self._still_installed(one, "Raise what requires it there, or remove the command.")


@dataclass(frozen=True)
class _TextBump:
    """The packages of an advisory that a set of texts asks for. ``path`` names the set.

    ``beside``: the texts of locks in its folder, which decide what is installed there.
    """

    advisory: Advisory
    path: str
    texts: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)

    def declared(self) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """Yield the advisory's packages that the set requires, with their places. Raises RecipeError."""
        packages = self.advisory.packages(ECOSYSTEM)
        wanted = frozenset(packages)
        named = frozenset().union(*(mentioned(text, wanted) for text in self.texts.values()))
        for package in packages:
            if package in named and (places := places_of(self.texts, package)):
                yield package, self._beside_locks(package, places)

    def outline(self, *, may_ask: bool) -> Outline:
        """The bumps that the texts call for; nothing is asked of a registry.

        ``may_ask``: it could be. Where only the registry could name a safe release, ``after`` says what it
        is to be above.
        """
        moves: list[Move] = []
        left: list[Left] = []

        def named(package: str, current: str, fits: Fits) -> str:
            return lowest_safe(self.advisory, package, current, fits)

        for package, places in self.declared():
            try:
                bump = plan_bump(self.advisory, places, package, named)
            except RecipeError as error:
                unnamed = error.reason is RefusalReason.NO_FIXED_VERSION
                # A registry may have a safe release that the record doesn't name (``last_affected``).
                may_find = not admits_affected(self.advisory, ECOSYSTEM, package, lambda _: True)
                if may_ask and unnamed and may_find:
                    above = highest_named(self.advisory, package, lambda _: True)
                    affected = affected_places(self.advisory, places, package)
                    moves += _moves(self.advisory, Bump(package, affected, {}), f">{above}")
                else:
                    left.append(self._left(package, places, error))
            else:
                moves += _moves(self.advisory, bump) if bump else ()
        return Outline(moves=tuple(moves), left=tuple(left))

    def fix(self, releases: Releases, hashes: Hashes) -> ProjectFix:
        """Raise every affected place; those that can't be raised are left. Raises RecipeError,
        ToolError."""
        moves: list[Move] = []
        cleared: list[ClearedPath] = []
        left: list[Left] = []
        new = Changes()
        likely = {move.package: move.after or "" for move in self.outline(may_ask=True).moves}
        releases.look_up([it for it in likely.items() if is_orderable(ECOSYSTEM, it[1])])
        for package, places in self.declared():
            try:
                bump = plan_bump(self.advisory, places, package, releases.lowest_safe)
                if bump is None:
                    continue
                # At the places of the texts as they were: those are read once for all packages.
                new.add(changes(self.texts, package, bump.targets, hashes))
            except RecipeError as error:
                left.append(self._left(package, places, error))
            else:
                moves += _moves(self.advisory, bump)
                cleared += _cleared(self.advisory, bump)
        return ProjectFix(
            new.made(self.texts),
            tuple(moves),
            tuple(left),
            cleared=tuple(cleared),
            notes=tuple(releases.notes),
        )

    def _beside_locks(self, package: str, places: tuple[Place, ...]) -> tuple[Place, ...]:
        """A range that admits what a lock beside it holds, or will, leaves the choice to that."""
        try:
            locked = [it for lock in self.beside.items() for it in pinned_versions(*lock, package)]
            chosen = max(locked, key=lambda version: sort_key(ECOSYSTEM, version), default=None)
            if chosen is None:
                return places
            if is_affected(self.advisory, ECOSYSTEM, package, chosen):
                chosen = lowest_safe(self.advisory, package, chosen)
        except RecipeError:
            return places  # the lock's own project says why
        return tuple(
            replace(place, decided=True) if place.is_range and place.admits(chosen) else place
            for place in places
        )

    def _left(self, package: str, places: Sequence[Place], error: RecipeError) -> Left:
        tried = Tried()
        tried.no(LadderStep.DIRECT_BUMP, error)
        affected = affected_places(self.advisory, places, package)
        versions = [place.current for place in affected if place.current]
        where = affected[0].path if affected else self.path
        return left_behind(
            self.advisory, ECOSYSTEM, package, versions, manifest=where, error=error, tried=tried
        )


def _moves(advisory: Advisory, bump: Bump, after: str | None = None) -> Iterator[Move]:
    """One per file and version that its places go to; ``after``: if no version is chosen yet."""
    lines = grouped(((it.path, after or bump.targets[it]), it) for it in bump.affected)
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


#: Rounds of one search: each adds the lower bound of a package that the last tree still held affected.
MAX_ROUNDS = 8

_Strategy = Strategy[Mapping[str, str]]
_Reached = Reached[Mapping[str, str]]


@dataclass(frozen=True)
class _Search:
    """The search for the smallest change that takes affected packages out of a set's tree.

    There is no lock to refresh: a resolver takes the highest version that all ranges admit. ``command``:
    the set at the base commit. ``ages``: rules on the age of releases, as options of uv; ``known``: what of
    the base commit's resolution is unknown, and of a fix may be.
    """

    command: CommandResolution
    releases: Releases
    hashes: Hashes
    reading: Reading
    ages: tuple[str, ...]
    known: Callable[[], Collection[Unresolved]]

    def resolve(self, texts: Mapping[str, str]) -> DependencyTree:
        """Return the tree of these manifests. Raises RecipeError, ToolError."""
        lines, options = wanted(texts, self.reading), (*self.command.options, *self.ages)
        found = resolve(self.command.client, self.command.path, lines, *options, known=self.known)
        if not self.reading.folders:  # whose texts a patch may have changed
            SharedResolutions.of(self.command.repo).add(texts, found)
        return found.tree

    @property
    def judge(self) -> ResultRules[Mapping[str, str]]:
        """The rules for results of the set."""
        return ResultRules(
            ECOSYSTEM,
            self.releases.advisory,
            self.unnamed if self.command.is_compiled else never_worse,
            self.releases.ages,
        )

    def unnamed(self, before: State, after: State) -> Blocker | None:
        """Return what a closed set would install without naming it; None: nothing more."""
        added = sorted(after.tree.by_name.keys() - before.tree.by_name.keys())
        return (
            worse(after.tree, added[0], f"would come in, and {self.command.path} does not name it")
            if added
            else None
        )

    @property
    def strategies(self) -> list[_Strategy]:
        """Cheapest first."""
        return cheapest_first(
            direct=Step(self._raise, self._not_declared),
            parent=Step(self._raise, self._declared),
            override=self._override,
        )

    @property
    def forced(self) -> list[_Strategy]:
        """The override alone."""
        return cheapest_first(override=self._override)

    @property
    def _override(self) -> Step:
        """A line for each package itself, within its major version: nothing above it has to move."""
        return Step(self._constrain, self._declared)

    def _not_declared(self, at: State, package: str) -> RecipeError | None:
        if package in at.tree.asked:
            return None
        problem = f"{self.command.path} does not declare {package}."
        return required_by_others(at, package, problem, partial(self._place, at.files))

    def _place(self, files: Mapping[str, str], package: str) -> str:
        """Return the file that requires a package: of the set, of a folder that it installs, or its own."""
        in_folders = (where for where, _ in self._in_folders(package))
        return place_of(files, package, "") or next(in_folders, self.command.path)

    def _in_folders(self, package: str) -> Iterator[tuple[str, Requirement]]:
        """Yield (file, requirement) of the folders that the set installs and that require a package."""
        for folder, (texts, lines) in self.reading.folders.items():
            if name := place_of(texts, package, ""):
                asked = (Requirement(line) for line in lines if name_of(line) == package)
                yield from ((posixpath.join(folder, name), it) for it in asked)

    def _declared(self, at: State, package: str) -> RecipeError | None:
        if package not in at.tree.asked:
            return None
        spec = next((it.spec for one in at.tree.roots for it in one.asks if it.name == package), "")
        where = self._place(at.files, package)
        problem = f"{where} declares {package} itself."
        return does_not_apply(problem, package, PROJECT, spec, where)

    def _raise(self, at: State, packages: tuple[str, ...]) -> _Reached:
        """Raise what has to be raised so that none of these is affected. Raises RecipeError."""
        bad = self._bad(at.tree, packages)
        names = at.tree.asked
        above = {name for name in names if _reaches(at.tree, name, bad)}
        problem: RecipeError | None = None
        for free in dict.fromkeys((frozenset(above), frozenset(names))):
            try:
                return self._raised(at, bad, free)
            except RecipeError as error:
                problem = problem or error
        problem = self._blocked_by_folder(bad.values()) or problem
        raise problem or resolver_failed(
            f"{self.command.path} declares nothing that could be raised."
        )

    def _blocked_by_folder(self, bad: Iterable[Node]) -> RecipeError | None:
        """Return the refusal that names a folder's requirement which excludes a target; None: none does."""
        for node in bad:
            target = self._target(node)
            if target is None:
                continue
            for where, asked in self._in_folders(node.name):
                if not asked.marker and not asked.specifier.contains(target, prereleases=True):
                    spec = str(asked.specifier)
                    return blocked(node.name, target, parent=PROJECT, spec=spec, where=where)
        return None

    def _constrain(self, at: State, packages: tuple[str, ...]) -> _Reached:
        """Add a line per package, in requirements files only: pip reads no constraint from any other
        manifest."""
        place = min(constraint_files(at.files), default=self.command.path)
        text = at.files[place]
        for node in self._bad(at.tree, packages).values():
            target = self._target(node)
            if kind_in_set(place) is not Kind.REQUIREMENTS or target is None:
                raise resolver_failed(
                    f"{place} has no place for a constraint on {node.name}.", kind="no_place"
                )
            if Version(target).major != Version(node.version).major:
                raise resolver_failed(
                    f"A constraint would take {node.name} from {node.version} to {target}, another"
                    " major version.",
                    kind="another_major",
                )
            text = with_requirement(text, node.name, target)
        texts = {**at.files, place: text}
        return Reached(State(texts, self.resolve(texts)))

    def _bad(self, tree: DependencyTree, packages: Iterable[str]) -> dict[str, Node]:
        return {node.name: node for node in self.judge.affected(tree) if node.name in packages}

    def _raised(self, start: State, bad: dict[str, Node], free: frozenset[str]) -> _Reached:
        versions = self._lowest(start, bad, free)
        up = {
            name: version
            for name, version in versions.items()
            if compare_versions(ECOSYSTEM, version, _version_of(start.tree, name)) > 0
        }
        if not up:
            raise admits_already(", ".join(bad))
        state, least = self._least(start, self._with(start, bad, up), bad, up)
        return Reached(
            state, {name: self._dependency_paths(start.tree, name, least) for name in bad}
        )

    def _with(self, start: State, bad: Iterable[str], up: Mapping[str, str]) -> State:
        """Return the texts with these versions, resolved as pip would. Raises RecipeError: it is not
        a fix."""
        texts = dict(start.files)
        for name, version in up.items():
            texts |= raised(texts, name, plan_raise(texts, name, version), self.hashes)
        state = State(texts, self.resolve(texts))
        problem = self.judge.problem(start, state)
        left = next((n for n in self.judge.affected(state.tree) if n.name in bad), None)
        if left is not None:
            problem = worse(state.tree, left.label, "would be installed, and is affected")
        if problem is not None:
            raise does_not_serve(problem)
        return state

    def _dependency_paths(
        self, tree: DependencyTree, package: str, up: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return the raised packages that lead to a package; all of them if none does."""
        leading = [name for name in up if name != package and _reaches(tree, name, {package})]
        others = leading or [name for name in up if name != package]
        return tuple(f"{name} {up[name]}" for name in sorted(others))

    def _lowest(
        self, start: State, bad: dict[str, Node], free: frozenset[str]
    ) -> Mapping[str, str]:
        """Return the lowest versions of ``free`` that go together with safe versions of ``bad``."""
        asked = wanted(start.files, self.reading)
        tree = start.tree
        floors = {name: _version_of(tree, name) for name in free}
        held = {name: _version_of(tree, name) for name in tree.asked}
        bounds = {name: self._bound(node) for name, node in bad.items()}
        for _ in range(MAX_ROUNDS):
            trial = loosened(asked, floors, held, bounds)
            trial = replace(trial, constraints=(*trial.constraints, *bounds.values()))
            try:
                uv, lowest = self.command.client, "--resolution=lowest-direct"
                found = resolve(uv, self.command.path, trial, lowest, is_trial=True).tree
            except RecipeError as error:
                raise self._named(error, bad, start) from None
            again = [
                node
                for node in found.affected(self.releases.advisory, ECOSYSTEM)
                if node.name in bounds or not self._bad(tree, [node.name])
            ]
            if not again:
                return {name: _version_of(found, name) for name in free if found.of(name)}
            bounds |= {node.name: self._bound(node) for node in again}
        why = f"would still be affected after {MAX_ROUNDS} rounds"
        raise does_not_serve(worse(start.tree, ", ".join(bad), why))

    def _named(self, error: RecipeError, bad: dict[str, Node], start: State) -> RecipeError:
        """Return the refusal with the constraint and the parent that uv's output names, and its file;
        otherwise with uv's output."""
        # The package that was added last is the one that did not fit.
        for name, node in reversed(bad.items()):
            if self._target(node) is None:
                return _no_fix(self.releases.advisory, node)
            if blocker_of(error, name):
                break
        if not isinstance(error, UvRefusedError):
            return error
        files = start.files
        targets = {name: self._target(node) or "" for name, node in bad.items()}
        return error.placed(self.command.path, start.tree, partial(self._place, files), targets)

    def _bound(self, node: Node) -> str:
        """Return the constraint that excludes a package's affected version; below 0: the whole package."""
        target = self._target(node)
        return f"{node.name}>={at_least(target)}" if target else f"{node.name}<0"

    def _target(self, node: Node) -> str | None:
        try:
            return self.releases.named(node.name, node.version)
        except RecipeError:
            return None

    def _least(
        self, start: State, found: State, bad: Iterable[str], up: Mapping[str, str]
    ) -> tuple[State, Mapping[str, str]]:
        """Leave out each change without which the tree is still clear."""
        for name in tuple(up)[:MAX_ROUNDS] if len(up) > 1 else ():
            fewer = {other: version for other, version in up.items() if other != name}
            try:
                found, up = self._with(start, bad, fewer), fewer
            except RecipeError:
                continue
        return found, up


def _no_fix(advisory: Advisory, node: Node) -> RecipeError:
    ids = " and ".join(advisory.ids_affecting(ECOSYSTEM, node.name, node.version))
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{ids} names no fixed version above {node.version} of {node.name}, and what brings it in"
        " has no later version that goes without it.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def _reaches(tree: DependencyTree, name: str, goals: Iterable[str]) -> bool:
    """Return whether a package is one of these, or leads to one."""
    goals, waiting, seen = set(goals), [name], {name}
    while waiting:
        here = waiting.pop()
        if here in goals:
            return True
        following = {ask.name for node in tree.of(here) for ask in node.asks} - seen
        seen |= following
        waiting += following
    return False


def _version_of(tree: DependencyTree, name: str) -> str:
    """Return the version of a package that is in the tree."""
    return tree.of(name)[0].version
