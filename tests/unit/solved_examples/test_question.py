"""The question that an advisory asks: the flaw, without the words around it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.question import (
    MAX_CHARS,
    flaw_text,
    question_of,
    same_language,
)
from fallback_tier.advisory import Advisory, parse_advisory


def advisory(text: str, *packages: tuple[str, str], cwe: tuple[str, ...] = ()) -> Advisory:
    record = {
        "id": "TEST-1",
        "summary": text,
        "database_specific": {"cwe_ids": list(cwe)},
        "affected": [{"package": {"ecosystem": eco, "name": name}} for eco, name in packages],
    }
    return parse_advisory(json.dumps(record).encode(), "test")


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("The parser loops (CVE-2024-1234).", "CVE"),
        ("See https://example.invalid/x for how the parser loops.", "example"),
        ("In versions prior to 1.2.3 the parser loops.", "1.2.3"),
        ("The parser loops in 2.0.x and earlier.", "earlier"),
        ("The parser loops. This issue has been patched in the next one.", "patched"),
        ("The parser loops.\nUsers are advised to look again.", "advised"),
        ("The parser loops.\n## Credits\nFound by somebody.\n", "somebody"),
        ("### Impact\nThe parser loops.", "Impact"),
        ("Merge pull request from somebody/branch\n\nThe parser loops.", "branch"),
        ("The parser loops.\nCo-authored-by: Some Body <a@example.invalid>", "Body"),
    ],
)
def test_boilerplate_goes_and_the_flaw_stays(text: str, gone: str) -> None:
    left = flaw_text(text)
    assert gone not in left
    assert "parser loops" in left


@pytest.mark.parametrize("spelling", ["left-pad", "Left_Pad", "left pad", "leftpad", "left-pad.js"])
def test_the_package_has_no_say(spelling: str) -> None:
    left = flaw_text(f"In {spelling} the padding is unbounded.", ["@scope/left-pad"])
    assert "pad " not in left.lower().replace("padding", "")
    assert "padding is unbounded" in left


def test_a_name_inside_a_word_stays() -> None:
    assert "requests" in flaw_text("many requests fill the queue", ["request"])
    assert flaw_text("it is so", ["is"]) == "it is so"


def test_an_introduction_goes_only_where_it_says_nothing_of_the_flaw() -> None:
    rest = "A crafted frame header makes the reader allocate memory without any bound at all."
    assert flaw_text(f"Foo is a framework for web pages. {rest}") == rest
    flaw = f"Foo is a framework that allows attackers to read files. {rest}"
    assert flaw_text(flaw) == flaw
    assert flaw_text("Foo is a parser of dates. It loops.").startswith("Foo")


@given(st.text(max_size=300), st.lists(st.text(max_size=10), max_size=3))
def test_no_text_and_no_name_is_too_odd(text: str, packages: list[str]) -> None:
    left = flaw_text(text, packages)
    assert left == left.strip()


def test_a_long_advisory_is_read_from_its_beginning() -> None:
    assert len(flaw_text("word " * MAX_CHARS)) <= MAX_CHARS


def test_a_question_has_what_the_advisory_says() -> None:
    asked = question_of(advisory("The parser loops", ("PyPI", "Foo.Bar"), cwe=("CWE-835",)))
    assert asked.text == "The parser loops"
    assert asked.ecosystems == ("PyPI",)
    assert asked.packages == ("foo-bar",)
    assert asked.cwe == ("CWE-835",)
    assert asked.language == "python"
    both = question_of(advisory("x", ("PyPI", "foo"), ("npm", "foo")))
    assert both.language == ""


def test_languages_that_an_edit_can_cross() -> None:
    assert same_language("javascript", "typescript")
    assert same_language("python", "python")
    assert not same_language("python", "javascript")
    assert not same_language("", "")
