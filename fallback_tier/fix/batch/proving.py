"""Prove the fixes of several advisories: an ecosystem's in one patch, by halves if that fails.

What is delivered of an ecosystem is one patch, and the gates have seen just that one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fallback_audit.vocabulary import EscalationReason, RefusalReason
from fallback_tier.advisory import Advisory
from fallback_tier.fix.batch.outcome import Part
from fallback_tier.fix_result import Escalated, FixResult, RefusedFix, WithPatch
from fallback_tier.planning import EcosystemPlan, Remaining

_UnitT = TypeVar("_UnitT")

#: The advisories of one package, or of several that one move clears together: what can't be separated.
Unit = tuple[str, ...]

#: Runs the gates on the patch of an advisory, or finds how that ended; the flag: it can be taken apart.
Prove = Callable[[Advisory, bool], FixResult]

#: The fix of some of the planned advisories without the others, or None with what remains.
Only = Callable[[Sequence[str]], tuple[Advisory | None, tuple[Remaining, ...]]]


def most_that_hold(
    units: Sequence[_UnitT], holds: Callable[[tuple[_UnitT, ...]], bool]
) -> tuple[_UnitT, ...]:
    """Return as many units as ``holds`` accepts in one set, in their order; empty if it accepts none.

    ``holds`` has accepted exactly the set that is returned, and has refused that set with any one of the
    others added. It is asked for the whole first. It should remember its answers: a set may come again.
    """
    held: list[int] = []

    def try_with(some: Sequence[int]) -> bool:
        more = sorted({*held, *some})
        if holds(tuple(units[number] for number in more)):
            held[:] = more
            return True
        return False

    def take(some: Sequence[int]) -> None:
        if not try_with(some) and len(some) > 1:
            middle = len(some) // 2
            take(some[:middle])
            take(some[middle:])

    everyone = range(len(units))
    if units:
        take(everyone)
    # What failed beside less may hold beside more.
    while any(try_with([number]) for number in everyone if number not in held):
        pass
    return tuple(units[number] for number in held)


@dataclass(frozen=True)
class ProofTrial:
    """Some advisories in one patch. ``result`` None: there is none without the others; ``left``: why."""

    advisory: Advisory | None
    result: FixResult | None
    left: tuple[Remaining, ...] = ()

    @property
    def holds(self) -> bool:
        """Its patch was proved."""
        return isinstance(self.result, WithPatch)


@dataclass(frozen=True)
class Ended:
    """How an ecosystem ended. ``parts``: first the patch to deliver, if there is one, then what gates
    refused, package by package. ``taken_apart``: fixes that were proved in smaller parts; ``trials``: how
    many patches were put to gates."""

    parts: tuple[Part, ...]
    left: tuple[Remaining, ...] = ()
    taken_apart: tuple[str, ...] = ()
    trials: int = 0


class _StoppedError(Exception):
    """The gates can't be run, whatever the patch."""

    def __init__(self, trial: ProofTrial) -> None:
        super().__init__("the gates can't be run")
        self.trial = trial


