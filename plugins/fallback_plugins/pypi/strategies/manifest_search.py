"""The search for the smallest change of manifests that takes affected packages out of their resolved tree.

A transitive version is fixed by raising a declared ancestor to the lowest version whose tree is clear. uv
does that search: the ancestors may be higher than they are, the affected packages get a lower bound, and
``lowest-direct`` resolution takes the lowest that fits. The result is then written into the manifests and
resolved once more, as pip would: only that second tree counts.
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

#: Rounds of one search: each adds the lower bound of a package that the last tree still held affected.
MAX_ROUNDS = 8

_Strategy = Strategy[Mapping[str, str]]
_Reached = Reached[Mapping[str, str]]


@dataclass(frozen=True)
class ManifestSearch:
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

    def check_named(self, bumped: State, base_tree: Callable[[], DependencyTree | None]) -> None:
        """Raise RecipeError if a closed set would get a package that it does not name: with hashes no
        installer would take it, and its compiler would write more. ``base_tree`` returns the old tree."""
        if not self.command.is_compiled:
            return
        named = set(map(name_of, wanted(bumped.files, self.reading).requirements))
        if named.issuperset(bumped.tree.by_name) or (before := base_tree()) is None:
            return
        if message := self.unnamed(State(self.command.texts, before), bumped):
            refusal = does_not_serve(message)
            raise RecipeError(
                RefusalReason.MANIFEST_MISSING,
                refusal.problem,
                next_step="Compile it again, with the package upgraded.",
                blockers=refusal.blockers,
                kind="not_named",
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
