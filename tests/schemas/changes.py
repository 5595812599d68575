"""What a change of a schema breaks for a program that reads the output.

A reader may rely on every name, on its type, and on its being there. It must expect further names, further
values of an enumeration, and further kinds of object where there are several.
"""

from collections.abc import Iterator
from typing import Any

from tests.schemas.shapes import JsonSchema

#: Keywords that say nothing of the data.
_PROSE = frozenset({"$schema", "$id", "$defs", "description", "title"})

_CHOICES = ("anyOf", "oneOf")


def breaks(old: JsonSchema, new: JsonSchema) -> list[str]:
    """Return each name or type that a reader of ``old`` relies on and that ``new`` does not have."""
    return [*_Comparison(old, new).of(old, new, "")]


class _Comparison:
    def __init__(self, old: JsonSchema, new: JsonSchema) -> None:
        self._old = old.get("$defs", {})
        self._new = new.get("$defs", {})
        self._seen: set[tuple[str, str]] = set()

    def of(self, old: Any, new: Any, place: str) -> Iterator[str]:
        if isinstance(old, dict) and isinstance(new, dict):
            pair = (old.get("$ref", ""), new.get("$ref", ""))
            if all(pair):
                if pair in self._seen:
                    return
                self._seen.add(pair)
            old, new = _resolved(old, self._old), _resolved(new, self._new)
        if not (isinstance(old, dict) and isinstance(new, dict)):
            yield from [f"{place or 'all'}: another type"] if old != new else ()
            return
        if _choices(old) or _choices(new):
            yield from self._choice(_choices(old) or [old], _choices(new) or [new], place)
            return
        yield from self._names(old, new, place)
        for key in {*old, *new} - _PROSE - {"properties", "required", *_CHOICES}:
            before, after = old.get(key), new.get(key)
            if key in {"items", "additionalProperties", "propertyNames"}:
                yield from self.of(before, after, f"{place}[]")
            elif key == "prefixItems" and before and after and len(before) == len(after):
                for one, other in zip(before, after, strict=True):
                    yield from self.of(one, other, f"{place}[]")
            elif key == "enum" and before and after:
                yield from (f"{place}: no value {one!r}" for one in before if one not in after)
            elif before != after:
                yield f"{place or 'all'}: {key}"

    def _names(self, old: JsonSchema, new: JsonSchema, place: str) -> Iterator[str]:
        names = new.get("properties", {})
        for name, before in old.get("properties", {}).items():
            where = f"{place}.{name}".lstrip(".")
            if name not in names:
                yield f"{where}: removed"
            else:
                yield from self.of(before, names[name], where)
        for name in old.get("required", ()):
            if name in names and name not in new.get("required", ()):
                yield f"{place}.{name}".lstrip(".") + ": may be left out"

    def _choice(self, old: list[Any], new: list[Any], place: str) -> Iterator[str]:
        """Each old kind is still there; what is new beside them is an object."""
        matched: list[int] = []
        for one in old:
            fits = [number for number, other in enumerate(new) if not self._differs(one, other)]
            if not fits:
                yield f"{place or 'all'}: a kind is changed or removed"
            matched += fits
        for number, other in enumerate(new):
            is_object = _resolved(other, self._new).get("type") == "object"
            if number not in matched and not (is_object and len(old) > 1):
                yield f"{place or 'all'}: another type"

    def _differs(self, old: Any, new: Any) -> bool:
        seen = set(self._seen)
        differs = any(self.of(old, new, ""))
        self._seen = seen if differs else self._seen
        return differs


def _choices(schema: JsonSchema) -> list[Any]:
    return next((schema[key] for key in _CHOICES if key in schema), [])


def _resolved(schema: Any, definitions: JsonSchema) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    return schema
