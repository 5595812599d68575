"""The parts of a batch, and the outcome of each advisory with its reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.advisory import Advisory, AdvisoryBundle, Staying
from fallback_tier.fix_result import Escalated, FixResult, Patched, RefusedFix, WithPatch
from fallback_tier.gates.failure_summary.distill import what_failed
from fallback_tier.outcome import Applied
from fallback_tier.planning import Remaining, RemediationPlan

#: The reason of a proved patch that is not delivered.
HELD_BACK = "held_back"


@dataclass(frozen=True)
class Part:
    """One ecosystem's patch, or one package's that gates refused, with the end of its fix.

    ``held_back``: why a proved patch is not delivered; ``speaks_for``: the advisories whose end it is,
    None: all; ``fails_with``: advisories whose fix fails together with this one, although each works alone.
    """

    ecosystem: str
    advisory: Advisory
    result: FixResult
    held_back: str | None = None
    speaks_for: tuple[str, ...] | None = None
    fails_with: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the part's advisories."""
        return self.advisory.ids if self.speaks_for is None else self.speaks_for

    @property
    def application(self) -> Applied | None:
        """The patch to deliver, if there is one."""
        return None if self.fixed is None else self.fixed[0].application

    @property
    def fixed(self) -> tuple[WithPatch, Advisory] | None:
        """The fix that is handed over with the patch."""
        if isinstance(self.result, WithPatch) and self.held_back is None:
            return self.result, self.advisory
        return None


def held_back(parts: Sequence[Part], *, whole: bool) -> list[Part]:
    """Return the parts, with a reason if a proved one is held back: it changes a file that another one
    changes, or (``whole``) the one given advisory isn't fixed in both ecosystems."""
    checked: list[Part] = []
    for part in parts:
        checked = [*checked, _unless_touched(part, checked)]
    return [_unless_partial(part, checked) for part in checked] if whole else checked


def _unless_touched(part: Part, earlier: Sequence[Part]) -> Part:
    for earlier_part in earlier:
        if part.application is None or earlier_part.application is None:
            continue
        both = sorted(set(part.application.files) & set(earlier_part.application.files))
        if both:
            reason = (
                f"The {earlier_part.ecosystem} patch changes {both[0]} too; run fix again for "
                f"{part.ecosystem} once that one is committed."
            )
            return replace(part, held_back=reason)
    return part


def _unless_partial(part: Part, parts: Sequence[Part]) -> Part:
    broken = next((candidate for candidate in parts if candidate.application is None), None)
    if part.application is None or broken is None:
        return part
    name = part.advisory.id
    return replace(
        part,
        held_back=f"{name} is not fixed in {broken.ecosystem}, and a partial fix is not delivered.",
    )


def merged(applications: Sequence[Applied]) -> Applied | None:
    """Return one patch of several that change different files, so that git applies all of it or nothing."""
    if not applications:
        return None
    files = sorted(path for application in applications for path in application.files)
    diff = "".join(application.diff for application in applications)
    return applications[0].model_copy(update={"diff": diff, "files": tuple(files)})


class Outcome(StrEnum):
    """An advisory's outcome. ``patched``: the tests pass, and nothing shows the vulnerability gone.
    ``fixed_in_part``: some of it is fixed (or patched), some stays affected or is unknown. ``unknown``:
    whether it concerns the repository could not be found out."""

    FIXED = "fixed"
    PATCHED = "patched"
    FIXED_IN_PART = "fixed_in_part"
    NOT_FIXED = "not_fixed"
    NOT_AFFECTED = "not_affected"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"


class Why(Frozen):
    """The reason why some of an advisory stays. ``reason``: how its patch failed, or why there is none.
    ``failing_gates``: the gates that refused it; ``fix_id``: the fix with that record; both empty if there
    was no patch to prove."""

    ecosystem: str
    reason: str
    sentence: str
    failing_gates: tuple[str, ...] = ()
    fix_id: str | None = None


class AdvisoryEnd(Frozen):
    """An advisory's outcome. ``fix_ids``: the recorded fixes whose patch is delivered for it."""

    id: str
    outcome: Outcome
    fix_ids: tuple[str, ...] = ()
    why: tuple[Why, ...] = ()


