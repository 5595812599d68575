"""The minimal-fix ladder (ADR-0016, ADR-0047): one engine, and each ecosystem's strategies.

A *project* is what one client resolves together: a manifest with its lock, a workspace, a requirements
file with what it includes. Each is resolved by itself, on texts in memory, by strategies in the order that
its ecosystem lists them; ``combined`` puts the projects of a repository together. If no strategy works, the
refusal names what blocks, in the same words for every ecosystem (ADR-0105).
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from http import HTTPStatus
from itertools import chain, takewhile, zip_longest
from types import MappingProxyType
from typing import Generic, NoReturn, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from fallback_audit.vocabulary import BlockerKind, LadderStep, ProofLevel, RefusalReason
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import ADAPT, unsupported
from fallback_plugins.shared.identity import OTHER_LOCKS
from fallback_plugins.shared.tree import DependencyTree, Node, cleared_paths, downgraded, grouped
from fallback_tier.advisory import Advisory, AdvisoryBundle, compare_versions, is_affected, sort_key
from fallback_tier.advisory.versions import is_major_step, is_orderable, is_prerelease
from fallback_tier.errors import RecipeError, RepositoryError, StoppedError
from fallback_tier.execution import StepCount, counting_steps
from fallback_tier.files.source_paths import is_lock
from fallback_tier.hosts import allow_step, host_in
from fallback_tier.lazy_patterns import lazy_pattern
from fallback_tier.outcome import (
    Blocker,
    ChangedDeclaration,
    ClearedPath,
    FileChange,
    Left,
    Move,
    NotApplicable,
    RecipeResult,
    StepDeclined,
    UnreadItem,
    declined_by,
    not_resolved,
)
from fallback_tier.repo import RepoContext

#: The files that a client resolves: texts by path, or the client's own type for them.
FilesT = TypeVar("FilesT")

#: (package, version) of an installed copy.
_Copy = tuple[str, str]


@dataclass(frozen=True)
class Position(Generic[FilesT]):
    """The state of a resolution: the files, and the tree that they resolve to."""

    files: FilesT
    tree: DependencyTree


@dataclass(frozen=True)
class Reached(Generic[FilesT]):
    """The result of one attempt; its start position if it could do nothing.

    ``raised``: what else was changed for each package, as ``name version``. ``declined``: packages of which
    it had to leave a copy, and why. ``step``: the step that it turned out to be; None: the strategy's own.
    ``notes``: sentences on why other packages changed too.
    """

    position: Position[FilesT]
    raised: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declined: Mapping[str, RecipeError] = field(default_factory=dict)
    step: LadderStep | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Strategy(Generic[FilesT]):
    """One way to make packages unaffected: a step of the ladder.

    ``attempt`` takes a position and packages, and has no side effects. It raises RecipeError if it doesn't
    serve, ToolError. ``refusal``: why it is not even tried for a package. ``together``: several packages
    are tried in one attempt first. ``weighed``: its result is compared with those of the strategies after
    it, unless it changes little.
    """

    step: LadderStep
    attempt: Callable[[Position[FilesT], tuple[str, ...]], Reached[FilesT]]
    refusal: Callable[[Position[FilesT], str], RecipeError | None] = lambda _at, _package: None
    together: bool = True
    weighed: bool = False


def ordered(
    ladder: Iterable[Strategy[FilesT]], step: LadderStep | None, left_out: Sequence[LadderStep]
) -> list[Strategy[FilesT]]:
    """Return a ladder without some steps, in the order that a person prefers. ``step``: which of the steps
    that change what the project does not declare comes first; None for the ladder's order."""
    strategies = [strategy for strategy in ladder if strategy.step not in left_out]
    if step is None:
        return strategies
    late = (LadderStep.PARENT_BUMP, LadderStep.OVERRIDE)
    near = [strategy for strategy in strategies if strategy.step not in late]
    far = [replace(strategy, weighed=False) for strategy in strategies if strategy.step in late]
    return [*near, *sorted(far, key=lambda strategy: strategy.step is not step)]


def never_worse(_before: Position[FilesT], _after: Position[FilesT]) -> Blocker | None:
    """Return None: the ecosystem has no further rule."""
    return None


@dataclass(frozen=True)
class ResultRules(Generic[FilesT]):
    """Rules for every result, whichever strategy led to it. ``worse``: the ecosystem's own rules; ``ages``:
    the project's, on the age of releases."""

    ecosystem: str
    advisory: Advisory
    worse: Callable[[Position[FilesT], Position[FilesT]], Blocker | None] = never_worse
    ages: Ages | None = None

    def affected(self, tree: DependencyTree) -> tuple[Node, ...]:
        """Return the affected copies of a tree, in the lock's order."""
        return tuple(tree.affected(self.advisory, self.ecosystem))

    def problem(self, before: Position[FilesT], after: Position[FilesT]) -> Blocker | None:
        """Return what is worse than before, or None."""
        newly_affected = copies(self.affected(after.tree)) - copies(self.affected(before.tree))
        if newly_affected:
            name, version = min(newly_affected)
            return worse(after.tree, f"{name} {version}", "would come in, which is itself affected")
        lower = downgraded(before.tree, after.tree, self.ecosystem)
        if lower is not None:
            name, highest, current = lower
            return worse(after.tree, name, f"would go down from {highest} to {current}")
        candidate = self._candidate(before.tree, after.tree)
        if candidate is not None:
            return worse(after.tree, candidate.label, "would come in, which is a pre-release")
        blocker = self.worse(before, after)
        if blocker is not None or self.ages is None:
            return blocker
        new = copies(after.tree.nodes.values()) - copies(before.tree.nodes.values())
        too_new = self.ages.first_problem(new)
        return too_new.blockers[0] if too_new else None

    def _candidate(self, before: DependencyTree, after: DependencyTree) -> Node | None:
        """Return a pre-release that replaced the final releases of a package; None if there is none.
        Affected packages don't count, as their versions were chosen, nor do new ones, which the client
        chooses."""
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
        dependents_before, dependents_now = (
            sum(len(tree.dependents(node.key)) for node in nodes)
            for tree, nodes in ((before.tree, old), (after.tree, new))
        )
        return len(new) < len(old) or dependents_now < dependents_before


