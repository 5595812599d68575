"""The plan's JSON schema in the subset that the provider's structured outputs enforce.

Allowed there: basic types, ``const``, ``enum``, ``anyOf``, local ``$ref``, ``minItems`` 0 or 1, and
``additionalProperties: false`` on every object; not ``oneOf``, ``discriminator``, ``default`` with
constraints, lengths or patterns. A union may not stand at the root of a tool's schema (a 400), so it
stands inside an object here too: ``{"plan": <one of four>}``, which ``parse_plan`` unwraps.
"""

from functools import lru_cache
from typing import Any, Final

from fallback_tier.outcome import plan_adapter

_KEPT: Final[tuple[str, ...]] = ("type", "const", "enum", "description", "minItems", "$ref")


@lru_cache(maxsize=1)
def plan_schema() -> dict[str, object]:
    """Every property required: no optional ones, so the grammar stays small and the answer whole."""
    union = plan_adapter.json_schema()
    return {
        "type": "object",
        "properties": {"plan": {"anyOf": [_strict(branch) for branch in union["oneOf"]]}},
        "required": ["plan"],
        "additionalProperties": False,
        "$defs": {name: _strict(schema) for name, schema in union["$defs"].items()},
    }


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema without the keywords that are refused; validation keeps what they said."""
    strict: dict[str, Any] = {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        strict["properties"] = {name: _strict(value) for name, value in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict
