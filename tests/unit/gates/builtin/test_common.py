"""The gates that judge the applied patch before any of it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.builtin.common import DeclaredSetGate, PolicyGate, common_gates
from fallback_tier.outcome import FileChange
from fallback_tier.patch.diff import unified_diff
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import write
from tests.integration import gate_setup
from tests.integration.gate_setup import Case, advisory, applied, patched, smuggle

SECTIONS = ("dependencies", "devDependencies", "overrides", "pnpm.overrides")
KEYS = {
    "package.json": SECTIONS,
    "pyproject.toml": ("project.dependencies", "dependency-groups"),
    "requirements.txt": (),
    "package-lock.json": (),
}
PACKAGE = {
    "name": "app",
    "scripts": {"test": "node --test"},
    "dependencies": {"left": "1.0.0"},
    "overrides": {},
}
PYPROJECT = '[project]\nname = "app"\ndependencies = ["left==1.0"]\n[tool.pytest]\nx = 1\n'
LOCK = '{"packages": {"node_modules/left": {"resolved": "https://registry.test/left-1.0.0.tgz"}}}\n'
FILES = {
    "src/app.py": "one\n",
    "src/__init__.py": "x\n",
    "src/read.py": "x\n",
    "src/.gitignore": "*_made.py\n",
    "tool.sh": "x\n",
    "data.bin": "x\n",
    "package.json": json.dumps(PACKAGE, indent=2) + "\n",
    "package-lock.json": LOCK,
    "pyproject.toml": PYPROJECT,
    "requirements.txt": "--index-url https://index.test/simple\nleft==1.0\n",
    "tests/test_app.py": "x\n",
    ".github/workflows/ci.yml": "x\n",
}


@dataclass
class Ecosystem(FakeEcosystem):
    """Names of manifests at any depth; everything else is no manifest."""

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return KEYS.get(path.rpartition("/")[2])


POLICY = PolicyGate(Ecosystem())


@pytest.fixture(params=[True, False], ids=["layers", "checkout"], autouse=True)
def _layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_setup, "LAYERED", request.param)


def judged(
    tmp_path: Path, changes: Mapping[str, str | None], gate: DeclaredSetGate | PolicyGate = POLICY
) -> GateVerdict:
    with patched(tmp_path, FILES, changes, about=advisory()) as case:
        return gate.judge(case.context)


def package(**facts: object) -> str:
    return json.dumps(PACKAGE | facts, indent=2) + "\n"


# --- the declared set -----------------------------------------------------------------------------


def test_the_declared_change_passes(tmp_path: Path) -> None:
    changes = {"src/app.py": "two\n", "src/new.py": "x\n", "tool.sh": None}
    verdict = judged(tmp_path, changes, DeclaredSetGate())
    assert verdict.status is GateStatus.PASSED
    assert "3 file(s)" in verdict.detail


def with_files(case: Case, *files: str) -> Case:
    return Case(replace(case.context, application=applied("", files)), case.worktree)


@pytest.mark.parametrize(
    ("files", "problem"),
    [((), "undeclared"), (("src/app.py", "other.py"), "is declared, unchanged")],
)
def test_more_or_less_than_declared_is_a_failure(
    tmp_path: Path, files: tuple[str, ...], problem: str
) -> None:
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        verdict = DeclaredSetGate().judge(with_files(case, *files).context)
    assert verdict.failure_kind is FailureKind.UNDECLARED_CHANGE
    assert problem in verdict.detail


HOSTILE_DIFFS = {
    "symlink": "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n"
    "@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n",
    "executable": "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n"
    "@@ -0,0 +1 @@\n+x\n",
    "mode": "diff --git a/tool.sh b/tool.sh\nold mode 100644\nnew mode 100755\n",
    "gitlink": "diff --git a/sub b/sub\nnew file mode 160000\n--- /dev/null\n+++ b/sub\n"
    f"@@ -0,0 +1 @@\n+Subproject commit {'1' * 40}\n",
    "type": "diff --git a/tool.sh b/tool.sh\ndeleted file mode 100644\n--- a/tool.sh\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-x\ndiff --git a/tool.sh b/tool.sh\nnew file mode 120000\n--- /dev/null\n"
    "+++ b/tool.sh\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n",
    "rename": "diff --git a/tool.sh b/moved.sh\nsimilarity index 100%\nrename from tool.sh\n"
    "rename to moved.sh\n",
}
CHANGED = {
    "symlink": ("link",),
    "executable": ("run",),
    "mode": ("tool.sh",),
    "gitlink": ("sub",),
    "type": ("tool.sh",),
    "rename": ("moved.sh",),
}


@pytest.mark.parametrize("kind", HOSTILE_DIFFS)
def test_only_regular_files_and_no_new_modes(tmp_path: Path, kind: str) -> None:
    """git applies each of these; the index tells."""
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        case.worktree.reset()
        case.worktree.apply(HOSTILE_DIFFS[kind])
        assert case.worktree.changed()
        verdict = DeclaredSetGate().judge(with_files(case, *CHANGED[kind]).context)
    assert verdict.failure_kind is FailureKind.UNDECLARED_CHANGE


def test_a_header_that_disagrees_with_its_paths_is_seen(tmp_path: Path) -> None:
    """The diff names src/app.py first, git writes the test: the index doesn't lie."""
    diff = "diff --git a/src/app.py b/src/app.py\n--- a/src/app.py\n+++ b/tests/test_app.py\n"
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        case.worktree.reset()
        case.worktree.apply(diff + "@@ -1 +1 @@\n-one\n+two\n")
        verdict = DeclaredSetGate().judge(with_files(case, "src/app.py").context)
    assert verdict.failure_kind is FailureKind.UNDECLARED_CHANGE


