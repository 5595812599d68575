"""Do two readers give the same grades? Cohen's weighted kappa (Cohen, Psychol. Bull. 1968)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fallback_eval.retrieval.golden import Opinion, pair


@dataclass(frozen=True)
class Agreement:
    """Over ``pairs`` that both readers graded; ``kappa`` is None where chance alone would agree."""

    pairs: int
    same: int
    kappa: float | None

    @property
    def share(self) -> float | None:
        """Share of the pairs with the very same grade."""
        return self.same / self.pairs if self.pairs else None


def agreement(first: Sequence[Opinion], second: Sequence[Opinion]) -> Agreement:
    """Of two readers, over what stands in both."""
    one = {pair(opinion): opinion.grade for opinion in first}
    other = {pair(opinion): opinion.grade for opinion in second}
    both = sorted(one.keys() & other.keys())
    grades = [(one[name], other[name]) for name in both]
    return Agreement(len(both), sum(a == b for a, b in grades), weighted_kappa(grades))


def weighted_kappa(grades: Sequence[tuple[int, int]]) -> float | None:
    """With quadratic weights: 1 is perfect, 0 what chance would give. None where there are no pairs,
    or both readers gave one and the same grade to everything."""
    left, right = Counter(a for a, _ in grades), Counter(b for _, b in grades)
    by_chance = sum((a - b) ** 2 * left[a] * right[b] / len(grades) for a in left for b in right)
    if not by_chance:
        return None
    return 1 - sum((a - b) ** 2 for a, b in grades) / by_chance
