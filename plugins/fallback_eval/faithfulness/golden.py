"""The golden set of faithfulness: plans by reference, their claims labelled by reading.

``plans.jsonl`` and ``claims.jsonl`` have one object a line; tests/golden/faithfulness/README.md describes
them. Third-party text is never in them: records, hunks and edits point into the data set.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import ConfigDict, Field, StringConstraints

from fallback_audit.frozen import Frozen
from fallback_eval.retrieval.golden import Fault, ensure, read_lines
from fallback_tier.limits import MAX_EXAMPLES

PLANS, CLAIMS, SECOND_READING = "plans.jsonl", "claims.jsonl", "second-reading.jsonl"

#: Fewer labelled claims can't tell a good judge from a lucky one (docs/evaluation/README.md).
MIN_CLAIMS: Final = 150

#: Fewer claims that were read twice say nothing of the labels' own agreement.
MIN_READ_TWICE: Final = 40

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Kind(StrEnum):
    """What a claim is, and with it what a judge has to see. The first four are supported ones."""

    STATED = "stated"
    CODE_SHOWN = "code-shown"
    EXAMPLE_SAYS = "example-says"
    FOLLOWS = "follows"
    FUSED = "fused-half-truth"
    NO_EXCEPTION = "rule-without-exception"
    WORLD_ONLY = "true-elsewhere"
    CONTRADICTS = "contradicts"
    UNSEEN_CODE = "code-not-shown"
    OVER_PRECISE = "over-precise"
    WRONG_PLACE = "wrong-place"
    VERSION = "version"
    EDIT = "edit"


#: Kinds that say by their name whether a claim is supported; VERSION and EDIT come in both sorts.
ALWAYS_SUPPORTED: Final = frozenset({Kind.STATED, Kind.CODE_SHOWN, Kind.EXAMPLE_SAYS, Kind.FOLLOWS})
EITHER: Final = frozenset({Kind.VERSION, Kind.EDIT})


class _Line(Frozen):
    model_config = ConfigDict(strict=True)


class EditRef(_Line):
    """One edit of a record's fix (the data set's own search/replace form), by its index."""

    record: _Text
    edit: Annotated[int, Field(ge=0)]


class PlanRef(_Line):
    """A plan and the context that it is judged by.

    ``hunks``: of the record's diff, their code before the fix; snippets S1, S2 … in this order. ``version``
    makes it a bump of the record's package, ``edit`` a source edit: exactly one is given. ``path``: the
    edit is planned for this file instead of its own. ``curve``: judged with 0, 1, 2 and 4 examples too.
    """

    plan: _Text
    record: _Text
    hunks: Annotated[tuple[int, ...], Field(min_length=1, strict=False)]
    examples: Annotated[tuple[_Text, ...], Field(max_length=MAX_EXAMPLES, strict=False)] = ()
    version: _Text | None = None
    edit: EditRef | None = None
    path: _Text | None = None
    curve: bool = False


class LabelledClaim(_Line):
    """One claim and its label. ``text`` None: the product words it (a version, an edit).

    ``from_example``: the claim rests on this example ([E1] is 1); with fewer in the context it is not
    supported. 0: on none.
    """

    plan: _Text
    claim: _Text
    text: _Text | None
    supported: bool
    kind: Annotated[Kind, Field(strict=False)]
    reason: _Text
    from_example: Annotated[int, Field(ge=0, le=MAX_EXAMPLES)] = 0

    def supported_with(self, examples: int) -> bool:
        """The label where the context has the first so many examples."""
        return self.supported and self.from_example <= examples


class Reading(_Line):
    """What the second reading said of a claim, blind to the label."""

    plan: _Text
    claim: _Text
    supported: bool


@dataclass(frozen=True)
class FaithfulnessSet:
    """Plans by id in the file's order, the claims of each in the order C1, C2 …"""

    plans: Mapping[str, PlanRef]
    claims: Mapping[str, Sequence[LabelledClaim]]
    second: Sequence[Reading]

    def label(self, plan: str, claim: str) -> LabelledClaim:
        """Raises KeyError where there is none."""
        for one in self.claims[plan]:
            if one.claim == claim:
                return one
        raise KeyError(claim)

    @property
    def every_claim(self) -> tuple[LabelledClaim, ...]:
        """All of them, plan by plan."""
        return tuple(one for plan in self.plans for one in self.claims[plan])


def load_faithfulness(folder: Path, *, least: int = MIN_CLAIMS) -> FaithfulnessSet:
    """Read and check what the files say by themselves.

    Raises GoldenSetError, naming file and line: unreadable, not of the format, given twice, a claim of
    no plan, claims not numbered C1, C2 …, a label against its kind, fewer than ``least`` claims.
    """
    plans = list(read_lines(folder / PLANS, PlanRef))
    claims = list(read_lines(folder / CLAIMS, LabelledClaim))
    second = list(read_lines(folder / SECOND_READING, Reading))
    by_plan: dict[str, list[LabelledClaim]] = {plan.plan: [] for plan, _ in plans}
    ensure(_plan_faults(plans))
    ensure(_claim_faults(claims, by_plan))
    ensure(_second_faults(second, {(one.plan, one.claim) for one, _ in claims}))
    if len(claims) < least:
        where = str(folder / CLAIMS)
        ensure(iter([Fault(where, f"{len(claims)} claims, and {least} are the least")]))
    return FaithfulnessSet(
        {plan.plan: plan for plan, _ in plans}, by_plan, [one for one, _ in second]
    )


def _plan_faults(plans: Sequence[tuple[PlanRef, str]]) -> Iterator[Fault]:
    seen: set[str] = set()
    for plan, place in plans:
        if plan.plan in seen:
            yield Fault(place, f"{plan.plan} stands there already")
        seen.add(plan.plan)
        if (plan.version is None) == (plan.edit is None):
            yield Fault(place, f"{plan.plan} needs either a version or an edit")
        if plan.record in plan.examples:
            yield Fault(place, f"{plan.plan} has its own record among its examples")
        if plan.curve and len(plan.examples) < MAX_EXAMPLES:
            yield Fault(place, f"{plan.plan} is for the curve and has not {MAX_EXAMPLES} examples")


def _claim_faults(
    claims: Sequence[tuple[LabelledClaim, str]], by_plan: dict[str, list[LabelledClaim]]
) -> Iterator[Fault]:
    """Puts each claim with its plan on the way."""
    for one, place in claims:
        if one.plan not in by_plan:
            yield Fault(place, f"no plan has the id {one.plan!r}")
            continue
        by_plan[one.plan].append(one)
        if one.claim != f"C{len(by_plan[one.plan])}":
            yield Fault(place, f"{one.claim} of {one.plan} is not the next claim")
        if one.kind not in EITHER and one.supported != (one.kind in ALWAYS_SUPPORTED):
            yield Fault(place, f"a claim of the kind {one.kind} can't be labelled {one.supported}")
        if (one.text is None) != (one.kind in EITHER):
            yield Fault(place, "the text of a version or an edit is the product's, of others ours")
    for name, found in by_plan.items():
        if not found:
            yield Fault(CLAIMS, f"{name} has no claim")


def _second_faults(
    second: Sequence[tuple[Reading, str]], known: set[tuple[str, str]]
) -> Iterator[Fault]:
    seen: set[tuple[str, str]] = set()
    for one, place in second:
        if (one.plan, one.claim) not in known or (one.plan, one.claim) in seen:
            yield Fault(place, f"{one.claim} of {one.plan} is no claim, or was read already")
        seen.add((one.plan, one.claim))
