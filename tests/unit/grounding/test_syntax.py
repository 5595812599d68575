"""An edit may not leave a file with a syntax error that it didn't have: code in another language too."""

from pathlib import Path

import pytest

from fallback_tier.advisory import parse_advisory
from fallback_tier.grounding.validity import check_plan
from fallback_tier.outcome import SearchReplace, SourceEdit
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import context

ADVISORY = b'{"id": "TEST-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "p"}}]}'
JS = "function f(x) {\n  if (x) {\n    return 1;\n  }\n}\n"
PY = "def f(x):\n    if x:\n        return 1\n"


def problems(root: Path, path: str, text: str, *edits: tuple[str, str]) -> tuple[str, ...]:
    return check_plan(
        SourceEdit(edits=tuple(SearchReplace(path=path, old=old, new=new) for old, new in edits)),
        advisory=parse_advisory(ADVISORY, "test"),
        repo=context(root, {path: text}),
        plugin=FakeEcosystem(),
        snippet_ids=frozenset(),
        example_ids=frozenset(),
    )


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "line"),
    [
        ("lib/a.js", JS, "return 1;\n  }", "return 1;", 5),
        ("lib/a.js", JS, "if (x) {", "if x is None:", 2),  # Python in JavaScript
        ("a.mjs", JS, "return 1;", "def g():\n      pass", 3),
        ("a.ts", JS, "return 1;", "let y: = 1;", 3),
        ("a.py", PY, "if x:", "if (x) {", 2),  # JavaScript in Python
        ("a.py", PY, "return 1", "return (1", 3),
        ("a.py", PY, "return 1", "const y = x ?? 1;", 3),
        ("conf/a.json", '{\n  "a": 1\n}\n', "1", "1,", 3),
        ("conf/a.json", '{\n  "a": 1\n}\n', "1", "yes", 2),
        ("conf/a.toml", "[a]\nb = 1\n", "1", "one", 2),
        ("conf/a.toml", "[a]\nb = 1\n", "1", '"""', 3),
        # Behind a byte order mark, which is no part of what a file says.
        ("conf/a.json", '\ufeff{\n  "a": 1\n}\n', "1", "yes", 2),
        ("conf/a.toml", "\ufeff[a]\nb = 1\n", "1", "one", 2),
        ("a.py", "\ufeff" + PY, "return 1", "return (1", 3),
    ],
)
def test_a_file_that_parsed_and_does_not_any_more(
    tmp_path: Path, path: str, text: str, old: str, new: str, line: int
) -> None:
    (found,) = problems(tmp_path, path, text, (old, new))
    assert found.startswith(f"Edit 1 leaves {path!r} with a syntax error at line ")
    reported = int(found.split("at line ")[1].split(":")[0])
    assert abs(reported - line) <= 1, found
    assert found.endswith("complete in itself.")


@pytest.mark.parametrize(
    ("path", "text", "old", "new"),
    [
        ("a.js", JS, "return 1;", "return 2;"),
        ("a.js", JS + "}}}\n", "return 1;", "return (2;"),  # it never parsed, for all we know
        ("conf/a.json", '{\n  // why\n  "a": 1\n}\n', "1", "2"),
        ("a.rb", "def f\n  1\nend\n", "end", "}"),  # a language that nobody here reads
        ("a.md", "# A\n", "A", "(("),
        ("conf/a.json", '{"a": 1}', "1", "1" * 5_000),
        # Of such a key tomllib keeps every beginning: 40 kB of it take 1.6 GB.
        ("conf/a.toml", "a = 1\n", "1", "1\nb" + ".c" * 200 + " = = 1"),
        ("conf/a.toml", "a = 1\n#" + "x" * 300_000, "1", "= 1"),
        ("conf/a.json", '{"a": 1}', "1", "[" * 8_000 + "]" * 8_000),
    ],
)
def test_what_is_not_known_to_be_broken_is_let_through(
    tmp_path: Path, path: str, text: str, old: str, new: str
) -> None:
    assert problems(tmp_path, path, text, (old, new)) == ()


def test_edits_are_judged_together(tmp_path: Path) -> None:
    opened = ("if (x) {", "if (x) { try {")
    closed = ("return 1;\n", "return 1;\n    } finally { done(); }\n")
    assert problems(tmp_path, "a.js", JS, opened, closed) == ()
    (found,) = problems(tmp_path, "a.js", JS, opened, ("return 1;", "return 2;"))
    assert found.startswith("Edits 1 and 2 leave 'a.js'")


def test_another_problem_is_told_first(tmp_path: Path) -> None:
    """Half of the edits made is no state that anyone meant."""
    (found,) = problems(tmp_path, "a.js", JS, ("if (x) {", "if (x) { try {"), ("return 3;", "}"))
    assert found.startswith("Edit 2: The old text")


def test_a_long_line_is_quoted_short(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "a.json", "{}\n", ("{}", "{" + "x" * 9_000))
    assert len(found) < 400


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "message"),
    [
        ("a.py", PY, "return 1", "return 1  # note \rimport os", "line 3 has a carriage return"),
        ("a.py", PY, "def f(x):", "# coding: utf-7\ndef f(x):", "the encoding 'utf-7'"),
        ("lib/a.js", JS, "return 1;", "return 1; // \u2028 g()", "U+2028"),
    ],
)
def test_what_reads_otherwise_than_it_runs_is_told_to_the_model(
    tmp_path: Path, path: str, text: str, old: str, new: str, message: str
) -> None:
    (found,) = problems(tmp_path, path, text, (old, new))
    assert found.startswith(f"Edit 1 leaves {path!r} with text that does not read as it runs: ")
    assert message in found


def test_what_the_tests_import_is_told_to_the_model(tmp_path: Path) -> None:
    files = {"a.py": PY, "testutils.py": PY, "tests/test_a.py": "import a, testutils\n"}
    for path in ("a.py", "testutils.py"):
        edit = SearchReplace(path=path, old="return 1", new="return 2")
        found = check_plan(
            SourceEdit(edits=(edit,)),
            advisory=parse_advisory(ADVISORY, "test"),
            repo=context(tmp_path, files),
            plugin=FakeEcosystem(),
            snippet_ids=frozenset(),
            example_ids=frozenset(),
        )
        messages = [problem for problem in found if "tests are judged with it" in problem]
        assert bool(messages) is (path == "testutils.py"), found
