"""The one base of every model that crosses a boundary."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable, and closed: an unknown field is an error, never silently dropped.

    A model's validator is built when it is first used: one command needs few of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
