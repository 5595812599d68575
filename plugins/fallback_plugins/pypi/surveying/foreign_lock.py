"""Locks that only their own client writes (pdm.lock, pylock.toml), and those with nothing in them.

They are read, never edited.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.surveying.out_of_step import DecidedByLock, LockStep, asked_in_arrays
from fallback_plugins.pypi.surveying.pins import (
    locked_in_toml,
    unlisted_in_toml,
    unversioned_in_toml,
)
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    check_says_something,
    locked_by,
    nothing_in,
)
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import NO_TEXTS, ProjectFix, left_behind
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    unlisted,
    unversioned,
)
from fallback_plugins.shared.tree import DependencyTree, Node, grouped
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.outcome import Left, Outline
from fallback_tier.repo import RepoContext

#: Who writes each kind.
_WRITERS = {Kind.PDM_LOCK: "pdm", Kind.PYLOCK: "the client that made it"}

FOREIGN = frozenset(_WRITERS)


@dataclass(frozen=True)
class ForeignLock(DecidedByLock):
    """One such lock, as a Project that can only be refused."""

    repo: RepoContext
    path: str

    @property
    def manifests(self) -> frozenset[str]:
        """The lock, and the manifests beside it that it speaks for; a pylock.toml is an export of any."""
        beside = (PurePosixPath(self.path).with_name(name) for name in locked_by(self.path))
        return frozenset({self.path, *map(str, beside)})

    @property
    def ages(self) -> Ages:
        """As ``PythonProject`` says: nothing is brought in."""
        return Ages(ECOSYSTEM)

    def outline(self, advisory: Advisory) -> Outline:
        """What of it is affected. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        return Outline(left=tuple(self._left(advisory)))

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Refuses what is affected; None: nothing is. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        left = tuple(self._left(advisory))
        return ProjectFix(texts={}, moves=(), left=left) if left else None

    @property
    def resolution(self) -> Resolution:
        """As ``PythonProject`` says."""
        step, doubt = self._step, self._step.doubt()
        held = [Node(f"{name} {it}", name, it) for name, found in step.held.items() for it in found]
        client = _WRITERS.get(kind_of(self.path) or Kind.PYLOCK, "")
        command = InstallCommand(client=client, files=(self.path,), label=f"{client} ({self.path})")
        tree = DependencyTree(self.path, {node.key: node for node in held})
        missing = unlisted_in_toml(self.path, self.repo.read_text(self.path))
        unknown = (*unversioned(self.path, step.unversioned), *unlisted(self.path, missing))
        found = Resolution.of_tree(ECOSYSTEM, command, ResolvedBy.LOCK, tree, unresolved=unknown)
        return found.doubted(doubt.problem, doubt.next_step) if doubt else found

    @property
    def _step(self) -> LockStep:
        text = self.repo.read_text(self.path)
        check_says_something(self.path, text)
        found = locked_in_toml(self.path, text)
        held = grouped((str(canonicalize_name(name)), version) for name, version, _ in found)
        beside = sorted(filter(self.repo.has, self.manifests - {self.path}))
        texts = {path: self.repo.read_text(path) for path in beside}
        # Which extras and groups are locked is chosen when it is.
        asked = asked_in_arrays(texts, whole=())
        return LockStep(self.path, "pdm lock", held, asked, unversioned_in_toml(self.path, text))

    def _left(self, advisory: Advisory) -> Iterator[Left]:
        who = _WRITERS[kind_of(self.path) or Kind.PYLOCK]
        held = grouped((one.name, one.version) for one in self.resolution.affected(advisory))
        for package, versions in sorted(held.items()):
            error = unsupported(
                f"{self.path} holds {package} {', '.join(versions)}, but only {who} writes it."
            )
            place = self.path
            yield left_behind(advisory, ECOSYSTEM, package, versions, manifest=place, error=error)


def says_nothing(repo: RepoContext, path: str) -> bool:
    """Is there nothing in it? A lock that can't be read is not known to have nothing."""
    try:
        return bool(nothing_in(path, repo.read_text(path)))
    except (RecipeError, RepositoryError):
        return False
