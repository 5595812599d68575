"""The units of an advisory's text: what belongs together is one unit, and nothing is lost."""

import re

import pytest
from hypothesis import given

from fallback_plugins.solved_examples.chunking import markdown
from fallback_plugins.solved_examples.chunking.markdown import MAX_PARSED_CHARS, advisory_units
from fallback_plugins.solved_examples.chunking.units import Unit, UnitKind, one_line_end
from tests.unit.solved_examples.chunking.texts import ANY_TEXT, check_tree


def texts(markdown: str) -> list[str]:
    return [unit.text.strip("\n") for unit in advisory_units(markdown)]


def all_units(units: tuple[Unit, ...]) -> list[Unit]:
    return [found for unit in units for found in (unit, *all_units(unit.parts))]


@given(ANY_TEXT)
def test_units_are_the_text(text: str) -> None:
    units = advisory_units(text)
    check_tree(units, one_line_end(text))
    assert units == advisory_units(text)


def test_a_heading_goes_with_what_follows_it() -> None:
    text = (
        "Zip slip\n\n## Impact\n\nFiles are overwritten.\n\nAnd read.\n\n### Patches\n\nUpgrade.\n"
    )
    assert texts(text) == [
        "Zip slip\n\n## Impact\n\nFiles are overwritten.",
        "And read.",
        "### Patches\n\nUpgrade.",
    ]
    assert [unit.context for unit in advisory_units(text)] == [
        "",
        "Zip slip > Impact",
        "Zip slip > Impact",
    ]


def test_setext_and_restructured_text_headings() -> None:
    text = (
        "Title\n=====\n\nOne.\n\nAffects\n~~~~~~~\n\n- Nova: <=1\n- Keystone: 2\n\n"
        "Patches\n^^^^^^^\n\nTwo.\n"
    )
    assert texts(text) == [
        "Title\n=====\n\nOne.",
        "Affects\n~~~~~~~\n\n- Nova: <=1\n- Keystone: 2",
        "Patches\n^^^^^^^\n\nTwo.",
    ]
    assert advisory_units(text)[2].context == "Title"


def test_a_table_with_its_lead_in_is_one_unit() -> None:
    table = (
        "Versions and settings:\n\n| version | setting |\n|---|---|\n| 1.0 | on |\n| 2.0 | off |"
    )
    assert texts(f"First.\n\n{table}\n\nLast.\n") == ["First.", table, "Last."]
    section = advisory_units(table)[0]
    found = section.parts[-1]
    assert found.kind is UnitKind.TABLE
    assert found.header == "| version | setting |\n|---|---|\n"
    assert [part.text for part in found.parts[1:]] == ["| 1.0 | on |\n", "| 2.0 | off |"]


def test_a_rule_with_its_list_of_exceptions_is_one_unit() -> None:
    rule = (
        "Every server is affected, except when:\n\n"
        "1. it runs on stdio\n\n   and nothing else\n2. it has no users"
    )
    assert texts(f"Intro.\n\n{rule}\n\nOutro.\n") == ["Intro.", rule, "Outro."]


@pytest.mark.parametrize(
    "exception",
    [
        "Unless the flag is off.",
        "However, servers behind a proxy are safe.",
        "**Note:** version 2 is safe.",
        "> [!WARNING]\n> Only with TLS.",
        "- Except on Windows.",
        "In that case nothing is logged.",
        "The only exception is stdio.",
        "Provided that the file exists.",
        "Applications that never pass a path are **not** affected.",
        "This does not apply to version 2.",
        "Deployments with `a: false` are not vulnerable. They never ask.",
        "### Exceptions\n\nServers on stdio.",
        "Otherwise, nothing happens.",
    ],
)
def test_a_rule_and_the_exception_after_it_are_one_unit(exception: str) -> None:
    assert texts(f"Intro.\n\nAll servers leak.\n\n{exception}\n\nOutro is here.\n") == [
        "Intro.",
        f"All servers leak.\n\n{exception}",
        "Outro is here.",
    ]


def test_words_that_limit_nothing_are_no_exception() -> None:
    text = "All servers leak.\n\nNotebooks store exceptions in a file that users are shown.\n"
    assert len(texts(text)) == 2


