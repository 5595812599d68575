"""Every default has a row: its value in the code, what else was tried, and the figure that decides.

A *claim* says which variants are the alternatives to a default and why its value is kept where
figures don't decide. The row is made from the claim, the code's own value and raw results, so it
can't say what was not measured; ``faults`` says where code, claims and results disagree (ADR-0020).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from json import dumps
from typing import Literal

from pydantic import JsonValue

from fallback_eval.document import Document, Section, Table, number, signed
from fallback_eval.retrieval.analysis import PRIMARY, Analysis, Comparison, Finding, K
from fallback_eval.retrieval.golden import GoldenSet
from fallback_eval.retrieval.metrics import HELPS
from fallback_eval.retrieval.results import DEFAULT, Answer, Results, VariantFacts

Settings = Mapping[str, JsonValue]

#: A floor is "just below" the lowest relevant score when it is no further below: room for the noise of
#: other machines, and for a label or two that come later.
FLOOR_SLACK = 0.02

_HOW_TO_READ = (
    "Made by `fallback-tier eval retrieval` from the raw results in `raw/` and the defaults in the "
    "code; `--check` fails where either has changed. An alternative's figure is its "
    f"{PRIMARY} minus the default's, with a 95 % bootstrap interval over the queries of the dev "
    "split; the verdict needs the interval and a paired randomisation test, Holm-adjusted over every "
    "comparison of the run."
)


class Basis(StrEnum):
    """What decides a default."""

    #: Figures of the golden set.
    QUALITY = "quality"
    #: A bound below what is relevant: no optimum.
    SAFETY = "safety"
    #: Time or memory; quality must not suffer.
    SPEED = "speed"
    #: Fixed elsewhere (a prompt's room, a decision record).
    CONTRACT = "contract"


@dataclass(frozen=True)
class Bound:
    """Where a floor takes its score from: ``variant`` without floors, and which of its scores."""

    variant: str
    score: Literal["routing", "chunk"]


@dataclass(frozen=True)
class Claim:
    """Why a default is what it is. ``despite``: why it stays although an alternative is better, or
    (of a floor) although it refuses something relevant."""

    setting: str
    basis: Basis
    reason: str
    alternatives: tuple[str, ...] = ()
    bound: Bound | None = None
    despite: str = ""


@dataclass(frozen=True)
class Evidence:
    """What rows are made from."""

    code: Settings
    claims: Sequence[Claim]
    results: Results
    analysis: Analysis
    golden: GoldenSet

    @property
    def variants(self) -> Mapping[str, VariantFacts]:
        """Those that ran."""
        return {variant.name: variant for variant in self.results.run.variants}


def faults(evidence: Evidence) -> Iterator[str]:
    """Every disagreement, as a sentence."""
    claimed = [claim.setting for claim in evidence.claims]
    for name in evidence.code:
        if claimed.count(name) != 1:
            yield f"default {name} has {claimed.count(name)} rows in the table, and needs one"
    for name in claimed:
        if name not in evidence.code:
            yield f"the table has a row for {name}, which the code does not have"
    yield from _measured_faults(evidence)
    for claim in evidence.claims:
        if claim.setting in evidence.code:
            yield from _claim_faults(claim, evidence)


def table(evidence: Evidence) -> Document:
    """The page ``defaults.md``."""
    rows = [_row(claim, evidence) for claim in evidence.claims if claim.setting in evidence.code]
    head = ("setting", "value in the code", "decided by", "alternatives tried", "verdict")
    title = "Every default, and what justifies it"
    return Document(title, (_HOW_TO_READ,), (Section("Defaults", tables=(Table(head, rows),)),))


def _measured_faults(evidence: Evidence) -> Iterator[str]:
    ran = evidence.variants.get(DEFAULT)
    if ran is None:
        yield f"the raw results have no variant {DEFAULT!r}"
        return
    for name, value in evidence.code.items():
        if name not in ran.settings:
            yield f"default {name} was not there when the results were made: run again"
        elif ran.settings[name] != value:
            measured = dumps(ran.settings[name])
            yield f"default {name} is {dumps(value)} in the code, and {measured} was measured"


def _claim_faults(claim: Claim, evidence: Evidence) -> Iterator[str]:
    if not claim.reason.strip():
        yield f"the row of {claim.setting} gives no reason"
    skipped = {one.name for one in evidence.results.run.not_run}
    ran = [name for name in claim.alternatives if name in evidence.variants]
    for name in claim.alternatives:
        if name not in evidence.variants and name not in skipped:
            yield f"{claim.setting}: the alternative {name!r} was not run"
    for name in ran:
        if evidence.variants[name].settings.get(claim.setting) == evidence.code[claim.setting]:
            yield f"{claim.setting}: {name!r} has the default's own value and is no alternative"
        if _beats(evidence.analysis.comparisons.get(name)) and not claim.despite:
            yield f"{claim.setting}: {name!r} is better than the default"
    if claim.basis is Basis.QUALITY and not ran:
        yield f"{claim.setting} is said to be decided by quality, and no alternative was run"
    yield from _bound_faults(claim, evidence)


def _bound_faults(claim: Claim, evidence: Evidence) -> Iterator[str]:
    if claim.bound is None:
        return
    if claim.bound.variant not in evidence.variants:
        yield f"{claim.setting}: its bound is read from {claim.bound.variant!r}, which was not run"
        return
    lowest = _lowest(claim.bound, evidence)
    value = evidence.code[claim.setting]
    if lowest is None or not isinstance(value, int | float) or claim.despite:
        return
    text = f"{claim.setting} is {value}, and the lowest relevant score is {lowest:.4g}"
    if value > lowest:
        yield f"{text}: it refuses what is right"
    elif value < lowest - FLOOR_SLACK:
        yield f"{text}: it is not just below, as it says"


def _row(claim: Claim, evidence: Evidence) -> tuple[str, ...]:
    tried = "; ".join(
        f"{name}: {signed(found.difference)}, {found.finding}"
        if (found := evidence.analysis.comparisons.get(name))
        else f"{name}: not run"
        for name in claim.alternatives
    )
    if claim.bound is not None:
        lowest = number(_lowest(claim.bound, evidence))
        tried = "; ".join(
            filter(None, (f"lowest relevant {claim.bound.score} score: {lowest}", tried))
        )
    value = dumps(evidence.code[claim.setting])
    return f"`{claim.setting}`", value, claim.basis.value, tried or "-", _verdict(claim, evidence)


def _verdict(claim: Claim, evidence: Evidence) -> str:
    against = [
        found.finding
        for name in claim.alternatives
        if (found := evidence.analysis.comparisons.get(name))
    ]
    reasons = " ".join(filter(None, (claim.reason, claim.despite)))
    if not against:
        return reasons
    if any(one is Finding.BETTER for one in against):
        return f"An alternative is better; kept: {reasons}"
    if all(one is Finding.WORSE for one in against):
        every = "every alternative" if len(against) == len(claim.alternatives) else "each that ran"
        return f"Better than {every}. {reasons}"
    return f"Indistinguishable from some; kept: {reasons}"


def _beats(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.finding is Finding.BETTER


def _lowest(bound: Bound, evidence: Evidence) -> float | None:
    answers = evidence.results.answers.get(bound.variant, {})
    return lowest_relevant(answers, evidence.golden, bound.score)


def lowest_relevant(
    answers: Mapping[str, Answer], golden: GoldenSet, score: Literal["routing", "chunk"]
) -> float | None:
    """Of a variant without floors: the lowest routing score of a query for which one of the first K
    is relevant, or the lowest score of such an example itself. None: there is none.
    """
    scores = _routing if score == "routing" else _chunk
    return min((one for name in answers for one in scores(answers[name], golden)), default=None)


def _routing(answer: Answer, golden: GoldenSet) -> Iterator[float]:
    grades = golden.grades.get(answer.query, {})
    if any(grades.get(name, 0) >= HELPS for name in answer.ids[:K]):
        yield answer.routing


def _chunk(answer: Answer, golden: GoldenSet) -> Iterator[float]:
    grades = golden.grades.get(answer.query, {})
    for name, score in zip(answer.ids[:K], answer.bounds, strict=False):
        if grades.get(name, 0) >= HELPS:
            yield score
