"""Core asks plugins: what its code knows of npm or PyPI by name is listed here, each with its reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = (ROOT / "fallback_tier", ROOT / "audit" / "fallback_audit")

_NAMES = re.compile(
    r"npm|pypi|yarn|poetry|pipfile|package\.json|pyproject|node_modules|site-packages|requirements"
    r"|(?<![a-z])(?:uv|pip)(?![a-z])",
    re.IGNORECASE,
)

_REPORT = "a scanner's own report: its format says of which ecosystem it is"
_HELP = "a sentence for a person"
_DENIED = "places that no fix may touch, whatever is installed; a plugin adds its own"
_FORMAT = "a format that core reads; a plugin reads those of its own (EcosystemRules.document)"
_LOG = "shapes of logs: what is not known is kept as it is, only longer"

#: Each file whose code (no comment, no docstring) has such a name, and why that is no ecosystem's rule.
KNOWN = {
    "audit/fallback_audit/stores/postgres_location.py": _HELP,
    "fallback_tier/advisory/npm_ranges.py": _REPORT,
    "fallback_tier/advisory/reports.py": _REPORT,
    "fallback_tier/advisory/sarif.py": _REPORT,
    "fallback_tier/cli/serve.py": _HELP,
    "fallback_tier/cli/parsers.py": _HELP,
    "fallback_tier/cli/mcp/command.py": _HELP,
    "fallback_tier/service/http/given.py": "an example in the OpenAPI document",
    "fallback_tier/cli/fleet/parser.py": _HELP,
    "fallback_tier/cli/fleet/working.py": _HELP,
    "fallback_tier/engines/temporal/dev.py": _HELP,
    "fallback_tier/cli/examples/sources.py": "solved examples are of these two ecosystems",
    "fallback_tier/cli/main.py": _HELP,
    "fallback_tier/gates/failure_summary/distill.py": "a generated file, by its name",
    "fallback_tier/gates/failure_summary/diagnosis.py": _LOG,
    "fallback_tier/gates/failure_summary/proof_failure.py": _LOG,
    "fallback_tier/configured.py": "where a Python project keeps its tools' settings",
    "fallback_tier/patch/manifests.py": _FORMAT,
    "fallback_tier/gates/builtin/proof.py": _HELP,
    "fallback_tier/gates/capability/harmless_python.py": "a module of Python's library",
    "fallback_tier/gates/capability/tables.py": "a variable by which npm starts a program",
    "fallback_tier/sandbox/refusing.py": _HELP,
    "fallback_tier/patch/judging.py": _DENIED,
    "fallback_tier/patch/policy.py": _DENIED,
    "fallback_tier/prompt/context/sources.py": "folders of other people's code, which no prompt shows",
    "fallback_tier/prompt/named_values.py": "a version in a text that looks like a secret, and is none",
    "fallback_tier/prompt/redact.py": "how secrets look",
    "fallback_tier/files/source_paths.py": "a lock file that isn't called one",
}


def modules() -> Iterator[tuple[str, str]]:
    """Every module of the core, the demo aside: that is a show of two real projects."""
    for folder in CORE:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("fallback_tier/demo/"):
                yield name, path.read_text()


def named_in(text: str) -> set[str]:
    """Ecosystems' words in a module's code: texts that are no docstring, names, what is imported."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    messages = [
        message for node in ast.walk(tree) if id(node) not in docstrings for message in words(node)
    ]
    return {found.lower() for message in messages for found in _NAMES.findall(message)}


def words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.Constant(value=bytes() as content):
            yield content.decode("latin-1")
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ImportFrom(module=str() as name) | ast.alias(name=name):
            yield name


def test_only_what_is_listed_names_one() -> None:
    found = {name for name, text in modules() if named_in(text)}
    assert sorted(found - KNOWN.keys()) == [], "ask the ecosystem's plugin (docs/ecosystem.md)"
    assert sorted(KNOWN.keys() - found) == [], "nothing of this kind is there any more: strike it"


@pytest.mark.parametrize(
    "text",
    ['x = "npm"', "PYPI = 1", "def of_npm(): ...", "from a.npm_b import c", 'f(b"yarn.lock")'],
)
def test_the_check_can_fail(text: str) -> None:
    assert named_in(text)
    assert not named_in(f'"""{text}"""  # {text}'.replace('"npm"', "npm"))
