"""The base of all models that cross a boundary."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable, closed model: an unknown field is an error, never silently dropped.

    A model's validator is built when first used: one command needs few of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
