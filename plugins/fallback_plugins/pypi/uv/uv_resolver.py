"""The steps of one resolution over a uv project: each asks the real uv."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fallback_audit.vocabulary import BlockerKind, LadderStep, RefusalReason
from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import requires_python
from fallback_plugins.pypi.manifests.pyproject import replace_requirement
from fallback_plugins.pypi.manifests.requirements import Declaration, at_least, requirement_in
from fallback_plugins.pypi.resolving.own_line import of_its_line
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.resolving.resolver import UvRefusedError, resolver_failed
from fallback_plugins.pypi.resolving.scratch_lock import lowest_python
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import (
    State,
    admits,
    not_admitting,
    strategy,
)
from fallback_plugins.pypi.strategies.locked_project import LockedProject, LockResolver
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.pypi.uv.locking import UvLocking
from fallback_plugins.pypi.uv.overrides import with_override, without_override
from fallback_plugins.shared.bumping import unneeded_override, unsupported
from fallback_plugins.shared.ladder import PROJECT, ProjectFix, Strategy, does_not_apply
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory.versions import is_prerelease
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: Declared ancestors of one package that are tried: each costs two runs of uv.
MAX_PARENTS_TRIED = 4


class UvResolver(LockResolver[LockedProject]):
    """The steps of one resolution. Each brings a package to the version that it is given."""

    def __init__(self, project: LockedProject, releases: Releases) -> None:
        super().__init__(project, releases)
        self._locking = UvLocking(project, releases.advisory)

    @property
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Cheapest first. Raises RecipeError: no resolution can begin from these files."""
        self._locking.check_readable()
        if not self._project.declares:
            self._locking.check_rebuilt()
            return [strategy(LadderStep.LOCK_EDIT, self._aimed(self._refreshed))]
        return [
            strategy(LadderStep.LOCK_REFRESH, self._aimed(self._refreshed)),
            strategy(LadderStep.DIRECT_BUMP, self._aimed(self._directly), self._not_held_back),
            strategy(LadderStep.PARENT_BUMP, self._aimed(self._by_parents), self._not_brought_in),
            *self.forced,
        ]

    @property
    def forced(self) -> list[Strategy[Mapping[str, str]]]:
        """The override alone."""
        return [strategy(LadderStep.OVERRIDE, self._aimed(self._overridden))]

    def _aimed(self, step: Callable[[State, str, str], State]) -> lock_edit.StepFunction:
        """The step, with the version that the record names: that it is yanked or not published shows in
        uv's own answer. Only where it doesn't serve is the registry asked for another."""

        def aimed(state: State, package: str) -> State:
            held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]
            offered = partial(self.releases.lowest_safe, package, held)
            try:
                named = self.releases.named(package, held)
            except RecipeError:
                return step(state, package, offered())
            is_candidate = is_prerelease(ECOSYSTEM, named) and not is_prerelease(ECOSYSTEM, held)
            if is_candidate or "+" in held:
                return step(state, package, offered())
            try:
                return step(state, package, named)
            except RecipeError as error:
                if error.reason is RefusalReason.BLOCKED_BY_CONSTRAINT:
                    raise
                target = offered()
                if target == named:
                    raise
                return step(state, package, target)

        return aimed

    def _not_held_back(self, state: State, package: str) -> RecipeError | None:
        if any(lock_edit.declared(self._manifests(state), package)):
            return None
        problem = f"No manifest of {self._path} holds {package} back."
        return lock_edit.required_by_others(state, package, problem, self._place(state))

    def _place(self, state: State) -> Callable[[str], str]:
        manifests = self._manifests(state)
        return lambda name: next(lock_edit.declared(manifests, name), self._path)

    def _not_brought_in(self, state: State, package: str) -> RecipeError | None:
        if self._ancestors(state, package):
            return None
        problem = f"No declared package of {self._path} brings in {package}."
        where = self._place(state)(package)
        return does_not_apply(problem, package, PROJECT, "", where)

    def _refreshed(self, state: State, package: str, target: str) -> State:
        """A safe version within everybody's range: only the lock changes."""
        manifests = self._manifests(state)
        if _has_lines(state, package):
            return self._locking.locked(state, manifests, {package: ""})
        excluded = not_admitting(manifests, package, target)
        if excluded:
            target = self._target_within(state, package, target, excluded)
        self._refuse_edit_without_manifest(state, package, target)
        return self._locking.locked(state, manifests, {package: target})

    def _directly(self, state: State, package: str, target: str) -> State:
        """Every declaration that excludes the version is raised to it; constraints and overrides too."""
        manifests, lines = self._manifests(state), _has_lines(state, package)
        version_of = partial(self._line_target, state, package) if lines else target
        edited = lock_edit.raised(manifests, package, version_of)
        if not edited:
            raise unsupported(f"No manifest of {self._path} holds {package} back.")
        # uv keeps the lines that may stay, and moves those whose declarations exclude what is locked.
        wanted = {} if lines else {package: target}
        return self._locking.locked(state, {**manifests, **edited}, wanted)

    def _line_target(self, state: State, package: str, declaration: Declaration) -> str | None:
        """Return the safe version above the highest affected copy that a declaration admits; None if it
        admits no affected copy. Raises RecipeError."""
        held = lock_edit.affected_versions(state.tree, self._advisory)[package]
        own = [version for version in held if declaration.admits(version)]
        return self.releases.lowest_safe(package, own[-1]) if own else None

    def _by_parents(self, state: State, package: str, target: str) -> State:
        """The declared ancestors raised to the lowest version whose tree has the safe one."""
        last: RecipeError | None = None
        found: dict[str, str] = {}
        child = {package: target}
        for name, held in self._ancestors(state, package):
            try:
                version = self._lowest_parent(name, held, package, target)
                found[name] = version
                return self._with_parents(state, {name: version}, child)
            except UvRefusedError as error:
                last = self._locking.placed(error, state, child)
            except RecipeError as error:
                last = error
        if len(found) > 1:
            try:
                return self._with_parents(state, found, child)
            except RecipeError as error:
                last = error
        for name, version in found.items():
            with suppress(RecipeError):
                return self._with_followers(state, {name: version}, child)
        raise last or resolver_failed("No ancestor could be tried.")

    def _overridden(self, state: State, package: str, target: str) -> State:
        """``override-dependencies``: the version against a parent's word, within the same major."""
        held = state.tree.highest(ECOSYSTEM, package) or target
        if Version(held).major != Version(target).major:
            raise self._not_forced(state, package, held, target)
        root = self._project.manifest
        manifests = self._manifests(state)
        # Bounded: a later lock must not cross the major that the parent was never tried with.
        bounds = f">={at_least(target)},<{Version(target).major + 1}"
        text = with_override(root, manifests[root], f"{package}{bounds}")
        return self._locking.locked(state, {**manifests, root: text}, {package: target})

    def notes_on(self, fix: ProjectFix) -> Iterator[str]:
        """As ``LockResolver.notes_on``, with each override of a fixed package without which uv resolves to
        the same versions."""
        yield from super().notes_on(fix)
        path, after = self._project.manifest, fix.after
        files = {self._path: self._project.text, **self._project.texts, **fix.texts}
        for move in fix.moves if after is not None and path in files else ():
            less = without_override(path, files[path], move.package)
            if less is None or move.after is None or after is None:
                continue
            state, wanted = State(files, after), {move.package: move.after}
            try:
                tree = self._locking.tree_of(state, {**self._manifests(state), path: less}, wanted)
            except RecipeError:
                continue
            if tree.listing() == after.listing():
                where = f"The override of {move.package} in {path}"
                yield unneeded_override(where, move.package)

    def _not_forced(self, state: State, package: str, held: str, target: str) -> RecipeError:
        """The refusal to override what requires the package: the target is another major version."""
        manifests = self._manifests(state)
        asking = (one for node in state.tree.of(package) for one in state.tree.dependents(node.key))
        blockers = [
            Blocker(
                kind=BlockerKind.CONFLICT,
                package=PROJECT if state.tree.is_root(parent) else parent.label,
                constraint=f"{package} {ask.spec}".strip(),
                file=next(lock_edit.declared(manifests, parent.name), self._path),
            )
            for parent, ask in asking
        ]
        return RecipeError(
            RefusalReason.BLOCKED_BY_CONSTRAINT,
            f"{package} {target} is another major version than {held}: it is not forced on what requires"
            f" it ({', '.join(it.package for it in blockers)}).",
            next_step=f"Upgrade what requires {package} to releases that admit {target}.",
            blockers=blockers,
            kind="another_major",
        )

    def _target_within(
        self, state: State, package: str, target: str, excluded: tuple[str, str]
    ) -> str:
        held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]
        manifests = self._manifests(state)

        def admitted(version: str) -> bool:
            return not_admitting(manifests, package, version) is None

        try:
            self.releases.named(package, held, admitted)
            return self.releases.lowest_safe(package, held, admitted)
        except RecipeError as error:
            raise lock_edit.excluded_by(*excluded, package, target) from error

    def _refuse_edit_without_manifest(self, state: State, package: str, target: str) -> None:
        """A declaration that the lock alone tells of can't be raised."""
        if self._project.declares:
            return
        for root in state.tree.roots:
            for ask in root.asks:
                excluded = ask.name == package and ask.spec and not admits(ask.spec, target)
                if excluded:
                    raise uv_files.missing(
                        self._path,
                        f"{root.name} requires {package} {ask.spec}, which does not admit {target},"
                        f" and its {uv_files.MANIFEST} is not in this repository.",
                    )

    def _with_parents(
        self, state: State, parents: Mapping[str, str], child: Mapping[str, str]
    ) -> State:
        edited = lock_edit.all_raised(self._manifests(state), parents)
        return self._locking.locked(state, edited, {**parents, **child})

    def _with_followers(
        self, state: State, parents: Mapping[str, str], child: Mapping[str, str]
    ) -> State:
        """The same, and what is declared beside them raised as far as they need it (ADR-0077): what they
        admit as it is stays. Raises RecipeError."""
        edited = lock_edit.all_raised(self._manifests(state), parents)
        wanted = {**parents, **child}
        after = self._locking.tree_of(state, _with_room(edited, state.tree, wanted), wanted)
        moved = _followers(edited, after)
        edited = lock_edit.all_raised(edited, moved)
        return self._locking.locked(state, edited, {**wanted, **moved})

    def _ancestors(self, state: State, package: str) -> Sequence[tuple[str, str]]:
        """Declared packages that bring it in, with the version held, those of the shortest ways first."""
        found = {
            dependency_path[1].name: dependency_path[1].version
            for node in state.tree.of(package)
            for dependency_path in state.tree.paths_to(node.key)
            if len(dependency_path) > 2 and state.tree.is_root(dependency_path[0])
        }
        manifests = self._manifests(state)
        named = [name for name in found if any(lock_edit.declared(manifests, name))]
        return [(name, found[name]) for name in named[:MAX_PARENTS_TRIED]]

    def _lowest_parent(self, name: str, held: str, package: str, target: str) -> str:
        python = lowest_python(requires_python(self._path, self._project.text))
        wanted, constraint = f"{name}>={at_least(held)}", f"{package}>={at_least(target)}"
        lowest = self._index.lowest_with(wanted, constraint, python)[name]
        return of_its_line(self._index, (name, held, lowest), (package, target), python)


