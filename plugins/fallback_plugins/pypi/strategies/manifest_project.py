"""Python manifests without a lock that one client installs together, as one Project of the ladder.

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
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, only_affected
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
    """Requirements files that include each other, or one pyproject.toml, Pipfile, setup.cfg or setup.py.

    ``unknown``: after a resolution, sentences on why transitive versions are unknown.
    """

    repo: RepoContext
    clients: ClientRunner
    files: tuple[str, ...]
    terms: Terms = FREE
    #: No client may run: only a resolution that an earlier run kept is used.
    only_kept: bool = False
    unknown: list[str] = field(default_factory=list)
    #: The packages that a fix left because they are affected in some environments only, or only admitted by
    #: a range while the client installs a safe release: other projects are still fixed.
    limited: list[Left] = field(default_factory=list)
    #: Those of them that are only admitted.
    admitted: list[Left] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Return the file that names the project: the shortest path of those that are manifests by their
        names."""
        return min(self.files, key=lambda path: (kind_of(path) is None, len(path), path))

    @property
    def manifests(self) -> frozenset[str]:
        """Return the paths of the project's files."""
        return frozenset(self.files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """Return the project's texts by path. Raises RepositoryError."""
        return {path: self.repo.read_text(path) for path in self.files}

    #: Whether to resolve only what environments of other tools, builds and CI install.
    _ONLY_TOOLS: ClassVar = False

    @property
    def command(self) -> CommandResolution:
        """Return the resolution of the install command, made once for the base commit. Raises
        RepositoryError."""
        only_tools, only_kept = self._ONLY_TOOLS, self.only_kept

        def command() -> CommandResolution:
            ages = Ages(ECOSYSTEM) if only_tools else self.ages
            arguments = (self.repo, self.clients, self.path, self.texts, only_tools, only_kept)
            return CommandResolution(*arguments, ages=ages)

        key = (CommandResolution, self.path, only_tools, only_kept)
        return self.repo.once((*key, self.clients, self.repo.settings), command)

    @cached_property
    def ages(self) -> Ages:
        """Return the project's age rules. Raises RepositoryError."""
        may_ask = not any(has_own_index(path, text) for path, text in self.texts.items())
        return ages_of(self.repo, self.clients, self.path, may_ask=may_ask, by_lock=False)

    @property
    def resolution(self) -> Resolution:
        """Return what the install command installs. Raises RecipeError, RepositoryError for a file that
        can't be read."""
        resolution = self.command.made
        for doubt in filter(None, (step.doubt() for step in steps(self.texts))):
            resolution = resolution.doubted(doubt.problem, doubt.next_step)
        return resolution

    def awaits_client(self, advisory: Advisory) -> bool:
        """Return whether a client has to run to tell what is affected, as in ``DecidedByLock``."""
        needs_client = not self.repo.settings.offline and self.command.known is None
        return needs_client and bool(self.unsettled(advisory))

    def unsettled(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS
    ) -> tuple[str, ...]:
        """Return the packages that no declaration settles, as in ``DecidedByLock``. Python installs one
        version, so a declaration that holds in every case and admits no affected version settles its
        package."""
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
        """Return the direct bumps that the texts need, without querying a registry. Raises RecipeError."""
        return self._checked_bump(advisory).outline(may_ask=not self.repo.settings.offline)

    @property
    def installs_folders(self) -> bool:
        """Return whether the project installs folders of the repository; False if it can't be read."""
        try:
            return any(map(installs_folders, self.texts.items()))
        except RepositoryError:
            return False

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Return the fix: direct bumps by text, and for what is not declared the search over resolved
        trees.

        None: nothing is fixed or left, or what is left is in ``limited``. Raises RecipeError.
        """
        bump = self._checked_bump(advisory)
        self.limited.clear()
        self.admitted.clear()
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
        if fix.left and not fix.moves and self._are_limited(bump, fix.left):
            affected = {package.name for package in self.resolution.affected(advisory)}
            self.limited[:] = fix.left
            self.admitted[:] = [item for item in fix.left if item.package not in affected]
            self.unknown += map(self._as_note, self.admitted)
            return None
        return fix if fix.moves or fix.left else None

    def _are_limited(self, bump: TextBump, left: Sequence[Left]) -> bool:
        """Return whether each package that is left is affected in some environments only, such as a Python
        that no fixed release supports, or in none: in the others the client chooses a safe release."""
        advisory, places = bump.advisory, dict(bump.declared())
        affected = {package.key: package for package in self.resolution.affected(advisory)}
        for item in left:
            if item.is_not_resolved:
                return False  # there may be a safe release for each environment
            installed = self.resolution.by_name.get(item.package, ())
            affected_installed = [
                affected[package.key] for package in installed if package.key in affected
            ]
            is_open = all(
                place.is_range
                and place.asked is not None
                and not only_affected(advisory, item.package, place.asked)
                for place in affected_places(advisory, places.get(item.package, ()), item.package)
            )
            if not affected_installed and not is_open:
                return False  # not all that it declares is part of what is resolved
            if len(affected_installed) == len(installed) or not all(
                package.environments for package in affected_installed
            ):
                return False
        return True

    def _as_note(self, item: Left) -> str:
        """Return a note on a package of which only safe releases are installed."""
        installed = self.resolution.by_name[item.package]
        versions = ", ".join(dict.fromkeys(package.version for package in installed))
        return (
            f"{item.sentence} That range stays, and admits affected releases; an installation now takes"
            f" {item.package} {versions}."
        )

    def stuck(self, advisory: Advisory) -> Iterator[Unresolved]:
        """Yield the packages in ``limited`` as unknown parts: they stay installed in an affected version.
        Raises RecipeError."""
        names = {item.package for item in self.limited}
        for package in self.resolution.affected(advisory):
            if package.name in names:
                why = f": no fixed release was found for {package.environments}"
                step = f"Raise the lowest Python here, {self.command.python}, to one of a fixed release."
                yield self._still_installed(package, step, why)

    def _still_installed(self, package: ResolvedPackage, step: str, why: str = "") -> Unresolved:
        reason = f"{self.path} installs {package.name} {package.version}{STILL_INSTALLED}{why}."
        names = frozenset({package.name})
        return Unresolved(subject=self.path, reason=reason, next_step=step, names=names)

    def _bump(self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS) -> TextBump:
        texts = {path: patched.get(path, text) for path, text in self.texts.items()}
        return TextBump(advisory, self.path, texts, self._locks_beside)

    def _checked_bump(self, advisory: Advisory) -> TextBump:
        """Return the bump. Raises RecipeError if a compiled file is not in step with its source."""
        for step in steps(self.texts):
            step.check(advisory)
        return self._bump(advisory)

    @cached_property
    def _locks_beside(self) -> Mapping[str, str]:
        """Return the locks next to a project's own metadata, and files compiled from it, as texts by path:
        they decide what is installed."""
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
        """Return the fix that constrains a transitive package (an override), or None if nothing affected is
        resolved. Raises RecipeError if the package is declared."""
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
        ladder = Ladder(search.judge, State(self.texts, self.resolution.tree))
        if not ladder.packages:
            return None
        ladder.run(search.forced)
        return self._fix_of(ladder, ladder.start.tree)

    def _hashes(self, package: str, version: str) -> Sequence[str]:
        """Return a release's hashes in the project's registry. Raises RecipeError if the project names its
        own index; ToolError."""
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
        """Raise RecipeError if a fix by text brings in a release that is too new, also as a transitive
        package."""
        before = self._before(search) if self.ages.rules else None
        if before is None:
            return
        new = copies(bumped.tree.nodes.values()) - copies(before.nodes.values())
        if (too_new := self.ages.first_problem(new)) is not None:
            raise too_new

    def _before(self, search: ManifestSearch) -> DependencyTree | None:
        """Return the tree of the unchanged texts, or None if they conflict or it is unknown."""
        with suppress(RecipeError, ToolError):
            return search.resolve(self.texts)
        return None

    def _untangled(self, search: ManifestSearch, fix: ProjectFix) -> ProjectFix | None:
        """Return the fix with the other pins that have to move along, or None if none has to or that is
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
        climbed = self._climbed(search, State(self.texts, before), before)
        return replace(climbed, left=(*fix.left, *climbed.left), notes=fix.notes)

    def _resolved(self, search: ManifestSearch, fix: ProjectFix) -> ProjectFix | None:
        """Return the fix with transitive packages fixed too, or None if none of them is known to be
        affected, or the resolution with the fix is unknown."""
        base = self.resolution
        raised = {move.package for move in fix.moves}
        advisory = search.releases.advisory
        affected = [package for package in base.affected(advisory) if package.name not in raised]
        try:
            if self.repo.settings.offline or base.by is ResolvedBy.LOCK or base.unresolved:
                raise unsupported(f"What a fix of {self.path} brings in is unknown.")
            before = search.resolve(self.texts)
        except (RecipeError, ToolError) as error:
            refusal = error if isinstance(error, RecipeError) else unsupported(error.problem)
            left = tuple(
                left_behind(
                    advisory,
                    ECOSYSTEM,
                    package.name,
                    [package.version],
                    manifest=self.path,
                    error=refusal,
                )
                for package in affected
            )
            return replace(fix, left=(*fix.left, *left)) if left else None
        # Start from the direct bumps, if uv accepts them. Otherwise another declared package has to move
        # with them: the search sees the whole tree, and fixes them too.
        start, raised_by_text = State(self.texts, before), not fix.texts
        if fix.texts:
            with suppress(RecipeError):
                bumped = {**self.texts, **fix.texts}
                start, raised_by_text = State(bumped, search.resolve(bumped)), True
        climbed = self._climbed(search, start, before)
        account = {move.package for move in climbed.moves} | {item.package for item in climbed.left}
        if not raised_by_text and not account.issuperset(move.package for move in fix.moves):
            self.unknown.append(
                f"What {self.path} resolves to with its raised pins is unknown: they don't go"
                " together with the rest of it."
            )
            return None
        left_packages = {item.package for item in fix.left}
        return replace(
            climbed,
            moves=(*(fix.moves if raised_by_text else ()), *climbed.moves),
            left=(*fix.left, *(item for item in climbed.left if item.package not in left_packages)),
            notes=fix.notes,
        )

    def _climbed(self, search: ManifestSearch, start: State, before: DependencyTree) -> ProjectFix:
        """Return the fix that the strategies reach from a start."""
        ladder = Ladder(search.judge, start)
        ladder.run(ordered(search.strategies, self.repo.settings.prefer, self.terms.left_out))
        return self._fix_of(ladder, before)

    def _fix_of(self, ladder: Ladder[Mapping[str, str]], before: DependencyTree) -> ProjectFix:
        start, end = ladder.start.files, ladder.at
        changed = [path for path, text in end.files.items() if text != start[path]]
        manifest = changed[0] if changed else self.path
        moves, left = ladder.moves(manifest), ladder.lefts(self.path)
        return ProjectFix(end.files, moves, left, before=before, after=end.tree)

    def _releases(self, advisory: Advisory) -> Releases:
        """Return the choice of versions. The registry is queried only if allowed, and if the project names
        no other index."""
        online = not self.repo.settings.offline
        foreign = [path for path, text in self.texts.items() if has_own_index(path, text)]
        may_ask = online and not foreign
        releases = Releases.of(advisory, self.terms, self.clients, self.ages, may_ask=may_ask)
        if online and foreign:
            releases.notes.append(
                f"{foreign[0]} names its own index, so yanked releases could not be asked about."
            )
        return releases


@dataclass
class ReadOnlyProject(ManifestProject):
    """Packages that commands of CI install, or environments of tools in a locked project. No fix changes
    them, so what is affected of them is reported as unknown."""

    @property
    def manifests(self) -> frozenset[str]:
        """Return nothing, as other projects account for the file."""
        return frozenset()

    _ONLY_TOOLS = True

    def unsettled(
        self,
        advisory: Advisory,
        patched: Mapping[str, str] = NO_TEXTS,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Return all of the advisory's packages: no declaration settles any."""
        return advisory.packages(ECOSYSTEM)

    def outline(self, advisory: Advisory) -> Outline:  # noqa: ARG002
        """Return an empty outline, as no fix changes the project."""
        return Outline()

    def resolve(
        self,
        advisory: Advisory,  # noqa: ARG002
        patched: Mapping[str, str] = NO_TEXTS,  # noqa: ARG002
        /,
    ) -> ProjectFix | None:
        """Return None, as no fix changes the project."""
        return None

    def stuck(self, advisory: Advisory) -> Iterator[Unresolved]:
        """Yield the installed affected packages as unknown parts. Raises RecipeError."""
        for package in self.resolution.affected(advisory):
            yield self._still_installed(
                package, "Raise what requires it there, or remove the command."
            )