def advisory_ends(planned: RemediationPlan, parts: Sequence[Part]) -> tuple[AdvisoryEnd, ...]:
    """Return the end of each given advisory once, in the order of what could be done for them."""
    ids = [name for fix in planned.fixes for name in fix.advisory_ids]
    ids += [name for item in planned.left for name in item.advisory_ids]
    ends = [
        _end(name, planned.left, [part for part in parts if name in part.ids])
        for name in dict.fromkeys(ids)
    ]
    clean = {Outcome.NOT_AFFECTED: planned.not_affected, Outcome.UNDECIDED: planned.undecided}
    ends += [
        AdvisoryEnd(id=name, outcome=outcome) for outcome, names in clean.items() for name in names
    ]
    return tuple(ends)


def ends_of(part: Part) -> tuple[AdvisoryEnd, ...]:
    """Return the end of each advisory of a fix that is not part of a batch."""
    result = part.result
    if isinstance(result, RefusedFix) and result.reason is RefusalReason.NOT_AFFECTED:
        return tuple(AdvisoryEnd(id=name, outcome=Outcome.NOT_AFFECTED) for name in part.ids)
    return tuple(_end(name, (), [part]) for name in part.ids)


def partial_fix_message(parts: Sequence[Part], ends: Sequence[AdvisoryEnd]) -> tuple[Part, ...]:
    """Return the parts with advisories that name what stays of them in any part: a delivered patch must not
    call those fixed."""
    names = {end.id for end in ends if end.outcome is Outcome.FIXED_IN_PART}
    return tuple(
        replace(part, advisory=_with(part.advisory, names & {*part.ids})) for part in parts
    )


def why_not(part: Part) -> Why | None:
    """Return the reason why a part's patch is not delivered; None: it is delivered."""
    if part.fixed is not None:
        return None
    reason, sentence = _reason(part)
    return Why(
        ecosystem=part.ecosystem,
        reason=reason,
        sentence=sentence,
        failing_gates=failing_gates(part.result),
        fix_id=part.result.fix_id,
    )


def failing_gates(result: FixResult) -> tuple[str, ...]:
    """Return the gates that refused the last judged patch of a fix."""
    if isinstance(result, WithPatch) or not result.prior_attempts:
        return ()
    return result.prior_attempts[-1].failing_gates


def _reason(part: Part) -> tuple[str, str]:
    match part.result:
        case Escalated(prior_attempts=(*_, last)) if last.failing_gates:
            return last.failure_kind.value, what_failed(last)
        case Escalated(reason=reason, question=question):
            return reason.value, question
        case RefusedFix(reason=refusal, sentence=sentence):
            return refusal.value, sentence
        case _:
            return HELD_BACK, part.held_back or ""


def _end(name: str, remaining: Sequence[Remaining], own_parts: Sequence[Part]) -> AdvisoryEnd:
    results = [part.fixed[0] for part in own_parts if part.fixed is not None]
    why = tuple(dict.fromkeys(_all_that_stays(name, remaining, own_parts)))
    stays = why or any(name in part.advisory.in_part for part in own_parts)
    if results and stays:
        outcome = Outcome.FIXED_IN_PART
    elif not results:
        is_unknown = bool(why) and all(reason.reason == RefusalReason.UNKNOWN for reason in why)
        outcome = Outcome.UNKNOWN if is_unknown else Outcome.NOT_FIXED
    else:
        is_unshown = any(isinstance(result, Patched) for result in results)
        outcome = Outcome.PATCHED if is_unshown else Outcome.FIXED
    return AdvisoryEnd(
        id=name, outcome=outcome, fix_ids=tuple(result.fix_id for result in results), why=why
    )


def _all_that_stays(
    name: str, remaining: Sequence[Remaining], own_parts: Sequence[Part]
) -> Iterator[Why]:
    for part in own_parts:
        if (reason := why_not(part)) is not None:
            yield reason
    for item in remaining:
        if name in item.advisory_ids:
            yield Why(ecosystem=item.ecosystem, reason=item.reason.value, sentence=item.sentence)


def _with(advisory: Advisory, names: set[str]) -> Advisory:
    added = sorted(names - {*advisory.in_part})
    if not added:
        return advisory
    staying_before = advisory.staying if isinstance(advisory, AdvisoryBundle) else ()
    members = advisory.members if isinstance(advisory, AdvisoryBundle) else (advisory,)
    staying = (*staying_before, *(Staying(advisory_id=name, package="") for name in added))
    fields = {**dict(advisory), "members": members, "staying": staying}
    return AdvisoryBundle.model_validate(fields)
