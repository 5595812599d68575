"""Documents hold: what architecture and glossary name is there; nothing cites what is elsewhere."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.test_layout import committed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = ("architecture.md", "glossary.md", "limits.md")

#: Pages of other places that a reader does not have, in parts, so that this file doesn't name them.
ELSEWHERE = re.compile(
    rb"\b(?:" + b"|".join((b"DES" + b"IGN", b"GO" + b"ALS", b"TR" + b"APS")) + rb")\b"
)

#: A path in code: it has a folder, or the suffix of a file.
_CODE = re.compile(r"`([\w./-]+(?:/|\.(?:py|md|toml)))`")
_DIAGRAM = re.compile(r"<br>([\w./-]+)\"?[\])]")
_LINK = re.compile(r"\]\(([^)#]+)\)")
#: A path, and a name that stands in it.
_NAMED = re.compile(r"`([\w./-]+\.(?:py|toml))`\s+\(`(\w+)`\)")

#: A row of docs/limits.md: its value, and the constant that sets it.
_LIMIT = re.compile(
    r"^\| [^|]+ \| (?P<value>[^|]+) \| `(?P<path>[\w./]+\.py)` \(`(?P<name>\w+)`\) \| [^|]+ \|$"
)

#: What a unit of a value stands for; and what the last word of a constant's name does.
_UNITS = {"": 1, "s": 1, "bytes": 1, "KB": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_NAMED_UNITS = {"KIB": 1024, "BLOCKS": 512}


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


def gone(text: str) -> list[str]:
    """Modules that a page names by the end of their path, and that are not there."""
    code = [path for path in committed() if path.endswith(".py")]
    folders = {
        part for path in code for part in path.split("/")[:-1] if not path.startswith("tests/")
    }
    return [
        path
        for path in re.findall(r"`([\w-]+/[\w./-]+\.py)`", text)
        if path.split("/")[0] in folders | {"tests", "docs"}
        and not any(f"/{one}".endswith(f"/{path}") for one in code)
    ]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_a_module_that_a_page_names_is_there(page: Path) -> None:
    assert gone(page.read_text(encoding="utf-8")) == []


def test_a_module_that_is_gone_would_be_found() -> None:
    text = "`batch/gone.py`, `batch/running.py`, `fallback_tier/gone.py`, `testing/of_another.py`"
    assert gone(text) == ["batch/gone.py", "fallback_tier/gone.py"]


def test_a_page_that_the_code_names_is_there() -> None:
    """In errors and comments: ``docs/usage.md``."""
    code = [path for path in committed() if path.endswith((".py", ".toml", "Makefile"))]
    named = {
        (path, page)
        for path in code
        for page in re.findall(
            r"(?<![\w/.-])docs/[\w./-]+\.md\b", (ROOT / path).read_text(encoding="utf-8")
        )
        # Those name paths of other repositories.
        if not path.startswith(("tests/unit/patch/", "tests/campaigns/no_false_fixed/cases/"))
    }
    assert len(named) > 5
    assert [(path, page) for path, page in sorted(named) if not (ROOT / page).exists()] == []


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
    assert [path for path in committed() if ELSEWHERE.search((ROOT / path).read_bytes())] == []


@pytest.mark.parametrize("cited", ["DES" + "IGN §4", "GO" + "ALS, row 6", "see TR" + "APS"])
def test_such_a_page_would_be_found(cited: str) -> None:
    assert ELSEWHERE.search(cited.encode())


def _said(value: str) -> int:
    """``16 MiB`` in bytes; what has no unit as it is."""
    number, _, unit = value.partition(" ")
    return int(number.replace(",", "")) * _UNITS[unit]


def _set(path: str, name: str) -> float:
    """The constant's value, in the unit that a reader counts in."""
    module = path.removesuffix(".py").removeprefix("plugins/").removeprefix("audit/")
    value = getattr(import_module(module.replace("/", ".")), name)
    return float(value * _NAMED_UNITS.get(name.rpartition("_")[2], 1))


def test_every_limit_has_its_real_value() -> None:
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    marked = text.partition("<!-- limits -->")[2].partition("<!-- end -->")[0]
    rows = [row for row in marked.splitlines() if row.startswith("| ") and "| limit |" not in row]
    assert len(rows) > 50
    for row in rows:
        found = _LIMIT.match(row)
        assert found, row
        assert _said(found["value"]) == _set(found["path"], found["name"]), row


def test_every_limit_that_several_modules_need_is_in_the_page() -> None:
    code = (ROOT / "fallback_tier" / "limits.py").read_text(encoding="utf-8")
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    names = re.findall(r"^([A-Z][A-Z_]+) = ", code, re.MULTILINE)
    assert len(names) > 15
    assert [name for name in names if f"`{name}`" not in text] == []