def worse(tree: DependencyTree, package: str, what: str) -> Blocker:
    """Return the blocker for a resolved tree that no fix may have. ``what``: a clause about the package."""
    return Blocker(kind=BlockerKind.RESULT, package=package, constraint=what, file=tree.source)


def copies(nodes: Iterable[Node]) -> set[_Copy]:
    """Return the (package, version) pairs of installed copies."""
    return {(node.name, node.version) for node in nodes}


#: Installed copies that may change before other strategies are compared: what a reviewer reads at once.
LIGHT = 12


@dataclass(frozen=True, order=True)
class _Weight:
    """The size of a change, compared field by field. ``majors``: packages that the project itself requires
    and that make a major step; ``copies``: installed copies that are added, removed or changed."""

    majors: int
    copies: int

    @property
    def is_light(self) -> bool:
        """Whether the change is so small that other strategies aren't worth comparing."""
        return not self.majors and self.copies <= LIGHT

    def __str__(self) -> str:
        text = f"{self.copies} installed packages change"
        if not self.majors:
            return text
        makes = "makes" if self.majors == 1 else "make"
        return f"{text}, {self.majors} that the project requires {makes} a major step"


def _major_steps(
    ecosystem: str, before: DependencyTree, after: DependencyTree
) -> Iterator[tuple[str, str, str]]:
    """Yield (package, from, to), sorted by name, for each package that the project itself requires and that
    makes a major step."""
    required = {
        before.nodes[ask.to].name
        for root in before.roots
        for ask in root.asks
        if ask.to is not None and ask.to in before.nodes
    }
    for name in sorted(required):
        old, new = (tree.highest(ecosystem, name) for tree in (before, after))
        if old and new and is_major_step(ecosystem, old, new):
            yield name, old, new


#: Rounds of one strategy: its result can uncover a copy that it fixes as well.
MAX_ROUNDS = 3


@dataclass(frozen=True)
class _FixedCopies:
    """How affected copies were fixed: the farthest step, and what was raised on the way."""

    step: LadderStep
    raised: tuple[str, ...]


