"""An answer's JSON schema as a grammar (GBNF) that a llama-server of ours is started with.

Its ``/v1/messages`` ignores every constraint in a request, and a grammar given at its start is enforced
everywhere. So a server that is asked for one kind of answer can be held to it: no prose, no Markdown, no
field that doesn't exist. The right shape is not the right answer: every one is validated in any case.

An object's keys stand in one order, required ones first: any order would need a rule for each. What a
schema says of lengths, ranges and patterns is left to the reader, but for texts and lists that may not be
empty.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

#: White space between tokens: a blank, or a line break and its indentation. Bounded, because a small model
#: that may write blanks for ever does.
_SPACE: Final = r'" "? | "\n" " "{0,16}'

#: RFC 8259's strings, which our reader reads: control characters and backslashes are escaped.
_CHARACTER: Final = r'[^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})'

#: Keys in the order in which a prompt's examples have them; those that it doesn't name come behind, as the
#: schema has them.
KEY_ORDER: Final = ("action", "package", "version", "edits", "path", "old", "new", "reason")


def grammar_of(schema: dict[str, Any]) -> str:
    """The grammar of a pydantic schema's JSON, from ``root``. Raises ValueError for what it can't say:
    numbers, and objects whose keys are not fixed."""
    rules = {"space": _SPACE, "character": _CHARACTER}
    names = {name: _rule_name(name) for name in schema.get("$defs", {})}
    for name, definition in schema.get("$defs", {}).items():
        rules[names[name]] = _expression(definition)
    rules["root"] = _expression(schema)
    return "".join(
        f"{name} ::= {rules[name]}\n" for name in ("root", *sorted(rules.keys() - {"root"}))
    )


def _expression(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _rule_name(schema["$ref"].rpartition("/")[2])
    if branches := schema.get("oneOf") or schema.get("anyOf"):
        return _one_of([_expression(branch) for branch in branches])
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        return _one_of([_literal(json.dumps(value)) for value in values])
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            item = _expression(schema["items"])
            some = f'{item} (space "," space {item})*'
            inside = some if schema.get("minItems") else f"({some})?"
            return f'("[" space {inside} space "]")'
        case "string":
            return f'("\\"" {"character+" if schema.get("minLength") else "character*"} "\\"")'
        case "boolean":
            return _one_of(['"true"', '"false"'])
        case "null":
            return '"null"'
        case kind:
            raise ValueError(f"There is no rule for {kind!r} ({schema.get('title', 'unnamed')}).")


def _object(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not properties or schema.get("additionalProperties") is not False:
        raise ValueError(f"The keys of {schema.get('title', 'an object')} are not fixed.")
    ordered = sorted(properties, key=_place)
    always = [
        key for key in ordered if key in schema.get("required", []) or "const" in properties[key]
    ]
    if not always:
        raise ValueError(f"{schema.get('title', 'An object')} has no key that is always there.")
    pairs = {
        key: f'{_literal(json.dumps(key))} space ":" space {_expression(properties[key])}'
        for key in ordered
    }
    first = ' space "," space '.join(pairs[key] for key in always)
    rest = "".join(f' (space "," space {pairs[key]})?' for key in ordered if key not in always)
    return f'("{{" space {first}{rest} space "}}")'


def _place(key: str) -> int:
    return KEY_ORDER.index(key) if key in KEY_ORDER else len(KEY_ORDER)


def _one_of(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"({' | '.join(choices)})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _rule_name(name: str) -> str:
    """GBNF's names have letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", f"rule-{name}".lower())
