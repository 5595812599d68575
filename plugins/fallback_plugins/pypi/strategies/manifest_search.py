"""The search for the smallest change of manifests that removes affected versions from their resolved tree.

A transitive version is fixed by raising a declared ancestor to the lowest version whose tree has no
affected package. uv does that search: the ancestors may be raised, the affected packages get a lower bound,
and ``lowest-direct`` resolution takes the lowest versions that fit. The result is then written into the
manifests and resolved once more, as pip would resolve them: only that second tree counts.
"""

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from packaging.requirements import Requirement
from packaging.version import Version

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.requirements import at_least, with_requirement
from fallback_plugins.pypi.resolving.registry import (
    Releases,
)
from fallback_plugins.pypi.resolving.resolutions import CommandResolution, resolve
from fallback_plugins.pypi.resolving.uv_client import (
    UvRefusedError,
    blocker_of,
    resolver_failed,
)
from fallback_plugins.pypi.resolving.wanted import (
    Reading,
    constraint_files,
    loosened,
    name_of,
    wanted,
)
from fallback_plugins.pypi.strategies.all_strategies import State, Step, cheapest_first
from fallback_plugins.pypi.strategies.direct import (
    Hashes,
    place_of,
    plan_raise,
    raised,
)
from fallback_plugins.pypi.strategies.locked import required_by_others
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
)
from fallback_plugins.shared.ladder import (
    PROJECT,
    Reached,
    ResultRules,
    Strategy,
    admits_already,
    blocked,
    does_not_apply,
    does_not_serve,
    never_worse,
    worse,
)
from fallback_plugins.shared.resolution import (
    SharedResolutions,
    Unresolved,
)
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import Advisory, compare_versions
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: The most rounds of one search: each adds lower bounds for packages that are affected in the last tree.
MAX_ROUNDS = 8

_Strategy = Strategy[Mapping[str, str]]
_Reached = Reached[Mapping[str, str]]


