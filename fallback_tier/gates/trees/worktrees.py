"""Disposable worktrees, one per fix, reset between attempts; a killed run's are removed.

Gates that are run again also get a cache for their gate transition alone: an earlier result at the base
commit, or what could be installed then, may be what misled them.
"""

import filecmp
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Protocol, Self

from fallback_audit.ports import Scope
from fallback_tier import gate_ports
from fallback_tier.errors import PatchError, RepositoryError, StateFolderError, ToolFailedError
from fallback_tier.execution import ClientRunner, CommandResult, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.folders import make_removable, remove_tree
from fallback_tier.files.locks import hold, try_hold
from fallback_tier.files.tree import (
    ABSENT,
    OPAQUE,
    FileTree,
    RawChange,
    is_opaque,
    is_whiteout,
    merged,
    write_whiteout,
)
from fallback_tier.gates.trees.bases import Base, Bases
from fallback_tier.gates.trees.isolation import (
    GIT_TIMEOUT_S,
    check_out,
    git,
    git_failed,
    in_short,
)
from fallback_tier.gates.trees.private_git import changed_index, commit_index, keep_history
from fallback_tier.repo import RepoContext

#: The folder of bases in a state folder.
BASES = "bases"

#: The lock in a worktree's folder, held while the process that made it lives.
_LOCK = "lock"

#: Held while worktrees are made or removed.
_TURNS = "worktrees.lock"


_MOVED = re.compile(r"^Hunk #\d+ succeeded at \d+ \(offset", re.MULTILINE)
_RAW = re.compile(r":(\d{6}) (\d{6}) [0-9a-f]+ [0-9a-f]+ ([A-Z])\d*")


class CheckoutWorktree:
    """The base commit, checked out detached; the patch is applied to its index and its files."""

    def __init__(self, folder: Path, base_commit: str, clients: ClientRunner) -> None:
        self._place = folder
        self._base_commit = base_commit
        self._clients = clients
        #: The files that the sandbox sees; the folder around it holds files that it must not see.
        self.tree = FileTree(root=folder / "tree")

    @classmethod
    def create(cls, repo: RepoContext, clients: ClientRunner, folder: Path) -> Self:
        """Check out ``repo``'s base commit in the empty folder ``folder``.

        Raises RepositoryError if objects are missing, ToolFailedError if git fails, OSError if it isn't
        writable.
        """
        worktree = cls(folder, repo.base_commit, clients)
        worktree.tree.root.mkdir()
        check_out(repo, worktree.tree.root, clients)
        keep_history(repo, worktree.tree.root, clients)
        return worktree

    def apply(self, diff: str) -> None:
        """Apply a diff to index and files, without fuzz or offset.

        Raises PatchError with git's message, and leaves the worktree as it was.
        """
        patch = self._place / "patch.diff"
        patch.write_text(diff, encoding="utf-8", newline="")
        options = ["apply", "--index", "--whitespace=nowarn"]
        check_applied(self._run([*options, "--check", "--verbose", "--", str(patch)]))
        try:
            check_applied(self._run([*options, "--", str(patch)]))
        except PatchError:  # a file at a submodule's path is noticed only when it is written
            self.reset()
            raise

    def restore(self) -> None:
        """Restore tracked files to the patched state, also removals, whatever a command did since.

        Installed files stay. Without this a gate's command could change what the next gate reads, and its
        result would not be about the patch.
        """
        make_removable(self.tree.root)  # a folder that a command made read-only would lock git out
        for change in self.changed():
            if change.new_mode == ABSENT:
                self._remove(PurePosixPath(change.path))
        self._git(["checkout-index", "--all", "--force", "--quiet"])

    def changed(self) -> tuple[RawChange, ...]:
        """Return how the index differs from the base commit, by path, without guessed renames. Raises
        ToolFailedError."""
        options = ["diff-index", "--cached", "--raw", "-z", "--no-renames", "--full-index"]
        output = self._git([*options, "--ignore-submodules=none", self._base_commit, "--"])
        fields = output.split("\0")
        return tuple(
            self._raw(header, path) for header, path in zip(fields[::2], fields[1::2], strict=False)
        )

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[FileTree]:
        """Yield the patched files, or the base commit's, untouched, with their own ``.git``. Raises
        ToolFailedError."""
        folder = Path(tempfile.mkdtemp(dir=self._place, prefix="fresh-"))
        try:
            tree, git_dir = folder / "tree", self.tree.root / ".git"
            fresh_git_dir = tree / ".git"
            shutil.copytree(git_dir, fresh_git_dir)
            if patched:
                commit_index(
                    git_dir,
                    fresh_git_dir / "index",
                    fresh_git_dir,
                    self._base_commit,
                    self._clients,
                )
            git(self._clients, tree, ["reset", "--quiet", "--hard", "HEAD"])
            yield FileTree(root=tree, is_disposable=True)
        finally:
            remove_tree(folder)

    def reset(self) -> None:
        """Return to the pristine base commit; untracked and ignored files are removed too."""
        make_removable(self.tree.root)
        self._git(["reset", "--quiet", "--hard", self._base_commit])
        self._git(["clean", "-ffdxq"])

    def close(self) -> None:
        """Do nothing: only files are held, and the owner of the folder removes them."""

    def _remove(self, path: PurePosixPath) -> None:
        """Remove what a command created at the path of a file that the patch removed, following no link."""
        for entry in (self.tree.root / part for part in [*reversed(path.parents)][1:]):
            if entry.is_symlink():
                entry.unlink()
        entry = self.tree.root / path
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                entry.unlink()

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
    """Check that `git apply --verbose` found every hunk exactly at its line. Raises PatchError."""
    if not result.ok or _MOVED.search(result.output):
        raise PatchError(
            f"The patch does not apply to the base commit: {in_short(result.output)}",
            next_step="Make it from the files of the base commit.",
            kind="does_not_apply",
        )


