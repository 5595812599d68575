"""Self-RAG's reflections in a model's words (Asai et al. 2023, table 1: Retrieve, ISREL, ISSUP, ISUSE)."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import Retrieve, Support
from fallback_tier.answers.reading import read_one
from fallback_tier.ports import ModelAnswer


def _plain(value: Any) -> Any:
    """Models capitalise labels: that is no other label."""
    return value.strip().lower() if isinstance(value, str) else value


class RetrieveAnswer(Frozen):
    """Are examples needed for the next segment?"""

    retrieve: Annotated[Retrieve, BeforeValidator(_plain)]
    reason: str = ""


class Critique(Frozen):
    """What a critic says of one segment.

    ``relevant`` (ISREL): of the example that it was written from; None where there was none.
    ``support`` (ISSUP), ``usefulness`` (ISUSE, 1 to 5). ``is_final``: the plan is complete with it.
    """

    relevant: bool | None = None
    support: Annotated[Support, BeforeValidator(_plain)]
    usefulness: Annotated[int, Field(ge=1, le=5)]
    is_final: bool
    reason: str = ""


retrieve_adapter: TypeAdapter[RetrieveAnswer] = TypeAdapter(RetrieveAnswer)
critique_adapter: TypeAdapter[Critique] = TypeAdapter(Critique)


def read_retrieve(answer: ModelAnswer) -> tuple[RetrieveAnswer | None, tuple[str, ...]]:
    """The decision in an answer, or what is wrong with it: exactly one of the two. Never raises."""
    return read_one(answer, "retrieve", retrieve_adapter)


def read_critique(answer: ModelAnswer) -> tuple[Critique | None, tuple[str, ...]]:
    """The critique in an answer, or what is wrong with it: exactly one of the two. Never raises."""
    return read_one(answer, "usefulness", critique_adapter)
