"""A separate checkout for each fix: the repository that a configuration names is read, never written.

A repository with a URL is mirrored first. Objects of a local one are linked, not copied, if they are on the
same file system.
"""

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.files.folders import remove_tree, writing_below
from fallback_tier.files.locks import hold, try_hold
from fallback_tier.gates.trees.isolation import says_disk_full
from fallback_tier.workers.tables import RepositorySettings

#: Time limits: a local clone of the largest repositories takes a minute; one over a network gets more.
FETCH_S = 1_800.0
LOCAL_S = 600.0

#: A standing checkout that was not used for a day can be removed: an attempt takes minutes.
_STANDING_S = 86_400.0

#: Files per call of git: their content must fit into a client's output.
_AT_ONCE = 64

#: Digits of a commit in a folder's name.
_SHORT = 16

#: Characters of git's error message that are shown.
_SAID_CHARS = 300

#: The default branch in the output of ``git ls-remote --symref``.
_DEFAULT = re.compile(r"^ref: (refs/heads/\S+)\tHEAD$", re.MULTILINE)

#: A fetch uses the user's own git configuration: credentials, proxies, certificates.
_USERS = {"GIT_CONFIG_GLOBAL": "", "GIT_CONFIG_NOSYSTEM": ""}


def checkout(home: Path, fix_id: str) -> Path:
    """Return the folder of a fix's checkout: the same each time, since a resumed fix looks there."""
    return home / "checkouts" / fix_id


def remove_unused(home: Path) -> None:
    """Remove shared checkouts that no process holds: those of workers that were killed."""
    for path in (home / "checkouts").glob("*.lock"):
        with suppress(OSError):  # in use again, or gone: the next call tries again
            lock = try_hold(path)
            if lock is not None:
                with lock:
                    remove_tree(path.with_suffix(""))
                    path.unlink(missing_ok=True)  # while it is held


def lock_path(home: Path, name: str) -> Path:
    """Return the lock of a shared checkout, which every process that works in it holds."""
    return checkout(home, name).with_name(f"{name}.lock")


class Texts(NamedTuple):
    """The concatenated text of some files of a commit. ``cut``: a file of which only the beginning is
    included, since it is larger than a client's output.
    """

    text: str
    cut: str | None = None


