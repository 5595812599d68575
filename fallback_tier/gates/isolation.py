"""A disposable worktree a fix, reset between attempts; the user's repository is only ever read.

The worktree is a repository of its own that *borrows* the user's objects (gitrepository-layout(5),
``objects/info/alternates``). Unlike ``git worktree add`` it leaves no entry behind in the user's
``.git``, and unlike ``git clone`` it starts no transport, copies no configuration and no hooks, so
that nothing that the target names is executed here. Filters (LFS among them) don't run either: a
file that a filter would replace stays as it is committed. Submodules are not checked out.
"""

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fallback_audit.frozen import Frozen
from fallback_tier.errors import PatchError, RepositoryError, ToolFailedError
from fallback_tier.limits import MAX_TRACKED_FILES
from fallback_tier.ports import ClientRunner, CommandResult
from fallback_tier.repo import RepoContext

#: One git command. A checkout of 50,000 files takes 8 s on two cores.
GIT_TIMEOUT_S = 300.0

#: How much of git's own words an error quotes.
_QUOTED_CHARS = 2_000

_DUBIOUS = "dubious ownership"
_MOVED = re.compile(r"^Hunk #\d+ succeeded at \d+ \(offset", re.MULTILINE)
#: git's remarks come before its answer, on the same pipe.
_WARNINGS = re.compile(r"\A(?:(?:warning|hint): [^\n\0]*\n)+")
_RAW = re.compile(r":(\d{6}) (\d{6}) [0-9a-f]+ [0-9a-f]+ ([A-Z])\d*")

#: Ownership is judged with the configuration of the user's own, which is where safe.directory
#: stands; an empty value gives it back (``SubprocessClients.run``).
USERS_CONFIGURATION = {"GIT_CONFIG_GLOBAL": "", "GIT_CONFIG_NOSYSTEM": ""}


class RawChange(Frozen):
    """One entry of the index diff. Modes as git prints them; ``000000`` where absent."""

    path: str
    status: str
    old_mode: str
    new_mode: str


class RepositoryFacts(Frozen):
    """A user's repository as found. ``dirty``: tracked files that differ from the base commit."""

    root: Path
    base_commit: str
    tracked_files: tuple[str, ...]
    tracked_files_cut: bool
    dirty: tuple[str, ...]


class Worktree:
    """The base commit, checked out detached, in a folder that can be thrown away."""

    def __init__(self, place: Path, base_commit: str, clients: ClientRunner) -> None:
        self._place = place
        self._base_commit = base_commit
        self._clients = clients
        #: What the sandbox sees; the place around it holds what it must not see.
        self.path = place / "tree"

    @classmethod
    def create(cls, repo: RepoContext, clients: ClientRunner, place: Path) -> Self:
        """Check out ``repo``'s base commit below ``place``, which is emptied first.

        Raises RepositoryError where the objects are not there (a partial clone) or the place can't
        be written, ToolFailedError where git fails otherwise.
        """
        worktree = cls(place.resolve(), repo.base_commit, clients)
        try:
            worktree.close()
            worktree.path.mkdir(parents=True)
            worktree._check_out(repo.root)
        except OSError as error:
            worktree.close()
            raise RepositoryError(
                f"No worktree can be made in {place}: {error.strerror}.",
                next_step="Free some space there, or choose another state directory.",
            ) from error
        except BaseException:
            worktree.close()
            raise
        return worktree

    def apply(self, diff: str) -> None:
        """Apply a unified diff to index and files, exactly where it says: no fuzz, no offset.

        Raises PatchError with git's own words; the worktree is as before then.
        """
        patch = self._place / "patch.diff"
        patch.write_text(diff, encoding="utf-8", newline="")
        options = ["apply", "--index", "--whitespace=nowarn"]
        check = self._run([*options, "--check", "--verbose", "--", str(patch)])
        if check.exit_code != 0 or _MOVED.search(check.output):
            raise PatchError(
                f"The patch does not apply to the base commit: {_short(check.output)}",
                next_step="Make it from the files of the base commit.",
            )
        self._git([*options, "--", str(patch)])

    def restore(self) -> None:
        """Tracked files as the patch left them, whatever a command did to them since.

        What a command installed stays. Without this a gate's command could rewrite what the next
        gate reads, and the proof would be of something else than the patch.
        """
        self._git(["checkout-index", "--all", "--force", "--quiet"])

    def changed(self) -> tuple[RawChange, ...]:
        """How the index differs from the base commit, by path."""
        return raw_changes(self._clients, self.path, self._base_commit)

    def reset(self) -> None:
        """Back to the pristine base commit: untracked and ignored files go too."""
        make_removable(self.path)
        self._git(["reset", "--quiet", "--hard", self._base_commit])
        self._git(["clean", "-ffdxq"])

    def close(self) -> None:
        """Remove everything. Idempotent."""
        if self._place.exists():
            make_removable(self._place)
            shutil.rmtree(self._place)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_out(self, root: Path) -> None:
        def ask(*args: str) -> str:
            answer = _git(self._clients, root, ["rev-parse", *args], USERS_CONFIGURATION)
            return answer.strip()

        objects = Path(ask("--path-format=absolute", "--git-common-dir")) / "objects"
        if "\n" in str(objects):
            raise RepositoryError(
                f"The repository's path {str(root)!r} has a line break.",
                next_step="Move it to a path without one.",
            )
        object_format = ask("--show-object-format")
        self._git(["init", "--quiet", "--template=", f"--object-format={object_format}"])
        alternates = self.path / ".git" / "objects" / "info" / "alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_text(f"{objects}\n", encoding="utf-8")
        result = self._run(["checkout", "--quiet", "--detach", "--force", self._base_commit])
        if result.exit_code != 0:
            raise RepositoryError(
                f"Commit {self._base_commit} of {root} can't be checked out: "
                f"{_short(result.output)}",
                next_step="Check it with `git fsck`; a partial clone needs its objects fetched.",
            )

    def _run(self, args: Sequence[str]) -> CommandResult:
        return self._clients.run("git", args, cwd=self.path, timeout_s=GIT_TIMEOUT_S)

    def _git(self, args: Sequence[str]) -> str:
        return _git(self._clients, self.path, args)