class Resolution(Generic[FilesT]):
    """One resolution: its position, what was fixed so far, and the steps that did not serve."""

    def __init__(self, judge: ResultRules[FilesT], start: Position[FilesT]) -> None:
        self._judge = judge
        self.start = self.at = start
        #: Sentences on why other packages changed too, for the result's notes.
        self.notes: list[str] = []
        self._tried: dict[str, Tried] = {}
        self._fixed: dict[_Copy, _FixedCopies] = {}
        #: By package, for packages of which a copy is left below other dependents.
        self._partly: dict[str, _FixedCopies] = {}
        self._stopped: RecipeError | None = None
        self._count = StepCount(0, len(self.packages))

    def run(self, strategies: Iterable[Strategy[FilesT]]) -> None:
        """Try the strategies in turn, and leave what they don't fix. If clients are stopped, keep the
        position that was reached: what is left counts as not resolved."""
        with counting_steps(lambda: self._count):
            try:
                self.climb(strategies)
            except StoppedError as error:
                self._stopped = not_resolved(error)

    def climb(self, strategies: Iterable[Strategy[FilesT]]) -> None:
        """Try the strategies in turn, as a part of another attempt. Raises StoppedError."""
        ladder = tuple(strategies)
        for index, strategy in enumerate(ladder):
            alternatives = ladder[index + 1 :] if strategy.weighed else ()
            for _ in range(MAX_ROUNDS):
                names = tuple(self._may_try(strategy))
                if not names or not self._use(strategy, names, alternatives):
                    break

    @property
    def is_stopped(self) -> bool:
        """Whether clients were stopped before all strategies were tried."""
        return self._stopped is not None

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages of which a copy is affected at the current position."""
        return tuple(dict.fromkeys(node.name for node in self._judge.affected(self.at.tree)))

    def tried(self, package: str) -> "Tried":
        """Return the steps that did not serve a package."""
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
        alternatives: Sequence[Strategy[FilesT]],
    ) -> bool:
        """Try all packages together, so that a change that clears several is made once; otherwise each
        alone. Return whether anything was fixed."""
        if strategy.together and len(names) > 1:
            try:
                reached = self._attempt(strategy, names)
            except RecipeError:
                pass  # what blocks one package need not block another
            else:
                if not alternatives or self._weight(reached).is_light:
                    return self._take(strategy, reached, names)
        done = False
        for name in names:
            if name in self.packages:
                try:
                    reached = self._attempt(strategy, (name,))
                except RecipeError as error:
                    self.tried(name).no(strategy.step, error)
                else:
                    best = self._lightest(strategy, reached, name, alternatives)
                    done = self._take(*best, (name,)) or done
        return done

    def _attempt(self, strategy: Strategy[FilesT], names: tuple[str, ...]) -> Reached[FilesT]:
        """Return the strategy's result. Raises RecipeError if it does not serve, or breaks a rule."""
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
        alternatives: Sequence[Strategy[FilesT]],
    ) -> tuple[Strategy[FilesT], Reached[FilesT]]:
        """Return the strategy, with its result, that changes least for the application."""
        best, weight = (strategy, reached), self._weight(reached)
        for alternative in alternatives if not weight.is_light else ():
            if alternative.refusal(self.at, name) is not None:
                continue
            try:
                result = self._attempt(alternative, (name,))
            except RecipeError:
                continue
            result_weight = self._weight(result)
            if result.position is not self.at and result_weight < weight:
                reason = f"{weight}; the {alternative.step.label} changes less: {result_weight}."
                self.tried(name).no(best[0].step, reason)
                best, weight = (alternative, result), result_weight
        return best

    def _weight(self, reached: Reached[FilesT]) -> _Weight:
        before, after = self.at.tree, reached.position.tree
        old, new = (
            {(key, node.version) for key, node in tree.nodes.items()} for tree in (before, after)
        )
        # A changed copy counts once, not as one removed and one added.
        changed = {key for key, _ in old ^ new}
        return _Weight(len([*_major_steps(self._judge.ecosystem, before, after)]), len(changed))

    def _take(
        self, strategy: Strategy[FilesT], reached: Reached[FilesT], names: tuple[str, ...]
    ) -> bool:
        """Move to the result's position. Return False if it is the current one."""
        for name, error in reached.declined.items():
            self.tried(name).no(strategy.step, error)
        after = reached.position
        if after is self.at:
            return False
        old, new = (copies(self._judge.affected(tree)) for tree in (self.at.tree, after.tree))
        step = reached.step or strategy.step
        # A package that another's fix removed counts with everything that was raised.
        all_raised = tuple({name: None for names in reached.raised.values() for name in names})
        gone, fixed_copies = {name for name, _ in old - new}, dict[str, _FixedCopies]()
        for name in {*names, *gone}:
            raised = reached.raised.get(name, all_raised if name in gone else ())
            before = self._partly.pop(name, _FixedCopies(step, ()))
            farthest = max(before.step, step, key=list(LadderStep).index)
            fixed_copies[name] = _FixedCopies(farthest, (*before.raised, *raised))
        self._fixed |= {copy: fixed_copies[copy[0]] for copy in old - new}
        self._partly |= {name: fixed for name, fixed in fixed_copies.items() if name not in gone}
        self.at = after
        remaining = len(self.packages)
        total = max(remaining, self._count.packages)
        self._count = StepCount(total - remaining, total)
        self.notes += reached.notes
        return True

    # --- the account --------------------------------------------------------------------------------

    def moves(self, manifest: str) -> tuple[Move, ...]:
        """Return a move for each version that a package's affected copies went to."""
        still_affected = copies(self._judge.affected(self.at.tree))
        fixed = (
            ((node.name, self._now(node)), node.version)
            for node in self._judge.affected(self.start.tree)
            if (node.name, node.version) not in still_affected
        )
        return tuple(
            self._move(manifest, package, self._sorted(versions), after)
            for (package, after), versions in grouped(fixed).items()
        )

    def lefts(self, manifest: str) -> tuple[Left, ...]:
        """Return what is still affected, by package."""
        affected = self._judge.affected(self.at.tree)
        rules = self._judge.advisory, self._judge.ecosystem

        def left_of(name: str, versions: Iterable[str]) -> Left:
            tried, versions = self.tried(name), self._sorted(versions)
            error = self._stopped or tried.refusal
            return left_behind(*rules, name, versions, manifest=manifest, error=error, tried=tried)

        versions = grouped((node.name, node.version) for node in affected)
        return tuple(left_of(*item) for item in versions.items())

    def _move(
        self, manifest: str, package: str, versions: Sequence[str], after: str | None
    ) -> Move:
        order = [None, *LadderStep]
        fixed = (self._fixed[package, version] for version in versions)
        farthest = max(fixed, key=lambda copy: order.index(copy.step))
        tried = self.tried(package).declined
        cheaper = (
            declined
            for declined in tried
            if order.index(declined.step) < order.index(farthest.step)
        )
        return Move(
            package=package,
            manifest=manifest,
            step=farthest.step,
            before=tuple(versions),
            after=after,
            raised=tuple(name for name in farthest.raised if name != f"{package} {after}"),
            declined=tuple(cheaper),
        )

    def _now(self, node: Node) -> str | None:
        """Return the version that replaced an affected copy: at its key, or the lowest copy above it."""
        tree = self.at.tree
        at = tree.nodes.get(node.key)
        if at is not None and at.name == node.name:
            return at.version
        floor = sort_key(self._judge.ecosystem, node.version)
        higher = {copy.version for copy in tree.of(node.name)}
        above = [
            version
            for version in self._sorted(higher)
            if sort_key(self._judge.ecosystem, version) > floor
        ]
        return above[0] if above else None

    def _sorted(self, versions: Iterable[str]) -> tuple[str, ...]:
        key = self._judge.ecosystem
        return tuple(sorted(dict.fromkeys(versions), key=lambda version: sort_key(key, version)))


