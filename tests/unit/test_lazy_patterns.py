import importlib
import re
from pathlib import Path

import pytest

import fallback_plugins
import fallback_tier
from fallback_tier import lazy_patterns
from fallback_tier.lazy_patterns import lazy_pattern


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sources: list[str] = []
    compile_ = re.compile
    monkeypatch.setattr(
        lazy_patterns.re, "compile", lambda *args: (sources.append(args[0]), compile_(*args))[1]
    )
    return sources


def test_compiles_at_first_use_and_once(compiled: list[str]) -> None:
    pattern = lazy_pattern("(?P<word>[a-z]+)", re.IGNORECASE)
    assert compiled == []
    assert pattern.findall("Ab cd") == ["Ab", "cd"]
    match = pattern.fullmatch("AB")
    assert match is not None
    assert match["word"] == "AB"
    assert pattern.sub("-", "a1b") == "-1-"
    assert compiled == ["(?P<word>[a-z]+)"]


def test_has_the_attributes_of_a_pattern() -> None:
    pattern = lazy_pattern(rb"a(b)?", re.MULTILINE)
    assert (pattern.pattern, pattern.groups) == (rb"a(b)?", 1)
    assert pattern.flags == re.compile(rb"a(b)?", re.MULTILINE).flags
    with pytest.raises(AttributeError):
        _ = pattern.no_such_attribute  # type: ignore[attr-defined]


def test_each_pattern_of_the_product_compiles() -> None:
    names = [
        ".".join((package.__name__, *file.relative_to(folder).with_suffix("").parts))
        for package in (fallback_tier, fallback_plugins)
        for folder in map(Path, package.__path__)
        for file in folder.rglob("*.py")
        if "import lazy_pattern" in file.read_text(encoding="utf-8")
    ]
    patterns = [
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, lazy_patterns._LazyPattern)
    ]
    assert len(patterns) > 100
    for pattern in patterns:
        assert isinstance(pattern.pattern, str | bytes)
