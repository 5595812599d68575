"""Code as structure, without running it: tree-sitter's grammars of Python, JavaScript, TypeScript."""

from fallback_tier.syntax.grammars import (
    MAX_PARSE_STEPS,
    grammar_of,
    grammar_of_text,
    parse,
    parser,
)
from fallback_tier.syntax.structure import Definition, Import, Structure, definitions, structure
from fallback_tier.syntax.validity import first_error_line

__all__ = [
    "MAX_PARSE_STEPS",
    "Definition",
    "Import",
    "Structure",
    "definitions",
    "first_error_line",
    "grammar_of",
    "grammar_of_text",
    "parse",
    "parser",
    "structure",
]
