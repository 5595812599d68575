"""A checkout of its own for each fix: the repository that a configuration names is read, never written.

A repository behind a URL is mirrored first. Objects of a local one are linked, not copied, where they are
on the same file system.
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

#: A local clone of the largest repositories takes a minute; one over a network gets this long.
FETCH_S = 1_800.0
LOCAL_S = 600.0

#: An attempt takes minutes; a checkout that nobody has begun with for a day can go.
_STANDING_S = 86_400.0

#: Files that git is asked for at once: what they say must fit into a client's output.
_AT_ONCE = 64

#: Of a commit, in a folder's name.
_SHORT = 16

#: What git says of a failure, for a person.
_SAID_CHARS = 300

#: What ``git ls-remote --symref`` says of the default branch.
_DEFAULT = re.compile(r"^ref: (refs/heads/\S+)\tHEAD$", re.MULTILINE)

#: The user's own git configuration counts for a fetch: credentials, proxies, certificates.
_USERS = {"GIT_CONFIG_GLOBAL": "", "GIT_CONFIG_NOSYSTEM": ""}


def checkout(home: Path, fix_id: str) -> Path:
    """Return the folder of a fix's checkout: the same each time, since a resumed fix looks there."""
    return home / "checkouts" / fix_id


def remove_unused(home: Path) -> None:
    """Remove shared checkouts that no process holds: those of workers that were killed."""
    for path in (home / "checkouts").glob("*.lock"):
        with suppress(OSError):  # in use again, or gone: the next one to close tries it
            lock = try_hold(path)
            if lock is not None:
                with lock:
                    remove_tree(path.with_suffix(""))
                    path.unlink(missing_ok=True)  # while it is held


def lock_path(home: Path, name: str) -> Path:
    """The lock of a shared checkout: whoever works in it holds it."""
    return checkout(home, name).with_name(f"{name}.lock")


class Texts(NamedTuple):
    """What stands in some files of a commit, one behind the other. ``cut``: a file that is larger than a
    client may say, of which this is the beginning."""

    text: str
    cut: str | None = None