#: No texts: the default of ``patched``.
NO_TEXTS: Mapping[str, str] = MappingProxyType({})

#: Characters around a declaration in its line.
_AROUND = " \t,\\"

#: Characters of a changed line that are shown.
MAX_SHOWN = 120

#: Note in every result that was made with ``Settings.offline``.
OFFLINE_NOTE = "Offline: it is unknown whether a chosen release was yanked or deprecated."

#: Weaknesses of code that was written to do harm: embedded malicious code, Trojan horse, worm.
_MALICIOUS = frozenset({"CWE-506", "CWE-507", "CWE-509"})


@dataclass(frozen=True)
class ProjectFix:
    """The result of resolving one project: new texts by path, and the account of it.

    ``before``/``after`` are the resolved trees; None if only pins could be read. ``cleared`` is computed
    from the trees if there are two; a project without trees states its own.
    """

    texts: Mapping[str, str]
    moves: tuple[Move, ...]
    left: tuple[Left, ...] = ()
    before: DependencyTree | None = None
    after: DependencyTree | None = None
    cleared: tuple[ClearedPath, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def proof_level(self) -> ProofLevel:
        """The resolved tree if a client resolved it, pins if only declared pins could be read."""
        return ProofLevel.PINS if self.after is None else ProofLevel.RESOLVED_TREE

    @property
    def brought_in(self) -> frozenset[tuple[str, str]]:
        """The releases (package, version) that are new; without trees, those that were chosen."""
        chosen = {(move.package, move.after) for move in self.moves if move.after is not None}
        labels = (label.rpartition(" ") for move in self.moves for label in move.raised)
        raised = {(name, version) for name, _, version in labels if version}
        if self.before is None or self.after is None:
            return frozenset(chosen | raised)
        old, new = (
            {(node.name, node.version) for node in tree.nodes.values()}
            for tree in (self.before, self.after)
        )
        return frozenset(new - old)


class Project(Protocol):
    """One set of files that a client resolves together. ``path`` names it in every message."""

    @property
    def path(self) -> str:
        """The lock, or the manifest if there is none."""
        ...

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Fix the project for an advisory (or bundle). Return None if it isn't affected.

        Packages are fixed one by one, cheapest step first; what can't be fixed is in ``left``. ``patched``:
        the texts
        of the projects that are fixed already, by path, which replace the repository's. Raises RecipeError
        if the project as a whole can't be read or resolved, ToolError.
        """
        ...


class _AgedProject(Project, Protocol):
    @property
    def ages(self) -> Ages: ...


@dataclass(frozen=True)
class HeldToAges:
    """A project whose fix brings in no release that is younger than its rules allow (ADR-0110)."""

    project: _AgedProject

    @property
    def path(self) -> str:
        """The project's path."""
        return self.project.path

    def resolve(
        self, advisory: Advisory, patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Resolve the project. If a safe release exists but is too new, give that as the reason why a
        package is left."""
        try:
            fix = self.project.resolve(advisory, patched)
        except RecipeError as error:
            age_error = self.project.ages.reason_behind(error.reason, error.problem)
            if age_error is None:
                raise
            raise age_error from error
        if fix is None:
            return None
        ages = self.project.ages
        too_new = ages.first_problem(fix.brought_in)
        if too_new is not None:
            raise too_new
        left = tuple(map(self._explained, fix.left))
        return replace(fix, left=left, notes=(*fix.notes, *ages.notes(fix.brought_in)))

    def _explained(self, left: Left) -> Left:
        if left.is_not_resolved:
            return left
        error = self.project.ages.reason_behind(left.reason, left.sentence, left.package)
        if error is None:
            return left
        why = {"reason": error.problem, "blockers": error.blockers}
        declined = (
            step.model_copy(update=why) if step.reason == left.sentence else step
            for step in left.declined
        )
        return left.model_copy(
            update={
                "reason": error.reason,
                "sentence": error.problem,
                "next_step": error.next_step,
                "declined": tuple(declined) or declined_by(error),
                "kind": error.kind,
            }
        )


def combined(
    ecosystem: str, advisory: Advisory, repo: RepoContext, fixes: Sequence[ProjectFix]
) -> RecipeResult:
    """Return one result from the fixes of a repository's projects.

    Raises RecipeError if something is left of a single advisory, nothing was fixed or changed, or a fix is
    breaks a rule (a downgrade, a version that is itself affected).
    """
    left = tuple(item for fix in fixes for item in fix.left)
    moves = tuple(move for fix in fixes for move in fix.moves)
    if left and (not moves or not isinstance(advisory, AdvisoryBundle)):
        # A package that was not resolved comes first: not all steps were tried, so one may fix it.
        refuse(next((item for item in left if item.is_not_resolved), left[0]))
    texts = {path: text for fix in fixes for path, text in fix.texts.items()}
    changes = tuple(
        FileChange(path=path, before=before, after=after)
        for path, after in sorted(texts.items())
        if (before := repo.read_text(path)) != after
    )
    if not changes or not moves:
        raise RecipeError(
            RefusalReason.NOTHING_CHANGED,
            "The recipe changed no file, so nothing is fixed.",
            next_step="Look at what pins the package.",
        )
    for fix in fixes:
        _check(ecosystem, advisory, fix)
    pins = any(fix.proof_level is ProofLevel.PINS for fix in fixes)
    return RecipeResult(
        changes=changes,
        proof_level=ProofLevel.PINS if pins else ProofLevel.RESOLVED_TREE,
        moves=moves,
        declarations=tuple(
            declaration for change in changes for declaration in _declarations(change, moves)
        ),
        cleared=tuple(path for fix in fixes for path in _cleared(ecosystem, advisory, fix)),
        left=left,
        notes=tuple(
            dict.fromkeys((*_notes(ecosystem, repo, fixes), *_unreached(advisory, repo, moves)))
        ),
        tree_before=_listing(fix.before for fix in fixes),
        tree_after=_listing(fix.after for fix in fixes),
    )


def resolve_all(
    advisory: Advisory, projects: Iterable[Project], *, nothing: Callable[[], RecipeError]
) -> list[ProjectFix]:
    """Resolve every project. A partial fix is not a fix: a project that can't be resolved stops a single
    advisory, and is ``left`` for a bundle. ``nothing`` returns the refusal if there was nothing to do."""
    fixes: list[ProjectFix] = []
    patched: dict[str, str] = {}
    for project in projects:
        try:
            fix = project.resolve(advisory, patched)
        except (RecipeError, RepositoryError, StoppedError) as error:
            if not isinstance(advisory, AdvisoryBundle):
                raise
            why = not_resolved(error) if isinstance(error, StoppedError) else error
            fix = ProjectFix(texts={}, moves=(), left=(whole_project_left(project.path, why),))
        if fix is not None:
            fixes.append(fix)
            patched |= fix.texts
    if not fixes:
        raise nothing()
    return fixes


def _declarations(change: FileChange, moves: Sequence[Move]) -> Iterator[ChangedDeclaration]:
    """Yield the changed lines of a manifest that name a package which the moves raise."""
    if is_lock(change.path) or change.after is None:
        return
    raised = (label.rpartition(" ")[0] for move in moves for label in move.raised)
    names = tuple(dict.fromkeys((*(move.package for move in moves), *raised)))
    old, new = ((change.before or "").splitlines(), change.after.splitlines())
    for kind, start, end, first, last in SequenceMatcher(None, old, new).get_opcodes():
        if kind in {"replace", "insert"}:
            pairs = zip_longest(old[start:end], new[first:last], fillvalue="")
            for number, (before, after) in enumerate(pairs, first + 1):
                package = next((name for name in names if _names(after, name)), None)
                if package is not None:
                    old_part, new_part = _differing(before.strip(_AROUND), after.strip(_AROUND))
                    yield ChangedDeclaration(
                        package=package,
                        file=change.path,
                        line=number,
                        before=old_part,
                        after=new_part,
                    )


def _names(line: str, package: str) -> bool:
    name = re.sub(r"[-_.]+", "[-_.]+", re.escape(package).replace("\\", ""))
    return re.search(rf"(?<![\w@/.-]){name}(?![\w/-])", line, re.IGNORECASE) is not None


def _differing(before: str, after: str) -> tuple[str, str]:
    """Return two lines; if one is longer than MAX_SHOWN, the parts around their first difference."""
    start = 0
    if max(len(before), len(after)) > MAX_SHOWN:
        same = (old == new for old, new in zip(before, after, strict=False))
        start = max(0, len([*takewhile(bool, same)]) - MAX_SHOWN // 3)
    return before[start : start + MAX_SHOWN], after[start : start + MAX_SHOWN]


def _cleared(ecosystem: str, advisory: Advisory, fix: ProjectFix) -> tuple[ClearedPath, ...]:
    if fix.before is None or fix.after is None:
        return fix.cleared
    return cleared_paths(fix.before, fix.after, advisory, ecosystem, fix.after.source)


def _check(ecosystem: str, advisory: Advisory, fix: ProjectFix) -> None:
    """Raise RecipeError if a fix breaks a rule, whichever step made it."""
    for move in fix.moves:
        _check_move(ecosystem, advisory, move)
    if fix.before is None or fix.after is None:
        return
    lower = downgraded(fix.before, fix.after, ecosystem)
    if lower:
        name, highest, current = lower
        raise does_not_serve(worse(fix.after, name, f"would go down from {highest} to {current}"))
    left_packages = {item.package for item in fix.left}
    old = {(node.name, node.version) for node in fix.before.nodes.values()}
    for node in fix.after.affected(advisory, ecosystem):
        if node.name in left_packages and (node.name, node.version) in old:
            continue
        ids = ", ".join(advisory.ids_affecting(ecosystem, node.name, node.version))
        raise does_not_serve(worse(fix.after, node.label, f"would stay, affected by {ids}"))


def _check_move(ecosystem: str, advisory: Advisory, move: Move) -> None:
    if move.after is None:
        return
    if is_affected(advisory, ecosystem, move.package, move.after):
        raise does_not_serve(f"{move.package} {move.after} is itself affected.")
    for version in move.before:
        comparable = is_orderable(ecosystem, version) and is_orderable(ecosystem, move.after)
        if comparable and compare_versions(ecosystem, move.after, version) <= 0:
            raise does_not_serve(f"{move.package} would go from {version} to {move.after}.")


def _notes(ecosystem: str, repo: RepoContext, fixes: Sequence[ProjectFix]) -> Iterator[str]:
    if repo.settings.offline:
        yield OFFLINE_NOTE
    if repo.settings.prefer is not None:
        yield f"A person preferred the {repo.settings.prefer.label}."
    for fix in fixes:
        for package, old, new in _major_steps_of(ecosystem, fix):
            yield f"{package} goes from {old} to {new}, a major step: look at what it changed."
        for move in fix.moves:
            if move.range_admits:
                yield (
                    f"{move.manifest} declared a range of {move.package} that admits safe releases too, and"
                    " no lock chooses one: now it admits no affected one."
                )
        yield from fix.notes


def _unreached(advisory: Advisory, repo: RepoContext, moves: Sequence[Move]) -> Iterator[str]:
    """Yield notes on what no version change reaches: what a malicious release did, and packages of other
    ecosystems."""
    moved = {move.package: ", ".join(move.before) for move in moves}
    for record in advisory.records:
        names = {name for ecosystem in record.ecosystems for name in record.packages(ecosystem)}
        malicious = _MALICIOUS & set(record.cwe) or any(
            identifier.startswith("MAL-") for identifier in (record.id, *record.aliases)
        )
        for package in sorted(names & moved.keys()) if malicious else ():
            yield (
                f"{record.id} is about malicious code, which may have run wherever {package}"
                f" {moved[package]} was installed: rotate the secrets that were in reach there."
            )
        for ecosystem in record.ecosystems:
            locks = OTHER_LOCKS.get(ecosystem.partition(":")[0], frozenset())
            for path in repo.tracked_files:
                if posixpath.basename(path) in locks:
                    text = repo.glimpse(path) or ""
                    for package in record.packages(ecosystem):
                        if re.search(rf"(?<![\w.-]){re.escape(package)}(?![\w-])", text):
                            yield (
                                f"{path} names {package} of {ecosystem}, which {record.id} covers too and"
                                " which is not looked at here: raise it with that ecosystem's client."
                            )


def _major_steps_of(ecosystem: str, fix: ProjectFix) -> Iterator[tuple[str, str, str]]:
    """Yield (package, from, to) for a fix's major steps; without trees, for those of its moves."""
    if fix.before is not None and fix.after is not None:
        yield from _major_steps(ecosystem, fix.before, fix.after)
        return
    for move in fix.moves:
        for old in move.before:
            if move.after and is_major_step(ecosystem, old, move.after):
                yield move.package, old, move.after


def _listing(trees: Iterable[DependencyTree | None]) -> str:
    return "".join(f"# {tree.source}\n{tree.listing()}" for tree in trees if tree is not None)


#: Reasons that name the cause: what holds a package back, or that nothing safe is known.
_SIGNIFICANT = frozenset({RefusalReason.BLOCKED_BY_CONSTRAINT, RefusalReason.NO_FIXED_VERSION})


@dataclass
class Tried:
    """Collector of the steps that did not serve, in order, each reason once."""

    steps: list[StepDeclined] = field(default_factory=list)
    errors: list[tuple[LadderStep, RecipeError]] = field(default_factory=list)

    def no(self, step: LadderStep, error: RecipeError | str, *, was_tried: bool = True) -> None:
        """Note a step that did not serve. If it was not tried, it is not the reason why a package is
        left."""
        reason = error.problem if isinstance(error, RecipeError) else error
        blockers = error.blockers if isinstance(error, RecipeError) else ()
        declined = StepDeclined(step=step, reason=reason, blockers=blockers)
        if declined in self.steps:
            return
        if isinstance(error, RecipeError) and was_tried:
            self.errors.append((step, error))
        self.steps.append(declined)

    @property
    def declined(self) -> tuple[StepDeclined, ...]:
        """The steps, for ``Move.declined`` and ``Left.declined``."""
        return tuple(self.steps)

    @property
    def refusal(self) -> RecipeError:
        """The most informative error: the first that names a cause, or a runtime that a release does not
        support, otherwise the last.

        If the project's declaration was raised, it no longer prevents a lock refresh: that error is
        left out.
        """
        raised = any(step is LadderStep.DIRECT_BUMP for step, _ in self.errors)
        errors = [
            error for step, error in self.errors if not (raised and step is LadderStep.LOCK_REFRESH)
        ]
        # Why earlier steps failed says more than that nothing has to be forced.
        errors = [error for error in errors if error.kind != ADMITS_ALREADY] or errors
        significant = (error for error in errors if error.reason in _SIGNIFICANT)
        by_runtime = (
            error
            for error in errors
            if any(blocker.kind is BlockerKind.RUNTIME for blocker in error.blockers)
        )
        if errors:
            return next(chain(significant, by_runtime, errors[-1:]))
        problem = self.steps[-1].reason if self.steps else "No step of the ladder fixes it."
        return does_not_serve(problem)


def left_behind(
    advisory: Advisory,
    ecosystem: str,
    package: str,
    versions: Iterable[str],
    *,
    manifest: str,
    error: RecipeError,
    tried: Tried | None = None,
) -> Left:
    """Return a package that no step fixes, with the steps that were tried or, without any, what blocks."""
    ids = {
        advisory_id: None
        for version in versions
        for advisory_id in advisory.ids_affecting(ecosystem, package, version)
    }
    return Left(
        package=package,
        manifest=manifest,
        advisory_ids=tuple(ids),
        reason=error.reason,
        sentence=error.problem,
        next_step=error.next_step,
        declined=tried.declined if tried else declined_by(error),
        kind=error.kind,
    )


def whole_project_left(path: str, error: RecipeError | RepositoryError) -> Left:
    """Return a project that could not be read or resolved as something left; ``path`` empty: all."""
    why = NotApplicable.of(error)
    return Left(
        package="",
        manifest=path or None,
        reason=why.reason,
        sentence=error.problem,
        next_step=error.next_step,
        unread=why.unread,
        declined=why.declined,
        kind=error.kind,
    )


def refuse(left: Left) -> NoReturn:
    """Raise the refusal to fix a single advisory, for what is left."""
    raise error_of(left)


def error_of(left: Left) -> RecipeError:
    """Return the refusal to fix what is left."""
    return RecipeError(
        left.reason,
        left.sentence,
        next_step=left.next_step,
        unread=left.unread,
        declined=left.declined,
        kind=left.kind,
    )


#: Kind of the refusal to force a version that is admitted without that.
ADMITS_ALREADY = "admits_already"

#: The package of a conflict that the project's own declaration causes.
PROJECT = "the project"

#: Causes for which a client can't reach a registry, with patterns of its output.
_UNREACHABLE = {
    "refused the connection": r"ECONNREFUSED|Connection refused",
    "no such host": r"ENOTFOUND|EAI_AGAIN|dns error",
    "no answer in time": r"ETIMEDOUT|ESOCKETTIMEDOUT|ERR_SOCKET_TIMEOUT|operation timed out",
    "the connection broke": r"ECONNRESET|EPIPE|error sending request|socket hang up",
    "its certificate is not accepted": r"UNABLE_TO_\w+|SELF_SIGNED_\w+|CERT_\w+|invalid peer certificate",
}
_STATUS = lazy_pattern(
    r"(?:code E|ERR_PNPM_FETCH_|error \(|credentials \(|returned a |Request failed \")"
    r"(?P<status>[45]\d\d)\b"
)
_ADDRESS = lazy_pattern(r"https?://(?!yarnpkg\.com/)[^\s()\"'`,]+")
_HOST = lazy_pattern(r"(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN) (?P<host>[\w.-]+(?::\d+)?)")

#: Matches ``fallback_tier.hosts.NamedHost.sentence``. A word is tried only at its beginning: linear time.
_NAMED_BY = lazy_pattern(r"(?<!\S)(\S+) is named by (\S+) and")

#: The option that lets a client use a host that only the repository names.
_ALLOWING = "--allow-host"

#: Characters of a client's output that a refusal quotes if nothing in it names a cause.
_MAX_QUOTE = 300


def describe(blocker: Blocker) -> str:
    """Return the clause that names what blocks, its constraint and the file."""
    one, package, host = blocker, blocker.package, blocker.host or "The registry"
    by = f", which {one.required_by} requires" if one.required_by else ""
    match one.kind:
        case BlockerKind.CONFLICT:
            text = f"{package} requires {one.constraint}"
        case BlockerKind.NOT_PUBLISHED:
            text = f"the registry has no {f'{package} {one.constraint}'.strip()}{by}"
        case BlockerKind.REGISTRY if one.setting.startswith(_ALLOWING):
            by = one.file or "what a package requires"
            why = "and not by your own configuration, so it was not asked"
            return f"{host} is named by {by} {why} ({one.setting})"
        case BlockerKind.REGISTRY if one.status:
            of = f" about {package}" if package else ""
            text = f"{host} answered {one.status}{of}{by} (setting: {one.setting})"
        case BlockerKind.REGISTRY:
            text = f"{host} could not be asked: {one.constraint} (setting: {one.setting})"
        case BlockerKind.AGE_RULE:
            text = f"{one.constraint} does not admit {package}"
        case BlockerKind.RUNTIME:
            text = f"{package} requires {one.constraint}{by and f', and {one.required_by}'}"
        case BlockerKind.ADDRESS:
            text = f"{package} comes from {one.constraint}{by}, and no address is fetched"
        case BlockerKind.NOT_BUILT:
            text = f"{package} has no wheel, and nothing is built{by}"
        case BlockerKind.RESULT | BlockerKind.CLIENT | BlockerKind.UNREADABLE:
            text = f"{package} {one.constraint}".strip()
    return f"{text} ({one.file})" if one.file else text


def _step(blocker: Blocker) -> str:
    """Return what to do about a blocker."""
    one, file = blocker, blocker.file or "the manifest"
    name, setting = one.package.partition(" ")[0], one.setting or "registry"
    match one.kind:
        case BlockerKind.CONFLICT if one.package == PROJECT:
            return f"Raise that declaration in {file}."
        case BlockerKind.CONFLICT:
            return f"Upgrade {name} to a release that admits it, or replace {name}."
        case BlockerKind.NOT_PUBLISHED | BlockerKind.NOT_BUILT:
            by = one.required_by.partition(" ")[0] if one.required_by != PROJECT else ""
            return f"Require another release of {by or name} in {file}."
        case BlockerKind.REGISTRY if one.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return f"Give your own configuration credentials for {one.host} (setting: {setting})."
        case BlockerKind.REGISTRY if one.status == HTTPStatus.NOT_FOUND:
            return f"Correct its name in {file}, or name the registry that has it (setting: {setting})."
        case BlockerKind.REGISTRY if one.status:
            return f"Try again later, or name another registry (setting: {setting})."
        case BlockerKind.REGISTRY:
            return f"Correct that setting ({setting}) or the proxy, or try again when {one.host} answers."
        case BlockerKind.AGE_RULE:
            return "Wait until it is old enough, or make an exception to that rule."
        case BlockerKind.RUNTIME:
            return f"Raise the supported versions in {file}, or require another release of {name}."
        case BlockerKind.ADDRESS:
            parent = one.required_by.partition(" ")[0] if one.required_by != PROJECT else name
            return f"Use a release of {parent} that takes {name} from a registry."
        case BlockerKind.RESULT:
            return f"Require another release of {name} in {file}." if name else ADAPT
        case BlockerKind.UNREADABLE:
            return f"Repair {file}, or remove it."
        case BlockerKind.CLIENT:
            return f"Run that client with a copy of {file} to see all that it prints."


def refused_for(
    blocker: Blocker, *others: Blocker, head: str = "", next_step: str = "", kind: str = ""
) -> RecipeError:
    """Return the typed refusal that says what blocks. ``head``: what could not be done.

    Its kind is the blocker's, unless ``kind`` is more specific.
    """
    conflict = blocker.kind is BlockerKind.CONFLICT
    reason = RefusalReason.BLOCKED_BY_CONSTRAINT if conflict else RefusalReason.RESOLVER_FAILED
    clauses = "; ".join(dict.fromkeys(map(describe, (blocker, *others))))
    problem = f"{head}: {clauses}." if head else f"{_capital(clauses)}."
    return RecipeError(
        reason,
        problem,
        next_step=next_step or _step(blocker),
        blockers=(blocker, *others),
        kind=kind or blocker.kind.value,
    )


def _capital(clause: str) -> str:
    """Return the clause with a capital, unless it begins with a package's name."""
    return f"T{clause[1:]}" if clause.startswith("the ") else clause


def client_refused(
    head: str,
    words: str,
    blockers: Sequence[Blocker],
    hosts: Sequence[str] = (),
    file: str = "",
) -> RecipeError:
    """Return the refusal of a client that could not do what ``head`` says: with what blocks, or, if its
    output names no known cause, with the first part of that output (``words``). ``hosts``: those that it
    may not use. ``file``: the project's."""
    causes = [*blockers]
    if hosts:
        file_by_host = dict(_NAMED_BY.findall(words))
        kind = BlockerKind.REGISTRY
        causes = [
            Blocker(
                kind=kind, host=host, setting=f"{_ALLOWING} {host}", file=file_by_host.get(host, "")
            )
            for host in hosts
        ]
    elif not causes:
        quote = " ".join(words.split())[:_MAX_QUOTE].strip(" ;.") or "it printed nothing"
        causes = [Blocker(kind=BlockerKind.CLIENT, constraint=quote, file=file)]
    return refused_for(*causes, head=head, next_step=allow_step(hosts) if hosts else "")


def registry_blocker(output: str, setting: str, package: str = "") -> Blocker | None:
    """Return the registry's failure that a client's output reports, with the host; None if there is
    none."""
    address, host = _ADDRESS.search(output), _HOST.search(output)
    status = _STATUS.search(output)
    url = address[0].rstrip("./:") if address else ""
    cause = next(
        (cause for cause, pattern in _UNREACHABLE.items() if re.search(pattern, output)), ""
    )
    if not status and not cause:
        return None
    return Blocker(
        kind=BlockerKind.REGISTRY,
        package=package or unquote(urlsplit(url).path.rpartition("/")[2]),
        constraint="" if status else cause,
        host=host_in(url) if url else (host["host"] if host else ""),
        setting=setting,
        status=int(status["status"]) if status else None,
    )


def blocked(package: str, version: str, *, parent: str, spec: str, where: str) -> RecipeError:
    """Return the refusal that names the constraint, the parent that has it, and the file."""
    constraint = f"{package} {spec}"
    step = f"Upgrade {parent} to a release that admits {package} {version}, or replace it."
    if parent == PROJECT:
        step = f"Raise the declaration of {package} in {where}."
    blocker = Blocker(kind=BlockerKind.CONFLICT, package=parent, constraint=constraint, file=where)
    return RecipeError(
        RefusalReason.BLOCKED_BY_CONSTRAINT,
        f"{parent} in {where} requires {constraint}, which does not admit {version}.",
        next_step=step,
        blockers=(blocker,),
    )


def does_not_apply(problem: str, package: str, parent: str, spec: str, where: str) -> RecipeError:
    """Return the refusal to even try a step, with what requires the package, and the file."""
    constraint = f"{package} {spec}".strip()
    kind = BlockerKind.CONFLICT
    blocker = Blocker(kind=kind, package=parent, constraint=constraint, file=where)
    return unsupported(problem, f"Look at what requires {package} in {where}.", blocker)


def admits_already(package: str) -> RecipeError:
    """Return the refusal to force a version that all dependents of a package admit."""
    problem = f"What depends on {package} admits a safe version already."
    return unsupported(problem, kind=ADMITS_ALREADY)


def unknown(
    path: str, problem: str, *, next_step: str, blockers: Sequence[Blocker] = ()
) -> RecipeError:
    """Return the refusal to call a project clean: whether it is affected can't be decided, since the source
    at ``path`` was not read or resolved."""
    item = UnreadItem(path=path, reason=problem, next_step=next_step)
    return RecipeError(
        RefusalReason.UNKNOWN, problem, next_step=next_step, unread=(item,), blockers=blockers
    )


def does_not_serve(problem: Blocker | str) -> RecipeError:
    """Return the refusal of a resolved result that breaks a rule for fixes."""
    if isinstance(problem, str):
        problem = Blocker(kind=BlockerKind.RESULT, constraint=problem.rstrip("."))
    return refused_for(problem)
