"""A set of Python manifests without a lock, as one Project of the ladder.

Pins in the manifests are fixed by text alone (proof level *pins*). What they bring in is in their
resolution (ADR-0099), unless a declaration that holds in every case admits no affected version.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.kinds import kind_of
from fallback_plugins.pypi.resolving.registry import (
    Releases,
    ages_of,
    as_options,
)
from fallback_plugins.pypi.resolving.resolutions import CommandResolution, UnknownPartError
from fallback_plugins.pypi.resolving.uv_client import (
    UvClient,
    UvRefusedError,
)
from fallback_plugins.pypi.resolving.wanted import (
    installs_folders,
)
from fallback_plugins.pypi.strategies.all_strategies import State
from fallback_plugins.pypi.strategies.direct import (
    affected_places,
    is_unaffected,
)
from fallback_plugins.pypi.strategies.manifest_search import ManifestSearch
from fallback_plugins.pypi.strategies.text_bump import TextBump
from fallback_plugins.pypi.surveying.deciding import DECIDING_LOCKS, METADATA, compiled_for, steps
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
)
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import FREE, Terms, no_override, unsupported, use_bump
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    ProjectFix,
    copies,
    left_behind,
    ordered,
)
from fallback_plugins.shared.ladder import Resolution as Ladder
from fallback_plugins.shared.resolution import (
    STILL_INSTALLED,
    Resolution,
    ResolvedBy,
    ResolvedPackage,
    Unresolved,
)
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Outline
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
            if one.is_not_resolved:
                return False  # there may be a safe release for each environment
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

    def _bump(self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS) -> TextBump:
        texts = {path: patched.get(path, text) for path, text in self.texts.items()}
        return TextBump(advisory, self.path, texts, self._locks_beside)

    def _checked_bump(self, advisory: Advisory) -> TextBump:
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

    def _forced(self, bump: TextBump, patched: Mapping[str, str]) -> ProjectFix | None:
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

    def _search(self, releases: Releases, patched: Mapping[str, str]) -> ManifestSearch:
        command = self.command
        reading, unresolved = command.strict(patched), lambda: self.resolution.unresolved
        ages = as_options(self.ages, excepting=True) if command.is_by_ages else ()
        return ManifestSearch(command, releases, self._hashes, reading, ages, unresolved)

    def _check_ages(self, search: ManifestSearch, bumped: State) -> None:
        """Raise RecipeError if a fix by text brings in a release that is too new, in whatever way."""
        before = self._before(search) if self.ages.rules else None
        if before is None:
            return
        new = copies(bumped.tree.nodes.values()) - copies(before.nodes.values())
        if (too_new := self.ages.first_problem(new)) is not None:
            raise too_new

    def _before(self, search: ManifestSearch) -> DependencyTree | None:
        """Return the tree of the unchanged texts; None: they conflict, or it is unknown."""
        with suppress(RecipeError, ToolError):
            return search.resolve(self.texts)
        return None

    def _untangled(self, search: ManifestSearch, fix: ProjectFix) -> ProjectFix | None:
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
            search.check_named(State(bumped, after), lambda: self._before(search))
            self._check_ages(search, State(bumped, after))
            return None
        if (before := self._before(search)) is None:
            return None
        found = self._climbed(search, State(self.texts, before), before)
        return replace(found, left=(*fix.left, *found.left), notes=fix.notes)

    def _resolved(self, search: ManifestSearch, fix: ProjectFix) -> ProjectFix | None:
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

    def _climbed(self, search: ManifestSearch, start: State, before: DependencyTree) -> ProjectFix:
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
