"""Defaults of the retrieval. A test compares them with the table that justifies them, in
docs/evaluation/retrieval (ADR-0019, ADR-0020)."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fallback_audit.frozen import Frozen
from fallback_tier.limits import MAX_EXAMPLES
from fallback_tier.retrieval import Floor

Mode = Literal["hybrid", "lexical"]
Weight = Annotated[float, Field(ge=0)]


class Aggregation(StrEnum):
    """How the cosines of a record's chunks become the record's."""

    MAX = "max"
    TOP2_MEAN = "top2_mean"


class EcosystemUse(StrEnum):
    """What another ecosystem than the advisory's means for a record."""

    IGNORE = "ignore"
    FILTER = "filter"


class Weights(Frozen):
    """What each component counts in the fusion; 0 switches it off."""

    bm25: Weight = 1.0
    cosine: Weight = 1.0
    family: Weight = 1.0
    language: Weight = 0.5
    #: Weight of a reranker's score, if there is one.
    rerank: Weight = 1.0


#: Just below the lowest score of a relevant record that was shown for a development question
#: (``lowest_relevant`` of the evaluation; probabilities by coefficients that had not seen the question).
#: Cosine separates questions with an answer from those without better than any combination that was tried.
#: Without vectors BM25 would, but its shares shrink with the store: among five records all are near 0. With
#: these bounds fewer than half of the questions with nothing to find miss: ``with_routing_floor`` raises
#: that share; the evaluation report has the price.
FLOORS = (
    Floor(name="routing", score="cosine", mode="hybrid", value=0.335),
    Floor(name="chunk", score="probability", mode="hybrid", value=0.047),
    Floor(name="routing", score="probability", mode="lexical", value=0.101),
    Floor(name="chunk", score="probability", mode="lexical", value=0.093),
)


class RetrievalSettings(Frozen):
    """How the memory is searched. ``auto``: hybrid where store and model allow it."""

    mode: Literal["auto", "hybrid", "lexical"] = "auto"
    #: Examples that an answer has at most (no more than the tier shows).
    k: Annotated[int, Field(ge=1, le=MAX_EXAMPLES)] = MAX_EXAMPLES
    #: Records that each channel brings into the pool.
    pool: Annotated[int, Field(ge=1, le=1_000)] = 50
    #: Records of the pool, best first, that a reranker scores.
    rerank: Annotated[int, Field(ge=1, le=1_000)] = 20
    weights: Weights = Weights()
    aggregation: Aggregation = Aggregation.MAX
    ecosystem: EcosystemUse = EcosystemUse.IGNORE
    floors: tuple[Floor, ...] = FLOORS

    @model_validator(mode="after")
    def _one_floor_each(self) -> Self:
        keys = [(floor.name, floor.mode) for floor in self.floors]
        if len(set(keys)) < len(keys):
            raise ValueError("two floors of the same name and mode")
        return self

    def floor(self, name: Literal["routing", "chunk"], mode: Mode) -> Floor | None:
        """Return a floor by name and mode; None if there is none, so that nothing is kept out."""
        return next(
            (floor for floor in self.floors if (floor.name, floor.mode) == (name, mode)), None
        )

    def with_routing_floor(self, value: float | None) -> "RetrievalSettings":
        """Return these settings with another routing floor in every mode; None: unchanged.

        It applies to ``cosine`` in hybrid and to ``probability`` in lexical searches. Higher: fewer
        answers, and fewer wrong ones.
        """
        if value is None:
            return self
        raised = (
            floor.model_copy(update={"value": value}) if floor.name == "routing" else floor
            for floor in self.floors
        )
        return self.model_copy(update={"floors": tuple(raised)})
