"""A worktree that is one checkout: works wherever git does; its cost grows with the repository."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Self

from fallback_tier.errors import PatchError
from fallback_tier.execution import ClientRunner, CommandResult
from fallback_tier.files.folders import make_removable, remove_tree
from fallback_tier.files.tree import ABSENT, FileTree, RawChange
from fallback_tier.gates.trees.isolation import (
    GIT_TIMEOUT_S,
    check_out,
    git,
    git_failed,
    in_short,
)
from fallback_tier.gates.trees.private_git import commit_index, keep_history
from fallback_tier.repo import RepoContext

_MOVED = re.compile(r"^Hunk #\d+ succeeded at \d+ \(offset", re.MULTILINE)
_RAW = re.compile(r":(\d{6}) (\d{6}) [0-9a-f]+ [0-9a-f]+ ([A-Z])\d*")


class CheckoutWorktree:
    """The base commit, checked out detached; the patch goes to its index and its files."""

    def __init__(self, place: Path, base_commit: str, clients: ClientRunner) -> None:
        self._place = place
        self._base_commit = base_commit
        self._clients = clients
        #: What the sandbox sees; the place around it holds what it must not see.
        self.tree = FileTree(root=place / "tree")

    @classmethod
    def create(cls, repo: RepoContext, clients: ClientRunner, place: Path) -> Self:
        """Check out ``repo``'s base commit in the empty folder ``place``.

        Raises RepositoryError where the objects are not there, ToolFailedError where git fails
        otherwise; OSError where the place can't be written.
        """
        worktree = cls(place, repo.base_commit, clients)
        worktree.tree.root.mkdir()
        check_out(repo, worktree.tree.root, clients)
        keep_history(repo, worktree.tree.root, clients)
        return worktree

    def apply(self, diff: str) -> None:
        """Apply a unified diff to index and files, exactly where it says: no fuzz, no offset.

        Raises PatchError with git's own words; the worktree is as before then.
        """
        patch = self._place / "patch.diff"
        patch.write_text(diff, encoding="utf-8", newline="")
        options = ["apply", "--index", "--whitespace=nowarn"]
        check_applied(self._run([*options, "--check", "--verbose", "--", str(patch)]))
        try:
            check_applied(self._run([*options, "--", str(patch)]))
        except PatchError:  # a file in a submodule's place is found only when it is written
            self.reset()
            raise

    def restore(self) -> None:
        """Tracked files as the patch left them, gone where it removed them, whatever a command did since.

        What a command installed stays. Without this a gate's command could rewrite what the next
        gate reads, and the proof would be of something else than the patch.
        """
        make_removable(self.tree.root)  # a folder that a command locked would lock out git, and us
        for change in self.changed():
            if change.new_mode == ABSENT:
                self._remove(PurePosixPath(change.path))
        self._git(["checkout-index", "--all", "--force", "--quiet"])

    def changed(self) -> tuple[RawChange, ...]:
        """How the index differs from the base commit, by path: no renames guessed, nothing hidden.

        Raises ToolFailedError where git fails or its answer can't be read whole.
        """
        options = ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--full-index"]
        output = self._git([*options, "--ignore-submodules=none", self._base_commit, "--"])
        fields = output.split("\0")
        return tuple(
            self._raw(header, path) for header, path in zip(fields[::2], fields[1::2], strict=False)
        )

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[FileTree]:
        """The patched files, or the base commit's, as nothing but git left them, with its own ``.git``.

        Raises ToolFailedError.
        """
        folder = Path(tempfile.mkdtemp(dir=self._place, prefix="fresh-"))
        try:
            tree, git_dir = folder / "tree", self.tree.root / ".git"
            own = tree / ".git"
            shutil.copytree(git_dir, own)
            if patched:
                commit_index(git_dir, own / "index", own, self._base_commit, self._clients)
            git(self._clients, tree, ["reset", "--quiet", "--hard", "HEAD"])
            yield FileTree(root=tree, is_disposable=True)
        finally:
            remove_tree(folder)

    def reset(self) -> None:
        """Back to the pristine base commit: untracked and ignored files go too."""
        make_removable(self.tree.root)
        self._git(["reset", "--quiet", "--hard", self._base_commit])
        self._git(["clean", "-ffdxq"])

    def close(self) -> None:
        """Nothing is held but the files, which are their place's owner's to remove."""

    def _remove(self, path: PurePosixPath) -> None:
        """What a command made in the place of a file that the patch removed; no link is followed."""
        for place in (self.tree.root / part for part in [*reversed(path.parents)][1:]):
            if place.is_symlink():
                place.unlink()
        place = self.tree.root / path
        if place.is_dir() and not place.is_symlink():
            remove_tree(place)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                place.unlink()

    def _run(self, args: Sequence[str]) -> CommandResult:
        return self._clients.run("git", args, cwd=self.tree.root, timeout_s=GIT_TIMEOUT_S)

    def _git(self, args: Sequence[str]) -> str:
        return git(self._clients, self.tree.root, args)

    def _raw(self, header: str, path: str) -> RawChange:
        match = _RAW.fullmatch(header)
        if match is None:
            raise git_failed(f"git diff-index in {self.tree.root}", f"can't be read: {header!r}")
        return RawChange(path=path, old_mode=match[1], new_mode=match[2], status=match[3])


def check_applied(result: CommandResult) -> None:
    """Did `git apply --verbose` find every hunk exactly where it says? Raises PatchError."""
    if not result.ok or _MOVED.search(result.output):
        raise PatchError(
            f"The patch does not apply to the base commit: {in_short(result.output)}",
            next_step="Make it from the files of the base commit.",
            kind="does_not_apply",
        )
