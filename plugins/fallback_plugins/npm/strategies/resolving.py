"""An npm project as positions of a resolution: what its client makes of files, and when a tree is worse."""

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.client import Client, Files, WantedVersions
from fallback_plugins.npm.clients.npm_run import peer_options
from fallback_plugins.npm.manifests.declaring import declared_in
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, foreign
from fallback_plugins.npm.strategies.bundles import bundler_of
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.ladder import Position, ResultRules, worse
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: A position in the resolution of an npm project.
NpmPosition = Position[Files]


#: Bytes of the compressed locks that ``Answers`` keeps.
MAX_ANSWERS_BYTES = 64 * 1024 * 1024

#: Kinds of a client's blockers that may be temporary.
_PASSING = (BlockerKind.REGISTRY, BlockerKind.CLIENT)


class Answers:
    """Results of clients for a project's files. A plan repeats questions: for fewer advisories, and for
    each alone. Results beyond ``MAX_ANSWERS_BYTES`` are not kept."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Files, bytes] | RecipeError] = {}
        self._bytes = 0

    def once(self, question: Sequence[object], files: Files, ask: Callable[[], Files]) -> Files:
        """Return what ``ask`` returned the first time for this question about these files. Raises
        RecipeError as it did, but asks again if a registry or the client itself failed; ToolError."""
        key = _digest(question, files)
        cached = self._kept.get(key)
        if isinstance(cached, RecipeError):
            raise cached.with_traceback(None)
        if cached is not None:
            result, lock = cached
            return result.with_lock(zlib.decompress(lock).decode("utf-8", "surrogatepass"))
        try:
            result = ask()
        except RecipeError as error:
            if error.blockers and not any(blocker.kind in _PASSING for blocker in error.blockers):
                self._kept[key] = error
            raise
        lock = zlib.compress(result.lock_text.encode("utf-8", "surrogatepass"), level=1)
        if self._bytes + len(lock) <= MAX_ANSWERS_BYTES:
            self._bytes += len(lock)
            self._kept[key] = result.with_lock(""), lock
        return result


def _digest(question: Sequence[object], files: Files) -> str:
    parts = [question, *(getattr(files, attribute.name) for attribute in fields(files))]
    text = json.dumps(parts, default=lambda content: hashlib.sha256(content).hexdigest())
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Resolver:
    """A client over one project. ``fresh``: there is no lock to keep, so each result is resolved from
    ``blank``, and wanted versions are ignored. Every method raises RecipeError, ToolError."""

    client: Client
    fresh: bool = False
    #: Text from which a fresh lock starts.
    blank: str = ""
    answers: Answers = field(default_factory=Answers, compare=False)

    def position(self, files: Files) -> NpmPosition:
        """Return the position of files whose lock is up to date; no client runs."""
        tree = self.client.tree(files)
        # A scratch lock is not a file of the repository: messages name the manifest.
        return Position(files, replace(tree, source=files.root_manifest) if self.fresh else tree)

    def resolve(self, files: Files, wanted_versions: WantedVersions) -> NpmPosition:
        """Return the position with the client's lock for these manifests."""
        if self.fresh:
            blank = files.with_lock(self.blank)
            return self._asked("resolve", [], blank, lambda: self.client.resolve(blank))
        wishes = [[*copy, version] for copy, version in wanted_versions.items()]
        return self._asked(
            "resolve", wishes, files, lambda: self.client.resolve(files, wanted_versions)
        )

    def update(self, files: Files, packages: Sequence[str]) -> NpmPosition:
        """Return the position with these packages as high as the ranges allow."""
        return self._asked(
            "update", [*packages], files, lambda: self.client.update(files, packages)
        )

    def _asked(
        self, verb: str, words: Sequence[object], files: Files, ask: Callable[[], Files]
    ) -> NpmPosition:
        return self.position(self.answers.once([self.client.name, verb, words], files, ask))


@dataclass(frozen=True)
class NpmStep:
    """A step of the ladder, with what each of them needs."""

    resolver: Resolver
    targets: Targets
    judge: ResultRules[Files]

    def affected(self, at: NpmPosition, *packages: str) -> list[Node]:
        """Return the affected copies of these packages."""
        return [node for node in self.judge.affected(at.tree) if node.name in packages]


def judge_of(advisory: Advisory, ages: Ages | None = None) -> ResultRules[Files]:
    """Return the rules for results of an npm resolution."""
    return ResultRules(
        ECOSYSTEM, advisory, lambda before, after: _worse(before, after, advisory), ages
    )


def asked_by_root(at: NpmPosition, node: Node) -> tuple[DependencyEdge, ...]:
    """Return the edges by which the project, or a member of it, requires a copy itself."""
    return tuple(
        ask for dependent, ask in at.tree.dependents(node.key) if at.tree.is_root(dependent)
    )


