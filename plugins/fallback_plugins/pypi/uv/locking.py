"""The uv.lock that a fix takes: uv's own, with everything kept that needn't move."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import (
    read_tree,
    registries,
    rewrites,
    spliced,
    stub_wheels,
)
from fallback_plugins.pypi.resolving.resolver import (
    Locked,
    blocker_of,
    resolver_failed,
    uv_accepts,
    uv_lock,
)
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.lock_edit import State
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.pypi.uv import lowest as uv_lowest
from fallback_plugins.shared.ladder import blocked
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import Advisory, is_affected
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner


@dataclass(frozen=True)
class UvFiles:
    """What a resolution starts from: the lock, the manifests by path, the root's path, the lock's tree."""

    lock: str
    text: str
    root: str
    manifests: Mapping[str, str]
    tree: DependencyTree


class UvLocking:
    """Makes locks for one resolution, from the files that it starts from."""

    def __init__(self, files: UvFiles, advisory: Advisory, clients: ClientRunner) -> None:
        self._files = files
        self._advisory = advisory
        self._clients = clients
        self._lock = files.lock
        self._old = files.text

    def check_readable(self) -> None:
        """Raises RecipeError for what uv must not be shown: said once, not by each step."""
        uv_files.scratch_files(self._files.manifests, self._lock, self._old)

    def check_rebuilt(self) -> None:
        """Does uv take the manifest, as the lock tells it, for the one that the lock was made from?"""
        files = uv_files.scratch_files(self._files.manifests, self._lock, self._old)
        message = uv_accepts(self._clients, files, self._lock)
        if message:
            raise uv_files.missing(
                self._lock, f"{self._lock} does not show all of its manifest. {message}"
            )

    def locked(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> State:
        """The lock with these versions, everything else kept where it can be. Raises RecipeError."""
        new = self._lowest(state, manifests, wanted)
        unchanged = self._unchanged if rewrites(self._old, new.text) else self._old
        text = spliced(self._old, unchanged, new.text)
        self._check_origins(text, new)
        if text != new.text:
            self._check_accepted(manifests, text)
        return State({**manifests, self._lock: text}, read_tree(self._lock, text))

    def tree_of(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> DependencyTree:
        """What such a lock would hold, for manifests that are no fix. Raises RecipeError."""
        return read_tree(self._lock, self._lowest(state, manifests, wanted).text)

    def _lowest(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Locked:
        try:
            new = self._resolved(state, manifests, wanted)
        except RecipeError as error:
            raise self._named(error, wanted) from error
        lower = self._lower(state, manifests, wanted, new)
        if lower:
            with suppress(RecipeError):  # uv's own choice stands
                new = self._resolved(state, manifests, {**wanted, **lower})
        return new

    def _resolved(
        self, state: State, manifests: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Locked:
        files = uv_files.scratch_files(manifests, self._lock, state.files[self._lock])
        stubs = stub_wheels(self._lock, state.files[self._lock])
        pins = [f"--upgrade-package={name}=={version}" for name, version in wanted.items()]
        return uv_lock(self._clients, files, self._lock, pins, stubs=stubs)

    def _lower(
        self,
        state: State,
        manifests: Mapping[str, str],
        wanted: Mapping[str, str],
        new: Locked,
    ) -> Mapping[str, str]:
        """What had to move along, as low as serves, where that is lower than uv's choice."""
        after = read_tree(self._lock, new.text)
        floors = uv_lowest.moved_along(state.tree, after, wanted)
        if not floors:
            return {}
        files = uv_files.scratch_files(manifests, self._lock, uv_lowest.in_lowest_mode(new.text))
        moving = [f"--upgrade-package={name}>={held}" for name, held in floors.items()]
        options = ["--resolution=lowest", *moving]
        stubs = stub_wheels(self._lock, state.files[self._lock])
        try:
            lowest = uv_lock(self._clients, files, self._lock, options, stubs=stubs)
        except RecipeError:
            return {}
        lower = uv_lowest.lower_versions(self._lock, lowest.text, after, floors)
        return {
            name: version
            for name, version in lower.items()
            if not is_affected(self._advisory, ECOSYSTEM, name, version)
        }

    def _check_accepted(self, manifests: Mapping[str, str], text: str) -> None:
        """What is not uv's own text, uv must take for its own. Raises RecipeError."""
        files = uv_files.scratch_files(manifests, self._lock, text)
        message = uv_accepts(self._clients, files, self._lock)
        if message:
            raise resolver_failed(
                f"uv does not accept the new {self._lock} as up to date. {message}"
            )

    def _check_origins(self, text: str, new: Locked) -> None:
        """No release that was withdrawn, no other registry than the lock's. Raises RecipeError."""
        held = {(node.name, node.version) for node in self._files.tree.nodes.values()}
        for name, version in new.yanked - held:
            raise resolver_failed(f"It would take {name} {version}, which is yanked.")
        for other in registries(self._lock, text) - registries(self._lock, self._old):
            raise resolver_failed(
                f"It would take packages from {other}, which {self._lock} does not name: uv is set up with"
                " another index than the project."
            )

    def _named(self, error: RecipeError, wanted: Mapping[str, str]) -> RecipeError:
        """uv's refusal with the constraint and the parent that it blames, if it blames one."""
        for package, version in reversed(list(wanted.items())):
            blame = blocker_of(error, package)
            if blame:
                parent, spec = blame
                return blocked(package, version, parent=parent, spec=spec, where=self._lock)
        return error

    @cached_property
    def _unchanged(self) -> str:
        """The old lock as this uv writes it: what differs between the two is not the fix's doing."""
        files = uv_files.scratch_files(self._files.manifests, self._lock, self._old)
        affected = lock_edit.affected_versions(self._files.tree, self._advisory)
        pins = [f"--upgrade-package={name}=={held[-1]}" for name, held in affected.items()]
        try:
            stubs = stub_wheels(self._lock, self._old)
            return uv_lock(self._clients, files, self._lock, pins, stubs=stubs).text
        except RecipeError:
            return self._old
