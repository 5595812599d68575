"""A broken function throws, in each language, and its file stays readable."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_tier.syntax import first_error_line, grammar_of
from tests.campaigns.measuring.clones import git
from tests.campaigns.tests_judged.breaking import MESSAGE, TRIES, Break, breaks

PYTHON = {
    "shop/prices.py": 'def total(items):\n    """Sum up."""\n    return sum(items)\n\n\n'
    "class Cart:\n    def size(self):\n        return 0\n\n    def unused(self): return 1\n",
    "tests/test_prices.py": "from shop.prices import total\n\n\n"
    "def test_total():\n    assert total([1]) == 1\n",
}
NODE = {
    "lib/prices.js": "const total = (items) => { return items.length; };\n"
    "class Cart { size() {\n    return 0; } }\nmodule.exports = { total, Cart };\n",
    "test/prices.test.js": "const { total } = require('../lib/prices');\ntest('total', () => total([]));\n",
    "lib/types.ts": "export function named(one: string): string {\n  return one;\n}\n",
}


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    return folder


def by_name(found: list[Break]) -> dict[str, Break]:
    return {one.function: one for one in found}


@pytest.mark.parametrize(("files", "ecosystem"), [(PYTHON, "PyPI"), (NODE, "npm")])
def test_functions_that_tests_use_come_first(
    tmp_path: Path, files: Mapping[str, str], ecosystem: str
) -> None:
    found = breaks(repository(tmp_path, files), ecosystem, "shop")
    assert found[0].function == "total"
    assert len(found) <= TRIES
    assert not any("test" in one.path for one in found)
    assert all(first_error_line(one.text, grammar_of(one.path)) is None for one in found)
    assert all(one.text.count(MESSAGE) == 1 for one in found)


def test_broken_python_function_raises(tmp_path: Path) -> None:
    found = by_name(breaks(repository(tmp_path, PYTHON), "PyPI", "shop"))
    for call, function in (("total([1])", "total"), ("Cart().size()", "size")):
        program = f"{found[function].text}\n{call}\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert MESSAGE in done.stderr
    assert "unused" not in found, "a body on its function's line has no place for a statement"


def test_broken_node_function_throws(tmp_path: Path) -> None:
    found = by_name(breaks(repository(tmp_path, NODE), "npm", "shop"))
    for call, function in (("total([1])", "total"), ("new Cart().size()", "size")):
        program = f"{found[function].text}\n{call};\n"
        done = subprocess.run(["node", "-e", program], capture_output=True, text=True)
        assert MESSAGE in done.stderr
    assert found["named"].text.startswith("export function named(one: string): string { if (")


def test_diff_is_what_git_applies(tmp_path: Path) -> None:
    without_end = {"a.py": "def total(items):\n    return 1\x0c"}
    root = repository(tmp_path, without_end)
    found = breaks(root, "PyPI", "shop")[0]
    (tmp_path / "break.diff").write_text(found.diff, encoding="utf-8")
    git(root, "apply", "break.diff")
    assert (root / found.path).read_text(encoding="utf-8") == found.text
