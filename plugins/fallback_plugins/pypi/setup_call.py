"""What a setup.py passes to ``setup()``, as far as it can be read: parsed, never run.

Texts, lists and tables that are written out, names that are given one such value, and what is put into a
table before it is passed (``setup(**about)``). What is computed is left out.
"""

import ast
from collections.abc import Mapping
from typing import Any

#: Names followed from one to the next: nobody writes longer chains.
_MAX_HOPS = 5

#: Longer, and it is no setup script that a person wrote (characters).
_MAX_CHARS = 200_000


def setup_keywords(text: str) -> Mapping[str, Any]:
    """Keyword → value; empty where the text is no Python of today, or calls no ``setup``."""
    if len(text) > _MAX_CHARS:
        return {}
    try:
        tree = ast.parse(text)
        known = _assigned(tree)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_setup(node)]
        return _keywords(calls[-1], known) if calls else {}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _is_setup(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "setup" and bool(call.keywords)


def _keywords(call: ast.Call, known: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        value = _value(keyword.value, known)
        if keyword.arg is not None:
            found[keyword.arg] = value
        elif isinstance(value, dict):
            found = {**value, **found}
    return {name: value for name, value in found.items() if value is not None}


def _assigned(tree: ast.Module) -> dict[str, Any]:
    """Name → the one value that it is given; a name that is given several has none."""
    given: dict[str, list[ast.expr]] = {}
    put: dict[str, dict[str, ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                given.setdefault(target.id, []).append(node.value)
            elif _is_entry(target):
                assert isinstance(target, ast.Subscript)  # noqa: S101 (for the type checker)
                put.setdefault(target.value.id, {})[target.slice.value] = node.value  # type: ignore[attr-defined]
    known: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        known = {
            name: _value(values[0], known) for name, values in given.items() if len(values) == 1
        }
    for name, entries in put.items():
        table = known.get(name)
        if isinstance(table, dict):
            known[name] = table | {key: _value(value, known) for key, value in entries.items()}
    return known


def _is_entry(target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Name)
        and isinstance(target.slice, ast.Constant)
        and isinstance(target.slice.value, str)
    )


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A text, a list or a table of texts; None where it is computed."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _value(left, known), _value(right, known)
            both_texts = isinstance(first, str) and isinstance(second, str)
            return first + second if both_texts else None
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, known) for part in parts]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {
                key.value: _value(value, known)
                for key, value in pairs
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {one.arg: _value(one.value, known) for one in keywords if one.arg is not None}
        case _:
            return None
