"""Where a text stops to be of its language."""

import subprocess
import sys
import threading

import pytest

from fallback_tier.syntax import first_error_line, grammar_of, parse

CLEAN = {
    ".py": "def f(x):\n    return [y async for y in x]\n\nmatch f:\n    case [1, *_]:\n        pass\n",
    ".js": "const {a: b} = require('x');\nclass C { #p = 1; get q() { return this.#p ?? 0; } }\n",
    ".jsx": "export const A = () => <p className='x'>{1}</p>;\n",
    ".ts": "type A<T> = T extends string ? 1 : 2;\nfunction f(this: A<string>): asserts this {}\n",
    ".tsx": "const B = <T,>(x: T) => <b>{String(x)}</b>;\n",
}


@pytest.mark.parametrize("suffix", CLEAN)
def test_clean_code_has_no_error_line(suffix: str) -> None:
    assert first_error_line(CLEAN[suffix], suffix) is None


@pytest.mark.parametrize("suffix", CLEAN)
def test_an_unclosed_bracket_has_one(suffix: str) -> None:
    lines = CLEAN[suffix].count("\n")
    broken = CLEAN[suffix] + "f(((\n"
    line = first_error_line(broken, suffix)
    assert line is not None
    assert 1 <= line <= lines + 2


def test_the_line_is_that_of_the_fault() -> None:
    assert first_error_line("a = 1\nb = 2\nc = = 3\nd = 4\n", ".py") == 3
    assert first_error_line("let a = 1;\nlet b = ;\n", ".js") == 2


@pytest.mark.parametrize("suffix", [".md", "", ".rs", ".json"])
def test_of_other_languages_nothing_is_said(suffix: str) -> None:
    assert first_error_line("((((", suffix) is None


def test_the_empty_text_is_clean() -> None:
    assert first_error_line("", ".py") is None


def test_hidden_and_broken_characters_do_not_raise() -> None:
    assert first_error_line("a = '\ud800'\n", ".py") is None
    assert first_error_line("a = '\u202e'\n", ".py") is None
    assert first_error_line("a = '\0'\n", ".py") == 1


@pytest.mark.parametrize("text", ["(" * 100_000, "(}[{)" * 2_000, "a=[" * 3_000 + "\n"])
def test_deep_nesting_has_an_error_and_no_end_of_the_stack(text: str) -> None:
    assert first_error_line(text, ".py") == 1


def test_nesting_beyond_the_stack_of_a_thread_does_not_end_the_process() -> None:
    """In a process of its own: without the stack that ``parse`` asks for, it dies of a signal."""
    code = "from fallback_tier.syntax import first_error_line as f; f('{a:' * 120_000, '.js')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_stack_of_other_threads_stays_as_it_was() -> None:
    before = threading.stack_size()
    assert parse(b"a = 1\n" * 5_000, "python") is not None
    assert threading.stack_size() == before


def test_a_parse_gives_up_after_its_steps() -> None:
    text = b"def f():\n    return 1\n" * 2_000
    assert parse(text, "python") is not None
    assert parse(text, "python", max_steps=3) is None


def test_a_parser_that_gave_up_does_not_disturb_the_next() -> None:
    assert parse(b"a = 1\n" * 5_000, "python", max_steps=1) is None
    tree = parse(b"a = 1\n", "python")
    assert tree is not None
    assert not tree.root_node.has_error


def test_a_source_longer_than_one_read_is_parsed_whole() -> None:
    text = "x = 'é'\n" * 20_000 + "y = = 1\n"
    assert first_error_line(text, ".py") == 20_001


def test_languages_are_told_by_suffix() -> None:
    named = {path: grammar_of(path) for path in ("a/B.PY", "x.d.ts", "y.tsx", "z.mjs", "Makefile")}
    assert named == {
        "a/B.PY": "python",
        "x.d.ts": "typescript",
        "y.tsx": "tsx",
        "z.mjs": "javascript",
        "Makefile": "",
    }
