"""The road of a patch through the gates on a real worktree, and an oracle that shares no code with them.

The oracle compares the files on disk before and after: whatever the gates passed may have changed source
files and the dependencies of one manifest, as plain files of the same mode, and nothing else anywhere.
"""

import json
import os
import random
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fallback_audit.vocabulary import GateStatus
from fallback_tier.errors import PatchSyntaxError
from fallback_tier.gate_ports import GateContext
from fallback_tier.gates.builtin.common import DeclaredSetGate, PolicyGate, judge_application
from fallback_tier.gates.trees.worktrees import RunnerWorktree, Worktrees
from fallback_tier.patch.parse import parse_patch
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.fakes.ecosystem import FakeEcosystem
from tests.fakes.repository import commit_all
from tests.integration.gate_setup import advisory, applied, repository

PACKAGE = {"name": "app", "scripts": {"test": "node --test"}, "dependencies": {"left": "1.0.0"}}

#: What the hostile diffs are about: their first line is that of a file which a fix may not touch.
FILES = {
    "f.py": "a\n",
    "g.py": "a\n",
    "f": "a\n",
    "src/__init__.py": "a\n",
    "src/app.py": "".join(f"line {number}\n" for number in range(30)),
    "run.sh": "a\n",
    "README.md": "a\n",
    "tests/test_f.py": "a\n",
    "test/f.js": "a\n",
    "jest.config.js": "a\n",
    "package.json": json.dumps(PACKAGE, indent=2) + "\n",
    "package-lock.json": "{}\n",
    ".github/workflows/ci.yml": "a\n",
    ".gitlab-ci.yml": "a\n",
    ".gitignore": "a\n",
    "Makefile": "a\n",
    "Dockerfile": "a\n",
    "Jenkinsfile": "a\n",
}
#: Plain source: what a fix may change.
FREE = frozenset({"f.py", "g.py", "f", "src/app.py", "src/__init__.py", "run.sh", "README.md"})


class Ecosystem(FakeEcosystem):
    """One manifest of which the dependencies may change, and one lock file."""

    def editable_keys(self, path: str) -> tuple[str, ...] | None:
        return {"package.json": ("dependencies",), "package-lock.json": ()}.get(path)


Seen = dict[str, tuple[int, bytes]]


def files_below(root: Path) -> Seen:
    """Everything but git's own: mode and content, or where a link leads."""
    found: Seen = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*names, *(f for f in folders if (Path(folder) / f).is_symlink())]:
            place = Path(folder) / name
            mode = place.lstat().st_mode
            if stat.S_ISREG(mode):
                content = place.read_bytes()
            else:
                content = str(place.readlink()).encode() if stat.S_ISLNK(mode) else b""
            found[str(place.relative_to(root))] = (mode, content)
    return found


@dataclass
class Road:
    """One worktree for many patches. ``outside`` is everything around it that no patch may write."""

    worktree: RunnerWorktree
    context: GateContext
    outside: Path
    base: Seen = field(default_factory=dict)

    def refused_by(self, diff: str, files: tuple[str, ...] | None = None) -> str | None:
        """The gate that stops this patch; None: all passed. ``files``: what is declared; by default
        whatever the diff itself says, so that the declaration stops nothing."""
        named = _named(diff)
        if named:  # what is no patch never reaches git, so that there is nothing to undo
            self.worktree.reset()
        files = named if files is None else files
        patch = applied("", files).model_copy(update={"diff": diff})
        if judge_application(patch, self.worktree).status is GateStatus.FAILED:
            return "applies"
        context = replace(self.context, application=patch)
        for gate in (DeclaredSetGate(), PolicyGate(Ecosystem())):
            if gate.judge(context).status is GateStatus.FAILED:
                return gate.name
        return None

    def bypasses(self) -> list[str]:
        """What the patch that is applied now changed and never should have."""
        with self.worktree.fresh(patched=True) as tree:
            now = files_below(tree.root)
        problems = []
        for path in sorted(now.keys() | self.base.keys()):
            was, is_ = self.base.get(path), now.get(path)
            if was != is_ and not _may_change(path, was, is_):
                problems.append(path)
        return problems


def _named(diff: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(patch.path for patch in parse_patch(diff)))
    except PatchSyntaxError:
        return ()


