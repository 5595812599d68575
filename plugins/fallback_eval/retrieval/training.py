"""Making the linear ranker's coefficients again, from judged candidates. Needs numpy.

Logistic regression with a ridge, by Newton's method: the same rows give the same coefficients. Each
question weighs the same, however many candidates of it were judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fallback_plugins.solved_examples.search.rerank.linear import Coefficients

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


def cross_validated(
    rows: Sequence[Judged],
    components: Sequence[str],
    *,
    folds: int = 8,
    trainer: Callable[[Sequence[Judged], Sequence[str], str], Coefficients] = train,
) -> list[float]:
    """The probability of each row by coefficients that never saw a row of its group, in order."""
    groups = sorted({row.group for row in rows})
    fold = {group: number % folds for number, group in enumerate(groups)}
    scores = [0.0] * len(rows)
    for number in range(min(folds, len(groups))):
        seen = [row for row in rows if fold[row.group] != number]
        coefficients = trainer(seen, components, f"fold {number}")
        for position, row in enumerate(rows):
            if fold[row.group] == number:
                scores[position] = coefficients.probability(row.scores)
    return scores