@dataclass
class EcosystemProof:
    """One ecosystem's fixes, proved."""

    plan: EcosystemPlan
    prove: Prove
    only: Only
    _trials: dict[frozenset[Unit], ProofTrial] = field(default_factory=dict)

    def run(self) -> Ended:
        """Prove as many of the planned fixes in one patch as hold. Raises as the gate runner does."""
        units, stopped = units_of(self.plan), None
        try:
            held = most_that_hold(units, self._holds)
        except _StoppedError as stop:
            stopped = stop.trial
            passed = [some for some, trial in self._trials.items() if trial.holds]
            held = tuple(unit for unit in units if passed and unit in passed[-1])
        parts = [self._part(self._trials[frozenset(held)])] if held else []
        left: list[Remaining] = []
        if stopped is not None:
            done = {name for unit in held for name in unit}
            others = tuple(name for name in self.plan.advisory_ids if name not in done)
            parts.append(replace(self._part(stopped), speaks_for=others))
        for unit in units if stopped is None else ():
            if unit in held:
                continue
            alone = self._trial((unit,))
            if alone.result is None:
                left += alone.left
            else:
                why = self._why_not_with(held, unit) if alone.holds else None
                parts.append(self._part(alone, why))
        return Ended(tuple(parts), tuple(left), self._taken_apart(), self._proved())

    def _holds(self, units: tuple[Unit, ...]) -> bool:
        trial = self._trial(units)
        if _is_in_the_way(trial.result):
            raise _StoppedError(trial)
        return trial.holds

    def _trial(self, units: tuple[Unit, ...]) -> ProofTrial:
        key = frozenset(units)
        if key not in self._trials:
            self._trials[key] = self._tried(units)
        return self._trials[key]

    def _tried(self, units: tuple[Unit, ...]) -> ProofTrial:
        wanted = {name for unit in units for name in unit}
        ids = [name for name in self.plan.advisory_ids if name in wanted]
        if len(ids) == len(self.plan.advisory_ids):
            return self._proved_in_one(self.plan.advisory, units)
        less, left = self.only(ids)
        if less is not None and wanted.issubset(less.ids):
            return self._proved_in_one(less, units)
        return ProofTrial(None, None, left or (self._not_alone(ids),))

    def _proved_in_one(self, advisory: Advisory, units: tuple[Unit, ...]) -> ProofTrial:
        return ProofTrial(advisory, self.prove(advisory, len(units) > 1))

    def _not_alone(self, ids: Sequence[str]) -> Remaining:
        moves = [move for move in self.plan.moves if set(move.advisory_ids) & set(ids)]
        names = ", ".join(dict.fromkeys(move.package for move in moves))
        return Remaining(
            ecosystem=self.plan.ecosystem,
            package=names,
            advisory_ids=tuple(ids),
            reason=RefusalReason.RESOLVER_FAILED,
            sentence=f"{names or ', '.join(ids)} can't be fixed without the changes that gates refused.",
            next_step="Fix those first.",
        )

    def _part(self, trial: ProofTrial, why_not: str | None = None) -> Part:
        if trial.advisory is None or trial.result is None:
            raise AssertionError("a part was tried")
        return Part(self.plan.ecosystem, trial.advisory, trial.result, why_not)

    def _why_not_with(self, held: tuple[Unit, ...], unit: Unit) -> str:
        ids = ", ".join(name for one in held for name in one)
        together = self._trials[frozenset((*held, unit))]
        why = together.result.sentence if isinstance(together.result, RefusedFix) else ""
        why = why or "; ".join(one.sentence for one in together.left)
        return (
            f"It passes alone, but not together with the fix of {ids}: {why} Fix it once that is "
            "committed."
        )

    def _taken_apart(self) -> tuple[str, ...]:
        ends = (trial.result for trial in self._trials.values())
        return tuple(
            end.fix_id
            for end in ends
            if isinstance(end, RefusedFix) and end.reason is RefusalReason.FAILS_TOGETHER
        )

    def _proved(self) -> int:
        return sum(trial.result is not None for trial in self._trials.values())


def units_of(plan: EcosystemPlan) -> tuple[Unit, ...]:
    """The planned advisories, those together that one package's move clears; in the plan's order."""
    groups: dict[str, set[str]] = {name: {name} for name in plan.advisory_ids}
    by_package: dict[str, set[str]] = {}
    for move in plan.moves:
        by_package.setdefault(move.package, set()).update(move.advisory_ids)
    for ids in by_package.values():
        joined = ids.union(*(groups[name] for name in ids))
        groups |= dict.fromkeys(joined, joined)
    order = plan.advisory_ids
    units = (tuple(name for name in order if name in groups[first]) for first in order)
    return tuple(dict.fromkeys(units))


def _is_in_the_way(result: FixResult | None) -> bool:
    match result:
        case Escalated(reason=EscalationReason.GATE_INFRASTRUCTURE):
            return True
        case RefusedFix(reason=RefusalReason.TOOL_MISSING):
            return True
        case _:
            return False
