"""Hostile diffs are refused, ordinary ones are all accepted, and git agrees with what we read.

Plain `git apply` takes most of these: that is why the parser is strict and why the gates judge the
result once more. In CI a sample; ``python -m tests.campaigns.hostile.test_patches`` runs the campaign.
"""

import json
import lzma
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
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
from tests.campaigns.hostile.patch_road import FILES, Road, files_below, mutants, road
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
    return {patch.path: (marked(patch, "+"), marked(patch, "-")) for patch in patches}


def marked(patch: FilePatch, mark: str) -> int:
    return sum(line.startswith(mark) for hunk in patch.hunks for line in hunk.lines)


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


# --- The whole road: parse, apply, declared set, policy --------------------------------------------

DATA = Path(__file__).parents[4] / "shared/data/solved-examples.jsonl.xz"
MANIFEST = FILES["package.json"]


def made(path: str, after: str | None, before: str | None = None) -> str:
    before = FILES.get(path) if before is None else before
    return unified_diff([FileChange(path=path, before=before, after=after)])


#: Well-formed, of a path that may be changed, and refused for what it makes of it.
CONTENT = {
    "script changed": made("package.json", MANIFEST.replace("node --test", "true")),
    "script added": made("package.json", MANIFEST.replace('"test":', '"preinstall": "x", "test":')),
    "key removed": made("package.json", MANIFEST.replace('"name": "app",', "")),
    "key added": made("package.json", MANIFEST.replace('"name"', '"type": "module",\n  "name"')),
    "git source": made("package.json", MANIFEST.replace('"1.0.0"', '"git+https://h.test/x"')),
    "local source": made("package.json", MANIFEST.replace('"1.0.0"', '"file:../x"')),
    "no object": made("package.json", "[]\n"),
    "no JSON": made("package.json", "{\n"),
    "manifest deleted": made("package.json", None),
    "manifest made": made("lib/package.json", "{}\n"),
    "another host": made("package-lock.json", '{"resolved": "https://evil.test/x-1.tgz"}\n'),
    "through a link": created("out/evil.py"),
    "over a link": made("out", "x\n", "../../../outside"),
    "file to folder": created("f.py/x.py"),
    "over a file": created("f.py"),
    "other text": block("g.py", hunk="@@ -1 +1 @@\n-other\n+b\n"),
    "elsewhere": made("src/app.py", "x\n", "line 7\n"),
    "made in a new folder": made("src/new/deep.py", "x = 1\n"),
    "made empty": made("src/empty.py", ""),
    "made a program": made("src/deep.py", "#!/bin/sh\n"),
    "made beside no source": made("deep.py", "x = 1\n"),
    "made in another language": made("src/deep.js", "x\n"),
    "made no source": made("NOTES.md", "x\n"),
    "made in other letters": made("src/APP.py", "x = 1\n"),
    "made a library's": made("src/json.py", "x = 1\n"),
    "made a package": made("src/app/__init__.py", "x = 1\n"),
}
HOSTILE = {**MALFORMED, **FORBIDDEN, **CONTENT}
# The plugin's own recipe writes this one: the road declares it, and asks where it fetches from.
del HOSTILE["undeclared lock"]
BENIGN = {
    "edited": made("src/app.py", FILES["src/app.py"].replace("line 7", "seven")),
    "made": made("src/deep.py", "x = 1\n"),
    "deleted": made("g.py", None),
    "executable kept": made("run.sh", "b\n"),
    "no newline": made("f.py", "b"),
    "several": made("src/new.py", "x = 1\n") + made("src/newer.py", "x = 2\n"),
    "other letters": created("src/\u00e9.py"),
    "dependency": made("package.json", MANIFEST.replace("1.0.0", "1.0.1")),
    "lock": made("package-lock.json", '{"b": 1}\n'),
    "git's own": GOOD,
}


@pytest.fixture(scope="module")
def the_road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    with road(tmp_path_factory.mktemp("road")) as found:
        yield found


def test_every_hostile_kind_is_stopped_and_writes_nothing_outside(the_road: Road) -> None:
    before = outside(the_road)
    stopped = {kind: the_road.refused_by(diff) for kind, diff in HOSTILE.items()}
    assert [kind for kind, gate in stopped.items() if gate is None] == []
    assert {"applies", "policy"} <= set(stopped.values())
    assert outside(the_road) == before


