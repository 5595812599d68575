"""Evaluator of expressions in CI files and noxfiles, as far as the files alone decide them. Nothing is
executed."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final

MAX_EXPRESSION_CHARS = 2_000  # long conditions have about 500
MAX_EXPRESSION_DEPTH = 40  # nested values: long conditions have about ten
MAX_TEXT_CHARS = 20_000  # of a text that an expression makes
MAX_LIST = 500  # values of a list: a command's words


class _Unknown:
    """The value of an expression that only a run decides."""


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True)
class Scope:
    """Names and their values. ``absent``: the value of a name that a known table lacks."""

    names: Mapping[str, Any]
    absent: Any = UNKNOWN

    def value(self, node: ast.AST | None, depth: int = 0) -> Any:
        """Return the value of an expression of constants, names and a few functions, or ``UNKNOWN``."""

        def of(inner: ast.AST | None) -> Any:
            return self.value(inner, depth + 1)

        match node:
            case _ if depth > MAX_EXPRESSION_DEPTH:
                return UNKNOWN
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.names.get(name, UNKNOWN)
            case ast.Attribute(value=base, attr=name):
                return self._member(of(base), name)
            case ast.Subscript(value=base, slice=key):
                return self._member(of(base), of(key))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values: list[Any] = []
                for item in items[:MAX_LIST]:
                    is_spread = isinstance(item, ast.Starred)
                    value = of(item.value if isinstance(item, ast.Starred) else item)
                    values += (value if isinstance(value, list) else []) if is_spread else [value]
                return values[:MAX_LIST]
            case ast.Dict(keys=keys, values=items):
                pairs = zip(map(of, keys), map(of, items), strict=True)
                return {key: value for key, value in pairs if isinstance(key, str)}
            case ast.BoolOp(op=op, values=items):
                values = [of(item) for item in items[:MAX_LIST]]
                decides = isinstance(op, ast.Or)
                for value in values:
                    if value is not UNKNOWN and truth(value) is decides:
                        return value
                return values[-1] if decides or UNKNOWN not in values else UNKNOWN
            case ast.IfExp(test=test, body=body, orelse=other):
                is_true = of(test)
                return of(body if is_true is not UNKNOWN and truth(is_true) else other)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                value = of(inner)
                return value if value is UNKNOWN else not truth(value)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compared(of(left), op, of(right))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other = of(left), of(right)
                is_list = isinstance(one, list) and isinstance(other, list)
                return (one + other)[:MAX_LIST] if is_list else UNKNOWN
            case ast.JoinedStr(values=parts):
                values = [
                    of(part.value if isinstance(part, ast.FormattedValue) else part)
                    for part in parts
                ]
                is_plain = all(isinstance(value, str | int | float) for value in values)
                return "".join(map(str, values))[:MAX_TEXT_CHARS] if is_plain else UNKNOWN
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _called(name.lower(), [of(argument) for argument in arguments[:MAX_LIST]])
            case _:
                return UNKNOWN

    def _member(self, table: Any, key: Any) -> Any:
        if table is UNKNOWN or key is UNKNOWN:
            return UNKNOWN
        if not isinstance(table, Mapping):
            return self.absent
        return table.get(key, self.absent) if isinstance(key, str) else UNKNOWN


def _compared(left: Any, op: ast.cmpop, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(op, ast.Eq | ast.NotEq):
        return (text_of(left).lower() == text_of(right).lower()) is isinstance(op, ast.Eq)
    compare = {ast.Lt: lt, ast.Gt: gt, ast.LtE: le, ast.GtE: ge}.get(type(op))
    return compare(version_of(text_of(left)), version_of(text_of(right))) if compare else UNKNOWN


def _called(name: str, arguments: list[Any]) -> Any:
    if name in ("always", "success", "cancelled", "failure"):
        return name in ("always", "success")
    if not arguments or any(argument is UNKNOWN for argument in arguments):
        return UNKNOWN
    texts = [text_of(argument) for argument in arguments]
    if name == "format":
        numbered = dict(enumerate(texts[1:]))
        return re.sub(r"\{(\d)\}", lambda match: numbered.get(int(match[1]), ""), texts[0])
    if name in ("contains", "startswith", "endswith") and len(texts) == 2:
        text, part = texts[0].lower(), texts[1].lower()
        is_at = {"contains": text.__contains__, "startswith": text.startswith}
        return is_at.get(name, text.endswith)(part)
    is_plain = name in ("str", "path", "tojson", "fromjson") and not texts[0].startswith(("{", "["))
    return texts[0] if is_plain and isinstance(arguments[0], str) else UNKNOWN


def truth(value: Any) -> bool:
    """Return whether a value counts as true, in a workflow and in Python."""
    return value not in ("", False, None, "0", 0, [])


def text_of(value: Any) -> str:
    """Return a value as text; empty for tables and the like."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""


def version_of(text: str) -> tuple[int, ...]:
    """Return the first version in a text; empty if there is none."""
    match = re.search(r"\d+(?:\.\d+)*", text[:200])
    return tuple(int(part) for part in match[0].split(".")[:4] if len(part) < 10) if match else ()


#: Tokens of a workflow's expression. An expression with anything else can't be read.
_TOKEN = re.compile(
    r"\s*(?:('(?:[^']|'')*+')|(\|\||&&|!=|!|[=<>]=|[<>(),\[\]])|([A-Za-z_][\w-]*(?:\.[\w*-]+)*)|(\d+(?:\.\d+)*))\s*"
)
_OPERATORS = {"||": " or ", "&&": " and ", "!": " not "}
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}


def expression_value(text: str, scope: Scope) -> Any:
    """Return the value of an expression as GitHub writes it, or ``UNKNOWN``."""
    return scope.value(_parsed(text))


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> ast.expr | None:
    source, at = "", 0
    while at < len(text) <= MAX_EXPRESSION_CHARS and (match := _TOKEN.match(text, at)):
        at = match.end()
        quoted, operator, name, number = match.groups()
        if quoted or number:
            source += repr(quoted[1:-1].replace("''", "'") if quoted else number)
        elif operator:
            source += _OPERATORS.get(operator, operator)
        else:
            first, *keys = name.split(".")
            source += _CONSTANTS.get(first, first.replace("-", "_"))
            source += "".join(f"[{key!r}]" for key in keys)
    try:
        return ast.parse(source.strip(), mode="eval").body if at == len(text) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def mapping(value: Any) -> dict[str, Any]:
    """Return a table; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def dig(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys in nested tables; None if there is none."""
    for key in keys:
        value = mapping(value).get(key)
    return value


def rows(value: Any) -> list[dict[str, Any]]:
    """Return the tables of a list, or of a table, that aren't empty."""
    values = value.values() if isinstance(value, dict) else items(value)
    return [row for row in values if mapping(row)]


def texts(value: Any) -> dict[str, str]:
    """Return the texts of a table by their names."""
    return {str(key): text for key, text in mapping(value).items() if isinstance(text, str)}
