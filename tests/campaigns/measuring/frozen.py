"""Models of a measure, apart from the product's own: a judge shares no code with what it judges."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable; a field that it doesn't know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