def raw_changes(clients: ClientRunner, tree: Path, base_commit: str) -> tuple[RawChange, ...]:
    """How a checkout's index differs from a commit: no renames guessed, nothing hidden.

    Raises ToolFailedError where git fails or its answer can't be read whole.
    """
    options = ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--full-index"]
    output = _git(clients, tree, [*options, "--ignore-submodules=none", base_commit, "--"])
    fields = output.split("\0")
    changes = []
    for header, path in zip(fields[::2], fields[1::2], strict=False):
        match = _RAW.fullmatch(header)
        if match is None:
            raise _failed(f"git diff-index in {tree}", f"can't be read: {header!r}")
        changes.append(RawChange(path=path, old_mode=match[1], new_mode=match[2], status=match[3]))
    return tuple(changes)


def inspect_repository(path: Path, clients: ClientRunner) -> RepositoryFacts:
    """What a fix needs to know of the user's repository; read-only.

    Raises RepositoryError: no such folder, not the root of a repository with a working tree, owned
    by somebody else, without a commit. A dirty tree is a fact, not an error here.
    """
    if not path.is_dir():
        raise RepositoryError(
            f"{str(path)!r} is not a folder.", next_step="Name the root of a git repository."
        )
    path = path.resolve()
    root = Path(_ask_top_level(path, clients))
    if root != path:
        raise RepositoryError(
            f"{path} lies inside the repository {root}, it is not one itself.",
            next_step=f"Run it on {root}, or `git init` and commit here.",
        )
    head = _inspect(clients, root, ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    if head.exit_code != 0:
        raise RepositoryError(
            f"{root} has no commit yet.",
            next_step="Commit the files that are to be fixed: a fix starts from a commit.",
        )
    tracked = _git(clients, root, ["ls-files", "-z"], USERS_CONFIGURATION).split("\0")[:-1]
    status = ["status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames"]
    dirty = _git(clients, root, [*status, "--ignore-submodules=dirty"], USERS_CONFIGURATION)
    return RepositoryFacts(
        root=root,
        base_commit=head.output.strip(),
        tracked_files=tuple(tracked[:MAX_TRACKED_FILES]),
        tracked_files_cut=len(tracked) > MAX_TRACKED_FILES,
        dirty=tuple(entry[len("XY ") :] for entry in dirty.split("\0")[:-1]),
    )


def make_removable(tree: Path) -> None:
    """Give ourselves back the folders that a command made unreadable. Links are not followed."""
    for folder, names, _files in os.walk(tree):
        for name in names:
            place = os.path.join(folder, name)  # noqa: PTH118 (a Path each folder costs twice)
            mode = os.lstat(place).st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                Path(place).chmod(stat.S_IRWXU)


def _ask_top_level(path: Path, clients: ClientRunner) -> str:
    answer = _inspect(clients, path, ["rev-parse", "--show-toplevel"])
    if answer.exit_code == 0:
        return answer.output.removesuffix("\n")
    if _DUBIOUS in answer.output:
        raise RepositoryError(
            f"{path} belongs to another user, so git does not trust it.",
            next_step="Run as its owner, or `git config --global --add safe.directory PATH`.",
        )
    if "work tree" in answer.output:
        raise RepositoryError(
            f"{path} is a bare repository.", next_step="Name a checkout of it (`git clone`)."
        )
    raise RepositoryError(
        f"{path} is not a git repository: {_short(answer.output)}",
        next_step="`git init` and commit, or name another folder.",
    )


def _inspect(clients: ClientRunner, root: Path, args: Sequence[str]) -> CommandResult:
    env = USERS_CONFIGURATION
    return clients.run("git", args, cwd=root, timeout_s=GIT_TIMEOUT_S, env=env)


def _git(
    clients: ClientRunner, cwd: Path, args: Sequence[str], env: Mapping[str, str] | None = None
) -> str:
    result = clients.run("git", args, cwd=cwd, timeout_s=GIT_TIMEOUT_S, env=env)
    if not result.ok or result.truncated:
        why = "was too long" if result.truncated else _short(result.output) or "took too long"
        raise _failed(f"git {args[0]} in {cwd}", why)
    return _WARNINGS.sub("", result.output)


def _failed(what: str, why: str) -> ToolFailedError:
    return ToolFailedError(
        f"{what} failed: {why}",
        next_step="Run that command by hand in the repository to see what is wrong.",
        output=why,
    )


def _short(output: str) -> str:
    return " ".join(output[-_QUOTED_CHARS:].split())
