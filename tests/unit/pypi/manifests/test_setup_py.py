"""Of a setup.py only the versions of requirements may change, and only where they are items of a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.pypi.manifests.setup_py import editable_spans, setup_document
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_plugins.pypi.rules import PyPIRules
from fallback_tier.patch.manifests import manifest_problems
from fallback_tier.sandbox.clients import SubprocessClients

KEYS = PyPIEcosystem(SubprocessClients()).editable_keys("setup.py")

SCRIPT = """# -*- coding: utf-8 -*-
import os
from setuptools import setup
needs = ["left>=1.0", 'right[extra] == 1.0 ; python_version > "3"', "bare"]  # “left>=1.0”
needs.append("added~=1.0")
setup(name="app", install_requires=needs, extras_require={"é": ("late<2",), "b": "one>=1"})
"""


def problems(before: str, after: str) -> list[str]:
    assert KEYS is not None
    return list(manifest_problems("lib/setup.py", KEYS, before, after, PyPIRules()))


def editable(text: str) -> set[str]:
    return {text[start:end] for start, end in editable_spans(text)}


def test_items_of_lists_and_tables_are_editable() -> None:
    assert editable(SCRIPT) == {
        "left>=1.0",
        'right[extra] == 1.0 ; python_version > "3"',
        "added~=1.0",
        "late<2",
        "one>=1",
    }
    assert editable(SCRIPT.replace("\n", "\r\n")) == editable(SCRIPT)


@pytest.mark.parametrize(
    "text",
    [
        "a = 'left>=1'\n",
        "a = ['left' '>=1']\n",
        "a = ['left\\x3e=1']\n",
        "a = [f'left>={v}']\n",
        "a = ['''left>=1''']\n",
        "a = [b'left>=1']\n",
        "a = ['left @ https://host.test/left.zip']\n",
        "a = ['left>=1'.strip()]\n",
        "run('left>=1')\n",
        "print 'left'; a = ['left>=1']\n",
        "a = ['left>=1'\n",
        "a = ['left>=1']\n" + "#" * 200_000,
        "\x00a = ['left>=1']\n",
    ],
)
def test_no_other_literal_is_editable(text: str) -> None:
    assert editable(text) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left>=1.0", "left>=1.1,<3"),
        ("extra] == 1.0", "extra] == 1.0.1"),
        ("added~=1.0", "added~=1.1"),
        ("# “left>=1.0”", "# another comment"),
    ],
)
def test_versions_may_change(old: str, new: str) -> None:
    assert problems(SCRIPT, SCRIPT.replace(old, new, 1)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left>=1.0", "other>=1.0"),
        ("left>=1.0", "left[x]>=1.0"),
        ("left>=1.0", "left"),
        ("left>=1.0", "left @ https://host.test/left.zip"),
        ("left>=1.0", "left>=1.0; os_name == 'x'"),
        ('"bare"', '"bare>=1.0"'),
        ('"left>=1.0"', 'os.environ["left>=1.0"]'),
        ('["left>=1.0", ', "["),
        ("import os", "import os, sys"),
        ('name="app"', 'name="other"'),
        ("setup(name", "os.system('x')\nsetup(name"),
        ('"late<2",', '"late<2"'),
        ("setup(", "setup("[:-1]),
    ],
)
def test_nothing_else_of_the_program_may_change(old: str, new: str) -> None:
    assert SCRIPT.count(old) >= 1
    assert problems(SCRIPT, SCRIPT.replace(old, new, 1))


def test_a_script_that_can_not_be_parsed_may_not_change() -> None:
    script = "print 'a'\nsetup(install_requires=['left>=1.0'])\n"
    assert problems(script, script.replace("1.0", "1.1"))
    with pytest.raises(ValueError, match=r"200,000"):
        setup_document("#" * 200_001)


WORDS = st.sampled_from(
    ["a = ", "[", "]", "(", ")", "{", "}", "'left>=1'", '"left>=1"', "'é'", ",", ":", "\n", "\r\n",
     "\r", " ", "# x", "'''", "left", ">=1", "\\", "f", "\f", "\u2028"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40).map("".join))
def test_a_span_holds_what_the_parser_reads(text: str) -> None:
    """Whatever the text, what is edited is a requirement in quotes, and the edit changes only that."""
    for start, end in editable_spans(text):
        assert text[start:end] == "left>=1"
        assert text[start - 1] == text[end]
        assert text[end] in "'\""
        assert problems(text, f"{text[:start]}left>=2{text[end:]}") == []
        assert problems(text, f"{text[:start]}right>=1{text[end:]}")
