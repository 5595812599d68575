"""Sentences that a user reads are plain English: none has a word of ours where the field has one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_layout import ROOT, committed

#: Words of earlier versions, and what is said now.
OURS = {
    r"(?:can't|cannot|could not) be had": "is not available, is not possible",
    r"half a fix": "a partial fix",
    r"taken up again": "resumed",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"rungs?": "step",
    r"climb(?:s|ed|ing)?": "resolve, try",
    r"(?:is|are|was|were) told(?! apart)": "is shown, is reported",
    r"upkeep": "maintenance",
    r"thief": "attacker",
    r"change (?:it|this) by hand|(?:raise|upgrade) \S+ by hand": "the place and the change",
    r"check that the registry": "the host, its answer and the setting",
    r"let a model": "the cause",
    r"(?:npm|pnpm|yarn|uv) (?:update|up|upgrade|up -R)`|<package>": "the command with its packages",
}

#: What goes into a prompt stays byte for byte: recorded traffic is compared with it.
TO_A_MODEL = ("fallback_tier/prompt/", "fallback_tier/answers/", "fallback_tier/grounding/")

#: Pages with words of before: the glossary explains those of older records.
_EXPLAINS = "glossary.md"

_WORD = re.compile(rf"(?<!\w)(?:{'|'.join(OURS)})(?!\w)", re.IGNORECASE)

#: Fewer words are a key, a path or a name.
_SENTENCE = 3


def sentences(code: str) -> Iterator[tuple[int, str]]:
    """Texts of a module that may be shown to somebody: no docstring, no single word."""
    tree = ast.parse(code)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and len(node.value.split()) >= _SENTENCE:
            yield node.lineno, node.value


def test_no_sentence_has_a_word_of_ours() -> None:
    packages = ("fallback_tier/", "plugins/fallback_plugins/", "audit/fallback_audit/")
    code = [path for path in committed() if path.startswith(packages) and path.endswith(".py")]
    found = [
        f"{path}:{line}: {text!r}"
        for path in code
        if not path.startswith(TO_A_MODEL)
        for line, text in sentences((ROOT / path).read_text(encoding="utf-8"))
        if _WORD.search(text)
    ]
    assert found == [], f"say it in the field's words: {OURS}"


#: Next steps that name neither a cause nor a package.
_GENERIC = re.compile(r"by hand|registry is reachable|let a model propose|<package>", re.IGNORECASE)


def test_no_next_step_of_an_ecosystem_is_generic() -> None:
    """What a recipe refuses, it refuses for a cause that it can name (ADR-0105)."""
    folders = tuple(f"plugins/fallback_plugins/{name}/" for name in ("npm", "pypi", "shared"))
    found = [
        f"{path}:{line}: {text!r}"
        for path in committed()
        if path.startswith(folders) and path.endswith(".py")
        for line, text in sentences((ROOT / path).read_text(encoding="utf-8"))
        if _GENERIC.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_no_page_has_a_word_of_ours(page: Path) -> None:
    """Guides for users; decision records stay as they were written."""
    prose = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))  # names keep their spelling
    found = [line for line in prose.splitlines() if _WORD.search(line)]
    assert found == [] or page.name == _EXPLAINS, f"say it in the field's words: {OURS}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("No patch can't be had here.", True),
        ("A rung of the ladder.", True),
        ("The user is told so.", True),
        ("No patch is possible for this.", False),
        ("He recommended a ladder rungless.", False),
    ],
)
def test_such_a_word_would_be_found(text: str, found: bool) -> None:
    code = f'"""A rung in a docstring."""\nraise ValueError({text!r})\n'
    assert bool([line for line, message in sentences(code) if _WORD.search(message)]) is found
