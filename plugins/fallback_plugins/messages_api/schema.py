"""An answer's JSON schema in the subset that the provider's structured outputs enforce.

Allowed there: basic types, ``const``, ``enum``, ``anyOf``, local ``$ref``, ``minItems`` 0 or 1, and
``additionalProperties: false`` on every object; not ``oneOf``, ``discriminator``, lengths, ranges or
patterns (the SDK's ``transform_schema`` makes the same subset, which a test holds this to). What is
dropped is not lost: our reader validates every answer against the whole schema.

A union may not stand at the root (a 400), so it stands inside an object: ``{"answer": <one of four>}``,
which our reader unwraps.
"""

from typing import Any, Final

_KEPT: Final[tuple[str, ...]] = ("type", "const", "enum", "description")


def enforced(schema: dict[str, Any]) -> dict[str, object]:
    """A pydantic schema as the server can enforce it: ``{"answer": <it>}``.

    Every property is required and none is optional, so the grammar stays small and the answer whole.
    Raises ValueError for what can't be enforced: an object with keys of its own choice.
    """
    answer = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
    return {
        "type": "object",
        "properties": {"answer": _strict(answer)},
        "required": ["answer"],
        "additionalProperties": False,
        "$defs": {name: _strict(value) for name, value in schema.get("$defs", {}).items()},
    }


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema without the keywords that are refused."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    if "const" in strict or "enum" in strict:
        strict.pop("type", None)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        strict["anyOf"] = [_strict(branch) for branch in branches]
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if schema.get("minItems", 2) <= 1:
        strict["minItems"] = schema["minItems"]
    if schema.get("type") == "object":
        if isinstance(schema.get("additionalProperties"), dict):
            raise ValueError(f"The keys of {schema.get('title', 'an object')} are not fixed.")
        properties = schema.get("properties", {})
        strict["properties"] = {name: _strict(value) for name, value in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict
