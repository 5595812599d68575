"""Which locked packages have to move together, so that everyone who asks still gets what was asked for."""

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.bumping import unsupported
from fallback_plugins.ladder import blocked
from fallback_plugins.pypi import lock_edit
from fallback_plugins.pypi.poetry_constraints import admits
from fallback_plugins.pypi.poetry_lock import PoetryLock, dependencies_of
from fallback_plugins.pypi.poetry_render import applying
from fallback_plugins.pypi.scratch_lock import Metadata, PackageIndex, Release
from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_tier.advisory import Advisory, compare_versions, is_affected
from fallback_tier.errors import RecipeError

#: Packages that may move with one fix. More is no minimal fix: resolve it anew.
MAX_MOVED = 6


class Planner:
    """The versions that one fix takes, widened until no constraint of the lock is broken."""

    def __init__(self, lock: PoetryLock, index: PackageIndex, advisory: Advisory) -> None:
        self._lock = lock
        self._index = index
        self._advisory = advisory
        self.releases: dict[str, tuple[Release, Metadata]] = {}

    @property
    def versions(self) -> dict[str, str]:
        """The new version of each package that moves, the first one first."""
        return {name: release.version for name, (release, _) in self.releases.items()}

    def add(self, name: str, version: str) -> None:
        """A package moves to a version. Raises RecipeError: it can't."""
        refusal = self._lock.refusal(name)
        if refusal:
            raise refusal
        if len(self.releases) >= MAX_MOVED:
            raise unsupported(
                f"More than {MAX_MOVED} packages of {self._lock.path} would have to move for"
                f" {next(iter(self.releases))}."
            )
        if is_affected(self._advisory, ECOSYSTEM, name, version):
            raise unsupported(f"{name} would have to move to {version}, which is itself affected.")
        self.releases[name] = self._index.release(name, version, self._lock.lowest_python)

    def widen(self) -> bool:
        """Move one more package, if a constraint asks for it; False: none does. Raises RecipeError."""
        for name, version in self.versions.items():
            for parent, constraint in self._askers(name):
                if not admits(constraint, version):
                    self._raise_parent(parent, name, version, constraint)
                    return True
        for name, (_, metadata) in self.releases.items():
            for requirement in applying(self._lock, name, metadata):
                child = canonicalize_name(requirement.name)
                held = self.versions.get(child) or self._lock.version_of(child)
                if held is None:
                    raise self._not_locked(name, child)
                if not lock_edit.admits(str(requirement.specifier), held):
                    self._raise_child(name, child, str(requirement.specifier), held)
                    return True
        return False

    def _askers(self, name: str) -> Iterator[tuple[str, str]]:
        """Locked packages that ask for one and stay as they are, with their constraints."""
        for table in self._lock.packages:
            parent = canonicalize_name(table["name"])
            if parent not in self.releases:
                for dependency in dependencies_of(table):
                    if canonicalize_name(dependency.name) == name:
                        yield parent, dependency.constraint

    def _raise_parent(self, parent: str, name: str, version: str, constraint: str) -> None:
        held = self._lock.version_of(parent)
        refusal = blocked(name, version, parent=parent, spec=constraint, where=self._lock.path)
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
        refusal = blocked(child, held, parent=parent, spec=specifier, where="its new version")
        if child in self.releases:
            raise refusal
        try:
            within = ",".join(filter(None, [specifier, f">{held}"]))
            found = self._index.lowest(child, within, self._lock.lowest_python)
        except RecipeError as error:
            raise refusal from error
        self.add(child, found.version)

    def _not_locked(self, name: str, child: str) -> RecipeError:
        count = len(self._lock.of(child))
        what = f"holds in {count} versions" if count else "does not hold"
        return RecipeError(
            RefusalReason.MANIFEST_MISSING,
            f"{name} {self.versions[name]} asks for {child}, which {self._lock.path} {what}.",
            next_step="Resolve it with Poetry (`poetry update`), which builds what it has to.",
        )
