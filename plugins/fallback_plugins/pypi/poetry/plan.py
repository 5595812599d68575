"""Which locked packages have to move together, so that everyone who asks still gets what was asked for."""

from collections.abc import Iterable, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import BlockerKind, RefusalReason
from fallback_plugins.pypi.manifests.poetry_constraints import admits
from fallback_plugins.pypi.poetry.asked import applying
from fallback_plugins.pypi.poetry.lock import PoetryLock
from fallback_plugins.pypi.poetry.markers import can_hold, supported
from fallback_plugins.pypi.poetry.roots import Root
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex, Release
from fallback_plugins.pypi.resolving.wheel_metadata import Metadata
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import blocked, refused_for
from fallback_tier.advisory import Advisory, compare_versions, is_affected
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: Packages that may move with one fix. More is no minimal fix: resolve it anew.
MAX_MOVED = 6

#: Packages that one fix may bring in. A framework that split itself up brought nine (ansible).
MAX_NEW = 20

#: Releases of a new package that are looked at for one that supports every Python of the project.
_MAX_TRIED = 5


class Planner:
    """The versions that one fix takes, widened until no constraint of the lock is broken.

    ``asked``: what the project itself asks for, where that is known.
    """

    def __init__(
        self,
        lock: PoetryLock,
        index: PackageIndex,
        advisory: Advisory,
        asked: Sequence[Root] = (),
    ) -> None:
        self._lock = lock
        self._index = index
        self._advisory = advisory
        self._asked = asked
        self._chosen: dict[str, str] = {}
        self._extras: dict[str, frozenset[str]] = {}
        self.releases: dict[str, tuple[Release, Metadata]] = {}

    @property
    def versions(self) -> dict[str, str]:
        """The new version of each package that moves or comes in, the first one first."""
        return {name: release.version for name, (release, _) in self.releases.items()}

    def add(self, name: str, version: str) -> None:
        """A package moves to a version. Raises RecipeError: it can't."""
        release, metadata = self._release(name, version)
        if not self._is_supported(name, metadata):
            raise self._other_pythons(release, metadata)
        self.releases[name] = (release, metadata)

    def widen(self) -> bool:
        """Move one more package, or bring one in, if a constraint asks for it; False: none does.

        Raises RecipeError.
        """
        for name, version in self.versions.items():
            for parent, constraint in self._dependents(name):
                if not admits(constraint, version):
                    self._raise_parent(parent, name, version, constraint)
                    return True
        for name, requirement in self._requirements():
            child = canonicalize_name(requirement.name)
            held = self.versions.get(child) or self._lock.version_of(child)
            if held is None:
                self._bring_in(name, child)
                return True
            if not lock_edit.admits(str(requirement.specifier), held):
                self._raise_child(name, child, str(requirement.specifier), held)
                return True
            if not self.extras(child).issuperset(map(canonicalize_name, requirement.extras)):
                self._ask_more(child, held, requirement)
                return True
        return False

    def extras(self, name: str) -> frozenset[str]:
        """The extras of a package that somebody asks for."""
        if name not in self._extras:
            found = {extra for root in self._asked if root.name == name for extra in root.extras}
            for _, dependency in self._lock.dependents(name):
                found.update(map(canonicalize_name, dependency.extras))
            self._extras[name] = frozenset(found)
        return self._extras[name]

    def _requirements(self) -> Iterator[tuple[str, Requirement]]:
        """What the new releases ask for, each with its name."""
        for name, (_, metadata) in list(self.releases.items()):
            for requirement in applying(self._lock, name, metadata, self.extras(name)):
                yield name, requirement

    def _release(self, name: str, version: str) -> tuple[Release, Metadata]:
        refusal = self._lock.refusal(name)
        if refusal:
            raise refusal
        moving = [other for other in self.releases if self._lock.of(other)]
        limit, what = (MAX_MOVED, "move") if self._lock.of(name) else (MAX_NEW, "come in")
        many = len(moving) if self._lock.of(name) else len(self.releases) - len(moving)
        if name not in self.releases and many >= limit:
            raise unsupported(
                f"More than {limit} packages of {self._lock.path} would have to {what} for"
                f" {next(iter(self.releases))}."
            )
        if is_affected(self._advisory, ECOSYSTEM, name, version):
            raise unsupported(
                f"{name} would have to {what[:4]} to {version}, which is itself affected."
            )
        return self._index.release(name, version, self._lock.lowest_python)

    def _is_supported(self, name: str, metadata: Metadata) -> bool:
        """Does a release support every Python on which somebody needs it? Poetry locks no other."""
        try:
            supporting = SpecifierSet(metadata.requires_python)
        except InvalidSpecifier:
            return True
        markers = {""} if self._lock.of(name) else self._markers_on(name)
        return all(
            supporting.contains(full)
            for full in supported(self._lock.python)
            if any(can_hold(marker, full) for marker in markers)
        )

    def _markers_on(self, name: str) -> set[str]:
        asking = (it for _, it in self._requirements() if canonicalize_name(it.name) == name)
        return {str(it.marker) if it.marker else "" for it in asking}

    def _other_pythons(self, release: Release, metadata: Metadata) -> RecipeError:
        return refused_for(
            Blocker(
                kind=BlockerKind.RUNTIME,
                package=f"{release.name} {release.version}",
                constraint=f"Python {metadata.requires_python}",
                required_by=f"the lock is for Python {self._lock.python}",
                file=self._lock.path,
            )
        )

    def _dependents(self, name: str) -> Iterator[tuple[str, str]]:
        """Locked packages that ask for one and stay as they are, with their constraints."""
        for table, dependency in self._lock.dependents(name):
            parent = canonicalize_name(table["name"])
            if parent not in self.releases:
                yield parent, dependency.constraint

    def _raise_parent(self, parent: str, name: str, version: str, constraint: str) -> None:
        held = self._lock.version_of(parent)
        label = f"{parent} {held or ''}".strip()
        refusal = blocked(name, version, parent=label, spec=constraint, where=self._lock.path)
        if held is None:
            raise refusal
        try:
            found = self._index.lowest_with(
                f"{parent}>={held}", f"{name}=={version}", self._lock.lowest_python
            )
        except RecipeError as error:
            raise refusal from error
        if compare_versions(ECOSYSTEM, found[parent], held) <= 0:
            raise refusal
        self.add(parent, found[parent])

    def _raise_child(self, parent: str, child: str, specifier: str, held: str) -> None:
        refusal = blocked(child, held, parent=parent, spec=specifier, where=self._lock.path)
        if child in self.releases:
            raise refusal
        try:
            within = ",".join(filter(None, [specifier, f">{held}"]))
            found = self._index.lowest(child, within, self._lock.lowest_python)
        except RecipeError as error:
            raise refusal from error
        self.add(child, found.version)

    def _ask_more(self, name: str, held: str, requirement: Requirement) -> None:
        """More extras of a package that stays at its version."""
        self._extras[name] = self.extras(name).union(map(canonicalize_name, requirement.extras))
        if name not in self.releases:
            self.add(name, held)

    def _bring_in(self, parent: str, child: str) -> None:
        """A package that the lock does not hold, as high as all else lets it be: so a client chooses what
        is new. Raises RecipeError."""
        count = len(self._lock.of(child))
        if count:
            raise self._not_locked(parent, child, f"holds in {count} versions")
        below: list[str] = []
        while True:
            version = self._choose(parent, child, below)
            release, metadata = self._release(child, version)
            if self._is_supported(child, metadata):
                self.releases[child] = (release, metadata)
                return
            below.append(f"{child}<{version}")
            if len(below) >= _MAX_TRIED:
                raise self._other_pythons(release, metadata)

    def _choose(self, parent: str, child: str, below: Sequence[str]) -> str:
        """The version of a new package, by uv, with what is locked held as it is, or else not lowered."""
        if child in self._chosen and not below:
            return self._chosen[child]
        moving = [_pinned(name, it, self.extras(name)) for name, it in self.versions.items()]
        held = {
            canonicalize_name(table["name"]): str(table["version"])
            for table in self._lock.packages
            if len(self._lock.of(canonicalize_name(table["name"]))) == 1 and not table.get("source")
        }
        # uv may build nothing. What is locked as source stays, with all that it asks for.
        unread = [name for name in self._lock.without_wheel if name not in self.releases]
        error: RecipeError | None = None
        for operator in ("==", ">="):
            pins = [f"{it}{operator}{now}" for it, now in held.items() if it not in self.releases]
            try:
                found = self._index.joined(
                    moving, [*pins, *below], self._lock.lowest_python, without=unread
                )
            except RecipeError as refusal:
                error = error or refusal
                continue
            if child in found:
                self._chosen |= found
                return found[child]
        message = f" {error.problem}" if error else ""
        raise self._not_locked(parent, child, "does not hold", message)

    def _not_locked(self, parent: str, child: str, what: str, message: str = "") -> RecipeError:
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{parent} {self.versions[parent]} asks for {child}, which {self._lock.path} {what}.{message}",
            next_step="Resolve it with Poetry (`poetry update`), which builds what it has to.",
        )


def _pinned(name: str, version: str, extras: Iterable[str]) -> str:
    wanted = ",".join(sorted(extras))
    return f"{name}[{wanted}]=={version}" if wanted else f"{name}=={version}"