def test_what_is_not_declared_is_stopped(the_road: Road) -> None:
    both = block("f.py") + block("g.py")
    assert the_road.refused_by(both, ("f.py",)) == "declared_set"
    assert the_road.refused_by(both, ("f.py", "g.py", "src/app.py")) == "declared_set"
    assert the_road.refused_by(both, ("f.py", "g.py")) is None


@pytest.mark.parametrize("diff", BENIGN.values(), ids=BENIGN)
def test_benign_patches_pass(the_road: Road, diff: str) -> None:
    assert the_road.refused_by(diff) is None
    assert the_road.bypasses() == []


def test_the_oracle_sees_what_no_gate_stopped(the_road: Road) -> None:
    """Without the gates, the same patches do harm: the oracle is not blind."""
    for kind in ("workflow", "test set-up", "a test", "build", "path hook", "client configuration"):
        the_road.worktree.reset()
        the_road.worktree.apply(FORBIDDEN[kind])
        assert the_road.bypasses(), kind
    the_road.worktree.reset()
    the_road.worktree.apply(CONTENT["script changed"])
    assert the_road.bypasses() == ["package.json"]


def outside(found: Road) -> object:
    """Everything around the worktree: the user's repository, with git's own, and what is beside it."""
    repo = found.context.repo.root
    config = {p.name: p.read_bytes() for p in (repo / ".git").iterdir() if p.is_file()}
    return files_below(repo), files_below(found.outside / "outside"), config


def drive(found: Road, count: int, seed: int) -> Counter[str]:
    """Mutants of hostile and benign diffs: how many each gate stopped. Fails on the first bypass."""
    # What is well-formed goes further when it is bent: it is drawn more often.
    sources = [diff for diff in MALFORMED.values() if len(diff) < 10_000]
    sources += [*FORBIDDEN.values(), *CONTENT.values(), *BENIGN.values()] * 6
    reported: Counter[str] = Counter()
    for number, diff in enumerate(islice(mutants(sources, seed), count)):
        if judge(diff) is None:  # what is no patch never reaches git
            reported["parser"] += 1
            continue
        gate = found.refused_by(diff)
        reported[gate or "passed"] += 1
        bypassed = [] if gate else found.bypasses()
        assert not bypassed, f"mutant {number} of seed {seed} changed {bypassed}:\n{diff}"
    return reported


def test_no_mutant_gets_past_the_gates(the_road: Road) -> None:
    before = outside(the_road)
    reported = drive(the_road, 400, seed=1)
    assert reported["parser"] > 50
    assert reported["policy"] + reported["passed"] + reported["applies"] > 5
    assert outside(the_road) == before


# --- Real fixes are the benign set -----------------------------------------------------------------