@dataclass(frozen=True)
class ManifestSearch:
    """The search for the smallest change that removes affected versions from a project's tree.

    There is no lock to refresh: a resolver takes the highest version that all ranges admit. ``command``:
    the project's resolution at the base commit. ``ages``: age rules, as options of uv. ``known``: returns
    what is unknown at the base commit, and so may be unknown with a fix.
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
        resolution = resolve(
            self.command.client, self.command.path, lines, *options, known=self.known
        )
        if not self.reading.folders:  # a patch may have changed their texts
            SharedResolutions.of(self.command.repo).add(texts, resolution)
        return resolution.tree

    @property
    def judge(self) -> ResultRules[Mapping[str, str]]:
        """Return the rules by which the ladder judges results for this project."""
        return ResultRules(
            ECOSYSTEM,
            self.releases.advisory,
            self.unnamed if self.command.is_compiled else never_worse,
            self.releases.ages,
        )

    def unnamed(self, before: State, after: State) -> Blocker | None:
        """Return a package that compiled files would install without naming it, or None if there is
        none."""
        added = sorted(after.tree.by_name.keys() - before.tree.by_name.keys())
        return (
            worse(after.tree, added[0], f"would come in, and {self.command.path} does not name it")
            if added
            else None
        )

    def check_named(self, bumped: State, base_tree: Callable[[], DependencyTree | None]) -> None:
        """Raise RecipeError if compiled files would install a new package that they don't name: their
        compiler would have written it, and if they have hashes no installer accepts it. ``base_tree``
        returns the old tree, or None if it is unknown."""
        if not self.command.is_compiled:
            return
        named_packages = set(map(name_of, wanted(bumped.files, self.reading).requirements))
        if named_packages.issuperset(bumped.tree.by_name) or (before := base_tree()) is None:
            return
        if blocker := self.unnamed(State(self.command.texts, before), bumped):
            refusal = does_not_serve(blocker)
            raise RecipeError(
                RefusalReason.MANIFEST_MISSING,
                refusal.problem,
                next_step="Compile it again, with the package upgraded.",
                blockers=refusal.blockers,
                kind="not_named",
            )

    @property
    def strategies(self) -> list[_Strategy]:
        """Return the strategies, cheapest first."""
        return cheapest_first(
            direct=Step(self._raise, self._not_declared),
            parent=Step(self._raise, self._declared),
            override=self._override,
        )

    @property
    def forced(self) -> list[_Strategy]:
        """Return only the override."""
        return cheapest_first(override=self._override)

    @property
    def _override(self) -> Step:
        """Return the step that adds a constraint on each package, within its major version, so that no
        dependent has to move."""
        return Step(self._constrain, self._declared)

    def _not_declared(self, state: State, package: str) -> RecipeError | None:
        if package in state.tree.asked:
            return None
        problem = f"{self.command.path} does not declare {package}."
        return required_by_others(state, package, problem, partial(self._place, state.files))

    def _place(self, files: Mapping[str, str], package: str) -> str:
        """Return the path of the file that requires a package: one of the project or of a folder that it
        installs; by default the project's main file."""
        in_folders = (file for file, _ in self._in_folders(package))
        return place_of(files, package, "") or next(in_folders, self.command.path)

    def _in_folders(self, package: str) -> Iterator[tuple[str, Requirement]]:
        """Yield (file, requirement) for each requirement on a package in a folder that the project
        installs."""
        for folder, (texts, lines) in self.reading.folders.items():
            if name := place_of(texts, package, ""):
                requirements = (Requirement(line) for line in lines if name_of(line) == package)
                yield from (
                    (posixpath.join(folder, name), requirement) for requirement in requirements
                )

    def _declared(self, state: State, package: str) -> RecipeError | None:
        if package not in state.tree.asked:
            return None
        spec = next(
            (ask.spec for root in state.tree.roots for ask in root.asks if ask.name == package), ""
        )
        file = self._place(state.files, package)
        problem = f"{file} declares {package} itself."
        return does_not_apply(problem, package, PROJECT, spec, file)

    def _raise(self, state: State, packages: tuple[str, ...]) -> _Reached:
        """Raise declared packages so that none of these is affected: only their ancestors or, if that
        fails, any. Raises RecipeError."""
        affected = self._bad(state.tree, packages)
        names = state.tree.asked
        ancestors = {name for name in names if _reaches(state.tree, name, affected)}
        problem: RecipeError | None = None
        for free in dict.fromkeys((frozenset(ancestors), frozenset(names))):
            try:
                return self._raised(state, affected, free)
            except RecipeError as error:
                problem = problem or error
        problem = self._blocked_by_folder(affected.values()) or problem
        raise problem or resolver_failed(
            f"{self.command.path} declares nothing that could be raised."
        )

    def _blocked_by_folder(self, affected: Iterable[Node]) -> RecipeError | None:
        """Return the refusal that names a folder's requirement which excludes a target, or None if none
        does."""
        for node in affected:
            target = self._target(node)
            if target is None:
                continue
            for file, requirement in self._in_folders(node.name):
                if not requirement.marker and not requirement.specifier.contains(
                    target, prereleases=True
                ):
                    spec = str(requirement.specifier)
                    return blocked(node.name, target, parent=PROJECT, spec=spec, where=file)
        return None

    def _constrain(self, state: State, packages: tuple[str, ...]) -> _Reached:
        """Add a constraint per package, in a requirements file only: pip reads no constraints from other
        manifests."""
        path = min(constraint_files(state.files), default=self.command.path)
        text = state.files[path]
        for node in self._bad(state.tree, packages).values():
            target = self._target(node)
            if kind_in_set(path) is not Kind.REQUIREMENTS or target is None:
                raise resolver_failed(
                    f"{path} has no place for a constraint on {node.name}.", kind="no_place"
                )
            if Version(target).major != Version(node.version).major:
                raise resolver_failed(
                    f"A constraint would take {node.name} from {node.version} to {target}, another"
                    " major version.",
                    kind="another_major",
                )
            text = with_requirement(text, node.name, target)
        texts = {**state.files, path: text}
        return Reached(State(texts, self.resolve(texts)))

    def _bad(self, tree: DependencyTree, packages: Iterable[str]) -> dict[str, Node]:
        return {node.name: node for node in self.judge.affected(tree) if node.name in packages}

    def _raised(self, start: State, affected: dict[str, Node], free: frozenset[str]) -> _Reached:
        versions = self._lowest(start, affected, free)
        raises = {
            name: version
            for name, version in versions.items()
            if compare_versions(ECOSYSTEM, version, _version_of(start.tree, name)) > 0
        }
        if not raises:
            raise admits_already(", ".join(affected))
        state, smallest = self._least(start, self._with(start, affected, raises), affected, raises)
        return Reached(
            state, {name: self._dependency_paths(start.tree, name, smallest) for name in affected}
        )

    def _with(self, start: State, affected: Iterable[str], raises: Mapping[str, str]) -> State:
        """Return the texts with these versions, resolved as pip would. Raises RecipeError if that is not a
        fix."""
        texts = dict(start.files)
        for name, version in raises.items():
            texts |= raised(texts, name, plan_raise(texts, name, version), self.hashes)
        state = State(texts, self.resolve(texts))
        problem = self.judge.problem(start, state)
        still_affected = next(
            (node for node in self.judge.affected(state.tree) if node.name in affected), None
        )
        if still_affected is not None:
            problem = worse(state.tree, still_affected.label, "would be installed, and is affected")
        if problem is not None:
            raise does_not_serve(problem)
        return state

    def _dependency_paths(
        self, tree: DependencyTree, package: str, raises: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return the raised packages that lead to a package, or if there are none all other raised ones."""
        leading = [name for name in raises if name != package and _reaches(tree, name, {package})]
        names = leading or [name for name in raises if name != package]
        return tuple(f"{name} {raises[name]}" for name in sorted(names))

    def _lowest(
        self, start: State, affected: dict[str, Node], free: frozenset[str]
    ) -> Mapping[str, str]:
        """Return the lowest versions of ``free`` that are compatible with safe versions of ``affected``."""
        lines = wanted(start.files, self.reading)
        tree = start.tree
        floors = {name: _version_of(tree, name) for name in free}
        pins = {name: _version_of(tree, name) for name in tree.asked}
        bounds = {name: self._bound(node) for name, node in affected.items()}
        for _ in range(MAX_ROUNDS):
            trial = loosened(lines, floors, pins, bounds)
            trial = replace(trial, constraints=(*trial.constraints, *bounds.values()))
            try:
                uv, lowest = self.command.client, "--resolution=lowest-direct"
                trial_tree = resolve(uv, self.command.path, trial, lowest, is_trial=True).tree
            except RecipeError as error:
                raise self._named(error, affected, start) from None
            still_affected = [
                node
                for node in trial_tree.affected(self.releases.advisory, ECOSYSTEM)
                if node.name in bounds or not self._bad(tree, [node.name])
            ]
            if not still_affected:
                return {name: _version_of(trial_tree, name) for name in free if trial_tree.of(name)}
            bounds |= {node.name: self._bound(node) for node in still_affected}
        why = f"would still be affected after {MAX_ROUNDS} rounds"
        raise does_not_serve(worse(start.tree, ", ".join(affected), why))

    def _named(self, error: RecipeError, affected: dict[str, Node], start: State) -> RecipeError:
        """Return the refusal with the constraint, the parent and its file if uv's output names them,
        otherwise with that output."""
        # The package that was added last is the one that did not fit.
        for name, node in reversed(affected.items()):
            if self._target(node) is None:
                return _no_fix(self.releases.advisory, node)
            if blocker_of(error, name):
                break
        if not isinstance(error, UvRefusedError):
            return error
        files = start.files
        targets = {name: self._target(node) or "" for name, node in affected.items()}
        return error.placed(self.command.path, start.tree, partial(self._place, files), targets)

    def _bound(self, node: Node) -> str:
        """Return the constraint that excludes a package's affected versions; without a safe one, the whole
        package (``<0``)."""
        target = self._target(node)
        return f"{node.name}>={at_least(target)}" if target else f"{node.name}<0"

    def _target(self, node: Node) -> str | None:
        try:
            return self.releases.named(node.name, node.version)
        except RecipeError:
            return None

    def _least(
        self, start: State, state: State, affected: Iterable[str], raises: Mapping[str, str]
    ) -> tuple[State, Mapping[str, str]]:
        """Return the state and versions without those raises that the fix doesn't need."""
        for name in tuple(raises)[:MAX_ROUNDS] if len(raises) > 1 else ():
            fewer = {
                raised_name: version
                for raised_name, version in raises.items()
                if raised_name != name
            }
            try:
                state, raises = self._with(start, affected, fewer), fewer
            except RecipeError:
                continue
        return state, raises


def _no_fix(advisory: Advisory, node: Node) -> RecipeError:
    ids = " and ".join(advisory.ids_affecting(ECOSYSTEM, node.name, node.version))
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{ids} names no fixed version above {node.version} of {node.name}, and what brings it in"
        " has no later version that goes without it.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def _reaches(tree: DependencyTree, name: str, goals: Iterable[str]) -> bool:
    """Return whether a package is one of ``goals``, or depends on one, directly or not."""
    goals, waiting, seen = set(goals), [name], {name}
    while waiting:
        package = waiting.pop()
        if package in goals:
            return True
        following = {ask.name for node in tree.of(package) for ask in node.asks} - seen
        seen |= following
        waiting += following
    return False


def _version_of(tree: DependencyTree, name: str) -> str:
    """Return the version of a package, which must be in the tree."""
    return tree.of(name)[0].version