def _worse(before: NpmPosition, after: NpmPosition, advisory: Advisory) -> Blocker | None:
    broken = broken_peer(before.tree, after.tree)
    if broken is not None and not peer_options(after.files):
        return broken
    affected = frozenset(node.label for node in before.tree.affected(advisory, ECOSYSTEM))
    return let_down(before.tree, after.tree, affected)


def broken_peer(before: DependencyTree, after: DependencyTree) -> Blocker | None:
    """Return a peer that was satisfied and no longer is, or None; npm does not report all of them."""
    old = {(node.key, node.version): node for node in before.nodes.values()}
    for node in after.nodes.values():
        former = old.get((node.key, node.version))
        for ask in node.asks:
            if not ask.peer or _is_content(after, ask):
                continue
            if former is None or any(
                a.name == ask.name and _is_content(before, a) for a in former.asks
            ):
                constraint, file = f"{ask.name} {ask.spec}", declared_in(after, node)
                return Blocker(
                    kind=BlockerKind.CONFLICT, package=node.label, constraint=constraint, file=file
                )
    return None


def let_down(
    before: DependencyTree, after: DependencyTree, affected: frozenset[str] = frozenset()
) -> Blocker | None:
    """Return a package that stays as it is, but gets a lower version of what it requires, or loses it; or
    None.

    An override for one parent can also change another copy of that parent. A client that trusts a lock
    doesn't see what is missing in it: then nothing affected is left, but the parent can't be loaded.

    A bundled copy comes in another package's archive, also if a newly written lock doesn't list it any
    more (the registry names no such dependency of fsevents 1.2.11): it counts as lost only if it is
    ``affected`` (labels), since it would stay in the archive, unlisted. The same holds for what an optional
    package loses: clients install that package if it can be built, and leave it out otherwise.
    """
    has = _answers(after)
    staying = {node.label for node in after.nodes.values()}
    unseen = _unseen(before, after, affected)
    if unseen is not None:
        return unseen
    in_archives = {
        (node.label, ask.name)
        for node in before.nodes.values()
        for ask in node.asks
        if (copy := before.nodes.get(ask.to or ""))
        and copy.label not in affected
        and (copy.bundled or _is_optional(before, node))
    }
    for (dependent, name), old in _answers(before).items():
        new_versions = has.get((dependent, name), old)
        lost = (dependent, name) not in has and (dependent, name) not in in_archives
        if lost and dependent in staying:
            return worse(after, dependent, f"would lose {name}, which it depends on")
        if old == new_versions:
            continue
        lowest, new_lowest = (
            min(v, key=lambda version: sort_key(ECOSYSTEM, version)) for v in (old, new_versions)
        )
        if sort_key(ECOSYSTEM, new_lowest) < sort_key(ECOSYSTEM, lowest):
            return worse(after, dependent, f"would get {name} {new_lowest} instead of {lowest}")
    return None


def _is_optional(tree: DependencyTree, node: Node) -> bool:
    """Return whether all that require a package require it as optional."""
    dependents = tree.dependents(node.key)
    return bool(dependents) and all(edge.optional for _, edge in dependents)


def _unseen(
    before: DependencyTree, after: DependencyTree, affected: frozenset[str]
) -> Blocker | None:
    """Return an affected copy, at any depth of an archive, that the new lock doesn't list although the
    package with the archive stays: it would be installed as before. Return None if there is none."""
    for copy in before.nodes.values():
        if not copy.bundled or copy.label not in affected:
            continue
        bundler = bundler_of(before, copy)
        for package in after.nodes.values():
            inside = copy.key.removeprefix(bundler.key)
            if package.label == bundler.label and package.key + inside not in after.nodes:
                what = f"would still come in the archive of {bundler.label}, unlisted"
                return worse(after, copy.label, what)
    return None


def _answers(tree: DependencyTree) -> dict[tuple[str, str], set[str]]:
    """Return the versions that each installed package gets of what it requires (other than peers)."""
    versions: dict[tuple[str, str], set[str]] = {}
    for node in tree.nodes.values():
        for ask in node.asks:
            if ask.to is not None and ask.to in tree.nodes and not ask.peer:
                versions.setdefault((node.label, ask.name), set()).add(tree.nodes[ask.to].version)
    return versions


def _is_content(tree: DependencyTree, ask: DependencyEdge) -> bool:
    """Return whether a peer's range is satisfied; also if it is missing, or from another source."""
    peer = tree.nodes.get(ask.to or "")
    return peer is None or foreign(ask.spec) is not None or admits(ask.spec, peer.version)