class LayeredWorktree:
    """The base commit's files below the patch layer, and both below what commands wrote."""

    def __init__(self, base: Base, base_commit: str, clients: ClientRunner, folder: Path) -> None:
        self._place = folder
        self._base = base
        self._base_commit = base_commit
        self._clients = clients
        self._patch = _PatchLayer(folder, base, base_commit, clients)
        self.tree = FileTree(
            root=folder / "tree",
            lower=(base.tree, self._patch.folder),
            upper=folder / "upper",
            work=folder / "work",
        )
        self.reset()

    def apply(self, diff: str) -> None:
        """Apply a diff to the files, without fuzz or offset.

        Raises PatchError with git's message, and leaves no patch; ToolFailedError if the base isn't as
        committed.
        """
        self._forget_commit()
        self._patch.apply(diff)

    def restore(self) -> None:
        """Restore tracked files to the patched state, also removals; installed files stay."""
        _, upper, *_ = self._layers()
        uncover(upper, (self._patch.folder, self._base.tree))

    def changed(self) -> tuple[RawChange, ...]:
        """Return how the patch makes the tree differ from the base commit, by path."""
        return self._patch.changed()

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[FileTree]:
        """Yield the patched files, or the base commit's, touched only by git, with their own ``.git``."""
        folder = Path(tempfile.mkdtemp(dir=self._place, prefix="fresh-"))
        try:
            for name in ("upper", "work"):
                (folder / name).mkdir()
            yield FileTree(
                root=folder / "tree",
                lower=(*self.tree.lower, self._committed()) if patched else self.tree.lower[:1],
                upper=folder / "upper",
                work=folder / "work",
                is_disposable=True,
            )
        finally:
            remove_tree(folder)

    def _committed(self) -> Path:
        """Return the layer whose ``.git``, over the base's, has the patched files as HEAD; once
        per patch."""
        layer = self._place / "commit"
        if not layer.exists():
            part = self._place / "commit.part"
            remove_tree(part)
            git_dir, index = self._base.tree / ".git", part / ".git" / "index"
            index.parent.mkdir(parents=True)
            changes = self._patch.changed()
            changed_index(git_dir, self._patch.folder, changes, index, self._clients)
            commit_index(git_dir, index, index.parent, self._base_commit, self._clients)
            part.rename(layer)
        return layer

    def _forget_commit(self) -> None:
        remove_tree(self._place / "commit")

    def reset(self) -> None:
        """Return to the pristine base commit: no patch, and nothing that commands wrote."""
        self._forget_commit()
        for folder in self._layers():
            remove_tree(folder)
            folder.mkdir()

    def close(self) -> None:
        """Release the base. The owner of the folder removes the files."""
        self._base.close()

    def _layers(self) -> tuple[Path, Path, Path]:
        return self._patch.folder, self._place / "upper", self._place / "work"


