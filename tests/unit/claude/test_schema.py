"""The schema that the provider enforces: only keywords it accepts, and no stricter than the plan."""

from collections.abc import Iterator
from typing import Any

from fallback_plugins.claude.parse import parse_plan
from fallback_plugins.claude.schema import plan_schema

ACCEPTED = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "anyOf",
    "const",
    "enum",
    "description",
    "$ref",
    "$defs",
}


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for inner in (*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        yield from schemas(inner)
    for inner in schema.get("anyOf", ()):
        yield from schemas(inner)
    if "items" in schema:
        yield from schemas(schema["items"])


def test_only_accepted_keywords() -> None:
    for schema in schemas(plan_schema()):
        assert schema.keys() <= ACCEPTED
        assert schema.get("minItems", 0) in {0, 1}


def test_every_object_is_closed_and_has_no_optional_property() -> None:
    objects = [schema for schema in schemas(plan_schema()) if schema.get("type") == "object"]
    assert len(objects) == 6  # the wrapper, four plans, one edit
    for schema in objects:
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])


def test_the_root_is_an_object_and_the_union_inside_names_every_action() -> None:
    root: dict[str, Any] = plan_schema()
    assert root["type"] == "object"
    names = [
        branch["$ref"].removeprefix("#/$defs/") for branch in root["properties"]["plan"]["anyOf"]
    ]
    actions = {root["$defs"][name]["properties"]["action"]["const"] for name in names}
    assert actions == {"dependency_bump", "override", "source_edit", "refuse"}


def test_an_answer_in_its_shape_is_read() -> None:
    text = '{"plan": {"rationale": "", "citations": [], "action": "refuse", "reason": "r"}}'
    assert parse_plan(text)[0] is not None
