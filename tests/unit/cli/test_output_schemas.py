"""The schemas of ``--json`` outputs: every command has one, files are current, changes are additive."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fallback_tier.cli.main import build_parser
from fallback_tier.cli.parsing import Parser
from tests.schemas.changes import breaks
from tests.schemas.checking import unchecked
from tests.schemas.files import (
    FOLDER,
    SHAPES,
    committed,
    generated,
    name_of,
    path_of,
    text_of,
    validator,
)
from tests.schemas.outputs import OUTPUTS
from tests.schemas.shapes import JsonSchema

NAMES = sorted(SHAPES)

#: Objects of a schema that are changed one by one: of a large one every so many.
_AT_MOST = 20


def with_json(parser: Parser, words: Sequence[str] = ()) -> Iterator[str]:
    """Yield the commands that have ``--json``. The evaluations are no part of the product."""
    commands = [*parser.commands()]
    for command in commands:
        if command.prog.split()[1] != "eval":
            yield from with_json(command, command.prog.split()[1:])
    if not commands and any("--json" in action.option_strings for action in parser._actions):
        yield " ".join(words)


def test_every_command_with_json_has_a_schema() -> None:
    parser = build_parser()
    assert isinstance(parser, Parser)
    assert {*with_json(parser), "attempt"} == OUTPUTS.keys()


def test_there_is_no_other_file() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {path_of(name).name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_current(name: str, pytestconfig: pytest.Config) -> None:
    """``--refresh-readme`` writes it, unless the change breaks a reader and the version stays."""
    current = generated(name)
    Draft202012Validator.check_schema(current)
    path = path_of(name)
    if pytestconfig.getoption("refresh_readme"):
        if path.exists() and committed(name)["$id"] == current["$id"]:
            assert breaks(committed(name), current) == []
        path.parent.mkdir(exist_ok=True)
        path.write_text(text_of(current), encoding="utf-8")
    assert path.read_text("utf-8") == text_of(current)


def objects(schema: Any) -> Iterator[JsonSchema]:
    """Yield each object that a schema describes."""
    if isinstance(schema, list):
        for item in schema:
            yield from objects(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_removed_or_retyped_or_optional_name_breaks_and_a_new_one_does_not(name: str) -> None:
    old = committed(name)
    assert breaks(old, copy.deepcopy(old)) == []
    count = len([*objects(old)])
    for number in range(0, count, 1 + count // _AT_MOST):
        for change in (removed, retyped, optional):
            new = copy.deepcopy(old)
            change([*objects(new)][number])
            assert breaks(old, new), (change.__name__, number)
        new = copy.deepcopy(old)
        [*objects(new)][number]["properties"]["more"] = {"type": "string"}
        assert breaks(old, new) == []


def removed(schema: JsonSchema) -> None:
    del schema["properties"][next(iter(schema["properties"]))]


def retyped(schema: JsonSchema) -> None:
    schema["properties"][next(iter(schema["properties"]))] = {"type": "null", "description": "x"}


def optional(schema: JsonSchema) -> None:
    if schema.get("required"):
        schema["required"] = schema["required"][1:]
    else:
        removed(schema)


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("old", "new", "is_broken"),
    [
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        (TEXT, {"anyOf": [TEXT, {"type": "null"}]}, True),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "integer"}]}, True),
        ({"anyOf": [{"type": "null"}, TEXT]}, {"anyOf": [TEXT, {"type": "null"}]}, False),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": {"type": "number"}}, True),
        ({"additionalProperties": TEXT}, {"additionalProperties": {"type": "null"}}, True),
        ({"const": "a"}, {"const": "b"}, True),
    ],
)
def test_values_and_kinds(old: JsonSchema, new: JsonSchema, is_broken: bool) -> None:
    assert bool(breaks(old, new)) is is_broken


def test_a_further_kind_of_object_breaks_no_reader_of_several() -> None:
    kinds: list[JsonSchema] = [
        {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]}
        for name in "abc"
    ]
    assert breaks({"oneOf": kinds[:2]}, {"oneOf": kinds}) == []
    assert breaks({"oneOf": kinds}, {"oneOf": kinds[:2]})
    assert breaks(kinds[0], {"oneOf": kinds})


def test_the_check_refuses_a_name_that_is_not_listed() -> None:
    error = {"code": "a", "problem": "b", "next_step": ""}
    assert validator("error").is_valid({"error": error})
    assert not validator("error").is_valid({"error": {**error, "more": 1}})
    assert Draft202012Validator(committed("error")).is_valid({"error": {**error, "more": 1}})


def test_one_and_several_advisories_have_the_same_names_in_common() -> None:
    """A reader of ``fix --json`` needs no question how many advisories were given."""
    shared = {"schema_version", "advisories", "fixes", "delivered", "commit", "report", "exit_code"}
    for name in ("fix", "resume"):
        for kind in committed(name)["anyOf"]:
            assert shared <= {*kind["required"]}
            assert {one: kind["properties"][one] for one in shared} == {
                one: committed(name)["anyOf"][0]["properties"][one] for one in shared
            }


def test_what_no_output_was_checked_against_is_named(tmp_path: Path) -> None:
    assert unchecked(tmp_path) == NAMES
    for name in NAMES[1:]:
        (tmp_path / name).touch()
    assert unchecked(tmp_path) == NAMES[:1]


def test_names_are_of_commands() -> None:
    assert {name_of(command) for command in OUTPUTS} <= {*NAMES}