def _may_change(path: str, was: tuple[int, bytes] | None, now: tuple[int, bytes] | None) -> bool:
    if path == "package.json" and was and now and was[0] == now[0]:
        old, new = (json.loads(text) for _, text in (was, now))
        return {**old, "dependencies": 0} == {**new, "dependencies": 0}
    if path == "package-lock.json":
        return bool(was and now and was[0] == now[0])
    if was and now and was[0] != now[0]:
        return False
    if now and (not stat.S_ISREG(now[0]) or (was is None and now[0] & 0o111)):
        return False
    return path in FREE or (was is None and now is not None and _may_be_new(path, now[1]))


def _may_be_new(path: str, content: bytes) -> bool:
    """Only a module beside those of the one package here."""
    module = re.fullmatch(r"src/\w+\.py", path)
    return bool(module and content.strip() and content[:2] != b"#!" and not _is_special(path))


def _is_special(path: str) -> bool:
    """A new file that something would run or read by itself. Plain words: no code of the policy's."""
    name = path.rpartition("/")[2].lower()
    words = ("test", "spec", ".git", "ci", "conftest", "custom", ".pth", "npmrc", "envrc", "husky")
    more = ("jenkins", "makefile", "docker", "node_modules", "package", "config", "requirements")
    return any(word in path.lower() for word in words + more) or name.startswith(".")


@contextmanager
def road(place: Path, files: Mapping[str, str] = FILES) -> Iterator[Road]:
    """A repository at ``place``, its worktree, and the gates' view of both."""
    repo: RepoContext = repository(place / "repo", files)
    if "run.sh" in files:
        (repo.root / "run.sh").chmod(0o755)
        (repo.root / "out").symlink_to("../../../outside")
        repo = repo.model_copy(update={"base_commit": commit_all(repo.root, "links and modes")})
    (place / "outside").mkdir()
    (place / "outside" / "canary").write_text("a\n")
    clients, sandbox = SubprocessClients(), BubblewrapSandbox()
    with Worktrees(place / "state", clients, sandbox, layered=False).open(repo) as worktree:
        context = GateContext(
            advisory=advisory(),
            repo=repo,
            application=applied(),
            worktree=worktree,
            cache=place / "cache",
            sandbox=sandbox,
            clients=clients,
            timeout_s=60.0,
        )
        with worktree.fresh(patched=False) as tree:
            base = files_below(tree.root)
        yield Road(worktree, context, place, base)


# --- Mutants ---------------------------------------------------------------------------------------

_PATHS = (
    *("f.py", "src/app.py", "src/new.py", "tests/test_f.py", "../outside/canary", "/etc/passwd"),
    *(".github/workflows/ci.yml", ".git/config", "package.json", "conftest.py", "run.sh", "link"),
    *("sub/.GIT/config", "src/../tests/test_f.py", "package-lock.json", "README.md", "é.py"),
)
_LINES = (
    *("new file mode 100644", "new file mode 120000", "new file mode 100755", "old mode 100644"),
    *("deleted file mode 100644", "index 1234567..89abcde 100644", "index 1234567..89abcde 120000"),
    *("rename from f.py", "rename to tests/f.py", "copy from f.py", "copy to conftest.py"),
    *("--- a/f.py", "+++ b/f.py", "--- /dev/null", "+++ /dev/null", "@@ -1 +1 @@", "@@ -0,0 +1 @@"),
    *("-a", "+b", " a", "+import os", "\\ No newline at end of file", "GIT binary patch", ""),
)


def mutants(diffs: list[str], seed: int) -> Iterator[str]:
    """Diffs with lines and names taken out, put in, swapped, and with others' blocks behind them."""
    chance = random.Random(seed)
    while True:
        lines = chance.choice(diffs).split("\n")
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(lines))
            kind = chance.randrange(6)
            if kind == 0:
                lines.insert(at, chance.choice(_LINES))
            elif kind == 1:
                del lines[at : at + chance.randrange(1, 3)]
            elif kind == 2:
                old, new = chance.choice(_PATHS), chance.choice(_PATHS)
                lines = "\n".join(lines).replace(old, new).split("\n")
            elif kind == 3:
                lines = [*lines[:-1], *chance.choice(diffs).split("\n")]
            elif kind == 4:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            else:
                lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)] + chance.choice(
                    "ab/. ~"
                )
            lines = lines or [""]
        yield "\n".join(lines)
