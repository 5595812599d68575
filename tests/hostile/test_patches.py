"""Hostile diffs are refused, ordinary ones are all accepted, and git agrees with what we read.

Plain `git apply` takes most of these: that is why the parser is strict and why the gates judge the
result once more.
"""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_tier.errors import PatchSyntaxError
from fallback_tier.limits import MAX_PATCH_BYTES
from fallback_tier.outcome import FileChange
from fallback_tier.patch.diff import unified_diff
from fallback_tier.patch.parse import FilePatch, parse_patch
from fallback_tier.patch.policy import check_policy
from tests.fakes.repository import GIT_ENV, commit_all, git, write

HUNK = "@@ -1 +1 @@\n-a\n+b\n"


def block(path: str, *, old: str | None = None, new: str | None = None, hunk: str = HUNK) -> str:
    old = f"a/{path}" if old is None else old
    new = f"b/{path}" if new is None else new
    return f"diff --git a/{path} b/{path}\n--- {old}\n+++ {new}\n{hunk}"


def created(path: str, mode: str = "100644") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    )


GOOD = block("f.py")
HEAD = "diff --git a/f.py b/f.py\n"
NAMES = "--- a/f.py\n+++ b/f.py\n"
NO_NEWLINE = "\\ No newline at end of file\n"

