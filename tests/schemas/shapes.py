"""JSON Schemas of outputs, derived from the models that the outputs are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

#: A reader of an output needs none of these: titles of forms, defaults of inputs, hints of OpenAPI.
#: Objects are open: a later release may add names.
_LEFT_OUT = frozenset({"title", "default", "additionalProperties", "discriminator", "examples"})

JsonSchema = dict[str, Any]


@dataclass(frozen=True)
class Merged:
    """One object with the fields of several models. ``without``: names that are not printed."""

    parts: tuple[Any, ...]
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OneOf:
    """Any of several objects."""

    shapes: tuple[Any, ...]


@dataclass(frozen=True)
class Trimmed:
    """A whole output in which a model (``definition``) is printed without one of its fields."""

    shape: Any
    definition: str
    field: str


@dataclass(frozen=True)
class ListOf:
    """A list of what is not one model."""

    shape: Any


@dataclass(frozen=True)
class Named:
    """A shape that is written once, below ``$defs``."""

    name: str
    shape: Any


@dataclass(frozen=True)
class MapOf:
    """An object whose names are data."""

    shape: Any


class Fields(dict[str, Any]):
    """An object that is made by hand: shapes by name. A name that ends with ``?`` may be left out."""


def merged(*parts: Any, without: tuple[str, ...] = ()) -> Merged:
    """Return one object with the fields of ``parts``."""
    return Merged(parts, frozenset(without))


def one_of(*shapes: Any) -> OneOf:
    """Return a choice of ``shapes``."""
    return OneOf(shapes)


class _Printed(GenerateJsonSchema):
    """A printed model has all its fields, with defaults or not, unless a field says when it is left out."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] == "typed-dict-field":
            return super().field_is_required(field, total)
        return field.get("serialization_exclude_if") is None


def schema_of(shape: Any) -> JsonSchema:
    """Return the schema of what is printed, with its ``$defs``."""
    if isinstance(shape, Trimmed):
        whole = schema_of(shape.shape)
        found = whole["$defs"][shape.definition]
        del found["properties"][shape.field]
        found["required"].remove(shape.field)
        return whole
    definitions: JsonSchema = {}
    body = _body(shape, definitions)
    used = _used(body, definitions)
    kept = {name: definitions[name] for name in sorted(used)}
    return {**body, **({"$defs": kept} if kept else {})}


def _body(shape: Any, definitions: JsonSchema) -> JsonSchema:
    match shape:
        case Merged(parts=parts, without=without):
            bodies = [_resolved(_body(part, definitions), definitions) for part in parts]
            return _joined(bodies, without)
        case OneOf(shapes=shapes):
            return {"anyOf": [_body(one, definitions) for one in shapes]}
        case Named(name=name, shape=inner):
            if name not in definitions:
                definitions[name] = _body(inner, definitions)
            return {"$ref": f"#/$defs/{name}"}
        case ListOf(shape=items):
            return {"type": "array", "items": _body(items, definitions)}
        case MapOf(shape=values):
            return {"type": "object", "additionalProperties": _body(values, definitions)}
        case Fields():
            fields = {name.rstrip("?"): _body(one, definitions) for name, one in shape.items()}
            required = [name for name in shape if not name.endswith("?")]
            return {"type": "object", "properties": fields, "required": required}
    found = TypeAdapter(shape).json_schema(mode="serialization", schema_generator=_Printed)
    for name, definition in found.pop("$defs", {}).items():
        cleaned = _cleaned(definition)
        if definitions.setdefault(name, cleaned) != cleaned:
            raise ValueError(f"two models of an output are named {name}")
    return _cleaned(found)


def _joined(bodies: list[JsonSchema], without: frozenset[str]) -> JsonSchema:
    properties: JsonSchema = {}
    required: dict[str, None] = {}
    for body in bodies:
        properties |= body.get("properties", {})
        required |= dict.fromkeys(body.get("required", ()))
    described = [body["description"] for body in bodies if "description" in body]
    return {
        **({"description": described[0]} if described else {}),
        "type": "object",
        "properties": {name: one for name, one in properties.items() if name not in without},
        "required": [name for name in required if name not in without],
    }


def _resolved(body: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    if "$ref" not in body:
        return body
    found: JsonSchema = definitions[_name(body["$ref"])]
    return found


def _name(reference: str) -> str:
    return reference.removeprefix("#/$defs/")


def _cleaned(schema: Any, *, names: bool = False) -> Any:
    """``names``: the keys are names of properties, not keywords."""
    if isinstance(schema, list):
        return [_cleaned(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        key: _cleaned(value, names=key == "properties" and not names)
        for key, value in schema.items()
        if names or key not in _LEFT_OUT or (key == "additionalProperties" and value is not False)
    }
    if not names and isinstance(inner.get("description"), str):
        inner["description"] = " ".join(inner["description"].replace("``", "`").split())
    return inner


def _used(body: JsonSchema, definitions: JsonSchema) -> set[str]:
    used: set[str] = set()
    waiting = [*_references(body)]
    while waiting:
        if (name := waiting.pop()) not in used:
            used.add(name)
            waiting += _references(definitions[name])
    return used


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield _name(value)
            else:
                yield from _references(value)


def closed(schema: Any) -> Any:
    """Return the schema with no room for names that it does not list: a test's, not a reader's."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner
