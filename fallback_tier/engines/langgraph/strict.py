"""Checkpoints are read as data: whoever can write them can't run code here."""

import copy
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from fallback_tier.errors import ConfigurationError


def strictly(
    checkpointer: "BaseCheckpointSaver[Any] | None",
) -> "BaseCheckpointSaver[Any] | None":
    """A copy over the same store whose serializer makes none but plain values and LangGraph's own types.

    By default LangGraph's serializer imports whatever class a checkpoint names. The host's own object is
    left as it is: its other graphs may need that. Raises ConfigurationError for another serializer.
    """
    if checkpointer is None:
        return None
    strict: Any = JsonPlusSerializer(allowed_msgpack_modules=None)
    serde = checkpointer.serde
    if isinstance(serde, EncryptedSerializer):
        strict = EncryptedSerializer(serde.cipher, strict)
    elif not isinstance(serde, JsonPlusSerializer):
        raise ConfigurationError(
            f"Checkpoints are written by {type(serde).__name__}, which can't be told to make no objects.",
            next_step="Give a checkpointer with LangGraph's JsonPlusSerializer, encrypted or not.",
            kind="not_strict",
        )
    made = copy.copy(checkpointer)
    made.serde = strict
    return made
