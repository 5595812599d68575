"""Figures of faithfulness: what each judge says of each claim, against the labels.

Needs the extra ``eval`` (numpy). "Positive" is *not supported*: that is what a judge is there to find.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fallback_eval.faithfulness.golden import FaithfulnessSet, Kind
from fallback_eval.faithfulness.results import Asked, KeptAnswer, RawResults
from fallback_eval.statistics import CONFIDENCE, Interval, resamples
from fallback_tier.grounding.support import Claim, read_verdicts
from fallback_tier.llm.judging import read_graded

CONSTANT, LEXICAL, LABELS = "constant: supported", "lexical overlap", "labels"

#: The lexical judge calls a claim supported if the context has as many of its content words. Two of
#: three, chosen before anything was measured.
LEXICAL_SHARE: Final = 2 / 3

#: Rows of counts: both say supported, only the label, only the judge, neither.
Cells = NDArray[np.float64]

#: Judge → what it says of the claims of a plan in a context, C1 first; None: no readable answer.
Verdict = tuple[bool, ...] | None


@dataclass(frozen=True)
class One:
    """One claim, judged. ``said`` None: not evaluated."""

    plan: str
    kind: Kind
    label: bool
    said: bool | None

    @property
    def right(self) -> bool:
        """The judge says what the label says; what is not evaluated is not right."""
        return self.said == self.label


@dataclass(frozen=True)
class Figures:
    """Of one judge over some claims. Where nothing was graded, or a share has no denominator: None."""

    claims: int
    graded: int
    accuracy: Interval | None
    precision: float | None
    recall: float | None
    kappa: float | None
    kappa_interval: Interval | None


@dataclass(frozen=True)
class PlanFigures:
    """Whole plans, as the product acts: one unsupported claim sends a plan back.

    ``caught`` of ``faulty`` plans were sent back, and ``sound_sent_back`` of ``sound`` ones.
    """

    faulty: int
    caught: int
    sound: int
    sound_sent_back: int
    not_evaluated: int


@dataclass(frozen=True)
class Analysis:
    """Everything that a report says."""

    judged: Mapping[str, Sequence[One]]
    figures: Mapping[str, Figures]
    plans: Mapping[str, PlanFigures]
    curve: Mapping[str, Mapping[int, Sequence[float]]]
    problems: Mapping[str, Sequence[str]]


def analyse(golden: FaithfulnessSet, raw: RawResults) -> Analysis:
    """Of the constant judge, the lexical one, and every model that was run."""
    verdicts = _verdicts(golden, raw)
    whole = {plan: len(ref.examples) for plan, ref in golden.plans.items()}
    judged = {name: _judged(golden, reported, whole) for name, reported in verdicts.items()}
    return Analysis(
        judged=judged,
        figures={name: figures(ones) for name, ones in judged.items()},
        plans={name: _plans(ones) for name, ones in judged.items()},
        curve=_curve(golden, verdicts),
        problems={
            name: [why for kept in answers.values() if (why := _problem(kept, golden))]
            for name, (_, answers) in raw.models.items()
        },
    )


def figures(ones: Sequence[One]) -> Figures:
    """Of some claims; intervals by resampling plans, as claims of one plan hang together."""
    graded = [one for one in ones if one.said is not None]
    found = [one for one in graded if not one.said]
    faulty = [one for one in graded if not one.label]
    caught = [one for one in found if not one.label]
    return Figures(
        claims=len(ones),
        graded=len(graded),
        accuracy=_of_plans(graded, _accuracy),
        precision=len(caught) / len(found) if found else None,
        recall=len(caught) / len(faulty) if faulty else None,
        kappa=cohen_kappa([(one.label, bool(one.said)) for one in graded]),
        kappa_interval=_of_plans(graded, _kappa),
    )


def cohen_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Agreement beyond chance (Cohen 1960): 1 perfect, 0 what chance would give, also where one of the
    two says the same of everything. None where both do, or nothing is given."""
    counts = np.asarray([_cells(first, second) for first, second in pairs], float)
    if not len(counts):
        return None
    value = _kappa(counts.sum(axis=0, keepdims=True))[0]
    return None if np.isnan(value) else float(value)


def _cells(label: bool, reported: bool) -> tuple[int, int, int, int]:
    """One claim as a row of counts."""
    return (
        label and reported,
        label and not reported,
        reported and not label,
        not (label or reported),
    )


def _kappa(cells: Cells) -> Cells:
    """Of each row of counts; nan where chance alone would agree."""
    both, label_only, judge_only, neither = cells.T
    total = both + label_only + judge_only + neither
    label, reported = (both + label_only) / total, (both + judge_only) / total
    chance = label * reported + (1 - label) * (1 - reported)
    missing = np.where(chance < 1, 1 - chance, np.nan)
    kappa: Cells = ((both + neither) / total - chance) / missing
    return kappa


