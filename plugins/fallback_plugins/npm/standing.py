"""Where a climb stands: files and tree as they are now, what was tried, and what may be taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.ladder import Tried
from fallback_plugins.npm.client import Client, Files, Wishes
from fallback_plugins.npm.layout import ECOSYSTEM
from fallback_plugins.npm.npm_run import peer_options
from fallback_plugins.npm.specs import admits, foreign
from fallback_plugins.npm.targets import Targets
from fallback_plugins.tree import Ask, Node, Tree, downgraded
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.errors import RecipeError

#: (package, version) of an installed copy.
Copy = tuple[str, str]


@dataclass(frozen=True)
class Mended:
    """How one affected copy was dealt with."""

    step: LadderStep
    raised: tuple[str, ...] = ()


@dataclass
class Standing:
    """The state of one climb.

    ``fresh``: there is no lock to keep, each trial resolves anew (and wishes mean nothing).
    """

    client: Client
    targets: Targets
    advisory: Advisory
    files: Files
    fresh: bool = False
    may_declare: bool = True
    only: str | None = None
    tree: Tree = field(init=False)
    before: Tree = field(init=False)
    tried: dict[str, Tried] = field(default_factory=dict)
    mended: dict[Copy, Mended] = field(default_factory=dict)
    final: dict[str, RecipeError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self.tree = self._tree(self.files)

    def affected(self) -> tuple[Node, ...]:
        """The affected copies of the tree as it is now."""
        return tuple(self.tree.affected(self.advisory, ECOSYSTEM))

    def names(self) -> tuple[str, ...]:
        """Their packages, each once."""
        return tuple(dict.fromkeys(node.name for node in self.affected()))

    def resolve(self, files: Files, wishes: Wishes) -> Files:
        """The client's lock for these manifests. Raises RecipeError, ToolError."""
        if self.fresh:
            return self.client.resolve(files.with_lock(""))
        return self.client.resolve(files, wishes)

    def accept(
        self, files: Files, how: Mapping[Copy, Mended], *, partly: bool = False
    ) -> str | None:
        """Take a result that is better and in nothing worse; else say why not.

        ``partly``: a step on the way, which need not have cleared anything yet.
        """
        tree = self._tree(files)
        old = {(node.name, node.version) for node in self.affected()}
        new = {(node.name, node.version) for node in tree.affected(self.advisory, ECOSYSTEM)}
        brought = new - old
        if brought:
            name, version = min(brought)
            return f"It would bring in {name} {version}, which is affected itself."
        broken = broken_peer(self.tree, tree)
        if broken is not None and not peer_options(files):
            return broken
        lower = downgraded(self.tree, tree, ECOSYSTEM)
        if lower is not None:
            return f"It would be no pure upgrade: {lower}."
        less = let_down(self.tree, tree)
        if less is not None:
            return f"It would be no pure upgrade: {less}."
        fewer = len(list(tree.affected(self.advisory, ECOSYSTEM))) < len(self.affected())
        if not (partly or fewer):
            return f"{self.client.name} kept the affected version all the same."
        self.files, self.tree = files, tree
        self.mended |= {copy: mended for copy, mended in how.items() if copy not in new}
        return None

    def _tree(self, files: Files) -> Tree:
        tree = self.client.tree(files)
        # A scratch lock is no file of the repository: its manifest is what messages name.
        return replace(tree, source=files.root_manifest) if self.fresh else tree

    def tried_of(self, name: str) -> Tried:
        """The rungs that did not serve a package."""
        return self.tried.setdefault(name, Tried())

    def why_left(self, node: Node) -> RecipeError:
        """The refusal for a copy that no rung could mend."""
        if node.name in self.final:
            return self.final[node.name]
        tried = self.tried.get(node.name)
        if tried is not None and tried.errors:
            return tried.errors[-1]
        said = tried.steps[-1].reason if tried is not None and tried.steps else "no rung served"
        return RecipeError(
            RefusalReason.RESOLVER_FAILED,
            f"{node.label} in {self.tree.source} could not be replaced: {said.rstrip('.')}.",
            next_step="Resolve it by hand with the package client.",
        )


def broken_peer(before: Tree, after: Tree) -> str | None:
    """A peer that was satisfied and no longer is, as a sentence; npm keeps silent about some."""
    old = {(node.key, node.version): node for node in before.nodes.values()}
    for node in after.nodes.values():
        known = old.get((node.key, node.version))
        for ask in node.asks:
            if not ask.peer or _is_content(after, ask):
                continue
            if known is None or any(
                a.name == ask.name and _is_content(before, a) for a in known.asks
            ):
                held = after.nodes[ask.to or ""].label
                return f"{node.label} has the peer {ask.name} {ask.spec}, which {held} does not satisfy."
    return None


def let_down(before: Tree, after: Tree) -> str | None:
    """A package that stays as it is and gets a lower version of what it asks for, as a clause; or None.

    An override of one parent's ask can hit another copy of that parent.
    """
    had = _answers(before)
    for (asker, name), got in _answers(after).items():
        old = had.get((asker, name), got)
        if old == got:
            continue
        lowest, held = (min(v, key=lambda one: sort_key(ECOSYSTEM, one)) for v in (old, got))
        if sort_key(ECOSYSTEM, held) < sort_key(ECOSYSTEM, lowest):
            return f"{asker} would get {name} {held} in the place of {lowest}"
    return None


def _answers(tree: Tree) -> dict[tuple[str, str], set[str]]:
    """What each installed package gets where it asks for another (peers are others' to choose)."""
    found: dict[tuple[str, str], set[str]] = {}
    for node in tree.nodes.values():
        for ask in node.asks:
            if ask.to is not None and ask.to in tree.nodes and not ask.peer:
                found.setdefault((node.label, ask.name), set()).add(tree.nodes[ask.to].version)
    return found


def _is_content(tree: Tree, ask: Ask) -> bool:
    """Does the peer get what it asks for? Missing, or of another source: nothing to be said."""
    held = tree.nodes.get(ask.to or "")
    return held is None or foreign(ask.spec) is not None or admits(ask.spec, held.version)
