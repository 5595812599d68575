"""The schema that the provider enforces: only keywords it accepts, and no stricter than the answer."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from fallback_plugins.messages_api.model import enforced
from fallback_tier.answers.blocks import parse_plan
from fallback_tier.grounding.support import verdicts_adapter
from fallback_tier.outcome import plan_adapter
from tests.kinds import RaisedIn


class Support(StrEnum):
    FULL = "full"
    NONE = "none"


class Critique(BaseModel):
    """Every shape that an answer's schema may have beside those of plans and verdicts."""

    support: Support
    usefulness: int = Field(ge=1, le=5, description="five is best")
    relevant: bool | None = None
    note: str = Field("", max_length=10, pattern="^a")
    tags: tuple[Literal["a", "b"], ...] = Field((), max_length=3)
    two: list[int] = Field(min_length=2)


SCHEMAS = {
    "plan": plan_adapter.json_schema(),
    "verdicts": verdicts_adapter.json_schema(),
    "critique": TypeAdapter(Critique).json_schema(),
}

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

every_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for inner in (*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        yield from schemas(inner)
    for inner in schema.get("anyOf", ()):
        yield from schemas(inner)
    if "items" in schema:
        yield from schemas(schema["items"])


@every_schema
def test_only_accepted_keywords(schema: dict[str, Any]) -> None:
    for inner in schemas(enforced(schema)):
        assert inner.keys() <= ACCEPTED
        assert inner.get("minItems", 0) in {0, 1}


@every_schema
def test_every_object_is_closed_and_has_no_optional_property(schema: dict[str, Any]) -> None:
    objects = [inner for inner in schemas(enforced(schema)) if inner.get("type") == "object"]
    assert objects
    for inner in objects:
        assert inner["additionalProperties"] is False
        assert inner["required"] == list(inner["properties"])


def comparable(schema: dict[str, Any]) -> dict[str, Any]:
    """Without prose, and without ``required``, in which ours is stricter on purpose."""
    prose = {"title", "description", "required"}
    kept = {name: value for name, value in schema.items() if name not in prose}
    for place in ("properties", "$defs"):
        if place in kept:
            kept[place] = {name: comparable(value) for name, value in kept[place].items()}
    if "anyOf" in kept:
        kept["anyOf"] = [comparable(value) for value in kept["anyOf"]]
    if "items" in kept:
        kept["items"] = comparable(kept["items"])
    return kept


@every_schema
def test_is_the_subset_that_the_sdk_makes(schema: dict[str, Any]) -> None:
    from anthropic import transform_schema  # a second, which every worker would take to collect

    ours = comparable(enforced(schema))
    theirs = comparable(transform_schema(schema))
    definitions = theirs.pop("$defs", {})
    assert ours["$defs"] == definitions
    assert ours["properties"]["answer"] == theirs


@every_schema
def test_the_schema_that_came_in_is_left_as_it_was(schema: dict[str, Any]) -> None:
    before = repr(schema)
    enforced(schema)
    assert repr(schema) == before


def test_the_root_is_an_object_and_the_union_inside_names_every_action() -> None:
    root: dict[str, Any] = enforced(SCHEMAS["plan"])
    assert root["type"] == "object"
    branches = root["properties"]["answer"]["anyOf"]
    names = [branch["$ref"].removeprefix("#/$defs/") for branch in branches]
    actions = {root["$defs"][name]["properties"]["action"]["const"] for name in names}
    assert actions == {"dependency_bump", "override", "source_edit", "refuse"}


def test_an_answer_in_its_shape_is_read() -> None:
    text = '{"answer": {"rationale": "", "citations": [], "action": "refuse", "reason": "r"}}'
    assert parse_plan(text)[0] is not None


def test_an_object_of_any_keys_can_not_be_enforced() -> None:
    with pytest.raises(ValueError, check=RaisedIn(enforced)):
        enforced(TypeAdapter(dict[str, int]).json_schema())
