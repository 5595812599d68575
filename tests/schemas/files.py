"""The schema files: ``docs/schemas`` is a link to the package's folder, so that the wheel has them, too."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.schemas.outputs import OTHERS, OUTPUTS
from tests.schemas.shapes import JsonSchema, closed, schema_of

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"

#: Of those that are not at their first version.
_VERSIONS: dict[str, int] = {}


def name_of(command: str) -> str:
    """Return the name of a command's schema: ``audit log`` is ``audit-log``."""
    return command.replace(" ", "-")


SHAPES: dict[str, Any] = {name_of(words): shape for words, shape in (OUTPUTS | OTHERS).items()}


def generated(name: str) -> JsonSchema:
    """Return a schema as the models are now."""
    version = _VERSIONS.get(name, 1)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fallback-tier:schema:{name}:{version}",
    }
    return head | schema_of(SHAPES[name])


def path_of(name: str) -> Path:
    """Return where a schema's file is."""
    return FOLDER / f"{name}.schema.json"


@cache
def committed(name: str) -> JsonSchema:
    """Return a schema as its file has it."""
    found: JsonSchema = json.loads(path_of(name).read_text("utf-8"))
    return found


def text_of(schema: JsonSchema) -> str:
    """Return a file's text."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@cache
def validator(name: str) -> Draft202012Validator:
    """Return a validator that also refuses names which the file does not list."""
    return Draft202012Validator(closed(committed(name)))
