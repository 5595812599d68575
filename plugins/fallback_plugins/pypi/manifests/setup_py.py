"""The requirements in a setup.py that a fix may change (ADR-0141).

The program is parsed, never run. Of a literal that reads as a requirement of a registry's release only its
versions may change, and only if it is an item of a list, tuple or set, a value of a table, or what is
appended. It is written as it reads: without escapes, in one part.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

from packaging.requirements import Requirement

from fallback_plugins.pypi.manifests.metadata import MAX_SETUP_CHARS, UNPARSED
from fallback_plugins.pypi.manifests.requirements import requirement_in

#: Parsed texts that are kept: a project has a setup.py at each of two commits.
_KEPT = 16

#: Lines as Python counts them: ``str.splitlines`` knows more ends.
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")

#: Stands for the versions in what is left of the program.
_VERSIONS = "…"


def editable_spans(text: str) -> frozenset[tuple[int, int]]:
    """Return the span of each requirement in a setup.py that may change, without its quotes; none if the
    text is not valid Python for this interpreter."""
    if len(text) <= MAX_SETUP_CHARS:
        with suppress(*UNPARSED):
            return _spans(text)
    return frozenset()


def other_literals(text: str) -> tuple[str, ...] | None:
    """Return the texts in a setup.py that are requirements and can't be edited, however they are written;
    None if the text is not valid Python for this interpreter."""
    if len(text) <= MAX_SETUP_CHARS:
        with suppress(*UNPARSED):
            return _others(text)
    return None


def setup_document(text: str) -> dict[str, object]:
    """Return a setup.py as data: ``requirements``, and ``program``, which is all but their versions.
    Comments and blanks do not count. Raises ValueError: not valid Python for this interpreter."""
    if len(text) > MAX_SETUP_CHARS:
        raise ValueError(f"it has more than {MAX_SETUP_CHARS:,} characters")
    try:
        tree = ast.parse(text)
        found = [node for node, _ in _items(tree, text)]
        requirements = [str(node.value) for node in found]
        for node, requirement in zip(found, map(Requirement, requirements), strict=True):
            requirement.specifier = type(requirement.specifier)()
            node.value = f"{requirement} {_VERSIONS}"
        return {"program": ast.dump(tree), "requirements": requirements}
    except UNPARSED as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=_KEPT)
def _spans(text: str) -> frozenset[tuple[int, int]]:
    return frozenset(span for _, span in _items(ast.parse(text), text))


@lru_cache(maxsize=_KEPT)
def _others(text: str) -> tuple[str, ...]:
    tree = ast.parse(text)
    items = {id(node) for node, _ in _items(tree, text)}
    values = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in items
    )
    return tuple(value for value in values if requirement_in(value) is not None)


def _items(tree: ast.Module, text: str) -> Iterator[tuple[ast.Constant, tuple[int, int]]]:
    """Yield each requirement among the items of lists and tables, with its span."""
    lines = _LINES.findall(text)
    starts = list(accumulate(map(len, lines), initial=0))
    for parent in ast.walk(tree):
        for node in _values(parent):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            line = lines[node.lineno - 1]
            column = len(line.encode()[: node.col_offset].decode())
            start = starts[node.lineno - 1] + column + 1
            span = start, start + len(node.value)
            written = text[start - 1 : span[1] + 1]
            if written not in {f"'{node.value}'", f'"{node.value}"'}:
                continue
            requirement = requirement_in(node.value)
            if requirement is not None and requirement.specifier and not requirement.url:
                yield node, span


def _values(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Set(elts=values):
            return values
        case ast.Dict(values=values):
            return values
        case ast.Call(func=ast.Attribute(attr="append"), args=values):
            return values
    return []