def _has_lines(state: State, package: str) -> bool:
    """Return whether a lock holds several versions of a package: conflicting extras, or marker forks."""
    return len({node.version for node in state.tree.of(package)}) > 1


def _with_room(
    manifests: Mapping[str, str], tree: DependencyTree, but_for: Collection[str]
) -> Mapping[str, str]:
    """The manifests where everything that they ask for may be higher than it is: for a scratch folder.

    ``but_for``: what is raised already. What can't be edited as text stays.
    """
    freed = dict(manifests)
    for path, name, string in lock_edit.asked_for(manifests):
        held, asked = tree.highest(ECOSYSTEM, name), requirement_in(string.value)
        if name in but_for or held is None or string.declaration.refusal or asked is None:
            continue
        asked.specifier = SpecifierSet(f">={at_least(held)}")
        freed[path] = replace_requirement(path, freed[path], string.keys, str(asked))
    return freed


def _followers(manifests: Mapping[str, str], after: DependencyTree) -> dict[str, str]:
    """What a tree has in versions that the manifests do not admit, by name."""
    found = {}
    for _, name, _ in lock_edit.asked_for(manifests):
        version = after.highest(ECOSYSTEM, name)
        if version is not None and not_admitting(manifests, name, version):
            found[name] = version
    return found
