"""A public repository at a commit, from a local clone where there is one."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: One git command; a whole clone over a slow line is the longest.
_GIT_TIMEOUT_S = 1_800

_PUBLIC = "https://github.com"

_WHO = ("-c", "user.name=measure", "-c", "user.email=measure@example.invalid")


def clone(
    repo: str, commit: str, folder: Path, clones: Path | None
) -> tuple[Path, tuple[str, ...]]:
    """``OWNER/NAME`` in ``folder``, in a folder of its own name, and the files that the clone lists and
    does not hold (a mirror without large ones). Then one commit of ours, which takes them away, stands on
    the one asked for. Raises RuntimeError.

    From a local clone where there is one, else from where the public has it; the remote is the public
    one in either case.
    """
    public = f"{_PUBLIC}/{repo}"
    local = None if clones is None else clones / f"{repo.replace('/', '+')}.git"
    root = folder / repo.rpartition("/")[2]
    if local is not None and local.exists():
        git(folder, "clone", "-q", "--shared", "--no-checkout", str(local.resolve()), str(root))
        git(root, "remote", "set-url", "origin", public)
    else:
        git(folder, "clone", "-q", "--no-checkout", public, str(root))
    git(root, "checkout", "-q", "-B", "main", commit)
    return root, _without_absent(root)


def _without_absent(root: Path) -> tuple[str, ...]:
    """Take away what git could not check out, by name, so that the tree is clean."""
    message = git(root, "ls-files", "-z", "--deleted").decode()
    absent = tuple(filter(None, message.split("\0")))
    if absent:
        git(root, "rm", "-q", "--cached", "--", *absent)
        # Of the same day: what a tool does with old code is measured, not what with today's.
        day = git(root, "show", "-s", "--format=%cI").decode().strip()
        commit(root, "Without files that the clone lacks", day)
    return absent


def commit(root: Path, message: str, day: str | None = None) -> None:
    """Commit what is staged; ``day``: another than today, for git. Raises RuntimeError."""
    env = None if day is None else {**os.environ, "GIT_COMMITTER_DATE": day}
    git(root, *_WHO, "commit", "-q", "--no-verify", "-m", message, env=env)


def copy(root: Path, place: Path) -> Path:
    """Another clean working tree of the same commit, with the same remote. Raises RuntimeError."""
    options = ("-q", "--shared", "--no-hardlinks")
    git(place.parent, "clone", *options, str(root), str(place))
    if "origin" in git(root, "remote").decode().split():
        public = git(root, "remote", "get-url", "origin").decode().strip()
        git(place, "remote", "set-url", "origin", public)
    else:
        git(place, "remote", "remove", "origin")
    return place


def git(cwd: Path, *arguments: str, env: Mapping[str, str] | None = None) -> bytes:
    """What git prints. Raises RuntimeError with its own words."""
    command: Sequence[str] = ("git", *arguments)
    done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=_GIT_TIMEOUT_S, env=env)
    if done.returncode != 0:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise RuntimeError(f"git {arguments[0]}: {message[-300:]}")
    return done.stdout