def _accuracy(cells: Cells) -> Cells:
    accuracy: Cells = (cells[:, 0] + cells[:, 3]) / cells.sum(axis=1)
    return accuracy


def _of_plans(ones: Sequence[One], measure: Callable[[Cells], Cells]) -> Interval | None:
    """The measure with the percentile interval over resampled plans; None where it is not defined."""
    plans: dict[str, list[float]] = {}
    for one in ones:
        cells = plans.setdefault(one.plan, [0.0] * 4)
        for place, count in enumerate(_cells(one.label, bool(one.said))):
            cells[place] += count
    if not plans:
        return None
    table = np.asarray(list(plans.values()), float)
    value = float(measure(table.sum(axis=0, keepdims=True))[0])
    drawn = measure(resamples(len(table)) @ table)
    drawn = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not len(drawn):
        return None
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def _verdicts(golden: FaithfulnessSet, raw: RawResults) -> dict[str, dict[Asked, Verdict]]:
    """Judge → what was asked → its verdict."""
    asked = sorted(raw.overlaps)
    found: dict[str, dict[Asked, Verdict]] = {
        CONSTANT: {one: tuple(True for _ in golden.claims[one[0]]) for one in asked},
        LEXICAL: {
            one: tuple(share >= LEXICAL_SHARE for share in raw.overlaps[one].shares)
            for one in asked
        },
    }
    for name, (_, answers) in raw.models.items():
        found[name] = {one: _read(answers.get(one), golden) for one in asked}
    return found


def _read(kept: KeptAnswer | None, golden: FaithfulnessSet) -> Verdict:
    """As the product reads a judge's answer: every claim once, or nothing."""
    outcome = _outcome(kept, golden)
    return None if isinstance(outcome, str) else outcome


def _problem(kept: KeptAnswer, golden: FaithfulnessSet) -> str:
    outcome = _outcome(kept, golden)
    return f"{kept.plan}, k = {kept.examples}: {outcome}" if isinstance(outcome, str) else ""


def _outcome(kept: KeptAnswer | None, golden: FaithfulnessSet) -> tuple[bool, ...] | str:
    if kept is None or kept.answer is None:
        return kept.failure if kept else "not asked"
    verdicts, problems = read_graded(kept.answer)
    if verdicts is None:
        return " ".join(problems)
    claims = [Claim(id=one.claim, text=one.text or "") for one in golden.claims[kept.plan]]
    judgement = read_verdicts(verdicts.claims, claims)
    if isinstance(judgement, str):
        return judgement
    return tuple(grade.supported for grade in judgement.graded)


def _judged(
    golden: FaithfulnessSet, verdicts: Mapping[Asked, Verdict], examples: Mapping[str, int]
) -> list[One]:
    """Every claim of every plan, with so many examples in the context."""
    found: list[One] = []
    for plan, count in examples.items():
        verdict = verdicts.get((plan, count))
        for place, claim in enumerate(golden.claims[plan]):
            reported = verdict[place] if verdict is not None else None
            found.append(One(plan, claim.kind, claim.supported_with(count), reported))
    return found


def _plans(ones: Sequence[One]) -> PlanFigures:
    by_plan: dict[str, list[One]] = {}
    for one in ones:
        by_plan.setdefault(one.plan, []).append(one)
    graded = [claims for claims in by_plan.values() if claims[0].said is not None]
    faulty = [claims for claims in graded if not all(one.label for one in claims)]
    sound = [claims for claims in graded if all(one.label for one in claims)]

    def sent_back(plans: Sequence[list[One]]) -> int:
        return sum(not all(one.said for one in claims) for claims in plans)

    return PlanFigures(
        len(faulty), sent_back(faulty), len(sound), sent_back(sound), len(by_plan) - len(graded)
    )


def _curve(
    golden: FaithfulnessSet, verdicts: Mapping[str, Mapping[Asked, Verdict]]
) -> dict[str, dict[int, list[float]]]:
    """Judge → k → faithfulness score of each plan of the curve; the labels are a judge too. A judge's
    plan counts only if it was graded at every k: else other plans would be compared."""
    plans = [name for name, ref in golden.plans.items() if ref.curve]
    counts = sorted({k for plan, k in verdicts[LEXICAL] if plan in plans})
    found = {
        LABELS: {
            k: [_share([one.supported_with(k) for one in golden.claims[plan]]) for plan in plans]
            for k in counts
        }
    }
    for name, reported in verdicts.items():
        rows = [[reported.get((plan, k)) for k in counts] for plan in plans]
        whole = [[one for one in row if one is not None] for row in rows if None not in row]
        found[name] = {k: [_share(row[at]) for row in whole] for at, k in enumerate(counts)}
    return found


def _share(verdict: Sequence[bool]) -> float:
    return sum(verdict) / len(verdict)
