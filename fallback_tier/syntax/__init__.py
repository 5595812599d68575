"""The structure of code, without running it: tree-sitter's grammars of Python, JavaScript, TypeScript."""

from fallback_tier.syntax.structure import MAX_PARSE_STEPS as MAX_PARSE_STEPS
from fallback_tier.syntax.structure import Definition as Definition
from fallback_tier.syntax.structure import Import as Import
from fallback_tier.syntax.structure import Structure as Structure
from fallback_tier.syntax.structure import definitions as definitions
from fallback_tier.syntax.structure import first_error_line as first_error_line
from fallback_tier.syntax.structure import grammar_of as grammar_of
from fallback_tier.syntax.structure import grammar_of_text as grammar_of_text
from fallback_tier.syntax.structure import parse as parse
from fallback_tier.syntax.structure import parser as parser
from fallback_tier.syntax.structure import structure as structure
