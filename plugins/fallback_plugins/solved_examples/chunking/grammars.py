"""Parsers of the languages that edits are in, loaded when first needed (each costs some 10 ms)."""

from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Parser

_BY_SUFFIX = {
    ".py": "python",
    ".pyi": "python",
    ".js": "javascript",
    ".cjs": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".cts": "typescript",
    ".mts": "typescript",
    ".tsx": "tsx",
}


def grammar_of(path: str) -> str:
    """Name of the grammar for a file; empty where there is none."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower(), "")


@cache
def _language(grammar: str) -> "Language":
    from tree_sitter import Language

    if grammar == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    if grammar == "javascript":
        import tree_sitter_javascript

        return Language(tree_sitter_javascript.language())
    import tree_sitter_typescript

    if grammar == "tsx":
        return Language(tree_sitter_typescript.language_tsx())
    return Language(tree_sitter_typescript.language_typescript())


def parser(grammar: str) -> "Parser":
    """A parser of its own for each call: they keep state, and any thread may ask."""
    from tree_sitter import Parser

    return Parser(_language(grammar))
