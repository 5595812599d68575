"""Texts for the tests of the chunker: arbitrary ones, and ones that look like advisories."""

from hypothesis import strategies as st

from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind
from fallback_tier.outcome import SearchReplace
from fallback_tier.retrieval import SolvedExample
from tests.fixtures.examples import WRITTEN

_LINES = st.sampled_from(
    [
        "",
        "",
        "# Heading",
        "### Deeper",
        "Title\n=====",
        "Affects\n~~~~~~~",
        "A sentence. However, it is limited. Another one follows here.",
        "You are affected, except when:",
        "Unless the setting is off.",
        "- item",
        "  - nested item",
        "  continued",
        "1. first",
        "> quoted",
        "> [!NOTE]",
        "```python",
        "```",
        "    indented = code",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "| 5 | 6 |",
        "<table>\n<tr>",
        "</table>",
        "<!-- open",
        "[ref]: https://example.org",
        "---",
        "+---+---+",
        "* * *",
        "Die Lücke betrifft alle. 漏洞影响所有版本。",
        "x" * 90,
    ]
)

MARKDOWN_LIKE = st.lists(_LINES, max_size=25).map("\n".join)
ANY_TEXT = st.one_of(
    MARKDOWN_LIKE, st.text(max_size=300), st.text("\r\n\t -*|`#>.~_\0x", max_size=60)
)

_CODE_LINES = st.sampled_from(
    [
        "",
        "import os",
        "from a import (b,",
        "@decorated",
        "def f(a):",
        "    return {",
        "class A:",
        "    def m(self):",
        "        if a:",
        "        else:",
        "except ValueError:",
        "DENY = [",
        "    'a',",
        "]",
        "# a comment",
        "// a comment",
        "function f(a) {",
        "} else {",
        "});",
        "const deny = new Set([",
        "export const g = (a) => {",
        "'''",
        "`${",
    ]
)
CODE_LIKE = st.one_of(st.lists(_CODE_LINES, max_size=25).map("\n".join), st.text(max_size=200))
PATHS = st.sampled_from(["a.py", "a.js", "a.ts", "a.tsx", "a.rb", "Makefile"])


def example(text: str, *edits: SearchReplace, package: str = "example-package") -> SolvedExample:
    return SolvedExample(
        example_id="EX-1",
        advisory_id="EX-1",
        advisory_text=text,
        ecosystem="PyPI",
        package=package,
        edits=edits,
        file_sha256={},
        provenance=WRITTEN,
        licence="Apache-2.0",
    )


def edit(old: str, new: str, path: str = "a.py") -> SearchReplace:
    return SearchReplace(path=path, old=old, new=new)


def outline(units: tuple[Unit, ...]) -> list[tuple[UnitKind, str]]:
    return [(unit.kind, unit.text.strip("\n")) for unit in units]


def check_tree(units: tuple[Unit, ...], text: str) -> None:
    """A level is the text of the level above, byte for byte, on every level."""
    assert "".join(unit.text for unit in units) == text
    for unit in units:
        assert unit.text
        assert unit.text.startswith(unit.header)
        if unit.parts:
            check_tree(unit.parts, unit.text)