class Checkouts:
    """The checkouts of one owner (a service, a fleet), below ``home``, a folder in the state folder."""

    def __init__(self, state_dir: Path, clients: ClientRunner, home: Path) -> None:
        self._state_dir = state_dir
        self._home = home
        self._clients = clients

    def commit_of(self, name: str, repository: RepositorySettings) -> str:
        """Return the commit for a fix that begins now. A URL is fetched. Raises RepositoryError,
        ToolError.
        """
        source = self._source(name, repository, fetch=True)
        ref = repository.ref or "HEAD"
        arguments = ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{ref}^{{commit}}"]
        result = self._clients.run("git", arguments, cwd=source, timeout_s=LOCAL_S)
        if not result.ok:
            raise RepositoryError(
                f"Repository {name!r} has no commit {ref!r}: {_git_message(result.output)}",
                next_step="Name a branch, a tag or a commit of it.",
                kind="no_such_commit",
            )
        return result.output.strip()

    def tracked(self, name: str, repository: RepositorySettings, commit: str) -> tuple[str, ...]:
        """Return the files of a commit, without a checkout. Raises RepositoryError, ToolError."""
        source = self._source(name, repository, fetch=False)
        arguments = ["ls-tree", "-r", "-z", "--name-only", commit]
        return tuple(filter(None, self._git(arguments, source, name, LOCAL_S).output.split("\0")))

    def texts(
        self, name: str, repository: RepositorySettings, commit: str, paths: Sequence[str]
    ) -> Iterator[Texts]:
        """Yield the texts of these files of a commit, some files at a time. Raises RepositoryError,
        ToolError.
        """
        source = self._source(name, repository, fetch=False)
        batches = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
        while batches:
            batch = batches.pop()
            arguments = ["show", "--no-textconv", *(f"{commit}:{path}" for path in batch)]
            result = self._git(arguments, source, name, LOCAL_S)
            if result.truncated and len(batch) > 1:
                half = len(batch) // 2
                batches += [batch[:half], batch[half:]]
            else:
                yield Texts(result.output, batch[0] if result.truncated else None)

    @contextmanager
    def made(
        self, fix_id: str, name: str, repository: RepositorySettings, commit: str
    ) -> Iterator[Path]:
        """Yield a clean checkout at this commit, which is removed at the end. Its own folder has the
        repository's name, which the audit trail and delivered patches use. Raises RepositoryError,
        ToolError.
        """
        folder = checkout(self._home, fix_id)
        try:
            with writing_below(self._state_dir):
                remove_tree(folder)  # left behind by a killed process
                folder.mkdir(parents=True)
            self._clone(name, repository, commit, folder / name)
            yield folder / name
        finally:
            remove_tree(folder)

    def standing(self, name: str, repository: RepositorySettings) -> Path:
        """Return a checkout of a mirror that is kept, at the commit that the configuration names now: for
        single attempts.

        Raises RepositoryError, ToolError.
        """
        commit = self.commit_of(name, repository)
        path = self._home / "standing" / f"{name}-{commit[:_SHORT]}"
        with writing_below(self._state_dir):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = hold(self._home / "standing" / f"{name}.lock", limit_s=FETCH_S)
        with lock:
            if not path.exists():
                self._clone(name, repository, commit, part := path.with_name(f"{name}.part"))
                part.rename(path)
                self._remove_old(name, path)
            os.utime(path)  # its age counts from its last use
        return path

    def _remove_old(self, name: str, current: Path) -> None:
        """Remove checkouts of earlier commits, once no attempt can be working in them."""
        for path in current.parent.glob(f"{name}-{'?' * _SHORT}"):
            if path != current and path.stat().st_mtime < time.time() - _STANDING_S:
                remove_tree(path)

    def _clone(self, name: str, repository: RepositorySettings, commit: str, path: Path) -> None:
        remove_tree(path)  # left behind by a killed process
        source = self._source(name, repository, fetch=False)
        clone = ["clone", "--quiet", "--no-checkout", "--", str(source), str(path)]
        self._git([*_allow("file"), *clone], path.parent, name, LOCAL_S)
        # Without --force git exits with 0 if it could not read some files' objects.
        self._git(["checkout", "--quiet", "--detach", "--force", commit], path, name, LOCAL_S)

    def _source(self, name: str, repository: RepositorySettings, *, fetch: bool) -> Path:
        if repository.path is not None:
            if not repository.path.is_dir():
                raise RepositoryError(
                    f"Repository {name!r}: {repository.path} is not a folder.",
                    next_step="Correct its path in the configuration.",
                    kind="not_a_folder",
                )
            return repository.path
        assert repository.url is not None  # noqa: S101 (settings: one of the two)
        mirror = self._home / "mirrors" / f"{name}.git"
        with writing_below(self._state_dir):
            mirror.parent.mkdir(parents=True, exist_ok=True)
            lock = hold(mirror.with_suffix(".lock"), limit_s=FETCH_S)
        with lock:
            if not (mirror / "HEAD").exists() or (fetch and self._of(mirror) != repository.url):
                self._mirror(repository.url, mirror, name)
            elif fetch:
                fetch_all = ["fetch", "--quiet", "--prune", "--", repository.url, "+refs/*:refs/*"]
                self._git([*_allow("https", "ssh"), *fetch_all], mirror, name, FETCH_S, env=_USERS)
                self._follow_default(repository.url, mirror, name)
        return mirror

    def _of(self, mirror: Path) -> str:
        """Return the URL of which the mirror was made: the configuration may name another one by now."""
        arguments = ["config", "--file", str(mirror / "config"), "--get", "remote.origin.url"]
        return self._clients.run("git", arguments, cwd=mirror, timeout_s=LOCAL_S).output.strip()

    def _follow_default(self, url: str, mirror: Path, name: str) -> None:
        """Set HEAD to the current default branch, which a fetch does not report."""
        arguments = [*_allow("https", "ssh"), "ls-remote", "--symref", "--", url, "HEAD"]
        match = _DEFAULT.search(self._git(arguments, mirror, name, FETCH_S, env=_USERS).output)
        if match is not None:
            self._git(["symbolic-ref", "HEAD", match[1]], mirror, name, LOCAL_S)

    def _mirror(self, url: str, mirror: Path, name: str) -> None:
        """Create a mirror, completely or not at all."""
        part = mirror.with_suffix(".part")
        remove_tree(part)
        arguments = [*_allow("https", "ssh"), "clone", "--quiet", "--mirror", "--", url, str(part)]
        self._git(arguments, mirror.parent, name, FETCH_S, env=_USERS)
        remove_tree(mirror)
        part.rename(mirror)

    def _git(
        self,
        arguments: Sequence[str],
        cwd: Path,
        name: str,
        timeout_s: float,
        env: dict[str, str] | None = None,
    ) -> CommandResult:
        result = self._clients.run("git", arguments, cwd=cwd, timeout_s=timeout_s, env=env)
        if not result.ok and says_disk_full(result.output):
            with writing_below(self._state_dir):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not result.ok:
            reason = "took too long" if result.timed_out else _git_message(result.output)
            raise RepositoryError(
                f"Repository {name!r} can't be fetched: {reason}",
                next_step="Look at its entry in the configuration, and at its rights.",
                kind="not_fetched",
            )
        return result


def _allow(*protocols: str) -> list[str]:
    return [argument for name in protocols for argument in ("-c", f"protocol.{name}.allow=always")]


def _git_message(output: str) -> str:
    return " ".join(output.split())[:_SAID_CHARS] or "git said nothing"