def test_a_code_block_goes_with_the_paragraph_that_introduces_it() -> None:
    fence = "```python\nimport a\n\nimport b\n```"
    assert texts(f"One.\n\nThe exploit\n\n{fence}\n\nOutput:\n{fence}\n\nLast.\n") == [
        "One.",
        f"The exploit\n\n{fence}",
        f"Output:\n{fence}",
        "Last.",
    ]


def test_what_ends_in_a_colon_goes_with_what_follows() -> None:
    assert texts("Intro.\n\n**The cause:**\n\nA file.\n\n- Show it:\n\n```\na\n```\n\nLast.\n") == [
        "Intro.",
        "**The cause:**\n\nA file.\n\n- Show it:\n\n```\na\n```",
        "Last.",
    ]


def test_html_that_runs_over_blank_lines_is_one_block() -> None:
    html = "<table>\n<tr><td>1</td></tr>\n\n<tr><td>2</td></tr>\n\n</table>"
    units = advisory_units(f"Versions.\n\n{html}\n\nLast.\n")
    assert [unit.text.strip("\n") for unit in units] == [f"Versions.\n\n{html}", "Last."]
    assert html in {unit.text.strip("\n") for unit in all_units(units)}


def test_html_that_never_closes_takes_nothing_with_it() -> None:
    assert texts("<table>\n\nOne.\n\nTwo.\n") == ["<table>", "One.", "Two."]


def test_a_paragraph_is_made_of_sentences_and_exceptions_stay_with_their_rule() -> None:
    text = "A leak, e.g. of files. All servers do it. Servers on stdio are not affected. Upgrade to v. 2!"
    parts = advisory_units(text)[0].parts
    assert [part.text.strip() for part in parts] == [
        "A leak, e.g. of files.",
        "All servers do it. Servers on stdio are not affected.",
        "Upgrade to v. 2!",
    ]
    assert [part.kind for part in parts] == [UnitKind.SENTENCE, UnitKind.RULE, UnitKind.SENTENCE]


def test_line_ends_make_no_difference() -> None:
    text = "Title\n\n- a\n- b\n\nText.\n"
    assert advisory_units(text.replace("\n", "\r\n")) == advisory_units(text)
    assert advisory_units(text.replace("\n", "\r")) == advisory_units(text)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_blank_texts(text: str) -> None:
    assert "".join(unit.text for unit in advisory_units(text)) == text


@pytest.mark.parametrize("line", ["> ", "- ", "Note: x\n\n", "a:\n\n", "```\nx\n```\n", "# a\n"])
def test_a_hostile_text_makes_no_deep_tree(line: str) -> None:
    def depth(units: tuple[Unit, ...]) -> int:
        return 1 + max((depth(unit.parts) for unit in units if unit.parts), default=0)

    assert depth(advisory_units(line * 2_000)) < 100


def test_a_huge_text_is_parted_at_blank_lines() -> None:
    text = "| a | b |\n|---|---|\n\n- c\n" * (MAX_PARSED_CHARS // 20)
    units = advisory_units(text)
    check_tree(units, text)
    assert UnitKind.TABLE not in {unit.kind for unit in all_units(units)}


def test_tables_of_more_cells_than_text_are_not_built() -> None:
    def table(columns: int, rows: int) -> str:
        return "|a" * columns + "|\n" + "|-" * columns + "|\n" + "|\n" * rows

    hostile = table(250, 250)
    check_tree(advisory_units(hostile), hostile)
    assert UnitKind.TABLE not in {unit.kind for unit in all_units(advisory_units(hostile))}
    assert UnitKind.TABLE in {unit.kind for unit in all_units(advisory_units(table(20, 500)))}


def test_a_heading_is_named_without_its_marks() -> None:
    text = "# The title #\n\n## ~ Impact ~ ##\n\nIt leaks.\n\n### Deep - er\n\nMore.\n"
    assert [unit.context for unit in advisory_units(text)] == ["", "The title > ~ Impact"]


def test_no_pattern_is_searched_for_all_along_a_heading() -> None:
    # A search for an end of marks would try 40,000 starts of up to 40,000 steps: half a minute.
    assert not [name for name, value in vars(markdown).items() if _ends_in_a_run(value)]


def _ends_in_a_run(value: object) -> bool:
    return isinstance(value, re.Pattern) and re.search(r"[+*]\$(\)|$)", value.pattern) is not None
