"""Transitive versions of a set without a lock: found, and mended, by resolving with the real uv.

A declared ancestor is raised to the lowest version whose tree is clear. uv does that search itself: the
ancestors get room above what they have, the affected packages a lower bound, and ``lowest-direct``
resolution takes the lowest that fits. What it finds is then written into the manifests and resolved once
more, as pip would: only that second tree counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from packaging.version import Version

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.ladder import Tried, blocked, left_behind
from fallback_plugins.pypi.direct import Hashes, plan_raise, raised
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.releases import lowest_safe
from fallback_plugins.pypi.requirements_files import with_requirement
from fallback_plugins.pypi.resolved import declared_in, reaches, version_of
from fallback_plugins.pypi.resolver import blocker_of, resolver_failed
from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_plugins.pypi.uv_client import UvClient, Wanted
from fallback_plugins.pypi.wanted import constraints_file, loosened, wanted
from fallback_plugins.tree import Node, Tree, downgraded
from fallback_tier.advisory import Advisory, compare_versions
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Left, Move

#: Rounds of one search: each adds the lower bound of a package that the last tree still held affected.
MAX_ROUNDS = 8

_NO_LOCK = "There is no lock: a resolver takes the highest version that all ranges admit."


@dataclass(frozen=True)
class State:
    """The texts so far, and the tree that they resolve to."""

    texts: Mapping[str, str]
    tree: Tree


@dataclass(frozen=True)
class Found:
    """A set in which some packages are no longer affected: which declared ones were raised for it."""

    state: State
    raised: Mapping[str, str]


@dataclass
class TransitiveFix:
    """What was mended, and what could not be."""

    state: State
    moves: tuple[Move, ...] = ()
    left: list[Left] = field(default_factory=list)


@dataclass(frozen=True)
class Search:
    """Looks for the smallest change that takes affected packages out of a set's tree."""

    uv: UvClient
    path: str
    advisory: Advisory
    hashes: Hashes

    def resolve(self, texts: Mapping[str, str]) -> Tree:
        """The tree of these manifests. Raises RecipeError, ToolError."""
        return self.uv.resolve(self.path, wanted(texts))

    def mend(self, start: State) -> TransitiveFix:
        """All affected packages together; where that can't be, as many as can, in the record's order."""
        bad = {node.name: node for node in start.tree.affected(self.advisory, ECOSYSTEM)}
        fix = TransitiveFix(start)
        if not bad:
            return fix
        found: Found | None = None
        try:
            found = self._search(start, bad)
            mended = dict(bad)
        except RecipeError as error:
            mended = {}
            if len(bad) == 1:
                fix.left += [self._left(start.tree, node, error) for node in bad.values()]
                return fix
            for name, node in bad.items():
                try:
                    found = self._search(start, mended | {name: node})
                    mended[name] = node
                except RecipeError as error:
                    fix.left.append(self._left(start.tree, node, error))
        if found is not None:
            found = self._least(start, found, mended)
            fix.state = found.state
            fix.moves = tuple(self._move(start, found, node) for node in mended.values())
        return fix

    def constrain(self, start: State) -> TransitiveFix | None:
        """The override rung alone: a constraint on each affected package; None: there is none."""
        bad = {node.name: node for node in start.tree.affected(self.advisory, ECOSYSTEM)}
        if not bad:
            return None
        texts = {**start.texts, **self._constrained(start.texts, bad)}
        found = Found(State(texts, self.resolve(texts)), {})
        self._check(start, found.state, bad)
        moves = (self._move(start, found, node) for node in bad.values())
        return TransitiveFix(found.state, tuple(moves))

    def _search(self, start: State, bad: dict[str, Node]) -> Found:
        """Raise what has to be raised so that none of ``bad`` is affected. Raises RecipeError."""
        names = declared_in(start.tree)
        above = {name for name in names if reaches(start.tree, name, bad)}
        problem: RecipeError | None = None
        for free in dict.fromkeys((frozenset(above), frozenset(names))):
            try:
                return self._raised(start, bad, free)
            except RecipeError as error:
                problem = problem or error
        raise problem or resolver_failed(f"{self.path} declares nothing that could be raised.")

    def _raised(self, start: State, bad: dict[str, Node], free: frozenset[str]) -> Found:
        versions = self._lowest(start, bad, free)
        texts = dict(start.texts)
        up = {
            name: version
            for name, version in versions.items()
            if compare_versions(ECOSYSTEM, version, version_of(start.tree, name)) > 0
        }
        if not up:
            texts |= self._constrained(texts, bad)
        for name, version in up.items():
            texts |= raised(texts, name, plan_raise(texts, name, version), self.hashes)
        state = State(texts, self.resolve(texts))
        self._check(start, state, bad)
        return Found(state, up)

    def _lowest(
        self, start: State, bad: dict[str, Node], free: frozenset[str]
    ) -> Mapping[str, str]:
        """The lowest versions of ``free`` that go together with safe versions of ``bad``."""
        asked = wanted(start.texts)
        tree = start.tree
        floors = {name: version_of(tree, name) for name in free}
        held = {name: version_of(tree, name) for name in declared_in(tree)}
        bounds = {name: self._bound(node) for name, node in bad.items()}
        for _ in range(MAX_ROUNDS):
            trial = loosened(asked, floors, held, bounds)
            trial = replace(trial, constraints=(*trial.constraints, *bounds.values()))
            found = self._resolve_lowest(trial, bad)
            again = [
                node
                for node in found.affected(self.advisory, ECOSYSTEM)
                if node.name in bounds or not self._was_affected(tree, node.name)
            ]
            if not again:
                return {name: version_of(found, name) for name in free if found.of(name)}
            bounds |= {node.name: self._bound(node) for node in again}
        raise RecipeError(
            RefusalReason.RESOLVER_FAILED,
            f"No clear tree of {self.path} was found in {MAX_ROUNDS} rounds.",
            next_step="Resolve it by hand with uv.",
        )

    def _resolve_lowest(self, trial: Wanted, bad: dict[str, Node]) -> Tree:
        try:
            return self.uv.resolve(self.path, trial, "--resolution=lowest-direct")
        except RecipeError as error:
            raise self._named(error, bad) from None

    def _named(self, error: RecipeError, bad: dict[str, Node]) -> RecipeError:
        """The constraint and the parent that uv's own words name; else uv's words."""
        # The package that was added last is the one that did not fit.
        for name, node in reversed(bad.items()):
            target, blamed = self._target(node), blocker_of(error, name)
            if target is None:
                return _no_fix(self.advisory, node)
            if blamed:
                return blocked(name, target, parent=blamed[0], spec=blamed[1], where=self.path)
        return error

    def _bound(self, node: Node) -> str:
        """The constraint that keeps a package's affected version out; below 0: the whole package."""
        target = self._target(node)
        return f"{node.name}>={target}" if target else f"{node.name}<0"

    def _target(self, node: Node) -> str | None:
        try:
            return lowest_safe(self.advisory, node.name, node.version, lambda _: True)
        except RecipeError:
            return None

    def _was_affected(self, tree: Tree, name: str) -> bool:
        ids = self.advisory.ids_affecting
        return any(ids(ECOSYSTEM, node.name, node.version) for node in tree.of(name))

    def _check(self, start: State, state: State, bad: Iterable[str]) -> None:
        """The tree that counts: clear of ``bad``, nothing newly affected, nothing lower."""
        for node in state.tree.affected(self.advisory, ECOSYSTEM):
            if node.name in bad or not self._was_affected(start.tree, node.name):
                raise resolver_failed(
                    f"{self.path} would resolve to {node.label}, which is affected."
                )
        lower = downgraded(start.tree, state.tree, ECOSYSTEM)
        if lower:
            raise resolver_failed(f"With that change {lower}.")

    def _constrained(self, texts: Mapping[str, str], bad: dict[str, Node]) -> Mapping[str, str]:
        """A line for each package itself, within its major version: nothing above it has to move.

        Only in requirements files: pip reads no constraint from any other manifest.
        """
        place = constraints_file(texts) or self.path
        text = texts[place]
        for node in bad.values():
            target = self._target(node)
            if kind_of(place) is not Kind.REQUIREMENTS or target is None:
                raise resolver_failed(f"{place} has no place for a constraint on {node.name}.")
            if Version(target).major != Version(node.version).major:
                raise resolver_failed(
                    f"A constraint would take {node.name} from {node.version} to {target}, another"
                    " major version."
                )
            text = with_requirement(text, node.name, target)
        return {place: text}

    def _least(self, start: State, found: Found, bad: dict[str, Node]) -> Found:
        """Without each change without which the tree is still clear."""
        for name in tuple(found.raised)[:MAX_ROUNDS] if len(found.raised) > 1 else ():
            up = {other: version for other, version in found.raised.items() if other != name}
            texts = dict(start.texts)
            for other, version in up.items():
                texts |= raised(texts, other, plan_raise(texts, other, version), self.hashes)
            try:
                state = State(texts, self.resolve(texts))
                self._check(start, state, bad)
            except RecipeError:
                continue
            found = Found(state, up)
        return found

    def _move(self, start: State, found: Found, node: Node) -> Move:
        now = found.state.tree.of(node.name)
        declared = node.name in declared_in(start.tree)
        step = LadderStep.DIRECT_BUMP if node.name in found.raised else LadderStep.PARENT_BUMP
        if not found.raised:
            step = LadderStep.OVERRIDE
        others = {
            name: version
            for name, version in found.raised.items()
            if name != node.name and reaches(start.tree, name, {node.name})
        } or found.raised
        changed = [path for path, text in found.state.texts.items() if text != start.texts[path]]
        return Move(
            package=node.name,
            manifest=changed[0] if changed else self.path,
            step=step,
            before=(node.version,),
            after=now[0].version if now else None,
            raised=tuple(f"{name} {version}" for name, version in sorted(others.items())),
            declined=_cheaper(node.name, self.path, declared, step).declined,
        )

    def _left(self, tree: Tree, node: Node, error: RecipeError) -> Left:
        tried = _cheaper(node.name, self.path, node.name in declared_in(tree))
        tried.no(LadderStep.PARENT_BUMP, error)
        return left_behind(
            self.advisory,
            ECOSYSTEM,
            package=node.name,
            versions=(node.version,),
            manifest=self.path,
            error=error,
            tried=tried,
        )


def _cheaper(
    package: str, path: str, declared: bool, step: LadderStep = LadderStep.PARENT_BUMP
) -> Tried:
    """The rungs below ``step``, and why none of them serves a set without a lock."""
    tried = Tried()
    tried.no(LadderStep.LOCK_REFRESH, _NO_LOCK)
    if not declared:
        tried.no(LadderStep.DIRECT_BUMP, f"{path} does not declare {package}.")
    if step is LadderStep.OVERRIDE:
        tried.no(LadderStep.PARENT_BUMP, f"What brings in {package} admits a safe version already.")
    return tried


def _no_fix(advisory: Advisory, node: Node) -> RecipeError:
    ids = " and ".join(advisory.ids_affecting(ECOSYSTEM, node.name, node.version))
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"{ids} names no fixed version above {node.version} of {node.name}, and what brings it in"
        " has no later version that goes without it.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )
