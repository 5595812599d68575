"""One engine runs every ladder: strategies in their order, each result held against the same rules."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.shared.ladder.declines import Tried, does_not_serve, left_behind
from fallback_plugins.shared.ladder.strategy import (
    Copy,
    FilesT,
    Position,
    Reached,
    ResultRules,
    Strategy,
    copies,
    worse,
)
from fallback_plugins.shared.ladder.weight import Weight, weight_of
from fallback_plugins.shared.tree import Node, grouped
from fallback_tier.advisory import sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Left, Move

#: Rounds of one strategy: what it reached can uncover a copy that it fixes as well.
MAX_ROUNDS = 3


@dataclass(frozen=True)
class _FixedCopies:
    """How affected copies were dealt with: the farthest step, and what was raised on the way."""

    step: LadderStep
    raised: tuple[str, ...]


class Resolution(Generic[FilesT]):
    """One resolution: where it stands, what was fixed on the way, and what did not serve."""

    def __init__(self, judge: ResultRules[FilesT], start: Position[FilesT]) -> None:
        self._judge = judge
        self.start = self.at = start
        self._tried: dict[str, Tried] = {}
        self._fixed: dict[Copy, _FixedCopies] = {}
        #: Of packages of which a copy is left below other dependents.
        self._partly: dict[str, _FixedCopies] = {}

    def run(self, strategies: Iterable[Strategy[FilesT]]) -> None:
        """Take the strategies in turn. What is affected afterwards is left."""
        ladder = tuple(strategies)
        for index, strategy in enumerate(ladder):
            others = ladder[index + 1 :] if strategy.weighed else ()
            for _ in range(MAX_ROUNDS):
                names = tuple(self._may_try(strategy))
                if not names or not self._use(strategy, names, others):
                    break

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages of which a copy is affected where the resolution stands."""
        return tuple(dict.fromkeys(node.name for node in self._judge.affected(self.at.tree)))

    def tried(self, package: str) -> Tried:
        """What did not serve a package."""
        return self._tried.setdefault(package, Tried())

    def _may_try(self, strategy: Strategy[FilesT]) -> Iterator[str]:
        for name in self.packages:
            refusal = strategy.refusal(self.at, name)
            if refusal is None:
                yield name
            else:
                self.tried(name).no(strategy.step, refusal, was_tried=False)

    def _use(
        self,
        strategy: Strategy[FilesT],
        names: tuple[str, ...],
        others: Sequence[Strategy[FilesT]],
    ) -> bool:
        """All together: what clears several at once is changed once. Else each by itself."""
        if strategy.together and len(names) > 1:
            try:
                reached = self._attempt(strategy, names)
            except RecipeError:
                pass  # what is in the way of one need not be in another's
            else:
                if not others or self._weight(reached).is_light:
                    return self._take(strategy, reached, names)
        done = False
        for name in names:
            if name in self.packages:
                try:
                    reached = self._attempt(strategy, (name,))
                except RecipeError as error:
                    self.tried(name).no(strategy.step, error)
                else:
                    best = self._lightest(strategy, reached, name, others)
                    done = self._take(*best, (name,)) or done
        return done

    def _attempt(self, strategy: Strategy[FilesT], names: tuple[str, ...]) -> Reached[FilesT]:
        """Where it leads, held against what no result may be. Raises RecipeError: it does not serve."""
        reached = strategy.attempt(self.at, names)
        after = reached.position
        if after is not self.at:
            problem = self._judge.problem(self.at, after)
            if problem is None and not self._judge.is_nearer(self.at, after):
                problem = worse(after.tree, ", ".join(names), "would stay as affected as before")
            if problem is not None:
                raise does_not_serve(problem)
        return reached

    def _lightest(
        self,
        strategy: Strategy[FilesT],
        reached: Reached[FilesT],
        name: str,
        others: Sequence[Strategy[FilesT]],
    ) -> tuple[Strategy[FilesT], Reached[FilesT]]:
        """Of what the strategies reach, that which changes least for the application."""
        best, weight = (strategy, reached), self._weight(reached)
        for other in others if not weight.is_light else ():
            if other.refusal(self.at, name) is not None:
                continue
            try:
                second = self._attempt(other, (name,))
            except RecipeError:
                continue
            lighter = self._weight(second)
            if second.position is not self.at and lighter < weight:
                message = f"{weight}; the {other.step.label} changes less: {lighter}."
                self.tried(name).no(best[0].step, message)
                best, weight = (other, second), lighter
        return best

    def _weight(self, reached: Reached[FilesT]) -> Weight:
        return weight_of(self._judge.ecosystem, self.at.tree, reached.position.tree)

    def _take(
        self, strategy: Strategy[FilesT], reached: Reached[FilesT], names: tuple[str, ...]
    ) -> bool:
        """Go there. False: it is no step."""
        for name, error in reached.declined.items():
            self.tried(name).no(strategy.step, error)
        after = reached.position
        if after is self.at:
            return False
        old, new = (copies(self._judge.affected(tree)) for tree in (self.at.tree, after.tree))
        step = reached.step or strategy.step
        # What went away beside another's fix owes it to all that was raised.
        everything = tuple({name: None for names in reached.raised.values() for name in names})
        gone, how = {name for name, _ in old - new}, dict[str, _FixedCopies]()
        for name in {*names, *gone}:
            raised = reached.raised.get(name, everything if name in gone else ())
            before = self._partly.pop(name, _FixedCopies(step, ()))
            farthest = max(before.step, step, key=list(LadderStep).index)
            how[name] = _FixedCopies(farthest, (*before.raised, *raised))
        self._fixed |= {copy: how[copy[0]] for copy in old - new}
        self._partly |= {name: one for name, one in how.items() if name not in gone}
        self.at = after
        return True

    # --- the account --------------------------------------------------------------------------------

    def moves(self, manifest: str) -> tuple[Move, ...]:
        """One for each version that a package's affected copies went to."""
        left = copies(self._judge.affected(self.at.tree))
        fixed = (
            ((node.name, self._now(node)), node.version)
            for node in self._judge.affected(self.start.tree)
            if (node.name, node.version) not in left
        )
        return tuple(
            self._move(manifest, package, self._sorted(versions), after)
            for (package, after), versions in grouped(fixed).items()
        )

    def lefts(self, manifest: str) -> tuple[Left, ...]:
        """What is still affected, a package at a time."""
        affected = self._judge.affected(self.at.tree)
        versions = grouped((node.name, node.version) for node in affected)
        found = []
        rules = self._judge.advisory, self._judge.ecosystem
        for name, held in versions.items():
            tried, held = self.tried(name), self._sorted(held)
            error = tried.refusal
            left = left_behind(*rules, name, held, manifest=manifest, error=error, tried=tried)
            found.append(left)
        return tuple(found)

    def _move(
        self, manifest: str, package: str, versions: Sequence[str], after: str | None
    ) -> Move:
        order = [None, *LadderStep]
        dependency_paths = [self._fixed[package, version] for version in versions]
        how = max(dependency_paths, key=lambda dependency_path: order.index(dependency_path.step))
        cheaper = [
            it
            for it in self.tried(package).declined
            if order.index(it.step) < order.index(how.step)
        ]
        return Move(
            package=package,
            manifest=manifest,
            step=how.step,
            before=tuple(versions),
            after=after,
            raised=tuple(name for name in how.raised if name != f"{package} {after}"),
            declined=tuple(cheaper),
        )

    def _now(self, node: Node) -> str | None:
        """What stands in an affected copy's place: at its key, or the lowest copy above it."""
        tree = self.at.tree
        at = tree.nodes.get(node.key)
        if at is not None and at.name == node.name:
            return at.version
        floor = sort_key(self._judge.ecosystem, node.version)
        higher = {it.version for it in tree.of(node.name)}
        above = [it for it in self._sorted(higher) if sort_key(self._judge.ecosystem, it) > floor]
        return above[0] if above else None

    def _sorted(self, versions: Iterable[str]) -> tuple[str, ...]:
        key = self._judge.ecosystem
        return tuple(sorted(dict.fromkeys(versions), key=lambda version: sort_key(key, version)))
