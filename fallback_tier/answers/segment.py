"""A segment in a model's words: the next step of a plan that self-RAG writes edit by edit."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_audit.frozen import Frozen
from fallback_tier.answers.reading import read_one
from fallback_tier.outcome import RelativePath
from fallback_tier.ports import ModelAnswer


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
    """The segment in an answer, or what is wrong with it: exactly one of the two. Never raises."""
    return read_one(answer, "action", segment_adapter)
