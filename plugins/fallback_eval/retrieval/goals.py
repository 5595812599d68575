"""What retrieval was asked to reach, and whether it does: met, missed, or not shown."""

from collections.abc import Iterator
from dataclasses import dataclass

from fallback_eval.document import p_value, percent, signed, with_interval
from fallback_eval.retrieval.analysis import Analysis, Finding, K, Summary
from fallback_eval.retrieval.results import DEFAULT

HIT_RATE, NDCG, RIGHTLY_MISSED = 0.90, 0.80, 0.90
#: The two that hybrid retrieval has to beat, with significance.
BM25, EMBEDDINGS = "bm25-only", "embeddings-only"


@dataclass(frozen=True)
class Goal:
    """``met`` is None where the variant that would show it did not run."""

    name: str
    wanted: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """One word, or three."""
        return {True: "met", False: "missed", None: "not measured"}[self.met]


def goals(analysis: Analysis) -> list[Goal]:
    """All of them, for the variant DEFAULT."""
    summary = analysis.summaries.get(DEFAULT)
    return [] if summary is None else [*_levels(summary), *_margins(analysis), _abstention(summary)]


def _levels(summary: Summary) -> Iterator[Goal]:
    for name, wanted in ((f"hit-rate@{K}", HIT_RATE), (f"nDCG@{K}", NDCG)):
        found = summary.figures[name]
        met = None if found is None else found.mean >= wanted
        yield Goal(name, f">= {wanted:.2f}", with_interval(found), met)


def _margins(analysis: Analysis) -> Iterator[Goal]:
    for rival in (BM25, EMBEDDINGS):
        name, wanted = f"margin over {rival}", "significant"
        found = analysis.comparisons.get(rival)
        if found is None:
            yield Goal(name, wanted, "-", None)
        else:
            chance = p_value(found.adjusted)
            measured = f"rival minus ours {signed(found.difference)}, adjusted p {chance}"
            yield Goal(name, wanted, measured, found.finding is Finding.WORSE)


def _abstention(summary: Summary) -> Goal:
    found = summary.abstention.rightly
    met = None if found is None else found >= RIGHTLY_MISSED
    wrongly = percent(summary.abstention.wrongly)
    measured = f"{percent(found)} (and {wrongly} of the answerable wrongly missed)"
    return Goal("nothing-here queries missed", f">= {RIGHTLY_MISSED:.0%}", measured, met)
