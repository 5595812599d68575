"""Commands that programs and notebooks start; hostile text is read in proportion to its length."""

import pytest

from fallback_plugins.pypi.manifests.commands import install_commands, started_commands
from fallback_plugins.pypi.uv_words import blockers_in

#: Where a step for each pair of characters takes minutes.
LONG = 200_000


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.sh", "uv --a=:" * LONG),
        ("a.sh", "pip install a;" * 20_000),
        ("a.sh", "pip install " + "{{" * LONG),
        ("tox.ini", "[testenv]\ndeps=\n  a\n" + " " * LONG),
        (".pre-commit-config.yaml", "additional_dependencies: [" * 20_000),
        (".pre-commit-config.yaml", "additional_dependencies:\n" + " \n" * LONG),
        ("a.py", "pip_install\nx = " + "run_a_" * LONG + "()"),
        (
            "a.py",
            "\n".join(f"a{i} = a{i - 1} + a{i - 1}" for i in range(3_000)) + "\nrun(a9, 'pip')",
        ),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "' + "!pip " * LONG + '"}]}'),
    ],
)
def test_hostile_text_takes_time_in_proportion(path: str, text: str) -> None:
    assert isinstance(install_commands(path, text), tuple)


@pytest.mark.parametrize(
    "words",
    [
        "Because " + "a" * LONG + " was not found in the package registry",
        "a" * LONG + " has no wheels",
        "Because your workspace requires " + "a" * LONG + "!, we can conclude",
    ],
)
def test_a_clients_words_take_time_in_proportion(words: str) -> None:
    assert len(blockers_in(words)) <= 1


def test_a_program_that_can_not_be_parsed_is_its_text() -> None:
    assert started_commands("a.py", "print 'pip'") == "print 'pip'"
    assert started_commands("a.py", "print('x')") == ""
    assert started_commands("a.ipynb", "no JSON: pip") == "no JSON: pip"
