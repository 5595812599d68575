"""A repository on disk, and a RepoContext over it without git (the tier needs none)."""

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from fallback_tier.repo import RepoContext

#: git facts that never depend on the machine.
GIT_ENV = {
    "GIT_AUTHOR_NAME": "test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": "/usr/bin:/bin",
}


def context(root: Path, files: dict[str, str], *, fix_id: str = "fix-1") -> RepoContext:
    """Write ``files`` below ``root`` and describe them as tracked."""
    write(root, files)
    return RepoContext(
        root=root,
        base_commit="0" * 40,
        tracked_files=tuple(sorted(files)),
        manifests=tuple(path for path in sorted(files) if path == "deps.txt"),
        fix_id=fix_id,
        gate_transition_id="gate-1",
    )


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())


def git(root: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=root, env=GIT_ENV, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit_all(root: Path, message: str = "base") -> str:
    """Make ``root`` a git repository with everything committed; returns the commit."""
    if is_new := not (root / ".git").exists():
        _begin(root / ".git")
    git(root, "add", "-A")
    git(root, "-c", "maintenance.auto=false", "commit", "-q", "-m", message)
    if is_new:
        return (root / ".git" / "refs" / "heads" / "main").read_text().strip()
    return git(root, "rev-parse", "HEAD").strip()


def _begin(folder: Path) -> None:
    """What ``git init`` does: asked of git once a process, for thousands of repositories."""
    for path, content in _begun().items():
        place = folder / path
        if content is None:
            place.mkdir(parents=True)
        else:
            place.write_bytes(content)


@cache
def _begun() -> dict[Path, bytes | None]:
    """Path → content; None: a folder, which comes before what is in it."""
    with tempfile.TemporaryDirectory() as place:
        # The template would be 14 files that say what hooks are.
        git(Path(place), "init", "-q", "-b", "main", "--template=")
        made = Path(place) / ".git"
        return {
            path.relative_to(made): None if path.is_dir() else path.read_bytes()
            for path in sorted([made, *made.rglob("*")])
        }
