"""The learned ranker, kept honest: a dev query is never judged by coefficients that saw its repository.

The shipped coefficients were learned on the dev split, so that their dev figures would flatter. For
a dev query they are learned again without its repository's fold; the reserved split, which training
never sees, uses the shipped ones.

Training is logistic regression with a ridge, by Newton's method, and needs numpy: the same rows give the
same coefficients. Each question weighs the same, however many of its candidates were judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fallback_eval.retrieval.data import Task
from fallback_eval.retrieval.golden import Query
from fallback_eval.retrieval.metrics import HELPS
from fallback_eval.retrieval.results import EvaluationError
from fallback_plugins.solved_examples.interfaces import Question
from fallback_plugins.solved_examples.search.ranking import (
    PROBABILITY,
    Coefficients,
    Ranking,
    shipped,
)

#: Repositories are dealt to so many folds.
FOLDS = 8

Search = Callable[[Question], Ranking]


def judged_rows(task: Task, search: Search) -> "list[Judged]":
    """Every judged candidate of the dev queries, with its components' scores."""
    return [
        Judged(
            query.query,
            task.group(query),
            candidate.scores,
            task.golden.grades[query.query][candidate.example.example_id] >= HELPS,
        )
        for query in task.golden.of("dev")
        for candidate in search(task.question(query)).candidates
        if candidate.example.example_id in task.golden.grades[query.query]
    ]


def fold_coefficients(
    task: Task, rows: "Sequence[Judged]", components: Sequence[str]
) -> Mapping[str, Coefficients]:
    """Dev query → coefficients learned without its fold.

    Raises EvaluationError where there is nothing to learn from.
    """
    groups = sorted({task.group(query) for query in task.golden.of("dev")})
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    learned = {
        number: _learned([row for row in rows if fold[row.group] != number], components)
        for number in range(min(FOLDS, len(groups)))
    }
    return {query.query: learned[fold[task.group(query)]] for query in task.golden.of("dev")}


def _learned(rows: "Sequence[Judged]", components: Sequence[str]) -> Coefficients:
    try:
        return train(rows, components, "a fold's")
    except ValueError as error:
        raise EvaluationError(
            f"The learned ranker can't be cross-validated: {error}.",
            next_step="Judge relevant and irrelevant candidates of several repositories.",
            kind="not_cross_validated",
        ) from error


def components_of(mode: str) -> tuple[str, ...]:
    """What the shipped coefficients of a mode look at."""
    return tuple(shipped(mode).weights)


def judged_by(ranking: Ranking, coefficients: Coefficients | None) -> Ranking:
    """The ranking with its probabilities as these coefficients give them; None: as shipped."""
    if coefficients is None:
        return ranking
    candidates = tuple(
        replace(
            candidate,
            scores={
                **candidate.scores,
                PROBABILITY: coefficients.probability(candidate.scores),
            },
        )
        for candidate in ranking.candidates
    )
    best = max((one.scores[PROBABILITY] for one in candidates), default=0.0)
    return replace(ranking, candidates=candidates, routing=best)


def of_query(
    query: Query, mode: str, folds: Mapping[str, Mapping[str, Coefficients]]
) -> Coefficients | None:
    """The coefficients that may judge this query; None: the shipped ones."""
    return folds.get(mode, {}).get(query.query)


#: Strength of the ridge, on components scaled to a standard deviation of 1.
RIDGE = 0.01

_STEPS = 50


@dataclass(frozen=True)
class Judged:
    """A candidate of a judged question. ``group``: never split between training and test."""

    question: str
    group: str
    scores: Mapping[str, float]
    relevant: bool


def train(rows: Sequence[Judged], components: Sequence[str], provenance: str) -> Coefficients:
    """Coefficients for these components. Raises ValueError where all rows are alike."""
    import numpy as np

    x = np.array([[row.scores.get(name, 0.0) for name in components] for row in rows])
    y = np.array([row.relevant for row in rows], dtype=float)
    if not 0 < y.sum() < len(y):
        raise ValueError("the rows are all relevant, or none is")
    mean, spread = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    z = np.hstack([np.ones((len(x), 1)), (x - mean) / spread])
    sizes = dict.fromkeys((row.question for row in rows), 0)
    for row in rows:
        sizes[row.question] += 1
    weight = np.array([1 / sizes[row.question] for row in rows]) / len(sizes)
    ridge = np.diag([0.0, *[RIDGE] * len(components)])
    beta = np.zeros(z.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-z @ beta))
        gradient = z.T @ (weight * (p - y)) + ridge @ beta
        hessian = (z * (weight * p * (1 - p))[:, None]).T @ z + ridge
        step = np.linalg.solve(hessian + 1e-9 * np.eye(len(beta)), gradient)
        beta -= step
        if np.abs(step).max() < 1e-10:
            break
    slopes = beta[1:] / spread
    return Coefficients(
        bias=round(float(beta[0] - slopes @ mean), 4),
        weights={
            name: round(float(value), 4) for name, value in zip(components, slopes, strict=True)
        },
        provenance=provenance,
    )
