"""One ecosystem's part of a plan: triage, then resolutions until nothing is left over."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_tier.advisory import Advisory, AdvisoryBundle, Staying, bundle, fixed_versions
from fallback_tier.errors import (
    RecipeError,
    RepositoryError,
    StoppedError,
    ToolError,
    ToolMissingError,
)
from fallback_tier.outcome import (
    NOT_RESOLVED,
    ChangedDeclaration,
    ClearedPath,
    Left,
    Move,
    NotApplicable,
    OwnTests,
    UnreadItem,
    declined_by,
)
from fallback_tier.patch.admission import check_planned, check_recipe
from fallback_tier.planning.concern import UNKNOWN, Concern, narrowed
from fallback_tier.planning.document import EcosystemPlan, PlannedMove, Remaining
from fallback_tier.planning.recipe_choice import unnamed_here
from fallback_tier.ports import EcosystemPlugin, NamesTests
from fallback_tier.repo import RepoContext

_Item = TypeVar("_Item")

#: Errors that a run of the ladder may raise.
_ResolveError = RecipeError | RepositoryError | ToolError
_RESOLVE_ERRORS = (RecipeError, RepositoryError, ToolError)


@dataclass(frozen=True)
class _Resolved:
    """Result of a run of the ladder, or of an outline used instead. ``unread``: sources that may hold the
    packages and were not read."""

    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    files: tuple[str, ...]
    proof_level: ProofLevel | None = None
    cleared: tuple[ClearedPath, ...] = ()
    declarations: tuple[ChangedDeclaration, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadItem, ...] = ()


def _refusal_of(error: _ResolveError) -> NotApplicable:
    """Return the refusal that the tier would make of an error, without the next step."""
    match error:
        case RecipeError(reason=reason, problem=problem, unread=unread):
            declined = declined_by(error)
            return NotApplicable(reason=reason, sentence=problem, unread=unread, declined=declined)
        case ToolMissingError():
            reason = RefusalReason.TOOL_MISSING
        case ToolError():
            reason = RefusalReason.RESOLVER_FAILED
        case _:
            reason = RefusalReason.RECIPE_UNSUPPORTED
    return NotApplicable(reason=reason, sentence=error.problem)


#: Most resolutions of one ecosystem's bundle. Each further one has fewer advisories, and the second nearly
#: always leaves nothing over.
MAX_ROUNDS = 5

#: Most resolutions of a group of advisories without the others, if they can't be fixed together. Each runs
#: real clients; beyond the limit, each advisory gets the reason of them all.
MAX_ALONE = 20


class EcosystemPlanner:
    """Planner of one ecosystem's advisories (each narrowed to it) for one repository.

    *Targets* are to be fixed together. All others are *guards*: they don't concern the repository as it is,
    and no fix may change that, so they are resolved with the targets. ``settled``: by id, why no recipe is
    asked about an advisory (it is about the repository's own code). ``whole``: refuse partial fixes;
    otherwise a target is fixed as far as possible, and ``left`` names what stays of it.
    """

    def __init__(
        self,
        plugin: EcosystemPlugin,
        repo: RepoContext,
        advisories: tuple[Advisory, ...],
        settled: Mapping[str, NotApplicable],
        *,
        resolve: bool,
        whole: bool,
        observe: Callable[[str], None],
    ) -> None:
        self.left: list[Remaining] = []
        #: Advisories of which only a resolution tells whether they concern the repository.
        self.undecided: set[str] = set()
        #: Notes from the files alone, such as the date of a stored resolution.
        self.notes: tuple[str, ...] = ()
        self._plugin, self._repo, self._advisories = plugin, repo, advisories
        self._settled = settled
        self._resolve, self._whole_only, self._observe = resolve, whole, observe
        self._concern = Concern(plugin.name, advisories, repo)
        #: By advisory id: its packages that the repository holds in an affected version.
        self._held: dict[str, set[str]] = {}
        self._targets: list[Advisory] = []
        self._outline: _Resolved | None = None
        #: Groups of targets that were resolved without the others, once each.
        self._alone: set[frozenset[str]] = set()
        self._alone_left = MAX_ALONE
        #: (advisory id, package) pairs that no step could fix, though it fixed something else of it.
        self._staying: set[tuple[str, str]] = set()
        #: Advisories that were planned with the others, but not now: they stay as they are.
        self._waiting: set[str] = set()
        #: All resolutions so far: what is known if clients are stopped.
        self._known: list[_Resolved] = []
        #: The reason and the next step, once clients are stopped.
        self._cut_short: tuple[str, str] | None = None
        #: If clients were stopped: sources that may hold the packages and were not read.
        self.unread: tuple[UnreadItem, ...] = ()
        #: The same, as far as the files alone tell.
        self._unread_by_files: tuple[UnreadItem, ...] = ()

    @property
    def left_ids(self) -> set[str]:
        """Ids of the advisories that an item in ``left`` keeps open."""
        return {name for item in self.left for name in item.advisory_ids}

    def triage(self) -> None:
        """Find out which advisories concern this repository: from its files, and for advisories that these
        don't show, from the plugin's selection."""
        self._observe(f"{self._plugin.name}: reading the manifests")
        open_advisories = []
        for advisory in self._advisories:
            why = self._settled.get(advisory.id)
            if why is None and advisory.says_nothing:
                why = unnamed_here(self._plugin.name, advisory, self._repo)
            if why is None:
                open_advisories.append(advisory)
            else:
                self._held[advisory.id] = {UNKNOWN}
                self._leave([self._whole(advisory, why)])
        if not open_advisories:
            return
        outline = self._outlined(bundle(open_advisories))
        items: tuple[Move | Left, ...] = (*outline.moves, *outline.left)
        for item in items:
            for name in self._concern.ids(item):
                self._held.setdefault(name, set()).add(self._concern.canonical(item.package))
        self.notes, self._unread_by_files = outline.notes, outline.unread
        silent = [advisory for advisory in open_advisories if advisory.id not in self._held]
        queried = silent if self._resolve else self._open_by_files(silent)
        try:
            selections = {
                advisory.id: selection
                for advisory, selection in self._concern.of_silent(queried, self._plugin)
            }
        except StoppedError as error:
            self._cut_short, self._targets = (error.problem, error.next_step), open_advisories
            return
        for advisory in silent:
            selection = selections.get(advisory.id)
            if not isinstance(selection, NotApplicable):
                selection = unnamed_here(self._plugin.name, advisory, self._repo) or selection
            if isinstance(selection, NotApplicable):
                self._held[advisory.id] = {UNKNOWN}
                self._leave([self._whole(advisory, selection)])
            elif selection is not None:
                self.undecided.add(advisory.id)
        left_ids = self.left_ids
        self._targets = [
            advisory
            for advisory in open_advisories
            if advisory.id not in left_ids
            and (advisory.id in self._held or (self._resolve and advisory.id in self.undecided))
        ]
        # If no client is to run, this outline is already the first resolution.
        self._outline = None if self._resolve or left_ids else outline

    def _open_by_files(self, silent: Sequence[Advisory]) -> list[Advisory]:
        """Return those that locks and stored resolutions leave open. No client runs."""
        settings = self._repo.settings.model_copy(update={"offline": True})
        quiet = self._repo.model_copy(update={"settings": settings})
        concern = Concern(self._plugin.name, self._advisories, quiet)
        return [advisory for advisory, _ in concern.of_silent(silent, self._plugin)]

    def only(self, names: Collection[str]) -> tuple[EcosystemPlan | None, tuple[Remaining, ...]]:
        """Return the plan for these advisories alone, and what is left of them. Call it after
        ``resolve``."""
        subset = copy(self)
        subset._targets = [target for target in self._targets if target.id in names]
        subset._waiting = {target.id for target in self._targets} - {*names}
        subset._staying = {(name, package) for name, package in self._staying if name in names}
        subset.left, subset._alone_left, subset._known = [], 0, []
        subset._cut_short, subset.unread = None, ()
        fix = subset.resolve()
        return fix, tuple(subset.left)

    def resolve(self) -> EcosystemPlan | None:
        """Return a plan for all targets, or None if nothing can be done. What can't be fixed goes to
        ``left``."""
        rounds = 0
        while rounds < MAX_ROUNDS:
            if not self._targets:
                return None
            if self._cut_short is not None:
                return self._stopped(*self._cut_short)
            advisory = self._together(self._targets)
            count = len(self._targets)
            label = self._targets[0].id if count == 1 else f"{count} advisories together"
            self._observe(f"{self._plugin.name}: {label}")
            try:
                resolved = self._resolved(advisory)
            except StoppedError as error:
                return self._stopped(error.problem, error.next_step)
            except _RESOLVE_ERRORS as error:
                rounds += 1
                self._one_by_one(error)
                continue
            stuck = tuple(
                item for item in resolved.left if not self._is_known(self._remaining(item))
            )
            kept_out = (self.left_ids - {name for name, _ in self._staying}) | self._waiting
            leftover = stuck or self._concern.brought_in(resolved.moves, kept_out)
            if not leftover:
                return self._planned(resolved)
            if self._resolved_apart([item for item in stuck if not item.is_outside]):
                continue
            rounds += 1
            before = len(self._targets), len(self._staying)
            for item in map(self._remaining, leftover):
                self._leave(self._without_fixed(item, resolved.moves) if stuck else [item])
            if (len(self._targets), len(self._staying)) == before:
                # What is left names none of the targets, so it may concern any of them: unknown, not clean.
                first = leftover[0]
                self._give_up(first.why, first.next_step)
        if self._cut_short is not None:
            return self._stopped(*self._cut_short)
        why = f"{MAX_ROUNDS} rounds of planning each left something over."
        why_not = NotApplicable(reason=RefusalReason.RESOLVER_FAILED, sentence=why)
        self._give_up(why_not, "Fix these one by one.")
        return None

    def _is_known(self, item: Remaining) -> bool:
        package = self._concern.canonical(item.package)
        ids = item.advisory_ids
        return bool(ids) and all((name, package) in self._staying for name in ids)

    def _without_fixed(self, item: Remaining, moves: Sequence[Move]) -> list[Remaining]:
        """Return the item for the advisories of which the resolution fixed nothing: they are left whole.
        The others stay targets, and what stays of them is noted."""
        fixed = {name for move in moves for name in self._concern.ids(move)}
        in_part = tuple(name for name in item.advisory_ids if name in fixed)
        if self._whole_only or not item.package or not in_part:
            return [item]
        package = self._concern.canonical(item.package)
        self._staying |= {(name, package) for name in in_part}
        self._note(item.model_copy(update={"advisory_ids": in_part}))
        unfixed = tuple(name for name in item.advisory_ids if name not in in_part)
        return [item.model_copy(update={"advisory_ids": unfixed})] if unfixed else []

    def _resolved(self, advisory: Advisory) -> _Resolved:
        """Return a resolution, and add it to ``_known``. Raises StoppedError also if it is not complete."""
        if not self._resolve:
            outline, self._outline = self._outline, None
            outlined = outline or self._outlined(advisory)
            check_planned(outlined.files, self._plugin, self._repo)
            return outlined
        selection = self._plugin.select(advisory, self._repo)
        if isinstance(selection, NotApplicable):
            raise RecipeError(
                selection.reason,
                selection.sentence,
                next_step="",
                unread=selection.unread,
                declined=selection.declined,
            )
        try:
            result = self._plugin.apply(selection, advisory, self._repo)
        except RecipeError as error:
            if error.kind == NOT_RESOLVED:
                raise _stop(error.problem, error.next_step) from error
            raise
        check_recipe(result.changes, self._plugin, self._repo)
        resolved = _Resolved(
            moves=result.moves,
            left=result.left,
            files=tuple(sorted(change.path for change in result.changes)),
            proof_level=result.proof_level,
            cleared=result.cleared,
            declarations=result.declarations,
            notes=result.notes,
            unread=result.unread,
        )
        self._known.append(resolved)
        unresolved = next((item for item in result.left if item.is_not_resolved), None)
        if unresolved is not None:
            raise _stop(unresolved.sentence, unresolved.next_step)
        return resolved

    def _outlined(self, advisory: Advisory) -> _Resolved:
        outline = self._plugin.outline(advisory, self._repo)
        files = tuple(dict.fromkeys(move.manifest for move in outline.moves))
        return _Resolved(
            outline.moves, outline.left, files, notes=outline.notes, unread=outline.unread
        )

    def _one_by_one(self, error: _ResolveError) -> None:
        """Resolve each target alone for its own reason, or the advisories of each package together if there
        are too many. Those that can be fixed stay targets."""
        groups = _groups(self._targets, lambda target: target.id)
        if len(groups) > self._alone_left:
            groups = _groups(self._targets, lambda target: frozenset(self._held.get(target.id, ())))
        if len(groups) < 2 or isinstance(error, ToolMissingError) or not self._ask_alone(groups):
            self._give_up(_refusal_of(error), error.next_step)

    def _resolved_apart(self, stuck: Sequence[Left]) -> bool:
        """Resolve the advisories of a package apart, since no single version may clear them all: those with
        the same fixed versions without the others, package by package. Return False if nothing was, or
        could be, resolved that way."""
        resolved = False
        for item in map(self._remaining, stuck):
            package = self._concern.canonical(item.package)
            versions = partial(fixed_versions, ecosystem=self._plugin.name, package=package)
            members = [target for target in self._targets if target.id in item.advisory_ids]
            groups = _groups(members, versions)
            resolved |= len(groups) > 1 and self._ask_alone(groups)
        return resolved

    def _ask_alone(self, groups: Sequence[tuple[Advisory, ...]]) -> bool:
        """Resolve each group without the other targets, and leave those that can't be fixed that way.
        Return False, and do nothing, if that was done before or takes too many resolutions."""
        groups_by_ids = {frozenset(advisory.id for advisory in group): group for group in groups}
        new = {ids: group for ids, group in groups_by_ids.items() if ids not in self._alone}
        if not new or len(new) > self._alone_left:
            return False
        self._alone_left -= len(new)
        self._alone |= new.keys()
        for number, group in enumerate(new.values(), 1):
            self._ask(group, self._together(group), f"{number} of {len(new)}")
        return True

    def _ask(self, group: Sequence[Advisory], record: Advisory, progress: str) -> None:
        names = ", ".join(advisory.id for advisory in group)
        self._observe(f"{self._plugin.name}: {names} alone ({progress})")
        try:
            resolved = self._resolved(record)
        except StoppedError as error:
            self._cut_short = error.problem, error.next_step
        except _RESOLVE_ERRORS as cause:
            if not self._asked_in_parts(group):
                why = _refusal_of(cause)
                self._leave([self._whole(advisory, why, cause.next_step) for advisory in group])
        else:
            if resolved.left and self._asked_in_parts(group):
                return
            ids = tuple(advisory.id for advisory in group)
            for item in resolved.left:
                remaining = self._remaining(item, ids if len(ids) == 1 else ())
                self._leave(self._without_fixed(remaining, resolved.moves))

    def _asked_in_parts(self, group: Sequence[Advisory]) -> bool:
        """Call ``_ask_alone`` with the group split by the fixed versions of what the repository holds."""

        def versions(advisory: Advisory) -> tuple[tuple[str, ...], ...]:
            packages = sorted(self._held.get(advisory.id, ()))
            return tuple(
                fixed_versions(advisory, self._plugin.name, package) for package in packages
            )

        parts = _groups(group, versions)
        return len(parts) > 1 and self._ask_alone(parts)

    def _stopped(self, sentence: str, next_step: str) -> EcosystemPlan | None:
        """Return what is known of the targets once clients are stopped. Everything else of them is left as
        not resolved. A fix that resolves all may take other steps.

        The resolution that clears most targets counts. For the other targets, further resolutions count,
        unless they contradict moves that were chosen already.
        """
        cleared = [(self._cleared_by(resolved), resolved) for resolved in self._known]
        later_first = reversed(cleared)
        chosen: dict[str, tuple[tuple[Move, ...], _Resolved]] = {}
        for by_target, resolved in sorted(
            later_first, key=lambda entry: len(entry[0]), reverse=True
        ):
            earlier_moves = [move for moves, _ in chosen.values() for move in moves]
            for name, moves in by_target.items():
                if name not in chosen and (
                    fitting := [move for move in moves if self._fits(move, earlier_moves)]
                ):
                    chosen[name] = tuple(fitting), resolved
        moved: dict[Move, list[str]] = {}
        for target in self._targets:
            for move in chosen[target.id][0] if target.id in chosen else ():
                moved.setdefault(move, []).append(target.id)
        fixed = [target for target in self._targets if target.id in chosen]
        for target in fixed:
            for item in self._rest_of(target, *chosen[target.id], sentence, next_step):
                self._staying.add((target.id, self._concern.canonical(item.package)))
                self._note(item)
        unfixed = [target for target in self._targets if target not in fixed]
        self._leave_open(unfixed, sentence, next_step)
        unread = (item for resolved in self._known for item in resolved.unread)
        self.unread = _each_once((*self._unread_by_files, *unread))
        if not fixed:
            return None
        together, used = self._together(fixed), [chosen[target.id][1] for target in fixed]
        levels = {resolution.proof_level for resolution in used}
        return EcosystemPlan(
            ecosystem=self._plugin.name,
            advisory_ids=tuple(target.id for target in fixed),
            proof_level=ProofLevel.PINS if ProofLevel.PINS in levels else ProofLevel.RESOLVED_TREE,
            files=_each_once(path for resolution in used for path in resolution.files),
            moves=tuple(
                PlannedMove.model_validate({**dict(move), "advisory_ids": tuple(ids)})
                for move, ids in moved.items()
            ),
            declarations=_each_once(
                line for resolution in used for line in resolution.declarations
            ),
            cleared=_each_once(path for resolution in used for path in resolution.cleared),
            notes=_each_once(note for resolution in self._known for note in resolution.notes),
            in_part=together.in_part,
            unread=self.unread,
            advisory=together,
        )

    def _cleared_by(self, resolved: _Resolved) -> dict[str, tuple[Move, ...]]:
        """Return the moves of a resolution that lead from affected to unaffected versions, by target."""
        moves_by_target = (
            (
                target.id,
                tuple(move for move in resolved.moves if self._concern.is_cleared(target, move)),
            )
            for target in self._targets
        )
        return {name: moves for name, moves in moves_by_target if moves}

    def _fits(self, move: Move, earlier_moves: Sequence[Move]) -> bool:
        """Return whether a move brings in no version that an advisory covers, and no earlier move leads the
        same copies to another version."""
        if self._concern.brought_in([move], {advisory.id for advisory in self._advisories}):
            return False
        package = self._concern.canonical(move.package)
        return not any(
            (earlier.manifest, self._concern.canonical(earlier.package)) == (move.manifest, package)
            and earlier.after != move.after
            and not set(earlier.before).isdisjoint(move.before)
            for earlier in earlier_moves
        )

    def _rest_of(
        self,
        target: Advisory,
        moves: Sequence[Move],
        resolved: _Resolved,
        sentence: str,
        next_step: str,
    ) -> Iterator[Remaining]:
        """Yield what a resolution leaves of a target: packages without a move, and those that it moves only
        in some places."""
        open_packages = self._held.get(target.id, set()) - {UNKNOWN}
        open_packages -= {self._concern.canonical(move.package) for move in moves}
        for item in resolved.left:
            if target.id not in self._concern.ids(item):
                continue
            if item.is_not_resolved:
                open_packages.add(self._concern.canonical(item.package))
            else:
                yield self._remaining(item).model_copy(update={"advisory_ids": (target.id,)})
        if open_packages:
            yield from open_items(self._plugin.name, target, sentence, next_step, open_packages)

    def _leave_open(self, group: Sequence[Advisory], sentence: str, next_step: str) -> None:
        """Leave these as not resolved: there may be a step for each."""
        for advisory in group:
            self._leave(
                open_items(
                    self._plugin.name,
                    advisory,
                    sentence,
                    next_step,
                    self._held.get(advisory.id, ()),
                )
            )

    def _give_up(self, why: NotApplicable, next_step: str) -> None:
        self._leave(self._whole(advisory, why, next_step) for advisory in self._targets)

    def _leave(self, items: Iterable[Remaining]) -> None:
        """Remove the items' advisories from the targets, and note the items, except for unaffected
        advisories."""
        for item in tuple(items):
            if item.reason is not RefusalReason.NOT_AFFECTED:
                self._note(item)
            self._targets = [
                target for target in self._targets if target.id not in item.advisory_ids
            ]

    def _note(self, item: Remaining) -> None:
        """Add an item to ``left``. Items that differ only in their advisories become one."""
        for number, entry in enumerate(self.left):
            ids = tuple(dict.fromkeys((*entry.advisory_ids, *item.advisory_ids)))
            if entry == item.model_copy(update={"advisory_ids": entry.advisory_ids}):
                self.left[number] = entry.model_copy(update={"advisory_ids": ids})
                return
        self.left.append(item)

    def _together(self, targets: Sequence[Advisory]) -> Advisory:
        """Return one record of targets and guards, named after the targets."""
        chosen = {advisory.id for advisory in targets}
        guards = [
            part
            for advisory in self._advisories
            if advisory.id not in chosen and (part := self._guard(advisory)) is not None
        ]
        core = bundle(targets)
        if not guards and self._whole_only:
            return core
        staying = sorted(pair for pair in self._staying if pair[0] in chosen)
        fields = {
            **dict(core),
            "guards": len(guards),
            "affected": (*core.affected, *(e for g in guards for e in g.affected)),
            "staying": [Staying(advisory_id=name, package=package) for name, package in staying],
        }
        return AdvisoryBundle.model_validate({**fields, "members": (*targets, *guards)})

    def _guard(self, advisory: Advisory) -> Advisory | None:
        """Return the part of an advisory that must not start to concern the repository, or None if there is
        none."""
        held_packages = self._held.get(advisory.id, set())
        name = self._plugin.name
        packages = [package for package in advisory.packages(name) if package not in held_packages]
        return (
            narrowed(advisory, name, packages)
            if packages and UNKNOWN not in held_packages
            else None
        )

    def _remaining(self, item: Left, ids: tuple[str, ...] = ()) -> Remaining:
        advisory_ids = tuple(dict.fromkeys((*self._concern.ids(item), *ids)))
        facts: Mapping[str, object] = {**dict(item), "advisory_ids": advisory_ids}
        return Remaining.model_validate({**facts, "ecosystem": self._plugin.name})

    def _whole(self, advisory: Advisory, why: NotApplicable, next_step: str = "") -> Remaining:
        packages = filter(None, self._held.get(advisory.id, ()))
        return Remaining(
            ecosystem=self._plugin.name,
            package=", ".join(sorted(packages)),
            advisory_ids=(advisory.id,),
            reason=why.reason,
            sentence=why.sentence,
            next_step=next_step,
            unread=why.unread,
            declined=why.declined,
        )

    def _settle(self, silent: Sequence[Advisory], unread: tuple[UnreadItem, ...]) -> None:
        """Leave those of ``silent`` that are unknown. Nothing in the resolved tree is about them: they do
        not concern the repository, unless a source that was not read may hold what they name. Each is
        resolved alone, since ``unread`` covers all of them."""
        if unread and len(silent) <= MAX_ALONE:
            for number, advisory in enumerate(silent, 1):
                # Without guards: something may be unknown about them as well.
                self._ask((advisory,), advisory, f"{number} of {len(silent)}")
        elif unread:
            sentence = (
                "Whether they concern this repository is unknown: not all of its sources were read."
            )
            why = NotApplicable(reason=RefusalReason.UNKNOWN, sentence=sentence, unread=unread)
            self._leave(self._whole(advisory, why) for advisory in silent)

    def _tests(self, files: Sequence[str]) -> tuple[OwnTests, ...]:
        if not isinstance(self._plugin, NamesTests):
            return ()
        return self._plugin.test_commands(self._repo, files)

    def _planned(self, resolved: _Resolved) -> EcosystemPlan | None:
        ids = [self._concern.ids(move) for move in resolved.moves]
        # The tree is resolved now: an advisory that nothing in it is about doesn't concern the repository.
        concerning_ids = {*self._held, *(name for names in ids for name in names)}
        concerning_ids.update(name for path in resolved.cleared for name in path.advisory_ids)
        silent = [target for target in self._targets if target.id not in concerning_ids]
        self._settle(silent, resolved.unread)
        if self._cut_short is not None:
            return self._stopped(*self._cut_short)
        self._targets = [target for target in self._targets if target.id in concerning_ids]
        if not self._targets:
            return None
        together = self._together(self._targets)
        fixed = tuple(dict.fromkeys(target.id for target in self._targets))
        moves = (
            PlannedMove.model_validate(
                {**dict(move), "advisory_ids": tuple(name for name in names if name in fixed)}
            )
            for move, names in zip(resolved.moves, ids, strict=True)
        )
        return EcosystemPlan(
            ecosystem=self._plugin.name,
            advisory_ids=fixed,
            proof_level=resolved.proof_level,
            files=resolved.files,
            moves=tuple(moves),
            declarations=resolved.declarations,
            cleared=resolved.cleared,
            notes=resolved.notes,
            in_part=together.in_part,
            unread=resolved.unread,
            tests=self._tests(resolved.files),
            advisory=together,
        )


def _stop(problem: str, next_step: str) -> StoppedError:
    return StoppedError(problem, next_step=next_step, kind=NOT_RESOLVED)


def open_items(
    ecosystem: str,
    advisory: Advisory,
    sentence: str,
    next_step: str,
    packages: Collection[str] = (),
) -> list[Remaining]:
    """Return what is left of an advisory, by package, because clients were stopped: a step may exist."""
    return [
        Remaining(
            ecosystem=ecosystem,
            package=package,
            advisory_ids=(advisory.id,),
            reason=RefusalReason.RESOLVER_FAILED,
            sentence=sentence,
            next_step=next_step,
            kind=NOT_RESOLVED,
        )
        for package in sorted(packages) or [UNKNOWN]
    ]


def _each_once(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))


def _groups(
    advisories: Sequence[Advisory], key: Callable[[Advisory], Hashable]
) -> list[tuple[Advisory, ...]]:
    groups: dict[Hashable, list[Advisory]] = {}
    for advisory in advisories:
        groups.setdefault(key(advisory), []).append(advisory)
    return [tuple(group) for group in groups.values()]
