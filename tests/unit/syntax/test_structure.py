"""Definitions and imports of real constructs, and of hostile ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.syntax import definitions, structure
from fallback_tier.syntax.structure import MAX_DEFINITIONS

PYTHON = """\
import a.b, c as d
from x.y import (y as z, w)
from k import *

@decorated
class A(B):
    @property
    def f(self):
        def g(): pass

async def h(): pass
"""

JAVASCRIPT = """\
import d, {a as b, c} from 'x'; import * as ns from "y"; import 'z';
const {e: f, g, h: {i: [j]}, k = 1} = require('q'), l = require('m').n;
const lazy = await import('w');
const none = load('v');
export const arrow = async (x) => x;
export default class K {
  #priv() {}
  field = () => 1;
}
exports.foo = function (a) {};
Foo.prototype.bar = function named() {};
const o = { m() {}, n: function () {}, 'p-q': () => 1 };
function* gen() {}
app.get('/', (req, res) => {
  res.send(req.query.x);
});
(function () { function inner() {} })();
"""

TYPESCRIPT = """\
import fs = require('fs'); import type {T} from 'x';
export interface I { a: string }
export abstract class C { private x = () => 1; @D() m(): void {} }
enum E { A }
export default function f<T>(x: T): T { return x }
"""


def told(text: str, grammar: str) -> list[tuple[str, str, int, int, int]]:
    return [tuple(found) for found in definitions(text, grammar)]


def bound(text: str, grammar: str) -> list[tuple[str, ...]]:
    found = structure(text, grammar)
    assert found is not None
    return [one.names for one in found.imports]


def test_python() -> None:
    assert told(PYTHON, "python") == [
        ("A", "class", 5, 9, 0),
        ("f", "method", 7, 9, 1),
        ("g", "function", 9, 9, 2),
        ("h", "function", 11, 11, 0),
    ]
    assert bound(PYTHON, "python") == [("a", "d"), ("z", "w"), ()]


def test_javascript() -> None:
    assert told(JAVASCRIPT, "javascript") == [
        ("arrow", "function", 5, 5, 0),
        ("K", "class", 6, 9, 0),
        ("priv", "method", 7, 7, 1),
        ("field", "method", 8, 8, 1),
        ("foo", "function", 10, 10, 0),
        ("bar", "function", 11, 11, 0),
        ("m", "method", 12, 12, 0),
        ("n", "method", 12, 12, 0),
        ("p-q", "method", 12, 12, 0),
        ("gen", "function", 13, 13, 0),
        ("", "callback", 14, 16, 0),
        ("inner", "function", 17, 17, 0),
    ]
    expected = [("d", "b", "c"), ("ns",), (), ("f", "g", "j", "k"), ("l",), ("lazy",)]
    assert bound(JAVASCRIPT, "javascript") == expected


def test_typescript() -> None:
    for grammar in ("typescript", "tsx"):
        assert [(name, kind, depth) for name, kind, _, _, depth in told(TYPESCRIPT, grammar)] == [
            ("I", "class", 0),
            ("C", "class", 0),
            ("x", "method", 1),
            ("m", "method", 1),
            ("E", "class", 0),
            ("f", "function", 0),
        ]
        assert bound(TYPESCRIPT, grammar) == [("fs",), ("T",)]


def test_code_around_an_error_is_still_told() -> None:
    text = "def a():\n    return 1\n\ndef b(:\n    x = (\n\ndef c():\n    return 2\n"
    assert "a" in [found.name for found in definitions(text, "python")]


def test_of_an_unknown_language_nothing_is_told() -> None:
    assert definitions("def f(): pass\n", "") == ()


def test_a_parse_beyond_its_steps_is_none_not_half_a_file() -> None:
    text = "def f():\n    return 1\n" * 500
    assert structure(text, "python", max_steps=2) is None
    assert structure(text, "python") is not None


def test_definitions_are_counted() -> None:
    text = "".join(f"def f{i}(): pass\n" for i in range(MAX_DEFINITIONS + 10))
    assert len(definitions(text, "python")) == MAX_DEFINITIONS


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        ("if x:\n" + "".join(f"{' ' * i}if x:\n" for i in range(1, 400)), "python"),
        ("".join(f"{' ' * i}def f():\n" for i in range(400)) + " " * 400 + "pass\n", "python"),
        ("f(() => " * 3_000 + "1" + ")" * 3_000 + ";\n", "javascript"),
        ("const " + "{a:" * 3_000 + "b" + "}" * 3_000 + " = require('x');\n", "javascript"),
        ("def " * 5_000, "python"),
    ],
    ids=["branches", "functions", "callbacks", "patterns", "broken"],
)
def test_depth_ends_no_stack(text: str, grammar: str) -> None:
    found = structure(text, grammar)
    assert found is None or len(found.definitions) <= MAX_DEFINITIONS


_PIECES = st.sampled_from(
    [
        *("def f():\n", "    return 1\n", "class A:\n", "    def m(self):\n", "        pass\n"),
        *("function g() {\n", "}\n", "=> {", "import x\n", "(", ")", "'", "é\n", "\n", "@d\n"),
    ]
)


@given(
    st.lists(_PIECES, max_size=30).map("".join), st.sampled_from(["python", "javascript", "tsx"])
)
def test_lines_lie_in_the_text_and_nest(text: str, grammar: str) -> None:
    found = definitions(text, grammar)
    for one in found:
        assert 1 <= one.start_line <= one.end_line <= text.count("\n") + 1
        around = [o for o in found if o.start_line <= one.start_line and one.end_line <= o.end_line]
        assert one.nesting < len(around)
    assert list(found) == sorted(found, key=lambda one: one.start_line)
