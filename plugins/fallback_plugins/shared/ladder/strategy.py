"""What a ladder is made of: positions, strategies that lead from one to another, and their judge."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from fallback_audit.vocabulary import BlockerKind, LadderStep
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.tree import DependencyTree, Node, downgraded
from fallback_tier.advisory import Advisory
from fallback_tier.advisory.versions import is_prerelease
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: What a client resolves: texts by path, or a client's own shape of them.
FilesT = TypeVar("FilesT")

#: (package, version) of an installed copy.
Copy = tuple[str, str]


@dataclass(frozen=True)
class Position(Generic[FilesT]):
    """Where a resolution stands: the files, and the tree that they resolve to."""

    files: FilesT
    tree: DependencyTree


@dataclass(frozen=True)
class Reached(Generic[FilesT]):
    """Where one attempt led; the position that it began at, where it could do nothing.

    ``raised``: what else was changed for each package, as ``name version``. ``declined``: packages of which
    it had to leave a copy, and why. ``step``: the step that it turned out to be; None: the strategy's own.
    """

    position: Position[FilesT]
    raised: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declined: Mapping[str, RecipeError] = field(default_factory=dict)
    step: LadderStep | None = None


@dataclass(frozen=True)
class Strategy(Generic[FilesT]):
    """One way to bring packages out of an advisory's reach: a step of the ladder.

    ``attempt`` starts from a position and is told the packages; it changes nothing but what it returns.
    Raises RecipeError where it doesn't serve, ToolError. ``refusal``: why it is not even tried for a
    package. ``together``: several packages are tried in one attempt first. ``weighed``: what it reached is
    held against what the strategies after it reach, unless it changes little.
    """

    step: LadderStep
    attempt: Callable[[Position[FilesT], tuple[str, ...]], Reached[FilesT]]
    refusal: Callable[[Position[FilesT], str], RecipeError | None] = lambda _at, _package: None
    together: bool = True
    weighed: bool = False


def ordered(
    ladder: Iterable[Strategy[FilesT]], step: LadderStep | None, left_out: Sequence[LadderStep]
) -> list[Strategy[FilesT]]:
    """A ladder in a person's order, without some steps. ``step``: of those that change what nobody declared
    the first; None: as the ladder has them."""
    found = [strategy for strategy in ladder if strategy.step not in left_out]
    if step is None:
        return found
    late = (LadderStep.PARENT_BUMP, LadderStep.OVERRIDE)
    near = [it for it in found if it.step not in late]
    far = [replace(it, weighed=False) for it in found if it.step in late]
    return [*near, *sorted(far, key=lambda it: it.step is not step)]


def never_worse(_before: Position[FilesT], _after: Position[FilesT]) -> Blocker | None:
    """No rule of the ecosystem's own."""
    return None


@dataclass(frozen=True)
class ResultRules(Generic[FilesT]):
    """What no result may be, whichever strategy led to it. ``worse``: the ecosystem's own rules; ``ages``:
    the project's, on the age of releases."""

    ecosystem: str
    advisory: Advisory
    worse: Callable[[Position[FilesT], Position[FilesT]], Blocker | None] = never_worse
    ages: Ages | None = None

    def affected(self, tree: DependencyTree) -> tuple[Node, ...]:
        """The affected copies of a tree, in the lock's order."""
        return tuple(tree.affected(self.advisory, self.ecosystem))

    def problem(self, before: Position[FilesT], after: Position[FilesT]) -> Blocker | None:
        """What is worse than before; None: nothing is."""
        brought = copies(self.affected(after.tree)) - copies(self.affected(before.tree))
        if brought:
            name, version = min(brought)
            return worse(after.tree, f"{name} {version}", "would come in, which is itself affected")
        lower = downgraded(before.tree, after.tree, self.ecosystem)
        if lower is not None:
            name, highest, held = lower
            return worse(after.tree, name, f"would go down from {highest} to {held}")
        candidate = self._candidate(before.tree, after.tree)
        if candidate is not None:
            return worse(after.tree, candidate.label, "would come in, which is a pre-release")
        found = self.worse(before, after)
        if found is not None or self.ages is None:
            return found
        new = copies(after.tree.nodes.values()) - copies(before.tree.nodes.values())
        too_new = self.ages.first_problem(new)
        return too_new.blockers[0] if too_new else None

    def _candidate(self, before: DependencyTree, after: DependencyTree) -> Node | None:
        """A pre-release in the place of final releases, of a package that only moves along; None: there is
        none. Of the affected package whoever chose its version decides, of a new one the client."""
        fixed = {node.name for node in self.affected(before)}
        for name, nodes in before.by_name.items():
            if name in fixed or any(is_prerelease(self.ecosystem, node.version) for node in nodes):
                continue
            for node in after.of(name):
                if is_prerelease(self.ecosystem, node.version):
                    return node
        return None

    def is_nearer(self, before: Position[FilesT], after: Position[FilesT]) -> bool:
        """Return whether fewer copies are affected than before, or fewer dependents get one.

        A dependent that moved by itself can leave another copy below a dependent that did not.
        """
        old, new = (self.affected(position.tree) for position in (before, after))
        was, now = (
            sum(len(tree.dependents(node.key)) for node in nodes)
            for tree, nodes in ((before.tree, old), (after.tree, new))
        )
        return len(new) < len(old) or now < was


def worse(tree: DependencyTree, package: str, what: str) -> Blocker:
    """Return what a resolved tree has that no fix may have: a clause about one of its packages."""
    return Blocker(kind=BlockerKind.RESULT, package=package, constraint=what, file=tree.source)


def copies(nodes: Iterable[Node]) -> set[Copy]:
    """Installed copies by package and version."""
    return {(node.name, node.version) for node in nodes}
