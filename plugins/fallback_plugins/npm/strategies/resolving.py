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

#: Where a resolution over an npm project stands.
NpmPosition = Position[Files]


#: Of the locks that ``Answers`` keeps, compressed (bytes).
MAX_ANSWERS_BYTES = 64 * 1024 * 1024

#: Refusals of a client that may be others a moment later.
_PASSING = (BlockerKind.REGISTRY, BlockerKind.CLIENT)


class Answers:
    """What clients made of a project's files. A plan asks the same again: for fewer advisories, and for
    each alone. What no longer fits is asked again."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Files, bytes] | RecipeError] = {}
        self._bytes = 0

    def once(self, question: Sequence[object], files: Files, ask: Callable[[], Files]) -> Files:
        """Return what ``ask`` returned the first time for this question about these files. Raises
        RecipeError as it did, but asks again if a registry or the client itself failed; ToolError."""
        key = _digest(question, files)
        known = self._kept.get(key)
        if isinstance(known, RecipeError):
            raise known.with_traceback(None)
        if known is not None:
            made, lock = known
            return made.with_lock(zlib.decompress(lock).decode("utf-8", "surrogatepass"))
        try:
            made = ask()
        except RecipeError as error:
            if error.blockers and not any(it.kind in _PASSING for it in error.blockers):
                self._kept[key] = error
            raise
        lock = zlib.compress(made.lock_text.encode("utf-8", "surrogatepass"), level=1)
        if self._bytes + len(lock) <= MAX_ANSWERS_BYTES:
            self._bytes += len(lock)
            self._kept[key] = made.with_lock(""), lock
        return made


def _digest(question: Sequence[object], files: Files) -> str:
    parts = [question, *(getattr(files, one.name) for one in fields(files))]
    text = json.dumps(parts, default=lambda content: hashlib.sha256(content).hexdigest())
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Resolver:
    """A client over one project. ``fresh``: there is no lock to keep, each result is resolved anew (and
    wishes mean nothing). Every method raises RecipeError, ToolError."""

    client: Client
    fresh: bool = False
    #: What a fresh lock begins as.
    blank: str = ""
    answers: Answers = field(default_factory=Answers, compare=False)

    def position(self, files: Files) -> NpmPosition:
        """Files whose lock is up to date; no client runs."""
        tree = self.client.tree(files)
        # A scratch lock is no file of the repository: its manifest is what messages name.
        return Position(files, replace(tree, source=files.root_manifest) if self.fresh else tree)

    def resolve(self, files: Files, wanted_versions: WantedVersions) -> NpmPosition:
        """The client's lock for these manifests."""
        if self.fresh:
            blank = files.with_lock(self.blank)
            return self._asked("resolve", [], blank, lambda: self.client.resolve(blank))
        wishes = [[*copy, version] for copy, version in wanted_versions.items()]
        return self._asked(
            "resolve", wishes, files, lambda: self.client.resolve(files, wanted_versions)
        )

    def update(self, files: Files, packages: Sequence[str]) -> NpmPosition:
        """The lock with these packages as high as the ranges allow."""
        return self._asked(
            "update", [*packages], files, lambda: self.client.update(files, packages)
        )

    def _asked(
        self, verb: str, words: Sequence[object], files: Files, ask: Callable[[], Files]
    ) -> NpmPosition:
        return self.position(self.answers.once([self.client.name, verb, words], files, ask))


@dataclass(frozen=True)
class NpmStep:
    """What each step of the ladder works with."""

    resolver: Resolver
    targets: Targets
    judge: ResultRules[Files]

    def affected(self, at: NpmPosition, *packages: str) -> list[Node]:
        """The affected copies of these packages."""
        return [node for node in self.judge.affected(at.tree) if node.name in packages]


def judge_of(advisory: Advisory, ages: Ages | None = None) -> ResultRules[Files]:
    """What no result of an npm resolution may be."""
    return ResultRules(
        ECOSYSTEM, advisory, lambda before, after: _worse(before, after, advisory), ages
    )


def asked_by_root(at: NpmPosition, node: Node) -> tuple[DependencyEdge, ...]:
    """What the project, or a member of it, itself asks for."""
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
    """A peer that was satisfied and no longer is; npm keeps silent about some."""
    old = {(node.key, node.version): node for node in before.nodes.values()}
    for node in after.nodes.values():
        known = old.get((node.key, node.version))
        for ask in node.asks:
            if not ask.peer or _is_content(after, ask):
                continue
            if known is None or any(
                a.name == ask.name and _is_content(before, a) for a in known.asks
            ):
                constraint, file = f"{ask.name} {ask.spec}", declared_in(after, node)
                return Blocker(
                    kind=BlockerKind.CONFLICT, package=node.label, constraint=constraint, file=file
                )
    return None


def let_down(
    before: DependencyTree, after: DependencyTree, affected: frozenset[str] = frozenset()
) -> Blocker | None:
    """A package that stays as it is and gets a lower version of what it asks for, or none; or None.

    An override of one parent's ask can hit another copy of that parent. A client that believes a lock
    doesn't see what is missing in it: nothing affected is left then, and the parent can't be loaded.

    A bundled copy comes in another package's archive, also where a lock written anew doesn't list it any
    more (the registry names no such dependency of fsevents 1.2.11): it is lost only if it is ``affected``
    (labels), since it would go on to lie there unseen. The same holds for what an optional package loses:
    clients install that where it can be built, and leave it out elsewhere.
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
        got = has.get((dependent, name), old)
        lost = (dependent, name) not in has and (dependent, name) not in in_archives
        if lost and dependent in staying:
            return worse(after, dependent, f"would lose {name}, which it depends on")
        if old == got:
            continue
        lowest, held = (min(v, key=lambda one: sort_key(ECOSYSTEM, one)) for v in (old, got))
        if sort_key(ECOSYSTEM, held) < sort_key(ECOSYSTEM, lowest):
            return worse(after, dependent, f"would get {name} {held} instead of {lowest}")
    return None


def _is_optional(tree: DependencyTree, node: Node) -> bool:
    """Return whether all that require a package require it as optional."""
    dependents = tree.dependents(node.key)
    return bool(dependents) and all(edge.optional for _, edge in dependents)


def _unseen(
    before: DependencyTree, after: DependencyTree, affected: frozenset[str]
) -> Blocker | None:
    """An affected copy, however deep in an archive, that the new lock doesn't list though the package whose
    archive it is stays: it would be installed as before."""
    for copy in before.nodes.values():
        if not copy.bundled or copy.label not in affected:
            continue
        bundler = bundler_of(before, copy)
        for place in after.nodes.values():
            inside = copy.key.removeprefix(bundler.key)
            if place.label == bundler.label and place.key + inside not in after.nodes:
                what = f"would still come in the archive of {bundler.label}, unlisted"
                return worse(after, copy.label, what)
    return None


def _answers(tree: DependencyTree) -> dict[tuple[str, str], set[str]]:
    """What each installed package gets where it asks for another (peers are others' to choose)."""
    found: dict[tuple[str, str], set[str]] = {}
    for node in tree.nodes.values():
        for ask in node.asks:
            if ask.to is not None and ask.to in tree.nodes and not ask.peer:
                found.setdefault((node.label, ask.name), set()).add(tree.nodes[ask.to].version)
    return found


def _is_content(tree: DependencyTree, ask: DependencyEdge) -> bool:
    """Does the peer get what it asks for? Missing, or of another source: nothing to be said."""
    held = tree.nodes.get(ask.to or "")
    return held is None or foreign(ask.spec) is not None or admits(ask.spec, held.version)
