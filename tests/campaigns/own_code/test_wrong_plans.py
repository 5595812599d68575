"""Wrong plans: valid where they are meant to be, and never the fix."""

from pathlib import Path, PurePosixPath

import pytest

from fallback_tier.syntax import first_error_line
from tests.campaigns.own_code.checkout import Checkout
from tests.campaigns.own_code.upstream import FileFix, Fix, applied
from tests.campaigns.own_code.wrong import Kind, Wrong, wrong_plans
from tests.fakes.repository import commit_all, write

PYTHON = '''"""What it is."""

from __future__ import annotations

import os


def first(name):
    """A text
    of two lines.
    """
    if name:
        return os.path.join("a", name)
    return None


def second(names):
    total = 0
    for name in names:
        total += len(name)
    return total


def last():
    return 1
'''

SCRIPT = """'use strict'

const a = {
  one: 1,
  two: `
    text ${1}
  `
}

function first (name) {
  return a[name]
}

module.exports = { first }
"""


def made(
    root: Path, path: str, before: str, after: str, others: dict[str, str]
) -> dict[Kind, Wrong]:
    write(root, {path: before, **others})
    fix = Fix(files=(FileFix(path=path, before=before, after=after),))
    plans = wrong_plans(fix, Checkout(root, commit_all(root)))
    return {plan.kind: plan for plan in plans}


def results(root: Path, plan: Wrong) -> dict[str, str]:
    found: dict[str, str] = {}
    for edit in plan.edits:
        text = found.get(edit.path) or (root / edit.path).read_bytes().decode()
        found[edit.path] = applied(text, [edit])
    return found


def test_python_with_two_hunks(tmp_path: Path) -> None:
    after = PYTHON.replace("if name:", 'if name and ".." not in name:')
    after = after.replace("return 1", "return 2")
    others = {"pkg/other.py": "x = 1\n", "tests/test_a.py": "x = 1\n", "far/b.py": "y = 1\n"}
    plans = made(tmp_path, "pkg/a.py", PYTHON, after, others)
    assert plans.keys() == {Kind.UNRELATED, Kind.COMMENT, Kind.HALF, Kind.ELSEWHERE}
    assert results(tmp_path, plans[Kind.UNRELATED]) == {"pkg/other.py": "x = 1\n_checked = True\n"}
    (commented,) = results(tmp_path, plans[Kind.COMMENT]).values()
    assert commented == PYTHON.replace("    if name:", "    # checked\n    if name:")
    (half,) = results(tmp_path, plans[Kind.HALF]).values()
    assert half == PYTHON.replace("if name:", 'if name and ".." not in name:')
    (elsewhere,) = results(tmp_path, plans[Kind.ELSEWHERE]).values()
    assert elsewhere.startswith(PYTHON[: PYTHON.index("def first")])
    assert "\npass\n" in elsewhere
    for plan in plans.values():
        for path, text in results(tmp_path, plan).items():
            assert first_error_line(text, PurePosixPath(path).suffix) is None
            assert text not in {PYTHON, after}


def test_one_change_has_no_half_and_gets_a_statement_beside_it(tmp_path: Path) -> None:
    after = SCRIPT.replace("return a[name]", "return Object.hasOwn(a, name) ? a[name] : undefined")
    plans = made(tmp_path, "lib/a.js", SCRIPT, after, {"lib/b.js": "exports.b = 1;"})
    assert plans.keys() == {Kind.UNRELATED, Kind.COMMENT, Kind.DECOY, Kind.ELSEWHERE}
    (decoy,) = results(tmp_path, plans[Kind.DECOY]).values()
    assert decoy == SCRIPT.replace("  return a[name]", "  Object.freeze([])\n  return a[name]")
    assert results(tmp_path, plans[Kind.UNRELATED]) == {
        "lib/b.js": "exports.b = 1;\nObject.freeze([]);\n"
    }


def test_nothing_is_put_into_a_string(tmp_path: Path) -> None:
    after = SCRIPT.replace("text ${1}", "text ${2}")
    plans = made(tmp_path, "lib/a.js", SCRIPT, after, {})
    inside = SCRIPT[SCRIPT.index("`") : SCRIPT.rindex("`")]
    for kind in (Kind.COMMENT, Kind.DECOY, Kind.ELSEWHERE):
        assert inside in next(iter(results(tmp_path, plans[kind]).values())), kind
    assert Kind.UNRELATED not in plans


@pytest.mark.parametrize("text", ["a\r\nb = 1\r\n", "x = 1"])
def test_line_ends_are_kept(tmp_path: Path, text: str) -> None:
    plans = made(tmp_path, "a.py", text, text.replace("1", "2").replace("\r\n", "\n"), {})
    for plan in plans.values():
        (after,) = results(tmp_path, plan).values()
        assert after.count("\n") == after.count("\r\n") or "\r" not in text


def test_a_language_that_is_not_read_has_only_its_half(tmp_path: Path) -> None:
    before = "".join(f"{n}\n" for n in range(40))
    after = before.replace("\n3\n", "\nx\n").replace("\n33\n", "\ny\n")
    assert made(tmp_path, "page.html", before, after, {}).keys() == {Kind.HALF}


def test_of_a_fix_that_adds_a_file(tmp_path: Path) -> None:
    """Each plan stays wrong: half of the fix, or beside it; none makes all that upstream made."""
    write(tmp_path, {"lib/a.js": SCRIPT, "lib/b.js": SCRIPT})
    new = FileFix(path="lib/names.js", before="", after="exports.safe = Boolean\n", is_new=True)
    text = SCRIPT.replace("return a[name]", "return safe(name) && a[name]")
    text = text.replace("one: 1,", "one: 1, // named")
    old = FileFix(path="lib/a.js", before=SCRIPT, after=text)
    plans = wrong_plans(Fix(files=(new, old)), Checkout(tmp_path, commit_all(tmp_path)))
    assert {plan.kind for plan in plans} == {*Kind} - {Kind.DECOY}
    for plan in plans:
        whole = {edit.path: edit for edit in plan.edits}
        assert {*whole} != {"lib/names.js", "lib/a.js"} or "safe(name)" not in whole["lib/a.js"].new
        if plan.kind is not Kind.HALF:
            assert not any(edit.makes_file for edit in plan.edits)
