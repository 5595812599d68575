"""A pipenv project, fixed by exact edits of its lock.

pipenv itself is not run: it builds source distributions. Its lock has only pins, so the real uv checks the
pins against each other, in a scratch lock that is discarded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.locks.pipfile_lock import PipfileLock
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.markers import ALWAYS, NEVER, either, extras_in, without_extras
from fallback_plugins.pypi.manifests.pyproject import parse_toml, pipfile_entries
from fallback_plugins.pypi.manifests.requirements import Declaration
from fallback_plugins.pypi.resolving.registry import Metadata, PackageIndex, Release, Releases
from fallback_plugins.pypi.resolving.uv_client import blocker_of
from fallback_plugins.pypi.strategies import locked
from fallback_plugins.pypi.strategies.locked import (
    EditedProject,
    EditResolver,
    MayRaise,
    State,
    check_raises,
)
from fallback_plugins.pypi.surveying.deciding import LockStep, ManifestRequest
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import blocked
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.errors import RecipeError

#: The most packages that may move with one fix. With more it would not be minimal: lock the project again.
MAX_MOVED = 4

#: The Python to resolve for if neither Pipfile nor lock names one.
_SOME_PYTHON = "3.9"

#: Sections of a Pipfile that have another name in the lock, with that name.
_SECTIONS = {"packages": "default", "dev-packages": "develop"}


@dataclass
class PipenvProject(EditedProject):
    """A Pipfile.lock with the Pipfile next to it, if there is one."""

    _MANIFEST = "Pipfile"
    _CLIENT = "pipenv"
    _INSTALL = "pipenv sync"
    _HAS_TREE = False  # the lock has only pins

    @cached_property
    def step(self) -> LockStep:
        """Return the lock with what the Pipfile requires; without that if the lock's hash shows that it is
        in step."""
        requests: list[ManifestRequest] = []
        for path, text in self.texts.items():
            if not self.lock.is_of(path, text):
                entries = pipfile_entries(parse_toml(path, text))
                requests += [
                    ManifestRequest(path, canonicalize_name(entry.name), entry.declaration)
                    for entry in entries
                    if not entry.declaration.marker and not entry.declaration.refusal
                ]
        return LockStep(self.path, "pipenv lock", self.lock.held, requests, self.lock.unversioned)

    @cached_property
    def lock(self) -> PipfileLock:
        """Return the parsed lock."""
        return PipfileLock(self.path, self.text)

    def tree_of(self, lock: PipfileLock) -> DependencyTree:
        """Return the pins as a tree. Its only edges are the Pipfile's own requirements: the files have no
        others."""
        nodes = {
            f"{pin.name} {pin.version}": Node(f"{pin.name} {pin.version}", pin.name, pin.version)
            for pin in lock.pins
        }
        keys = {pin.name: f"{pin.name} {pin.version}" for pin in lock.pins}
        of_section = {(pin.section, pin.name): f"{pin.name} {pin.version}" for pin in lock.pins}
        roots: tuple[Node, ...] = ()
        if self.texts:
            document = parse_toml(self.manifest, self.texts[self.manifest])
            entries = [
                (canonicalize_name(entry.name), entry) for entry in pipfile_entries(document)
            ]
            sections = [
                _SECTIONS.get(str(entry.keys[0]), str(entry.keys[0])) for _, entry in entries
            ]
            asks = tuple(
                DependencyEdge(name, entry.value, of_section.get((section, name)) or keys.get(name))
                for (name, entry), section in zip(entries, sections, strict=True)
            )
            roots = (Node(self.manifest, self.manifest, "", asks),)
        return DependencyTree(self.path, nodes, roots)

    @cached_property
    def tree(self) -> DependencyTree:
        """Return the lock's pins as a tree."""
        return self.tree_of(self.lock)

    def _resolver(self, releases: Releases) -> EditResolver["PipenvProject"]:
        return _Resolver(self, releases)

    def _refusal(self, node: Node) -> RecipeError | None:
        indexes = {pin.index for pin in self.lock.pins if pin.name == node.name}
        foreign = indexes - {None, self.lock.first_source}
        if foreign:
            return unsupported(f"{self.path} takes {node.name} from the index {foreign.pop()!r}.")
        return None


def _of_line(current: str, version: str) -> Callable[[Declaration], str | None]:
    """Return a function that returns the version for a declaration, or None if it does not admit
    ``current``."""
    return lambda declaration: version if not current or declaration.admits(current) else None


def _entry(release: Release) -> dict[str, Any]:
    """Return a release's version and hashes as an entry of a Pipfile.lock."""
    hashes = sorted(file.hash for file in release.files)
    return {"hashes": hashes, "version": f"=={release.version}"}