# --- policy ---------------------------------------------------------------------------------------


def test_source_may_change(tmp_path: Path) -> None:
    assert judged(tmp_path, {"src/app.py": "two\n", "src/new.py": "x\n"}).status is (
        GateStatus.PASSED
    )


@pytest.mark.parametrize(
    "path",
    [".github/workflows/ci.yml", "tests/test_app.py", "src/conftest.py", "sitecustomize.py",
     "x.pth", ".npmrc", ".envrc", "Makefile", ".gitattributes", "sub/.gitmodules"],
)  # fmt: skip
def test_what_judges_or_starts_by_itself_may_not(tmp_path: Path, path: str) -> None:
    verdict = judged(tmp_path, {path: "changed\n"})
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert repr(path) in verdict.detail


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("src/new.js", "x\n", "ends in .js in that folder"),
        ("src/settings.py", "x\n", "by itself"),
        ("src/json.py", "x\n", "Python's own library"),
        ("src/READ.py", "x\n", "'src/read.py' is there"),
        ("tool.py", "x\n", "ends in .py in that folder"),
        ("notes.txt", "x\n", "only source files"),
        ("src/new.py", "#!/bin/sh\n", "a program of its own"),
        ("src/new.py", "", "it would be empty"),
    ],
)
def test_a_file_is_made_only_where_the_rules_let_it(
    tmp_path: Path, path: str, text: str, message: str
) -> None:
    """Whatever was asked when the plan was checked: the patched tree is asked again."""
    verdict = judged(tmp_path, {path: text, "src/app.py": "two\n"})
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert verdict.detail.startswith(f"{path!r} may not be made: ")
    assert message in verdict.detail


def test_two_that_are_made_may_not_be_taken_for_each_other(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"src/limits.py": "x\n", "src/Limits.py": "y\n"})
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert "one may be taken for the other" in verdict.log


@pytest.mark.parametrize("after", ["y\n", None], ids=["emptied", "gone"])
def test_what_the_tests_import_may_not_be_changed(tmp_path: Path, after: str | None) -> None:
    """Breaking the code and emptying what asserts: asked of the tree, whatever was asked of the plan."""
    files = {**FILES, "testutils.py": "x\n", "tests/test_app.py": "import testutils, src.app\n"}
    changes = {"testutils.py": after, "src/app.py": "two\n"}
    with patched(tmp_path, files, changes, about=advisory()) as case:
        verdict = POLICY.judge(case.context)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert verdict.detail.startswith("'testutils.py' may not be changed: tests are judged with it")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("src/app.py", "one\n# note \rimport os;os.system('id')\n", "line 2 has a carriage return"),
        ("src/app.py", "# coding: utf-7\none\n", "the encoding 'utf-7'"),
        ("src/new.py", "x = 1  # \u202e\n", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        ("tool.sh", "ls\u00a0x\n", "U+00A0"),
        ("package-lock.json", LOCK.replace("1.0.0", "1.0.0\u200b"), "U+200B"),
    ],
)
def test_what_reads_otherwise_than_it_runs_is_refused(
    tmp_path: Path, path: str, text: str, message: str
) -> None:
    """In every text, also where a recipe wrote it: nothing that judges by reading could be believed."""
    change = FileChange(path=path, before=FILES.get(path), after=text)
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        case.worktree.reset()
        case.worktree.apply(unified_diff([change]))
        verdict = POLICY.judge(case.context)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert verdict.detail.startswith(f"{path!r} does not read as it runs: ")
    assert message in verdict.detail


def test_what_git_would_leave_out_of_a_commit_is_not_made(tmp_path: Path) -> None:
    made = FileChange(path="src/was_made.py", before=None, after="x\n")
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        case.worktree.reset()
        case.worktree.apply(unified_diff([made]))
        assert [change.path for change in case.worktree.changed()] == [made.path]
        assert "git ignores files of that name" in POLICY.judge(case.context).detail


