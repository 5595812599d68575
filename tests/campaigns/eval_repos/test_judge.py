"""The judge of the whole runs catches what is wrong, on trees that real clients install."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.eval_repos.cases import End
from tests.campaigns.eval_repos.judge import Kind, Verdict, admits
from tests.campaigns.eval_repos.judged_case import FIXED, JudgedCase, judged_case, npm_case, uv_case
from tests.campaigns.eval_repos.reported import Reported
from tests.campaigns.measuring.clones import commit, git


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedCase]:
    with judged_case(uv_case(), tmp_path_factory.mktemp("python")) as made:
        yield made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedCase]:
    with judged_case(npm_case(), tmp_path_factory.mktemp("node")) as made:
        yield made


def kinds(verdict: Verdict) -> set[Kind]:
    return {one.kind for one in verdict.problems}


def upgraded(python: JudgedCase, *specs: str) -> Path:
    place = python.tree()
    words = [word for spec in specs for word in ("--upgrade-package", spec)]
    python.run(place, "uv", "lock", *words)
    return place


def end(**more: object) -> list[End]:
    return [End.model_validate({"outcome": "fixed", "why": "It is said for this test.", **more})]


def test_the_lowest_fixed_version_in_the_lock_is_right(python: JudgedCase) -> None:
    verdict = python.judged(upgraded(python, "left==1.1.0"))
    assert verdict.problems == ()
    assert verdict.moved == ("left",)


def test_nothing_done_and_called_fixed_is_a_false_fixed(python: JudgedCase) -> None:
    verdict = python.judged(python.tree())
    assert Kind.STILL_AFFECTED in kinds(verdict)
    assert verdict.is_false_fixed(FIXED)


def test_a_pin_in_a_file_that_nobody_installs_is_still_affected(python: JudgedCase) -> None:
    place = upgraded(python, "left==1.1.0")
    (place / "requirements-docs.txt").write_text("left==1.0.0\n")
    assert "left 1.0.0 in requirements-docs.txt" in next(
        one.detail for one in python.judged(place).problems if one.kind is Kind.STILL_AFFECTED
    )
    (place / "tests").mkdir()
    (place / "requirements-docs.txt").rename(place / "tests" / "requirements.txt")
    assert Kind.STILL_AFFECTED not in kinds(python.judged(place))


def test_a_version_that_breaks_the_import_is_a_false_fixed(python: JudgedCase) -> None:
    verdict = python.judged(upgraded(python, "left==1.2.0"))
    assert {Kind.BROKE, Kind.WRONG_VERSION} <= kinds(verdict)
    assert "has no attribute 'pad'" in next(
        one.detail for one in verdict.problems if one.kind is Kind.BROKE
    )
    assert verdict.is_false_fixed(FIXED)


def test_a_wrong_version_is_one_even_where_all_works(python: JudgedCase) -> None:
    verdict = python.judged(upgraded(python, "left==1.1.0"), ends=end(versions={"left": ">=1.2"}))
    assert kinds(verdict) == {Kind.WRONG_VERSION}
    assert not verdict.is_false_fixed(FIXED)


def test_a_lock_that_does_not_resolve_is_a_false_fixed(python: JudgedCase) -> None:
    place = python.tree()
    lock = place / "uv.lock"
    lock.write_text(lock.read_text().replace('version = "1.0.0"', 'version = "1.1.0"'))
    verdict = python.judged(place)
    assert Kind.DOES_NOT_RESOLVE in kinds(verdict)
    assert verdict.is_false_fixed(FIXED)


def test_a_lock_that_is_out_of_step_with_its_manifest_does_not_resolve(python: JudgedCase) -> None:
    place = upgraded(python, "left==1.1.0")
    manifest = place / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace("left>=1.0.0", "left>=1.2.0"))
    assert Kind.DOES_NOT_RESOLVE in kinds(python.judged(place))


def test_a_package_that_need_not_move_is_too_much(python: JudgedCase) -> None:
    moved = upgraded(python, "left==1.1.0", "right==1.1.0")
    assert Kind.TOO_MUCH in kinds(python.judged(moved))
    along = end(versions={"left": "==1.1.0"}, along=["ri*"])
    assert python.judged(moved, ends=along).is_right


def test_more_lines_than_an_honest_diff_has_are_too_many(python: JudgedCase) -> None:
    place = upgraded(python, "left==1.1.0")
    manifest = place / "pyproject.toml"
    manifest.write_bytes(manifest.read_bytes().replace(b"\n", b"\r\n"))
    assert {Kind.TOO_LARGE, Kind.BREACH} <= kinds(python.judged(place))


def test_a_file_that_is_no_manifest_is_not_touched(python: JudgedCase) -> None:
    place = upgraded(python, "left==1.1.0")
    (place / "test_app.py").write_text("import left\n")
    assert "changed test_app.py" in [one.detail for one in python.judged(place).problems]


def test_an_end_of_another_kind_is_wrong(python: JudgedCase) -> None:
    reported = Reported(
        code=4, outcome="refused", reasons=("no_fixed_version",), words="none is known"
    )
    assert kinds(python.judged(python.tree(), reported)) == {Kind.WRONG_END}


@pytest.mark.parametrize(
    ("reason", "words", "wrong"),
    [
        ("blocked_by_constraint", "right 1.0.0 asks for left <1.1", set()),
        ("resolver_failed", "right 1.0.0 asks for left <1.1", {Kind.WRONG_REASON}),
        ("blocked_by_constraint", "something is in the way", {Kind.WRONG_REASON}),
    ],
)
def test_a_refusal_is_held_to_its_reason(
    python: JudgedCase, reason: str, words: str, wrong: set[Kind]
) -> None:
    reported = Reported(code=4, outcome="refused", reasons=(reason,), words=words)
    ends = end(outcome="refused", reasons=["blocked_by_constraint"], words=["right"])
    assert kinds(python.judged(python.tree(), reported, ends)) == wrong


def test_a_refusal_that_changed_files_and_a_traceback_are_never_right(python: JudgedCase) -> None:
    reported = Reported(code=4, outcome="refused", reasons=("x",), words="y", traceback=True)
    verdict = python.judged(upgraded(python, "left==1.1.0"), reported, end(outcome="refused"))
    assert kinds(verdict) == {Kind.TOUCHED, Kind.TRACEBACK}


def test_of_several_ends_the_nearest_counts(python: JudgedCase) -> None:
    reported = Reported(code=4, outcome="refused", reasons=("x",), words="y")
    ends = [*end(versions={"left": "==1.1.0"}), *end(outcome="refused")]
    assert python.judged(python.tree(), reported, ends).is_right
    named = [*ends[:1], *end(outcome="refused", words=["left"])]
    assert kinds(python.judged(python.tree(), reported, named)) == {Kind.WRONG_REASON}


def test_npm_trees_are_judged_as_npm_installs_them(node: JudgedCase) -> None:
    right = node.tree()
    node.run(right, "npm", "update", "--package-lock-only", "left")
    text = (right / "package-lock.json").read_text()
    assert '"1.2.0"' in text, "npm update goes to the highest"
    assert {Kind.BROKE, Kind.WRONG_VERSION} <= kinds(node.judged(right))
    out_of_step = node.tree()
    manifest = out_of_step / "package.json"
    manifest.write_text(manifest.read_text().replace("^1.0.0", "1.1.0"))
    verdict = node.judged(out_of_step)
    assert Kind.DOES_NOT_RESOLVE in kinds(verdict), verdict
    assert verdict.is_false_fixed(FIXED)


def test_an_installed_tree_that_git_keeps_is_affected_and_may_be_renewed(node: JudgedCase) -> None:
    kept = node.tree()
    node.run(kept, "npm", "ci")
    git(kept, "add", "-A", "-f")
    commit(kept, "with what is installed")
    vendored = JudgedCase(node.case, node.clients, kept, node.made)
    lock_alone = vendored.tree()
    node.run(lock_alone, "npm", "install", "--save-exact", "left@1.1.0", "--package-lock-only")
    manifest = lock_alone / "package.json"
    manifest.write_text(manifest.read_text().replace('"1.1.0"', '"^1.0.0"'))
    node.run(lock_alone, "npm", "install", "--package-lock-only")
    left = [it.detail for it in vendored.judged(lock_alone).problems]
    assert "left 1.0.0 in node_modules/left/package.json" in left
    both = vendored.tree()
    (both / "package-lock.json").write_bytes((lock_alone / "package-lock.json").read_bytes())
    node.run(both, "npm", "ci")
    assert vendored.judged(both, ends=end(versions={"left": "==1.1.0"})).problems == ()
    (both / "node_modules" / "note.js").write_text("")
    assert kinds(vendored.judged(both)) >= {Kind.BREACH}


@pytest.mark.parametrize(
    ("spec", "version", "is_in"),
    [
        ("==8.17.1", "8.17.1", True),
        ("==8.17.1", "8.23.0", False),
        (">=1.26.17,<2", "2.0.0", False),
        (">=5.0.1 or >=4.1.1,<5", "4.1.1", True),
        (">=5.0.1 or >=4.1.1,<5", "4.1.0", False),
        ("gone", "1.0.0", False),
    ],
)
def test_bounds(spec: str, version: str, *, is_in: bool) -> None:
    for ecosystem in ("npm", "PyPI"):
        assert admits(ecosystem, spec, version) is is_in


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    """In a fresh interpreter, so that what this one has imported says nothing.

    The runner of campaigns, which they may share, is not judged (ADR-0124).
    """
    code = (
        "import sys\nfrom tests.campaigns.eval_repos import judge, peers, report\n"
        "judged = ('fallback_audit', 'fallback_plugins', 'fallback_tier')\n"
        "print([name for name in sys.modules if name.startswith(judged)])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
