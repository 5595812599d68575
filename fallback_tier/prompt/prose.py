"""Take secrets out of what a plan or a recipe's result says, and leave what it does."""

from enum import Enum
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from fallback_tier.prompt.redact import redact_secrets

#: Fields that hold sentences: a model's own words, or those of a package client. Other texts (files, edits,
#: names, versions) are what a patch is made of, and stay as they are.
PROSE: Final = frozenset(
    {"citations", "message", "next_step", "notes", "rationale", "reason", "sentence"}
)

ModelT = TypeVar("ModelT", bound=BaseModel)


def without_secrets(model: ModelT) -> ModelT:
    """The same with every sentence redacted, those of the models in it too."""
    safe = {name: _safe(value, name in PROSE) for name, value in model}
    return model.model_copy(update=safe)


def _safe(value: Any, is_prose: bool) -> Any:
    match value:
        case str() if is_prose and not isinstance(value, Enum):
            return redact_secrets(value)[0]
        case tuple():
            return tuple(_safe(one, is_prose) for one in value)
        case BaseModel():
            return without_secrets(value)
    return value