#: Refused by the parser: what the diff is, whatever it touches.
MALFORMED = {
    "empty": "",
    "only blank lines": "\n\n",
    "another name after +++": block("f.py", new="b/tests/test_f.py"),
    "another name after ---": block("f.py", old="a/g.py"),
    "two names in the header": "diff --git a/f.py b/g.py\n--- a/f.py\n+++ b/g.py\n" + HUNK,
    "prefix missing": "diff --git f.py f.py\n--- f.py\n+++ f.py\n" + HUNK,
    "other prefix": "diff --git c/f.py w/f.py\n--- c/f.py\n+++ w/f.py\n" + HUNK,
    "no header": NAMES + HUNK,
    "absolute name": block("/etc/passwd"),
    "absolute after +++": block("f.py", new="/etc/passwd"),
    "parent folder": block("../outside.txt"),
    "parent folder inside": block("a/../../outside.txt"),
    "dot component": block("./f.py"),
    "empty component": block("a//f.py"),
    "git folder": block(".git/hooks/pre-commit"),
    "git folder below": block("sub/.git/config"),
    "git folder, other case": block(".GIT/config"),
    "git folder, trailing dot": block(".git./config"),
    "git folder, trailing space": block(".git /config"),
    "git folder, short name": block("git~1/config"),
    "git folder, stream": block(".git::$INDEX_ALLOCATION/config"),
    "git folder, zero width": block(".g\u200cit/config"),
    "git folder, full width": block("\uff0egit/config"),
    "backslash": block("a\\..\\f.py"),
    "drive": block("C:/f.py"),
    "quoted name": 'diff --git "a/f\\056py" "b/f\\056py"\n--- "a/f\\056py"\n+++ "b/f\\056py"\n' + HUNK,
    "quoted after +++": block("f.py", new='"b/tests/x.py"'),
    "NUL in a name": block("f\0.py"),
    "NUL in the text": block("f.py", hunk="@@ -1 +1 @@\n-a\n+b\0\n"),
    "tab in a name": block("f.py\tx"),
    "carriage return in a name": block("f.py\r"),
    "bidi in a name": block("f\u202eyp.py"),
    "escape in a name": block("f\x1b[2J.py"),
    "lone surrogate": block("f.py", hunk="@@ -1 +1 @@\n-a\n+\ud800\n"),
    "trailing space in a name": block("f.py "),
    "rename": HEAD + "similarity index 100%\nrename from f.py\nrename to g.py\n",
    "rename with edit": "diff --git a/f.py b/g.py\nsimilarity index 90%\nrename from f.py\n"
    "rename to g.py\n--- a/f.py\n+++ b/g.py\n" + HUNK,
    "rename lines that disagree": HEAD + "rename from f.py\nrename to tests/f.py\n" + NAMES + HUNK,
    "copy": HEAD + "similarity index 100%\ncopy from f.py\ncopy to g.py\n",
    "mode change": HEAD + "old mode 100644\nnew mode 100755\n",
    "mode change with edit": HEAD + "old mode 100644\nnew mode 100755\n" + NAMES + HUNK,
    "new executable": created("run.sh", "100755"),
    "new symlink": created("link", "120000"),
    "new gitlink": created("sub", "160000"),
    "new folder": created("sub", "040000"),
    "setuid file": created("run.sh", "104755"),
    "deleted symlink": "diff --git a/l b/l\ndeleted file mode 120000\n--- a/l\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-x\n",
    "symlink in the index line": HEAD + "index 1234567..89abcde 120000\n" + NAMES + HUNK,
    "gitlink in the index line": HEAD + "index 1234567..89abcde 160000\n" + NAMES + HUNK,
    "new file that keeps a mode": created("f").replace("---", "index 0000000..89abcde 100644\n---"),
    "submodule log": "Submodule sub 1234567..89abcde:\n  > fix\n",
    "binary literal": HEAD + "GIT binary patch\nliteral 3\nKcmZQzU|?i`00961\n\n",
    "binary notice": HEAD + "Binary files a/f.py and b/f.py differ\n",
    "same file twice": GOOD + GOOD,
    "same file made and changed": created("f.py") + GOOD,
    "junk before": "Subject: fix\n\n" + GOOD,
    "junk between": GOOD + "-- \n2.39.5\n" + block("g.py"),
    "junk after": GOOD + "eof\n",
    "blank line between": GOOD + "\n" + block("g.py"),
    "last line not ended": GOOD[:-1],
    "carriage returns": GOOD.replace("\n", "\r\n"),
    "combined diff": "diff --cc f.py\nindex 1,2..3\n--- a/f.py\n+++ b/f.py\n@@@ -1 -1 +1 @@@\n- a\n",
    "no hunk": HEAD + NAMES,
    "nothing but a header": HEAD,
    "hunk without a change": block("f.py", hunk="@@ -1 +1 @@\n a\n"),
    "hunk of nothing": block("f.py", hunk="@@ -1,0 +1,0 @@\n"),
    "hunk too short": block("f.py", hunk="@@ -1,2 +1,2 @@\n-a\n+b\n"),
    "hunk too long": block("f.py", hunk="@@ -1 +1 @@\n-a\n+b\n+c\n"),
    "hunk swallows the next block": block("f.py", hunk="@@ -1,9 +1,9 @@\n-a\n+b\n") + block("g.py"),
    "other counts": block("f.py", hunk="@@ -1 +1,2 @@\n-a\n-b\n+c\n"),
    "line without a mark": block("f.py", hunk="@@ -1,2 +1,2 @@\nx\n-a\n+b\n"),
    "empty context line": block("f.py", hunk="@@ -1,2 +1,2 @@\n\n-a\n+b\n"),
    "hunk header": block("f.py", hunk="@@ -1 +1\n-a\n+b\n"),
    "hunk header, sign": block("f.py", hunk="@@ --1 +1 @@\n-a\n+b\n"),
    "hunk header, huge": block("f.py", hunk=f"@@ -{'9' * 40} +1 @@\n-a\n+b\n"),
    "hunk header, other digits": block("f.py", hunk="@@ -\u0661 +1 @@\n-a\n+b\n"),
    "hunks out of order": block("f.py", hunk="@@ -9 +9 @@\n-a\n+b\n" + HUNK),
    "hunks that overlap": block("f.py", hunk="@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -2 +2 @@\n-c\n+d\n"),
    "new lines that don't follow": block("f.py", hunk="@@ -1 +5 @@\n-a\n+b\n"),
    "made in the middle": created("f.py").replace("-0,0 +1", "-4,0 +5"),
    "made over old lines": created("f.py").replace("@@ -0,0 +1 @@\n", HUNK[:12] + "-a\n"),
    "deleted but not whole": "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n"
    "@@ -1,2 +1 @@\n-x\n y\n",
    "made without /dev/null": HEAD + "new file mode 100644\n" + NAMES + "@@ -0,0 +1 @@\n+x\n",
    "/dev/null without a mode": block("f.py", old="/dev/null", hunk="@@ -0,0 +1 @@\n+x\n"),
    "deleted without a mode": block("f.py", new="/dev/null", hunk="@@ -1 +0,0 @@\n-x\n"),
    "file named /dev/null": block("/dev/null"),
    "two modes": HEAD + "new file mode 100644\ndeleted file mode 100644\n",
    "time stamp": block("f.py", new="b/f.py\t2026-01-01 00:00:00"),
    "no newline, then more": block("f.py", hunk=f"@@ -1,2 +1,2 @@\n-a\n{NO_NEWLINE}-b\n+c\n+d\n"),
    "no newline, then a hunk": block("f.py", hunk=HUNK + NO_NEWLINE + "@@ -5 +5 @@\n-a\n+b\n"),
    "no newline twice": block("f.py", hunk=HUNK + NO_NEWLINE * 2),
    "no newline first": block("f.py", hunk="@@ -1 +1 @@\n" + NO_NEWLINE + "-a\n+b\n"),
    "other no newline text": block("f.py", hunk=HUNK + "\\ Kein Zeilenumbruch am Dateiende.\n"),
    "too large": block("f.py", hunk="@@ -1 +1 @@\n-a\n+" + "b" * MAX_PATCH_BYTES + "\n"),
    "too large in bytes": block("f.py", hunk="@@ -1 +1 @@\n-a\n+" + "é" * (MAX_PATCH_BYTES // 2) + "\n"),
}  # fmt: skip

#: Well-formed, and refused by the policy: what the diff touches.
FORBIDDEN = {
    "workflow": created(".github/workflows/pwn.yml"),
    "workflow, other case": created(".GitHub/workflows/pwn.yml"),
    "other CI": block(".gitlab-ci.yml"),
    "Jenkins": block("Jenkinsfile"),
    "modules": created(".gitmodules"),
    "attributes": created("src/.gitattributes"),
    "ignores": block(".gitignore"),
    "a test": block("tests/test_f.py"),
    "a test deleted": "diff --git a/test/f.js b/test/f.js\ndeleted file mode 100644\n"
    "--- a/test/f.js\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
    "test set-up": created("conftest.py"),
    "test configuration": block("jest.config.js"),
    "start-up hook": created("sitecustomize.py"),
    "path hook": created("lib/evil.pth"),
    "client configuration": created(".npmrc"),
    "shell hook": created(".envrc"),
    "commit hook": created(".husky/pre-commit"),
    "build": block("Makefile"),
    "image": block("Dockerfile"),
    "installed package": block("node_modules/x/index.js"),
    "undeclared manifest": block("package.json"),
    "undeclared lock": block("package-lock.json"),
}


@pytest.mark.parametrize("diff", MALFORMED.values(), ids=MALFORMED)
def test_malformed_is_refused(diff: str) -> None:
    with pytest.raises(PatchSyntaxError) as caught:
        parse_patch(diff)
    assert caught.value.problem.startswith("The patch can't be read")


@pytest.mark.parametrize("diff", FORBIDDEN.values(), ids=FORBIDDEN)
def test_forbidden_is_refused(diff: str) -> None:
    assert check_policy(patch.path for patch in parse_patch(diff))


def test_kinds() -> None:
    assert len(MALFORMED) + len(FORBIDDEN) >= 60
    assert parse_patch(GOOD), (
        "the base of the mutants is fine, so that each fails for its own reason"
    )
    assert parse_patch(created("f.py"))


# --- What is accepted ------------------------------------------------------------------------------

BEFORE = {
    "src/app.py": "".join(f"line {n}\n" for n in range(60)),
    "src/a b.py": "x = 1\n",
    "src/dos.txt": "a\r\nb\r\n",
    "src/no_newline.js": "a\nb",
    "src/odd.txt": "a\x0cb\u2028c\rd\n\x1b[0m\n",
    "src/empty.txt": "",
    "src/gone.txt": "a\n",
    "src/gone_empty.txt": "",
    "src/é.txt": "é\n",
    "run.sh": "#!/bin/sh\necho a\n",
    "package-lock.json": '{\n  "version": "1"\n}\n',
}
AFTER = {
    "src/app.py": "".join(f"line {n}\n" for n in range(60) if n not in {5, 40}) + "end",
    "src/a b.py": "x = 2\n",
    "src/dos.txt": "a\r\nB\r\n",
    "src/no_newline.js": "a\nb\n",
    "src/odd.txt": "a\x0cb\u2028C\rd\n\x1b[0m\n",
    "src/empty.txt": "now\n",
    "src/é.txt": "è\n",
    "src/new.py": "print(1)\n",
    "src/new_empty.py": "",
    "run.sh": "#!/bin/sh\necho b\n",
    "package-lock.json": '{\n  "version": "2"\n}',
}
CHANGES = [
    FileChange(path=path, before=BEFORE.get(path), after=AFTER.get(path))
    for path in sorted(BEFORE.keys() | AFTER.keys())
]


def numstat(diff: str) -> dict[str, tuple[int, int]]:
    """Paths and counts as real git reads them."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["git", "apply", "--numstat", "-z", "-"],
            cwd=folder,
            env=GIT_ENV,
            input=diff.encode(),
            check=True,
            capture_output=True,
        )
    rows = [row.split("\t") for row in done.stdout.decode().split("\0") if row]
    return {path: (int(added), int(removed)) for added, removed, path in rows}


def counted(patches: tuple[FilePatch, ...]) -> dict[str, tuple[int, int]]:
    return {p.path: (len(p.added_lines), len(p.removed_lines)) for p in patches}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.path)
def test_our_own_diffs_are_accepted(change: FileChange) -> None:
    diff = unified_diff([change])
    assert counted(parse_patch(diff)) == numstat(diff)
    assert [patch.path for patch in parse_patch(diff)] == [change.path]


@pytest.mark.parametrize("options", [[], ["-U0"], ["-U10"], ["--full-index"], ["--patience"]])
def test_diffs_of_git_are_accepted(tmp_path: Path, options: list[str]) -> None:
    write(tmp_path, BEFORE)
    (tmp_path / "run.sh").chmod(0o755)
    commit_all(tmp_path)
    for path in BEFORE.keys() - AFTER.keys():
        (tmp_path / path).unlink()
    write(tmp_path, AFTER)
    git(tmp_path, "add", "-A")
    args = ["-c", "core.quotePath=false", "diff", "--cached", "--no-renames", *options]
    diff = subprocess.run(
        ["git", *args], cwd=tmp_path, env=GIT_ENV, check=True, capture_output=True
    ).stdout.decode()
    patches = parse_patch(diff)
    assert counted(patches) == numstat(diff)
    assert {p.path: p.kind for p in patches} == {
        c.path: "created" if c.before is None else "deleted" if c.after is None else "modified"
        for c in CHANGES
    }


# --- Fuzzing ---------------------------------------------------------------------------------------

WHOLE = unified_diff(CHANGES)
PIECES = st.sampled_from(
    [
        *["diff --git a/f b/f\n", "--- a/f\n", "+++ b/f\n", "--- /dev/null\n", "+++ /dev/null\n"],
        *[
            "new file mode 100644\n",
            "deleted file mode 100644\n",
            "index 1234567..89abcde 100644\n",
        ],
        *["@@ -1 +1 @@\n", "@@ -0,0 +1 @@\n", "@@ -1 +0,0 @@\n", "@@ -1,2 +1,2 @@ f\n", "-a\n"],
        *["+b\n", " c\n", NO_NEWLINE, "\n", "x", "\r", "@@ -3 +3 @@\n", "old mode 100644\n"],
    ]
)


def mutate(diff: str, edits: list[tuple[int, int, str]]) -> str:
    lines = diff.splitlines(keepends=True)
    for place, removed, inserted in edits:
        at = place % (len(lines) + 1)
        lines[at : at + removed] = [inserted]
    return "".join(lines)


def judge(diff: str) -> tuple[FilePatch, ...] | None:
    """Parsed, or refused; any other exception fails the test that calls this."""
    try:
        return parse_patch(diff)
    except PatchSyntaxError:
        return None


MUTANTS = st.builds(
    mutate,
    st.sampled_from([WHOLE, GOOD, created("f.py"), *(unified_diff([c]) for c in CHANGES)]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), PIECES | st.text(max_size=8))),
)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=400) | st.lists(PIECES, max_size=14).map("".join) | MUTANTS)
def test_the_parser_never_fails_otherwise(diff: str) -> None:
    judge(diff)


@settings(max_examples=120, deadline=None)
@given(st.lists(PIECES, min_size=3, max_size=9).map(lambda p: HEAD + NAMES + "".join(p)) | MUTANTS)
def test_git_agrees_with_what_was_accepted(diff: str) -> None:
    patches = judge(diff)
    if patches is not None:
        assert counted(patches) == numstat(diff)