def real_fixes(limit: int) -> dict[str, list[FileChange]]:
    """The first fixes of the data, their files rebuilt around the hunks, of paths that a fix may change."""
    fixes: dict[str, list[FileChange]] = {}
    with lzma.open(DATA, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(islice(lines, limit)):
            changes = [
                change.model_copy(update={"path": f"fix{number}/{change.path}"})
                for change in rebuilt(json.loads(line)["diff"])
            ]
            if changes and not check_policy(changes):
                fixes[f"fix{number}"] = changes
    return fixes


def rebuilt(diff: str) -> Iterator[FileChange]:
    """Each file of a diff that only edits it: its hunks in their places, numbered lines between them."""
    for part in ("\n" + diff).split("\ndiff --git ")[1:]:
        header, *hunks = part.split("\n@@ -")
        path = header.split("\n")[0].partition(" b/")[2]
        if not hunks or " mode " in header or "rename " in header:
            continue
        old: list[str] = []
        new: list[str] = []
        for hunk in hunks:
            place, *lines = hunk.split("\n")
            gap = int(place.split(",")[0].split(" ")[0]) - 1 - len(old)
            filler = [f"~ {len(old) + n}" for n in range(gap)]
            old += filler + [line[1:] for line in lines if line[:1] in {" ", "-"}]
            new += filler + [line[1:] for line in lines if line[:1] in {" ", "+"}]
        yield FileChange(path=path, before="\n".join(old) + "\n", after="\n".join(new) + "\n")


def accepted(place: Path, limit: int) -> tuple[int, list[str]]:
    """How many real fixes took the road, and which of them were stopped, by what."""
    fixes = real_fixes(limit)
    files = {change.path: change.before or "" for changes in fixes.values() for change in changes}
    stopped = []
    with road(place, files) as found:
        for name, changes in fixes.items():
            gate = found.refused_by(unified_diff(changes))
            stopped += [f"{name}: {gate}"] * (gate is not None)
    return len(fixes), stopped


def test_real_fixes_pass(tmp_path: Path) -> None:
    if not DATA.exists():
        pytest.skip("../shared/data is not here")
    count, stopped = accepted(tmp_path, 25)
    assert count >= 15
    assert stopped == []


# --- The campaign ----------------------------------------------------------------------------------


def inputs(seed: int) -> Iterator[str]:
    """What the parser is given: mutants of all diffs, and pieces of diffs in any order."""
    chance = random.Random(seed)
    sources = [
        WHOLE,
        GOOD,
        created("f.py"),
        *(unified_diff([c]) for c in CHANGES),
        *BENIGN.values(),
    ]
    pieces = [*WHOLE.splitlines(keepends=True), HUNK, NO_NEWLINE, "\r\n", "\x00", "+b\n", "-a\n"]
    bent = mutants(sources, seed)
    while True:
        yield next(bent)
        yield HEAD + NAMES + "".join(chance.choices(pieces, k=chance.randrange(1, 8)))


def disagreements(diffs: list[str]) -> list[str]:
    """Those that git reads in another way than we do, asked together and, on any doubt, one by one."""
    ours = sorted((path, *n) for diff in diffs for path, n in counted(parse_patch(diff)).items())
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number}.diff" for number in range(len(diffs))]
        for name, diff in zip(names, diffs, strict=True):
            Path(folder, name).write_bytes(diff.encode())
        done = subprocess.run(
            ["git", "apply", "--numstat", "-z", *names],
            cwd=folder,
            env=GIT_ENV,
            capture_output=True,
        )
    rows = [row.split("\t") for row in done.stdout.decode().split("\0") if row]
    if not done.returncode and sorted((path, int(a), int(r)) for a, r, path in rows) == ours:
        return []
    return diffs if len(diffs) == 1 else [bad for diff in diffs for bad in disagreements([diff])]


def parse_many(count: int, seed: int = 0) -> tuple[int, list[str]]:
    """Reads that many inputs; how many different ones were patches, and those that git reads otherwise."""
    taken: dict[str, None] = {}
    for diff in islice(inputs(seed), count):
        if judge(diff) is not None:
            taken[diff] = None
    diffs = list(taken)
    groups = [diffs[at : at + 250] for at in range(0, len(diffs), 250)]
    return len(diffs), [bad for group in groups for bad in disagreements(group)]


def test_git_agrees_on_thousands() -> None:
    patches, bad = parse_many(4_000)
    assert patches > 100
    assert bad == []


def campaign(place: Path, *, parser_inputs: int, patches: int, fixes: int) -> None:
    """Everything at full size; the figures on standard output."""
    with road(place / "hostile") as found:
        before = outside(found)
        let_in = [kind for kind, diff in HOSTILE.items() if found.refused_by(diff) is None]
        reported = drive(found, patches, seed=0)
        written = outside(found) != before
    print(f"{len(HOSTILE)} hostile kinds: let in {let_in or 'none'}")
    print(f"{patches:,} mutants: {dict(reported)}; 0 policy bypasses; written outside: {written}")
    stopped: list[str] = []
    if DATA.exists():
        count, stopped = accepted(place / "benign", fixes)
        print(f"{len(BENIGN)} + {count} real benign patches: stopped {stopped or 'none'}")
    taken, bad = parse_many(parser_inputs)
    print(
        f"{parser_inputs:,} parser inputs: 0 crashes, {taken:,} different patches among them, "
        f"{len(bad)} read otherwise by git"
    )
    if let_in or written or bad or stopped:
        raise SystemExit(1)


if __name__ == "__main__":
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as folder:
        campaign(
            Path(folder),
            parser_inputs=round(1_000_000 * scale),
            patches=round(5_000 * scale),
            fixes=round(700 * scale),
        )