def uncover(upper: Path, lower: Sequence[Path]) -> None:
    """Remove from ``upper`` all that hides an entry of the merged folders ``lower`` (topmost first).

    Only folders that are also below are entered, so installed files are not read.
    """
    upper.chmod(stat.S_IMODE(lower[0].stat().st_mode))
    if is_opaque(upper):
        os.removexattr(upper, OPAQUE, follow_symlinks=False)
    for entry in list(os.scandir(upper)):
        below = merged(lower, entry.name)
        if not below:
            _remove_again(Path(entry.path), [folder / entry.name for folder in lower])
        elif not entry.is_dir(follow_symlinks=False):
            Path(entry.path).unlink()
        elif stat.S_ISDIR(below[0].lstat().st_mode):
            uncover(Path(entry.path), below)
        else:
            remove_tree(Path(entry.path))


def _remove_again(path: Path, lower: Sequence[Path]) -> None:
    """Remove from ``path`` what the lowest layer has and a higher one removed, if a command recreated it;
    other names stay."""
    base = lower[-1]
    if not os.path.lexists(base):
        return
    if any(folder.is_symlink() or not folder.is_dir() for folder in (path, base)):
        remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return
    for name in {entry.name for entry in list(os.scandir(path))}:
        _remove_again(path / name, [base / name])


# The layer that holds what a patch changes, and nothing else. git applies the patch to copies of the files
# that it may touch. The result is then read from the whole layer, never from the diff: a file in the layer
# hides the base's.

_FOLDER, _GITLINK = "040000", "160000"

#: Every path that a diff can name, in any of its headers. Too many are harmless: a copy that the patch does
#: not change is removed.
_NAMED = re.compile(
    r"""^(?:---|\+\+\+)\ [^/\s]+/(?P<side>[^\t\n]+)
    |^(?:rename|copy)\ (?:from|to)\ (?P<moved>.+)
    |^diff\ --git\ (?P<header>.+)""",
    re.MULTILINE | re.VERBOSE,
)