def test_a_test_may_not_be_deleted(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"tests/test_app.py": None})
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION


ALLOWED = {
    "package.json": package(dependencies={"left": "1.0.1", "pad": "1"}, overrides={"a": "1"}),
    "pyproject.toml": PYPROJECT.replace("left==1.0", "left==1.0.1"),
    "requirements.txt": "--index-url https://index.test/simple\nleft==1.0.1 --hash=sha256:0\n",
    "package-lock.json": LOCK.replace("1.0.0", "1.0.1"),
}


@pytest.mark.parametrize("path", ALLOWED)
def test_dependencies_may_change_in_a_manifest(tmp_path: Path, path: str) -> None:
    verdict = judged(tmp_path, {path: ALLOWED[path]})
    assert verdict.status is GateStatus.PASSED, verdict.log


def test_an_allowed_key_may_come_with_the_object_that_holds_it(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"package.json": package(pnpm={"overrides": {"a>b": "1.0.1"}})})
    assert verdict.status is GateStatus.PASSED, verdict.log


FORBIDDEN = {
    "scripts": ("package.json", package(scripts={"test": "true"})),
    "new script": ("package.json", package(scripts=PACKAGE["scripts"] | {"preinstall": "x"})),
    "beside an allowed key": (
        "package.json",
        package(pnpm={"overrides": {"a": "1"}, "patchedDependencies": {"a": "a.patch"}}),
    ),
    "an object without an allowed key": ("package.json", package(pnpm={})),
    "text in the place of an object": ("package.json", package(pnpm="x")),
    "removed key": ("package.json", package().replace('"name": "app",', "")),
    "look-alike key": ("package.json", package(dependenciesMeta={})),
    "type": ("package.json", package(private=1)),
    "not an object": ("package.json", "[]\n"),
    "broken": ("package.json", "{\n"),
    "git source": ("package.json", package(dependencies={"left": "git+https://evil.test/x"})),
    "file source": ("package.json", package(dependencies={"left": "file:../x"})),
    "tool table": ("pyproject.toml", PYPROJECT.replace("x = 1", "x = 2")),
    "build system": ("pyproject.toml", PYPROJECT + '[build-system]\nbuild-backend = "evil"\n'),
    "index": ("requirements.txt", "--index-url https://evil.test/simple\nleft==1.0\n"),
    "extra index": ("requirements.txt", FILES["requirements.txt"] + "--extra-index-url x\n"),
    "included": ("requirements.txt", FILES["requirements.txt"] + "-r other.txt\n"),
    "editable": ("requirements.txt", FILES["requirements.txt"] + "-e .\n"),
    "direct": ("requirements.txt", FILES["requirements.txt"] + "evil @ https://e.test/e.whl\n"),
    "vcs": ("requirements.txt", FILES["requirements.txt"] + "git+https://e.test/e\n"),
    "artifact host": ("package-lock.json", LOCK.replace("registry.test", "evil.test")),
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_nothing_else_may_change_in_a_manifest(tmp_path: Path, kind: str) -> None:
    path, text = FORBIDDEN[kind]
    verdict = judged(tmp_path, {path: text})
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION, verdict


def test_the_removed_keys_are_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"package.json": package(scripts={"test": "true"})})
    assert "scripts.test may not be changed" in verdict.detail


@pytest.mark.parametrize(
    "changes", [{"package.json": None}, {"lib/package.json": package()}], ids=["gone", "new"]
)
def test_manifests_are_neither_added_nor_removed(
    tmp_path: Path, changes: dict[str, str | None]
) -> None:
    verdict = judged(tmp_path, changes)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION


@pytest.mark.parametrize("content", [b"\0\1", b"\xff\xfe"])
def test_binary_content_is_refused(tmp_path: Path, content: bytes) -> None:
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        smuggle(case.worktree, "data.bin", content)
        verdict = POLICY.judge(case.context)
    assert verdict.failure_kind is FailureKind.POLICY_VIOLATION
    assert "data.bin" in verdict.detail


def test_several_problems_are_all_logged(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"tests/test_app.py": "y\n", "Makefile": "y\n"})
    assert verdict.detail.startswith("2 problems")
    assert len(verdict.log.splitlines()) == 2


def test_the_gates_in_their_order() -> None:
    names = [gate.name for gate in common_gates(Ecosystem())]
    assert names == ["declared_set", "policy", "capability"]


def test_judging_changes_nothing(tmp_path: Path) -> None:
    with patched(tmp_path, FILES, {"src/app.py": "two\n"}, about=advisory()) as case:
        before = case.worktree.changed()
        for gate in common_gates(Ecosystem()):
            gate.judge(case.context)
        assert case.worktree.changed() == before
        write(case.worktree.tree.layers[0], {"untracked": "x"})
