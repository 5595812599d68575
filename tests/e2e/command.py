"""The command as a user starts it: a process, its exit code, and what it printed."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from tests.e2e.forked import run_forked
from tests.fakes.repository import commit_all, git, write
from tests.forks import MAIN, Forked
from tests.schemas.checking import check_output

SCRIPT = Path(sys.prefix) / "bin" / "fallback-tier"

#: Far above what any command here takes: a hang ends the test, it is no measurement.
_HANG_S = 300


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one JSON object on one line."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def problem(self) -> str:
        """The one sentence on standard error; checks the form that every error has."""
        first, _, rest = self.err.partition("\n")
        assert first.startswith("fallback-tier: "), self
        assert rest.startswith("  next: "), self
        assert len(rest.strip().splitlines()) == 1, self
        assert "Traceback" not in self.err + self.out, self
        return first.removeprefix("fallback-tier: ")

    @property
    def kind(self) -> str:
        """The kind of the error that ``--json`` printed; empty if it has none."""
        return str(self.json["error"].get("kind", ""))

    @property
    def next_step(self) -> str:
        return self.err.partition("  next: ")[2].strip()


def run(
    *arguments: str | Path,
    script: Path = SCRIPT,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    before: Callable[[], None] | None = None,
) -> Ended:
    """Run a command. ``env`` is added; ``before`` runs in the child (limits).

    The console script of this environment stands for ``fallback_tier.cli.main``: its commands run in a
    fork that has it imported already. Another ``script``, another path of modules, or ``before``: a
    process of its own.
    """
    environ = {**os.environ, "COLUMNS": "200", **(env or {})}
    if script == SCRIPT and before is None and "PYTHONPATH" not in (env or {}):
        words = [str(word) for word in arguments]
        forked = run_forked(words, cwd=cwd, env=environ, stdin=stdin, timeout_s=_HANG_S)
        return _checked(words, Ended(*forked))
    done = subprocess.run(
        [script, *map(str, arguments)],
        cwd=cwd,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_HANG_S,
        preexec_fn=before,
    )
    return _checked([*map(str, arguments)], Ended(done.returncode, done.stdout, done.stderr))


def _checked(words: Sequence[str], ended: Ended) -> Ended:
    """What was printed with ``--json`` is as its schema says."""
    check_output(words, ended.out)
    return ended


def run_with_workers(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ended:
    """As ``run``, of a command that starts workers: they are forks, too (``tests.forked_workers``)."""
    environ = {**os.environ, "COLUMNS": "200", **(env or {})}
    with NamedTemporaryFile("r") as log:
        words, place = [str(word) for word in arguments], cwd or Path.cwd()
        fork = Forked(MAIN, words, cwd=place, env=environ, log=Path(log.name))
        assert fork.stdout is not None
        with fork.stdout:
            out = fork.stdout.read()
        return _checked(words, Ended(fork.wait(_HANG_S), out, log.read()))


def repository(root: Path, files: Mapping[str, str]) -> Path:
    """A committed repository with these files."""
    root.mkdir(parents=True)
    write(root, dict(files))
    commit_all(root)
    return root


@dataclass(frozen=True)
class Snapshot:
    """Everything that a fix must leave alone: commit, status, and every byte, .git included."""

    head: str
    status: str
    digests: Mapping[str, str]


def snapshot(root: Path) -> Snapshot:
    """``root`` as it is now; git is asked last, since asking may refresh its index."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    digests = {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }
    if not (root / ".git").exists():
        return Snapshot("", "", digests)
    refs = sorted(path for path in (root / ".git" / "refs").rglob("*") if path.is_file())
    head = git(root, "rev-parse", "HEAD") if refs else ""
    quiet = ["--no-optional-locks", "status", "--porcelain", "--ignored"]
    return Snapshot(head, git(root, *quiet), digests)


def half_written(*folders: Path) -> list[Path]:
    """Temporary files and worktrees that a command left behind."""
    found = [path for folder in folders if folder.exists() for path in folder.rglob("*")]
    return [
        path
        for path in found
        if path.name.endswith(".part")
        or path.name.startswith(".tmp-")
        or path.parent.name == "worktrees"
    ]


def osv(
    package: str,
    *,
    ecosystem: str = "PyPI",
    fixed: str | None = "2.0.0",
    introduced: str = "0",
    **facts: Any,
) -> str:
    """An OSV record as JSON."""
    events = [{"introduced": introduced}, *([{"fixed": fixed}] if fixed else [])]
    kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
    affected = {
        "package": {"ecosystem": ecosystem, "name": package},
        "ranges": [{"type": kind, "events": events}],
    }
    record = {"id": "TEST-2026-1", "modified": "2026-01-01T00:00:00Z", "affected": [affected]}
    return json.dumps({**record, "summary": "a flaw", **facts})