class _PatchLayer:
    def __init__(self, folder: Path, base: Base, base_commit: str, clients: ClientRunner) -> None:
        self.folder = folder / "patch"
        self._diff = folder / "patch.diff"
        self._base = base
        self._base_commit = base_commit
        self._clients = clients
        self._committed: dict[str, tuple[str, str]] = {}
        self._asked: set[str] = set()

    def clear(self) -> None:
        """Empty the patch layer."""
        remove_tree(self.folder)
        self.folder.mkdir()

    def apply(self, diff: str) -> None:
        """Apply a diff, without fuzz or offset.

        Raises PatchError with git's message, and leaves the layer empty; ToolFailedError if the base isn't
        as committed.
        """
        self.clear()
        named_paths = frozenset(_named(diff))
        copied = named_paths | self._attributes(named_paths)
        try:
            self._copy(copied)
            self._diff.write_text(diff, encoding="utf-8", newline="")
            result = self._clients.run(
                "git",
                ["apply", "--verbose", "--whitespace=nowarn", "--", str(self._diff)],
                cwd=self.folder,
                timeout_s=GIT_TIMEOUT_S,
                env={
                    "GIT_DIR": str(self._base.tree / ".git"),
                    "GIT_WORK_TREE": str(self.folder),
                },
            )
            check_applied(result)
            self._settle(copied)
            self._check_named(named_paths)
        except BaseException:
            self.clear()
            raise

    def _check_named(self, named_paths: frozenset[str]) -> None:
        """Check that a patch that replaces a folder by a file also removes the folder's files. Raises
        PatchError."""
        for change in self.changed():
            if change.path not in named_paths:
                raise PatchError(
                    f"The patch does not apply to the base commit: {change.path!r} is in its way.",
                    next_step="Make it from the files of the base commit.",
                )

    def changed(self) -> tuple[RawChange, ...]:
        """Return how the layer makes the tree differ from the base commit, by path."""
        changes = {}
        for path, mode in self._entries(self.folder, PurePosixPath()):
            before = self._before(path, mode)
            after = {} if mode in {ABSENT, _FOLDER} else {str(path): mode}
            for name in before.keys() | after.keys():
                old, new = before.get(name, ABSENT), after.get(name, ABSENT)
                if old != new or not self._is_same(name):
                    changes[name] = RawChange(
                        path=name, old_mode=old, new_mode=new, status=_status(old, new)
                    )
        return tuple(changes[name] for name in sorted(changes, key=os.fsencode))

    def _before(self, path: PurePosixPath, mode: str) -> dict[str, str]:
        """Return what the base tracks at and below an entry of the layer, which hides it. Folders of both
        are merged."""
        hidden = self._base.tree / path
        if mode == _FOLDER and _mode(hidden) == _FOLDER:
            return {}
        return dict(_modes(hidden, path))

    def _attributes(self, named_paths: frozenset[str]) -> frozenset[str]:
        folders = {folder for name in named_paths for folder in PurePosixPath(name).parents}
        paths = (folder / ".gitattributes" for folder in folders)
        return frozenset(
            str(path) for path in paths if _mode(self._base.tree / path).startswith("10")
        )

    def _copy(self, named_paths: frozenset[str]) -> None:
        self._ask(named_paths)
        for name in sorted(named_paths):
            path = PurePosixPath(name)
            if self._is_blocked(path, named_paths):
                raise PatchError(
                    f"The patch does not apply to the base commit: {name!r} lies beyond a link, a "
                    "file or a submodule.",
                    next_step="Make it from the files of the base commit.",
                )
            source, target = self._base.tree / path, self.folder / path
            if _mode(source) == _FOLDER:
                continue
            self._check(name, source)
            if _mode(source) != ABSENT:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target, follow_symlinks=False)

    def _is_blocked(self, path: PurePosixPath, named_paths: frozenset[str]) -> bool:
        """Return whether the base has no plain folder on the way, apart from paths that the patch names."""
        for prefix in [*reversed(path.parents), path][1:]:
            mode = _mode(self._base.tree / prefix)
            if mode == _FOLDER and not _names(self._base.tree / prefix):
                return True
            if mode != _FOLDER:
                return prefix != path and mode != ABSENT and str(prefix) not in named_paths
        return False

    def _check(self, name: str, source: Path) -> None:
        """Raise ToolFailedError if the base was changed from outside, before a patch is made of it."""
        mode, blob = self._committed.get(name, (ABSENT, ""))
        if mode == _mode(source) and (mode == ABSENT or blob == _blob(source, len(blob))):
            return
        # Line ends that .gitattributes requires are not in the blob: git removes them again.
        if source.is_file() and not source.is_symlink():
            hashed = git(self._clients, self._base.tree, ["hash-object", "--", name])
            if mode == _mode(source) and hashed.strip() == blob:
                return
        self._base.distrust()
        raise ToolFailedError(
            f"The checkout of the base commit in {self._base.place} was changed: {name!r} is not as "
            "committed.",
            next_step="Run it again: the checkout is made again.",
            output=name,
            kind="base_changed",
        )

    def _ask(self, named_paths: frozenset[str]) -> None:
        wanted = sorted(named_paths - self._asked)
        if wanted:
            listing = ["ls-tree", "-z", "--full-tree", self._base_commit, "--", *wanted]
            for line in git(self._clients, self._base.tree, listing).split("\0")[:-1]:
                facts, _, path = line.partition("\t")
                mode, _kind, blob = facts.split(" ")
                self._committed[path] = (mode, blob)
            self._asked.update(wanted)

    def _settle(self, named_paths: frozenset[str]) -> None:
        """Drop copies that are unchanged, and hide the base's files that the patch removed."""
        for name in sorted(named_paths):
            copy, source = self.folder / name, self._base.tree / name
            if _mode(source) in {ABSENT, _FOLDER}:
                continue
            if _mode(copy) == ABSENT:
                self._hide(PurePosixPath(name))
            elif _mode(copy) == _mode(source) and self._is_same(name):
                copy.unlink()
                self._tidy(PurePosixPath(name).parent)

    def _hide(self, path: PurePosixPath) -> None:
        """Remove ``path`` from the merged tree, with a folder that is then empty, as git does."""
        for folder in [*reversed(path.parents)][1:]:
            if _mode(self.folder / folder) not in {ABSENT, _FOLDER}:
                return  # the patch put a file at the folder's path
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_whiteout(self.folder / path)
        parent = path.parent
        if parent == PurePosixPath():
            return
        entries = [*(self.folder / parent).iterdir()]
        removed_names = {entry.name for entry in entries if is_whiteout(entry.lstat())}
        if len(removed_names) == len(entries) and removed_names >= _names(self._base.tree / parent):
            shutil.rmtree(self.folder / parent)
            self._hide(parent)

    def _tidy(self, folder: PurePosixPath) -> None:
        while folder != PurePosixPath() and not _names(self.folder / folder):
            (self.folder / folder).rmdir()
            folder = folder.parent

    def _is_same(self, name: str) -> bool:
        patched, base = self.folder / name, self._base.tree / name
        if patched.is_symlink():
            return patched.readlink() == base.readlink()
        return patched.is_file() and filecmp.cmp(patched, base, shallow=False)

    def _entries(self, folder: Path, parent: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
        """Yield everything in the layer. A new empty folder is what git makes of a submodule."""
        for entry in os.scandir(folder):
            path, mode = parent / entry.name, _mode(Path(entry.path))
            if mode == _FOLDER:
                inner = [*self._entries(Path(entry.path), path)]
                empty = not inner and _mode(self._base.tree / path) == ABSENT
                yield path, _GITLINK if empty else mode
                yield from inner
            else:
                yield path, mode


def _named(diff: str) -> Iterator[str]:
    for match in _NAMED.finditer(diff):
        header = match["header"] or ""
        # Both names of a header have the same length if they are equal, so the split works for names with
        # spaces.
        for name in (match["side"], match["moved"], header[2 : 2 + (len(header) - 5) // 2]):
            path = PurePosixPath(name or "")
            if path.parts and not path.is_absolute() and not {"..", ".git"} & set(path.parts):
                yield str(path)


def _mode(path: Path) -> str:
    """Return git's mode of an entry, or ABSENT if there is none or it marks a removal."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    if is_whiteout(status):
        return ABSENT
    if stat.S_ISREG(status.st_mode):
        return "100755" if status.st_mode & stat.S_IXUSR else "100644"
    return f"{stat.S_IFMT(status.st_mode):06o}"


def _modes(source: Path, path: PurePosixPath) -> Iterator[tuple[str, str]]:
    """Yield what git tracks at and below a path of the base, in which an empty folder is a submodule."""
    mode = _mode(source)
    if mode != _FOLDER:
        yield from () if mode == ABSENT else [(str(path), mode)]
        return
    names = _names(source)
    if not names:
        yield str(path), _GITLINK
    for name in names:
        yield from _modes(source / name, path / name)


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def _status(old: str, new: str) -> str:
    if ABSENT in {old, new}:
        return "A" if old == ABSENT else "D"
    return "M" if old[:2] == new[:2] == "10" else "T"


def _blob(path: Path, digits: int) -> str:
    """Return git's name for a file's content, of the repository's length: SHA-1 or SHA-256."""
    content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    digest = hashlib.sha1 if digits == hashlib.sha1().digest_size * 2 else hashlib.sha256  # noqa: S324
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


class RunnerWorktree(gate_ports.Worktree, Protocol):
    """A worktree as the gate runner uses it; gates see only ``gate_ports.Worktree``."""

    def apply(self, diff: str) -> None:
        """Apply a unified diff, exactly where it says. Raises PatchError, and then changes nothing."""
        ...

    def restore(self) -> None:
        """Restore tracked files to the patched state, also removals, whatever a command did since.

        Installed files stay. Without this a gate's command could change what the next gate reads, and its
        result would not be about the patch.
        """
        ...

    def reset(self) -> None:
        """Return to the pristine base commit: no patch, and nothing that commands wrote."""
        ...

    def close(self) -> None:
        """Release all that is held. Idempotent."""
        ...


class Worktrees:
    """Makes a state folder's worktrees, in layers if the sandbox can mount them there. ``layered``
    overrides that; ``report`` is called if another run is waited for."""

    def __init__(
        self,
        workspace: Path,
        clients: ClientRunner,
        sandbox: Sandbox,
        *,
        layered: bool | None = None,
        report: Callable[[str], None] = say_nothing,
    ) -> None:
        self._workspace = workspace.resolve()
        self._clients = clients
        self._sandbox = sandbox
        self._layered = layered
        self._report = report
        self._lock = self._workspace / _TURNS

    @contextmanager
    def open(self, repo: RepoContext, name: str = "") -> Iterator[RunnerWorktree]:
        """Remove worktrees of dead processes, and open one of ``repo``'s base commit, removed at the end.

        ``name`` replaces the fix's. Raises RepositoryError if objects are missing or another process has
        it, StateFolderError, SandboxError, ToolFailedError.
        """
        folder = self._workspace / "worktrees" / (name or repo.fix_id)
        with self._claimed(folder):
            try:
                worktree = self._make(repo, folder)
            except OSError as error:
                raise _disk_full(folder, error) from error
            with closing(worktree):
                yield worktree

    def remove_leftovers(self) -> None:
        """Call ``remove_leftovers`` for this state folder."""
        remove_leftovers(self._workspace)

    @contextmanager
    def _claimed(self, folder: Path) -> Iterator[None]:
        """Claim the empty folder until the end, however this process ends."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with hold(self._lock):
                _remove_dead(folder.parent)
                folder.mkdir()
                lock = hold(folder / _LOCK)
        except FileExistsError as error:
            raise RepositoryError(
                f"The worktree {folder} is in use by another process.",
                next_step="Wait for it to end.",
                kind="locked",
            ) from error
        except OSError as error:
            raise _disk_full(folder, error) from error
        with lock:
            try:
                yield
            finally:
                _empty(folder)
                with hold(self._lock):
                    _remove(folder)

    def _make(self, repo: RepoContext, folder: Path) -> RunnerWorktree:
        layered = self._layered
        if layered is None:
            layered = self._sandbox.mounts_layers(self._workspace)
        if not layered:
            return CheckoutWorktree.create(repo, self._clients, folder)
        base = Bases(self._workspace / BASES, self._clients, self._report).open(repo)
        try:
            return LayeredWorktree(base, repo.base_commit, self._clients, folder)
        except BaseException:
            base.close()
            raise


def remove_leftovers(workspace: Path) -> None:
    """Remove the worktrees of dead processes; another running process keeps its own."""
    folder = workspace / "worktrees"
    if folder.is_dir():
        # Under the turns lock: between making a folder and locking it, a worktree looks like a dead
        # process's.
        with hold(workspace / _TURNS):
            _remove_dead(folder)


def cache_of_its_own(cache: Path, scope: Scope) -> Path:
    """Return the folder below the shared cache; gates create it, and the next process finds it."""
    # An identifier is arbitrary text, so it is not used as a path.
    name = f"{scope.fix_id}\0{scope.gate_transition_id}".encode("utf-8", "replace")
    return cache / f"again-{hashlib.sha256(name).hexdigest()[:32]}"


def forget_cache(cache: Path, scope: Scope) -> None:
    """Remove the cache of a gate transition whose end is recorded. Failing to remove it only costs
    space."""
    with suppress(OSError):
        remove_tree(cache_of_its_own(cache, scope))


def _remove_dead(folder: Path) -> None:
    for worktree_folder in [path for path in folder.iterdir() if path.is_dir()]:
        with suppress(FileNotFoundError):  # its own process removed it just now
            lock = try_hold(worktree_folder / _LOCK)
            if lock is not None:
                with lock:
                    _remove(worktree_folder)


def _remove(folder: Path) -> None:
    """Remove a worktree's folder, with the turns lock held: ``_remove_dead`` would recreate the
    lock file."""
    _empty(folder)
    (folder / _LOCK).unlink(missing_ok=True)
    folder.rmdir()


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            remove_tree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def _disk_full(folder: Path, error: OSError) -> StateFolderError:
    return StateFolderError(
        f"No worktree can be made in {folder}: {error.strerror}.",
        next_step="Free some space there, or choose another state directory.",
        kind="no_worktree",
    )
