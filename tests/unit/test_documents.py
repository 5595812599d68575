"""Documents hold: what architecture and glossary name is there; nothing cites what is elsewhere."""

import re
from pathlib import Path

import pytest

from tests.unit.test_layout import committed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = ("architecture.md", "glossary.md")

#: A page of another repository, in parts, so that this file doesn't name it.
ELSEWHERE = " ".join(("DESIGN", "§")).encode()

#: A path in code: it has a folder, or the suffix of a file.
_CODE = re.compile(r"`([\w./-]+(?:/|\.(?:py|md|toml)))`")
_DIAGRAM = re.compile(r"<br>([\w./-]+)\"?[\])]")
_LINK = re.compile(r"\]\(([^)#]+)\)")
#: A path, and a name that stands in it.
_NAMED = re.compile(r"`([\w./-]+\.(?:py|toml))`\s+\(`(\w+)`\)")


def problems(text: str) -> list[str]:
    """What the page names, and is not there."""
    paths = {found for pattern in (_CODE, _DIAGRAM) for found in pattern.findall(text)}
    found = [path for path in sorted(paths) if not (ROOT / path).exists()]
    found += [link for link in _LINK.findall(text) if not (DOCS / link).exists()]
    return found + [
        f"{name} in {path}"
        for path, name in _NAMED.findall(text)
        if (ROOT / path).exists() and not re.search(rf"\b{name}\b", (ROOT / path).read_text())
    ]


@pytest.mark.parametrize("page", GUIDES)
def test_what_a_guide_names_is_there(page: str) -> None:
    assert problems((DOCS / page).read_text(encoding="utf-8")) == []


def test_the_guides_name_what_they_are_about() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert len(set(_CODE.findall(text))) > 50
    assert len(_NAMED.findall(text)) > 25
    assert len(re.findall(r"^### ", text, re.MULTILINE)) == 10


@pytest.mark.parametrize(
    "gone",
    [
        "`fallback_tier/gone.py`",
        "`fallback_tier/gone/`",
        '["a step<br>fallback_tier/gone/"]',
        "[a page](adr/0000-gone.md)",
        "`fallback_tier/limits.py` (`MAX_GONE`)",
    ],
)
def test_what_is_gone_would_be_found(gone: str) -> None:
    assert len(problems(gone)) == 1


def test_no_file_cites_a_page_of_another_repository() -> None:
    assert [path for path in committed() if ELSEWHERE in (ROOT / path).read_bytes()] == []
