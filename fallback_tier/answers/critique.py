"""Self-RAG's reflections in a model's words (Asai et al. 2023, table 1: Retrieve, ISREL, ISSUP, ISUSE)."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import Retrieve, Support
from fallback_tier.answers.reading import read_one
from fallback_tier.outcome import RelativePath
from fallback_tier.ports import ModelAnswer


def _plain(value: Any) -> Any:
    """Return a label in lower case: models capitalise labels."""
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
    """Return the decision in an answer, or its problems: exactly one of the two. Never raises."""
    return read_one(answer, "retrieve", retrieve_adapter)


def read_critique(answer: ModelAnswer) -> tuple[Critique | None, tuple[str, ...]]:
    """Return the critique in an answer, or its problems: exactly one of the two. Never raises."""
    return read_one(answer, "usefulness", critique_adapter)


class _Segment(Frozen):
    rationale: str = ""
    citations: tuple[str, ...] = ()


class EditSegment(_Segment):
    """One search/replace edit. As a first segment it makes the plan a ``source_edit``."""

    action: Literal["edit"] = "edit"
    path: RelativePath
    old: str = Field(min_length=1)
    new: str


class RaiseSegment(_Segment):
    """The plan raises or forces a dependency; the segments after it are its call-site edits."""

    action: Literal["dependency_bump", "override"]
    package: str
    version: str


class RefuseSegment(_Segment):
    """No safe fix can be planned. Only a first segment can say that."""

    action: Literal["refuse"] = "refuse"
    reason: str


class DoneSegment(_Segment):
    """Nothing is left to add to the plan as it stands."""

    action: Literal["done"] = "done"


Segment = Annotated[
    EditSegment | RaiseSegment | RefuseSegment | DoneSegment, Field(discriminator="action")
]
segment_adapter: TypeAdapter[Segment] = TypeAdapter(Segment, config=ConfigDict(defer_build=True))


def read_segment(answer: ModelAnswer) -> tuple[Segment | None, tuple[str, ...]]:
    """Return the segment in an answer, or its problems: exactly one of the two. Never raises."""
    return read_one(answer, "action", segment_adapter)