class _Resolver(EditResolver[PipenvProject]):
    """The steps over one Pipfile.lock."""

    #: Whether the new pins need packages that the lock does not hold.
    _gains = False

    def _moved(self, state: State, package: str, may_raise: MayRaise) -> State:
        path, texts = self._path, self._manifests(state)
        lock = PipfileLock(path, state.files[path])
        # Sections may hold other release lines of the package: each is moved to its own fixed version, one
        # at a time.
        highest_affected = locked.affected_versions(state.tree, self._advisory)[package][-1]
        current = highest_affected if len(state.tree.of(package)) > 1 else ""
        moved = {package: self._target(state, package)}
        while True:
            check_raises(texts, moved, may_raise, {package: current} if current else {})
            if not self._widen(lock, moved):
                break
        python = lock.python or _SOME_PYTHON
        for name, version in moved.items():
            only_line = current if name == package else ""
            texts = {**texts, **locked.raised(texts, name, _of_line(only_line, version))}
            release, metadata = self._index.release(name, version, python)
            sections = lock.sections_of(name, only_line)
            lock = lock.with_release(name, _entry(release), metadata.requires_python, sections)
        if self._gains:
            for file, text in texts.items():
                if has_own_index(file, text):
                    raise unsupported(
                        f"{file} names several indexes, and something new would have to come into"
                        f" {path} from one of them."
                    )
            lock = self._with_new(lock, PipfileLock(path, state.files[path]), moved)
        manifest = self._project.manifest
        if texts != self._manifests(state):
            old = self._manifests(state)[manifest]
            lock = lock.with_pipfile_hash(manifest, old, texts[manifest])
        return State({**texts, path: lock.text}, self._project.tree_of(lock))

    def _with_new(
        self, lock: PipfileLock, before: PipfileLock, moved: Mapping[str, str]
    ) -> PipfileLock:
        """Return the lock with what the new releases need and the old lock lacks. Raises RecipeError."""
        python = before.python or _SOME_PYTHON
        chosen = self._index.joined(self._lines(before, moved), (), python)
        for name, pin in _new_pins(before, self._index, moved, chosen, python).items():
            python_of = pin.metadata.requires_python
            lock = lock.with_entry(name, _entry(pin.release), python_of, pin.sections)
        return lock

    def _widen(self, lock: PipfileLock, moved: dict[str, str]) -> bool:
        """Move one more pin if uv reports that it conflicts with the new ones; return False if none does.

        Raises RecipeError if uv names no pin, or if that one can't move.
        """
        before = self._held_together
        self._gains = False
        if before is None:
            return False
        try:
            after = self._resolved(lock, moved)
        except RecipeError as error:
            for name in moved:
                blame = blocker_of(error, name)
                if blame:
                    self._add_parent(lock, moved, name, blame)
                    return True
            raise
        self._gains = bool(after.keys() - before)
        return False

    @cached_property
    def _held_together(self) -> frozenset[str] | None:
        """Return the packages that the old pins resolve to; None if uv can't, with the reason in
        ``unchecked``."""
        lock = self._project.lock
        try:
            return frozenset(self._resolved(lock, {}))
        except RecipeError as error:
            self.unchecked = (
                f"The pins of {lock.path} could not be checked against each other, only edited."
                f" {error.problem}"
            )
            return None

    def _resolved(self, lock: PipfileLock, moved: Mapping[str, str]) -> dict[str, str]:
        return self._index.resolved(self._lines(lock, moved), lock.python or _SOME_PYTHON)

    @staticmethod
    def _lines(lock: PipfileLock, moved: Mapping[str, str]) -> list[str]:
        return [
            pin.requirement.replace(f"=={pin.version}", f"=={moved.get(pin.name, pin.version)}", 1)
            for pin in lock.pins
        ]

    def _add_parent(
        self, lock: PipfileLock, moved: dict[str, str], name: str, blame: tuple[str, str]
    ) -> None:
        parent, spec = blame
        current = next((pin.version for pin in lock.pins if pin.name == parent), None)
        python = lock.python or _SOME_PYTHON
        movable = current if parent not in moved and len(moved) < MAX_MOVED else None
        label = f"{parent} {current or ''}".strip()
        refusal = blocked(name, moved[name], parent=label, spec=spec, where=lock.path)
        moved[parent] = self._index.lowest_parent(
            parent, movable, f"{name}=={moved[name]}", python, refusal
        )


#: The most packages that one fix may bring in, as for Poetry.
MAX_NEW = 20


@dataclass(frozen=True)
class _NewPin:
    """A pin that a lock gains, with the sections of the packages that require it."""

    release: Release
    metadata: Metadata
    sections: frozenset[str]


def _new_pins(
    lock: PipfileLock,
    index: PackageIndex,
    moved: Mapping[str, str],
    chosen: Mapping[str, str],
    python: str,
) -> dict[str, _NewPin]:
    """Return the pins that the moved releases need and the lock lacks, with those that these need in turn.

    ``chosen``: the versions to take. Raises RecipeError.
    """
    new_pins: dict[str, _NewPin] = {}
    locked_names = {pin.name for pin in lock.pins}
    waiting = [
        (name, _NewPin(*index.release(name, version, python), lock.sections_of(name)))
        for name, version in moved.items()
    ]
    while waiting:
        parent, pin = waiting.pop(0)
        for requirement in _needed(pin.metadata, lock.extras_of(parent), python):
            child = canonicalize_name(requirement.name)
            existing = new_pins.get(child)
            if child in locked_names or (existing and existing.sections >= pin.sections):
                continue
            if child not in chosen or len(new_pins) >= MAX_NEW:
                raise RecipeError(
                    RefusalReason.MANIFEST_MISSING,
                    f"{parent} would bring in {child}, which {lock.path} does not hold.",
                    next_step="Resolve it with `pipenv lock`.",
                )
            sections = pin.sections | (existing.sections if existing else frozenset())
            new = index.release(child, chosen[child], python)
            new_pins[child] = _NewPin(*new, sections)
            waiting.append((child, new_pins[child]))
    return new_pins


def _needed(metadata: Metadata, extras: Iterable[str], python: str) -> Iterator[Requirement]:
    """Yield the requirements of a release with these extras. Raises RecipeError for one that applies to
    some platforms only."""
    wanted_extras = set(map(canonicalize_name, extras))
    for requirement in metadata.requirements:
        marker = str(requirement.marker) if requirement.marker else ""
        marker_extras = set(map(canonicalize_name, extras_in(marker)))
        condition = either([without_extras(marker)], f"~{python}")
        if condition == NEVER or (marker_extras and not marker_extras & wanted_extras):
            continue
        if condition != ALWAYS:
            raise unsupported(
                f"{requirement.name} is needed where {marker}, and a Pipfile.lock does not say which"
                " platform it is for."
            )
        yield requirement