class Checkouts:
    """Those of one owner (a service, a fleet), below ``home``, a folder in the state folder."""

    def __init__(self, state_dir: Path, clients: ClientRunner, home: Path) -> None:
        self._state_dir = state_dir
        self._home = home
        self._clients = clients

    def commit_of(self, name: str, repository: RepositorySettings) -> str:
        """The commit that a fix of it is about now. A URL is fetched. Raises RepositoryError, ToolError."""
        source = self._source(name, repository, fetch=True)
        wanted = repository.ref or "HEAD"
        words = ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{wanted}^{{commit}}"]
        done = self._clients.run("git", words, cwd=source, timeout_s=LOCAL_S)
        if not done.ok:
            raise RepositoryError(
                f"Repository {name!r} has no commit {wanted!r}: {_git_message(done.output)}",
                next_step="Name a branch, a tag or a commit of it.",
                kind="no_such_commit",
            )
        return done.output.strip()

    def tracked(self, name: str, repository: RepositorySettings, commit: str) -> tuple[str, ...]:
        """The files of a commit, without a checkout. Raises RepositoryError, ToolError."""
        source = self._source(name, repository, fetch=False)
        words = ["ls-tree", "-r", "-z", "--name-only", commit]
        return tuple(filter(None, self._git(words, source, name, LOCAL_S).output.split("\0")))

    def texts(
        self, name: str, repository: RepositorySettings, commit: str, paths: Sequence[str]
    ) -> Iterator[Texts]:
        """What stands in these files of a commit, some at a time. Raises RepositoryError, ToolError."""
        source = self._source(name, repository, fetch=False)
        waiting = [paths[at : at + _AT_ONCE] for at in range(0, len(paths), _AT_ONCE)]
        while waiting:
            some = waiting.pop()
            words = ["show", "--no-textconv", *(f"{commit}:{path}" for path in some)]
            done = self._git(words, source, name, LOCAL_S)
            if done.truncated and len(some) > 1:
                half = len(some) // 2
                waiting += [some[:half], some[half:]]
            else:
                yield Texts(done.output, some[0] if done.truncated else None)

    @contextmanager
    def made(
        self, fix_id: str, name: str, repository: RepositorySettings, commit: str
    ) -> Iterator[Path]:
        """A clean checkout at this commit, gone at the end. Its own folder is called as the repository is:
        the record and what is handed over name it so. Raises RepositoryError, ToolError."""
        folder = checkout(self._home, fix_id)
        try:
            with writing_below(self._state_dir):
                remove_tree(folder)  # of a process that was killed
                folder.mkdir(parents=True)
            self._clone(name, repository, commit, folder / name)
            yield folder / name
        finally:
            remove_tree(folder)

    def standing(self, name: str, repository: RepositorySettings) -> Path:
        """A checkout of a mirror that stays, at what the configuration names now: for single attempts.

        Raises RepositoryError, ToolError.
        """
        commit = self.commit_of(name, repository)
        place = self._home / "standing" / f"{name}-{commit[:_SHORT]}"
        with writing_below(self._state_dir):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = hold(self._home / "standing" / f"{name}.lock", limit_s=FETCH_S)
        with lock:
            if not place.exists():
                self._clone(name, repository, commit, part := place.with_name(f"{name}.part"))
                part.rename(place)
                self._remove_old(name, place)
            os.utime(place)  # its age is that of its last use
        return place

    def _remove_old(self, name: str, kept: Path) -> None:
        """Of earlier commits, once no attempt can be at work in them."""
        for place in kept.parent.glob(f"{name}-{'?' * _SHORT}"):
            if place != kept and place.stat().st_mtime < time.time() - _STANDING_S:
                remove_tree(place)

    def _clone(self, name: str, repository: RepositorySettings, commit: str, place: Path) -> None:
        remove_tree(place)  # of a process that was killed
        source = self._source(name, repository, fetch=False)
        clone = ["clone", "--quiet", "--no-checkout", "--", str(source), str(place)]
        self._git([*_allow("file"), *clone], place.parent, name, LOCAL_S)
        # Without --force git exits with 0 if it could not read some files' objects.
        self._git(["checkout", "--quiet", "--detach", "--force", commit], place, name, LOCAL_S)

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
        """The address that it was made of: the configuration may name another one since."""
        words = ["config", "--file", str(mirror / "config"), "--get", "remote.origin.url"]
        return self._clients.run("git", words, cwd=mirror, timeout_s=LOCAL_S).output.strip()

    def _follow_default(self, url: str, mirror: Path, name: str) -> None:
        """A fetch does not tell which branch is the default one now, and HEAD is that branch."""
        words = [*_allow("https", "ssh"), "ls-remote", "--symref", "--", url, "HEAD"]
        reported = _DEFAULT.search(self._git(words, mirror, name, FETCH_S, env=_USERS).output)
        if reported is not None:
            self._git(["symbolic-ref", "HEAD", reported[1]], mirror, name, LOCAL_S)

    def _mirror(self, url: str, mirror: Path, name: str) -> None:
        """Whole, or not there."""
        part = mirror.with_suffix(".part")
        remove_tree(part)
        words = [*_allow("https", "ssh"), "clone", "--quiet", "--mirror", "--", url, str(part)]
        self._git(words, mirror.parent, name, FETCH_S, env=_USERS)
        remove_tree(mirror)
        part.rename(mirror)

    def _git(
        self,
        words: Sequence[str],
        cwd: Path,
        name: str,
        timeout_s: float,
        env: dict[str, str] | None = None,
    ) -> CommandResult:
        done = self._clients.run("git", words, cwd=cwd, timeout_s=timeout_s, env=env)
        if not done.ok and says_disk_full(done.output):
            with writing_below(self._state_dir):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not done.ok:
            what = "took too long" if done.timed_out else _git_message(done.output)
            raise RepositoryError(
                f"Repository {name!r} can't be fetched: {what}",
                next_step="Look at its entry in the configuration, and at its rights.",
                kind="not_fetched",
            )
        return done


def _allow(*protocols: str) -> list[str]:
    return [word for name in protocols for word in ("-c", f"protocol.{name}.allow=always")]


def _git_message(output: str) -> str:
    return " ".join(output.split())[:_SAID_CHARS] or "git said nothing"
