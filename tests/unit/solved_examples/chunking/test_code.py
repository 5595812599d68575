"""The units of code fragments: whole functions, classes, branches, literals, imports."""

import pytest
from hypothesis import given

from fallback_plugins.solved_examples.chunking.code import MAX_PARSED_CHARS, code_units, edit_unit
from fallback_plugins.solved_examples.chunking.units import UnitKind, one_line_end
from tests.unit.solved_examples.chunking.texts import CODE_LIKE, PATHS, check_tree, edit, outline


@given(CODE_LIKE, PATHS)
def test_units_are_the_text(text: str, path: str) -> None:
    units = code_units(text, path)
    check_tree(units, one_line_end(text))
    assert units == code_units(text, path)


PYTHON = """\
import os
from a import b

# What may never be loaded.
DENY = {
    "os": "*",
    "sys": "*",
}

@route("/")
# Reads a file.
def read(path):
    if path in DENY:
        return None
    else:
        return open(path)

class Store:
    size = 1

    def get(self):
        return 1
"""


def test_python() -> None:
    units = code_units(PYTHON, "a.py")
    assert [(unit.kind, unit.context) for unit in units] == [
        (UnitKind.IMPORTS, ""),
        (UnitKind.LITERAL, "DENY"),
        (UnitKind.FUNCTION, "read"),
        (UnitKind.CLASS, "Store"),
    ]
    assert units[1].text.startswith("# What")
    assert units[2].text.startswith("@route")
    assert [part.context for part in units[3].parts] == ["", "get"]
    assert units[3].header == "class Store:\n"


JAVASCRIPT = """\
import a from 'a';
import b from 'b';

const deny = new Set([
  'constructor',
  '__proto__',
]);

// Copies a key.
export const copy = (to, from) => {
  if (deny.has(from)) {
    return;
  } else {
    to[from] = 1;
  }
};

class Store {
  get() {
    return 1;
  }
  set() {
    return 2;
  }
}
"""


@pytest.mark.parametrize("path", ["a.js", "a.mjs", "a.ts", "a.tsx"])
def test_javascript(path: str) -> None:
    assert [(unit.kind, unit.context) for unit in code_units(JAVASCRIPT, path)] == [
        (UnitKind.IMPORTS, ""),
        (UnitKind.LITERAL, "deny"),
        (UnitKind.FUNCTION, "copy"),
        (UnitKind.CLASS, "Store"),
    ]


def test_typescript_knows_its_types() -> None:
    units = code_units("interface A {\n  b: string;\n}\n\nenum C {\n  D,\n}\n", "a.ts")
    assert [(unit.kind, unit.context) for unit in units] == [
        (UnitKind.CLASS, "A"),
        (UnitKind.CLASS, "C"),
    ]


def test_a_fragment_that_begins_inside_a_function() -> None:
    text = (
        "            return 1\n        except ValueError:\n            pass\n\n"
        "    def close(self):\n        return 2\n"
    )
    assert outline(code_units(text, "a.py")) == [
        (UnitKind.STATEMENTS, "            return 1\n        except ValueError:\n            pass"),
        (UnitKind.FUNCTION, "    def close(self):\n        return 2"),
    ]


def test_an_orphaned_else_stays_with_what_it_follows() -> None:
    text = "    a = 1;\n  } else {\n    b = 2;\n  }\n"
    assert len(code_units(text, "a.js")) == 1


def test_an_unknown_language_is_parted_at_blank_lines() -> None:
    assert [unit.text for unit in code_units("a\nb\n\nc\n", "a.rb")] == ["a\nb\n\n", "c\n"]


def test_a_large_fragment_is_not_parsed() -> None:
    text = "def f():\n    return 1\n\n    return 2\n" * (MAX_PARSED_CHARS // 30)
    units = code_units(text, "a.py")
    check_tree(units, text)
    assert UnitKind.FUNCTION not in {unit.kind for unit in units}


def test_an_edit_is_its_old_and_its_new_text() -> None:
    unit = edit_unit(edit("def f():\n    return 1", "def g():\n    return 2\n\ndef h(): pass"))
    assert unit.kind is UnitKind.EDIT
    assert unit.text == "def f():\n    return 1\ndef g():\n    return 2\n\ndef h(): pass"
    assert unit.context == "f, g, h"


@pytest.mark.parametrize("piece", ["(", "{", "x = ", "f(", "if a:\n", "`${", "'''"])
@pytest.mark.parametrize("path", ["a.py", "a.tsx"])
def test_deep_nesting_is_no_deep_recursion(piece: str, path: str) -> None:
    text = piece * 4_000
    check_tree(code_units(text, path), text)


def test_statements_are_parted_at_blank_lines() -> None:
    assert outline(code_units("a = 1\nb = [2]\n\nc = 3\n", "a.py")) == [
        (UnitKind.STATEMENTS, "a = 1\nb = [2]"),
        (UnitKind.STATEMENTS, "c = 3"),
    ]


def test_an_orphaned_except_stays_with_what_it_follows() -> None:
    text = "    for a in b:\n        c()\n\nexcept ValueError:\n    raise\n"
    assert len(code_units(text, "a.py")) == 1


def test_what_begins_where_another_ends_is_one_unit() -> None:
    assert len(code_units("y = [\n  1,\n  2]; function f() {\n  g();\n}\n", "a.js")) == 1


def test_a_block_that_never_closes_shows_what_is_in_it() -> None:
    text = (
        "\tlet tag;\n\n\tbefore(() => {\n\t\tclean('.');\n\n"
        "\t\ttag = require('.').bind({\n\t\t\ta: 'b',\n"
    )
    assert len(code_units(text, "a.js")) == 3


def test_a_fragment_is_parsed_without_its_margin() -> None:
    text = (
        '        ends here.\n        """\n        path = path or 1\n'
        "        if path:\n            raise ValueError(path)\n"
    )
    assert [unit.kind for unit in code_units(text, "a.py")][-1] is UnitKind.BRANCH
