"""Scripts without an ending, notebooks and tables of names, for commands of both ecosystems (ADR-0115)."""

import json
import re

#: Paths of scripts without an ending, as an expression for paths of any case.
SCRIPTS = (
    r"(?:\.?binder/postbuild|(?:bin|scripts?)/(?:setup|install|bootstrap|update|provision|init|dev|build|test"
    r"|lint|check|ci|deploy|release|start|run)[\w-]*)"
)

#: A notebook's cell whose lines are a shell's.
SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|script|shell|!)")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, for tables of names."""
    return frozenset(text.split())


def code_cells(text: str) -> list[str]:
    """Return the source of each code cell of a notebook. Raises ValueError, LookupError, TypeError,
    RecursionError for a text that is not a notebook."""
    cells = json.loads(text)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
