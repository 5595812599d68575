"""The steps of one resolution over a uv project: each asks the real uv."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from packaging.version import Version

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import requires_python
from fallback_plugins.pypi.resolving.own_line import of_its_line
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.resolving.resolver import resolver_failed
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex, lowest_python
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import (
    State,
    admits,
    highest_of,
    not_admitting,
    strategy,
)
from fallback_plugins.pypi.uv.beside import followers, with_room
from fallback_plugins.pypi.uv.locking import UvFiles, UvLocking
from fallback_plugins.pypi.uv.overrides import with_override
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import Strategy
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner

#: Declared ancestors of one package that are tried: each costs two runs of uv.
MAX_PARENTS_TRIED = 4


class UvResolver:
    """The steps of one resolution."""

    def __init__(self, files: UvFiles, clients: ClientRunner, releases: Releases) -> None:
        self._files = files
        self._advisory = releases.advisory
        self._clients = clients
        self._lock = files.lock
        self._releases = releases
        self._locking = UvLocking(files, releases.advisory, clients)

    @property
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Cheapest first. Raises RecipeError: no resolution can begin from these files."""
        self._locking.check_readable()
        if self._files.root not in self._files.manifests:
            self._locking.check_rebuilt()
            return [strategy(LadderStep.LOCK_EDIT, self._refresh)]
        return [
            strategy(LadderStep.LOCK_REFRESH, self._refresh),
            strategy(LadderStep.DIRECT_BUMP, self._direct, self._not_held_back),
            strategy(LadderStep.PARENT_BUMP, self._parent, self._not_brought_in),
            *self.forced,
        ]

    @property
    def forced(self) -> list[Strategy[Mapping[str, str]]]:
        """The override alone."""
        return [strategy(LadderStep.OVERRIDE, self._override)]

    def _refresh(self, state: State, package: str) -> State:
        """A safe version within everybody's range: only the lock changes."""
        return self._aimed(state, package, self._refreshed)

    def _direct(self, state: State, package: str) -> State:
        """Every declaration that excludes the version is raised to it; constraints and overrides too."""
        return self._aimed(state, package, self._directly)

    def _parent(self, state: State, package: str) -> State:
        """The declared ancestors raised to the lowest version whose tree has the safe one."""
        return self._aimed(state, package, self._by_parents)

    def _override(self, state: State, package: str) -> State:
        """``override-dependencies``: the version against a parent's word, within the same major."""
        return self._aimed(state, package, self._overridden)

    def _aimed(self, state: State, package: str, step: Callable[[State, str, str], State]) -> State:
        """The step, with the version that the record names: that it is yanked or not published shows in
        uv's own answer. Only where it doesn't serve is the registry asked for another."""
        held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]
        try:
            named = self._releases.named(package, held)
        except RecipeError:
            return step(state, package, self._offered(package, held))
        try:
            return step(state, package, named)
        except RecipeError as error:
            if error.reason is RefusalReason.BLOCKED_BY_CONSTRAINT:
                raise
            target = self._offered(package, held)
            if target == named:
                raise
            return step(state, package, target)

    def _not_held_back(self, state: State, package: str) -> RecipeError | None:
        if any(lock_edit.declared(self._manifests(state), package)):
            return None
        return unsupported(f"No manifest of {self._lock} holds {package} back.")

    def _not_brought_in(self, state: State, package: str) -> RecipeError | None:
        if self._ancestors(state, package, self._manifests(state)):
            return None
        return unsupported(f"No declared package of {self._lock} brings in {package}.")

    def _refreshed(self, state: State, package: str, target: str) -> State:
        manifests = self._manifests(state)
        excluded = not_admitting(manifests, package, target)
        if excluded:
            path, spec = excluded
            target = self._target_within(state, package, manifests, path, spec, target)
        self._refuse_edit_without_manifest(state, package, target)
        return self._locking.locked(state, manifests, {package: target})

    def _directly(self, state: State, package: str, target: str) -> State:
        manifests = self._manifests(state)
        edited = lock_edit.raised(manifests, package, target)
        if not edited:
            raise unsupported(f"No manifest of {self._lock} holds {package} back.")
        return self._locking.locked(state, {**manifests, **edited}, {package: target})

    def _by_parents(self, state: State, package: str, target: str) -> State:
        manifests = self._manifests(state)
        ancestors = self._ancestors(state, package, manifests)
        last: RecipeError | None = None
        found: dict[str, str] = {}
        for name, held in ancestors:
            try:
                version = self._lowest_parent(name, held, package, target)
                found[name] = version
                return self._with_parents(state, manifests, {name: version}, package, target)
            except RecipeError as error:
                last = error
        if len(found) > 1:
            try:
                return self._with_parents(state, manifests, found, package, target)
            except RecipeError as error:
                last = error
        for name, version in found.items():
            with suppress(RecipeError):
                return self._with_followers(state, manifests, {name: version}, package, target)
        raise last or resolver_failed("No ancestor could be tried.")

    def _overridden(self, state: State, package: str, target: str) -> State:
        held = highest_of(state.tree, package) or target
        if Version(held).major != Version(target).major:
            raise RecipeError(
                RefusalReason.BLOCKED_BY_CONSTRAINT,
                f"{package} {target} is another major version than {held}: it is not forced on a "
                "parent that does not admit it.",
                next_step=f"Raise what asks for {package}, or let a model propose the change.",
            )
        root = self._files.root
        manifests = self._manifests(state)
        # Bounded: a later lock must not cross the major that the parent was never tried with.
        bounds = f">={target},<{Version(target).major + 1}"
        text = with_override(root, manifests[root], f"{package}{bounds}")
        return self._locking.locked(state, {**manifests, root: text}, {package: target})

    def _offered(self, package: str, held: str) -> str:
        return self._releases.lowest_safe(package, held)

    def _target_within(
        self,
        state: State,
        package: str,
        manifests: Mapping[str, str],
        path: str,
        spec: str,
        target: str,
    ) -> str:
        held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]

        def admitted(version: str) -> bool:
            return not_admitting(manifests, package, version) is None

        try:
            self._releases.named(package, held, admitted)
            return self._releases.lowest_safe(package, held, admitted)
        except RecipeError as error:
            raise lock_edit.excluded_by(path, spec, package, target) from error

    def _refuse_edit_without_manifest(self, state: State, package: str, target: str) -> None:
        """A declaration that the lock alone tells of can't be raised."""
        if self._files.root in self._files.manifests:
            return
        for root in state.tree.roots:
            for ask in root.asks:
                excluded = ask.name == package and ask.spec and not admits(ask.spec, target)
                if excluded:
                    raise uv_files.missing(
                        self._lock,
                        f"{root.name} asks for {package} {ask.spec}, which does not admit {target},"
                        f" and its {uv_files.MANIFEST} is not in this repository.",
                    )

    def _with_parents(
        self,
        state: State,
        manifests: Mapping[str, str],
        parents: Mapping[str, str],
        package: str,
        target: str,
    ) -> State:
        edited = lock_edit.all_raised(manifests, parents)
        return self._locking.locked(state, edited, {**parents, package: target})

    def _with_followers(
        self,
        state: State,
        manifests: Mapping[str, str],
        parents: Mapping[str, str],
        package: str,
        target: str,
    ) -> State:
        """The same, and what is declared beside them raised as far as they need it (ADR-0077): what they
        admit as it is stays. Raises RecipeError."""
        edited = lock_edit.all_raised(manifests, parents)
        wanted = {**parents, package: target}
        room = with_room(edited, state.tree, wanted)
        moved = followers(edited, self._locking.tree_of(state, room, wanted))
        edited = lock_edit.all_raised(edited, moved)
        return self._locking.locked(state, edited, {**wanted, **moved})

    def _ancestors(
        self, state: State, package: str, manifests: Mapping[str, str]
    ) -> Sequence[tuple[str, str]]:
        """Declared packages that bring it in, with the version held, those of the shortest ways first."""
        dependency_paths = [
            dependency_path
            for node in state.tree.of(package)
            for dependency_path in state.tree.paths_to(node.key)
        ]
        found = {
            dependency_path[1].name: dependency_path[1].version
            for dependency_path in dependency_paths
            if len(dependency_path) > 2 and state.tree.is_root(dependency_path[0])
        }
        named = [name for name in found if any(lock_edit.declared(manifests, name))]
        return [(name, found[name]) for name in named[:MAX_PARENTS_TRIED]]

    def _lowest_parent(self, name: str, held: str, package: str, target: str) -> str:
        index = PackageIndex(self._clients)
        python = lowest_python(requires_python(self._lock, self._files.text))
        lowest = index.lowest_with(f"{name}>={held}", f"{package}>={target}", python)[name]
        return of_its_line(index, (name, held, lowest), (package, target), python)

    @staticmethod
    def _manifests(state: State) -> dict[str, str]:
        return {path: text for path, text in state.files.items() if not path.endswith(".lock")}
