"""A disposable worktree a fix, reset between attempts; and what a killed run left is cleared away.

Gates that are run again also have a cache for their gate transition alone: what was seen at the base commit
before, or what could be installed then, may be what misled them.
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

#: Folder of a state folder: its bases.
BASES = "bases"

#: In a worktree's place: held for as long as the process that made it lives.
_LOCK = "lock"

#: Held while worktrees are made or cleared away.
_TURNS = "worktrees.lock"


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
        """Check out ``repo``'s base commit in the empty folder ``place``. Raises RepositoryError if objects
        are missing, ToolFailedError if git fails, OSError if it isn't writable."""
        worktree = cls(place, repo.base_commit, clients)
        worktree.tree.root.mkdir()
        check_out(repo, worktree.tree.root, clients)
        keep_history(repo, worktree.tree.root, clients)
        return worktree

    def apply(self, diff: str) -> None:
        """Apply a diff to index and files: no fuzz, no offset. Raises PatchError with git's message,
        leaving the worktree as before."""
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


class LayeredWorktree:
    """The base commit's files with a patch over them, and what commands wrote over both."""

    def __init__(self, base: Base, base_commit: str, clients: ClientRunner, place: Path) -> None:
        self._place = place
        self._base = base
        self._base_commit = base_commit
        self._clients = clients
        self._patch = _PatchLayer(place, base, base_commit, clients)
        self.tree = FileTree(
            root=place / "tree",
            lower=(base.tree, self._patch.folder),
            upper=place / "upper",
            work=place / "work",
        )
        self.reset()

    def apply(self, diff: str) -> None:
        """Apply a diff to the files: no fuzz, no offset. Raises PatchError with git's message, leaving no
        patch; ToolFailedError if the base isn't as committed."""
        self._forget_commit()
        self._patch.apply(diff)

    def restore(self) -> None:
        """Tracked files as the patch left them, gone where it removed them; what was installed stays."""
        _, upper, *_ = self._layers()
        uncover(upper, (self._patch.folder, self._base.tree))

    def changed(self) -> tuple[RawChange, ...]:
        """How the patch makes the tree differ from the base commit, by path."""
        return self._patch.changed()

    @contextmanager
    def fresh(self, *, patched: bool) -> Iterator[FileTree]:
        """The patched files, or the base commit's, as nothing but git left them, with its own ``.git``."""
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
        """The layer whose ``.git``, over the base's, has the patched files as HEAD; made once a patch."""
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
        """Back to the pristine base commit: no patch, and nothing of what commands wrote."""
        self._forget_commit()
        for folder in self._layers():
            remove_tree(folder)
            folder.mkdir()

    def close(self) -> None:
        """Let go of the base. The files are their place's owner's to remove."""
        self._base.close()

    def _layers(self) -> tuple[Path, Path, Path]:
        return self._patch.folder, self._place / "upper", self._place / "work"


def uncover(upper: Path, lower: Sequence[Path]) -> None:
    """Remove from ``upper`` what hides an entry of the merged folders ``lower`` (topmost first). Only
    folders that are also below are entered: what was installed is not read."""
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


def _remove_again(place: Path, lower: Sequence[Path]) -> None:
    """Remove from ``place`` what the lowest layer has and a higher one removed, if a command recreated it;
    other names stay."""
    base = lower[-1]
    if not os.path.lexists(base):
        return
    if any(folder.is_symlink() or not folder.is_dir() for folder in (place, base)):
        remove_tree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
        return
    for name in {entry.name for entry in list(os.scandir(place))}:
        _remove_again(place / name, [base / name])


# The layer that holds what a patch changes, and nothing else. git applies the patch to copies of the
# files that it may touch. What became of it is then read from the layer itself, all of it, never from the
# diff: a file in the layer hides the base's.

_FOLDER, _GITLINK = "040000", "160000"

#: Every path that a diff can name, in any of its headers. Too many do no harm: a copy that the patch
#: leaves alone is dropped.
_NAMED = re.compile(
    r"""^(?:---|\+\+\+)\ [^/\s]+/(?P<side>[^\t\n]+)
    |^(?:rename|copy)\ (?:from|to)\ (?P<moved>.+)
    |^diff\ --git\ (?P<header>.+)""",
    re.MULTILINE | re.VERBOSE,
)


class _PatchLayer:
    def __init__(self, place: Path, base: Base, base_commit: str, clients: ClientRunner) -> None:
        self.folder = place / "patch"
        self._diff = place / "patch.diff"
        self._base = base
        self._base_commit = base_commit
        self._clients = clients
        self._committed: dict[str, tuple[str, str]] = {}
        self._asked: set[str] = set()

    def clear(self) -> None:
        """No patch."""
        remove_tree(self.folder)
        self.folder.mkdir()

    def apply(self, diff: str) -> None:
        """Apply a diff: no fuzz, no offset. Raises PatchError with git's message, leaving the layer empty;
        ToolFailedError if the base isn't as committed."""
        self.clear()
        named = frozenset(_named(diff))
        copied = named | self._attributes(named)
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
            self._check_named(named)
        except BaseException:
            self.clear()
            raise

    def _check_named(self, named: frozenset[str]) -> None:
        """Where the patch puts a file in the place of a folder, it must remove what is in that."""
        for change in self.changed():
            if change.path not in named:
                raise PatchError(
                    f"The patch does not apply to the base commit: {change.path!r} is in its way.",
                    next_step="Make it from the files of the base commit.",
                )

    def changed(self) -> tuple[RawChange, ...]:
        """How the layer makes the tree differ from the base commit, by path."""
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
        """What the base tracks where an entry of the layer hides it. Folders of both are merged."""
        hidden = self._base.tree / path
        if mode == _FOLDER and _mode(hidden) == _FOLDER:
            return {}
        return dict(_modes(hidden, path))

    def _attributes(self, named: frozenset[str]) -> frozenset[str]:
        folders = {folder for name in named for folder in PurePosixPath(name).parents}
        places = (folder / ".gitattributes" for folder in folders)
        return frozenset(str(p) for p in places if _mode(self._base.tree / p).startswith("10"))

    def _copy(self, named: frozenset[str]) -> None:
        self._ask(named)
        for name in sorted(named):
            path = PurePosixPath(name)
            if self._is_blocked(path, named):
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

    def _is_blocked(self, path: PurePosixPath, named: frozenset[str]) -> bool:
        """Does the base have no plain folder on the way? (What the patch names itself, git judges.)"""
        for place in [*reversed(path.parents), path][1:]:
            mode = _mode(self._base.tree / place)
            if mode == _FOLDER and not _names(self._base.tree / place):
                return True
            if mode != _FOLDER:
                return place != path and mode != ABSENT and str(place) not in named
        return False

    def _check(self, name: str, source: Path) -> None:
        """A base that somebody changed from outside is noticed before a patch is made of it."""
        mode, blob = self._committed.get(name, (ABSENT, ""))
        if mode == _mode(source) and (mode == ABSENT or blob == _blob(source, len(blob))):
            return
        # Line ends that .gitattributes asks for are not in the blob: git takes them out again.
        if source.is_file() and not source.is_symlink():
            message = git(self._clients, self._base.tree, ["hash-object", "--", name])
            if mode == _mode(source) and message.strip() == blob:
                return
        self._base.distrust()
        raise ToolFailedError(
            f"The checkout of the base commit in {self._base.place} was changed: {name!r} is not as "
            "committed.",
            next_step="Run it again: the checkout is made again.",
            output=name,
            kind="base_changed",
        )

    def _ask(self, named: frozenset[str]) -> None:
        wanted = sorted(named - self._asked)
        if wanted:
            listing = ["ls-tree", "-z", "--full-tree", self._base_commit, "--", *wanted]
            for line in git(self._clients, self._base.tree, listing).split("\0")[:-1]:
                facts, _, path = line.partition("\t")
                mode, _kind, blob = facts.split(" ")
                self._committed[path] = (mode, blob)
            self._asked.update(wanted)

    def _settle(self, named: frozenset[str]) -> None:
        """Copies that are as they were go; what the patch removed is hidden below."""
        for name in sorted(named):
            place, source = self.folder / name, self._base.tree / name
            if _mode(source) in {ABSENT, _FOLDER}:
                continue
            if _mode(place) == ABSENT:
                self._hide(PurePosixPath(name))
            elif _mode(place) == _mode(source) and self._is_same(name):
                place.unlink()
                self._tidy(PurePosixPath(name).parent)

    def _hide(self, path: PurePosixPath) -> None:
        """Remove ``path`` from the merged tree, and a folder that holds nothing else, as git does."""
        for folder in [*reversed(path.parents)][1:]:
            if _mode(self.folder / folder) not in {ABSENT, _FOLDER}:
                return  # the patch put a file in the folder's place
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_whiteout(self.folder / path)
        parent = path.parent
        if parent == PurePosixPath():
            return
        here = [*(self.folder / parent).iterdir()]
        gone = {place.name for place in here if is_whiteout(place.lstat())}
        if len(gone) == len(here) and gone >= _names(self._base.tree / parent):
            shutil.rmtree(self.folder / parent)
            self._hide(parent)

    def _tidy(self, folder: PurePosixPath) -> None:
        while folder != PurePosixPath() and not _names(self.folder / folder):
            (self.folder / folder).rmdir()
            folder = folder.parent

    def _is_same(self, name: str) -> bool:
        ours, theirs = self.folder / name, self._base.tree / name
        if ours.is_symlink():
            return ours.readlink() == theirs.readlink()
        return ours.is_file() and filecmp.cmp(ours, theirs, shallow=False)

    def _entries(self, folder: Path, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
        """Everything in the layer. A new empty folder is what git makes of a submodule."""
        for entry in os.scandir(folder):
            path, mode = at / entry.name, _mode(Path(entry.path))
            if mode == _FOLDER:
                inside = [*self._entries(Path(entry.path), path)]
                empty = not inside and _mode(self._base.tree / path) == ABSENT
                yield path, _GITLINK if empty else mode
                yield from inside
            else:
                yield path, mode


def _named(diff: str) -> Iterator[str]:
    for match in _NAMED.finditer(diff):
        header = match["header"] or ""
        # Both names of a header have the same length where they are the same, so spaces are no riddle.
        for name in (match["side"], match["moved"], header[2 : 2 + (len(header) - 5) // 2]):
            path = PurePosixPath(name or "")
            if path.parts and not path.is_absolute() and not {"..", ".git"} & set(path.parts):
                yield str(path)


def _mode(place: Path) -> str:
    """git's mode of an entry, ABSENT where there is none or it stands for a removal."""
    try:
        status = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    if is_whiteout(status):
        return ABSENT
    if stat.S_ISREG(status.st_mode):
        return "100755" if status.st_mode & stat.S_IXUSR else "100644"
    return f"{stat.S_IFMT(status.st_mode):06o}"


def _modes(place: Path, path: PurePosixPath) -> Iterator[tuple[str, str]]:
    """What git tracks at and below a place of the base, where an empty folder is a submodule."""
    mode = _mode(place)
    if mode != _FOLDER:
        yield from () if mode == ABSENT else [(str(path), mode)]
        return
    names = _names(place)
    if not names:
        yield str(path), _GITLINK
    for name in names:
        yield from _modes(place / name, path / name)


def _names(folder: Path) -> set[str]:
    return {place.name for place in folder.iterdir()}


def _status(old: str, new: str) -> str:
    if ABSENT in {old, new}:
        return "A" if old == ABSENT else "D"
    return "M" if old[:2] == new[:2] == "10" else "T"


def _blob(place: Path, digits: int) -> str:
    """git's name for a file's content, as long as the repository's are: SHA-1 or SHA-256."""
    content = os.fsencode(place.readlink()) if place.is_symlink() else place.read_bytes()
    digest = hashlib.sha1 if digits == hashlib.sha1().digest_size * 2 else hashlib.sha256  # noqa: S324
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


class RunnerWorktree(gate_ports.Worktree, Protocol):
    """What the gate runner does with a worktree; gates see only ``gate_ports.Worktree``."""

    def apply(self, diff: str) -> None:
        """Apply a unified diff, exactly where it says. Raises PatchError; all is as before then."""
        ...

    def restore(self) -> None:
        """Tracked files as the patch left them, gone where it removed them, whatever a command did since.

        What a command installed stays. Without this a gate's command could rewrite what the next
        gate reads, and the proof would be of something else than the patch.
        """
        ...

    def reset(self) -> None:
        """Back to the pristine base commit: no patch, and nothing of what commands wrote."""
        ...

    def close(self) -> None:
        """Let go of what is held. Idempotent."""
        ...


class Worktrees:
    """Makes a state folder's worktrees, in layers if the sandbox can mount them there. ``layered``
    overrides that; ``report`` is told if another run is waited for."""

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
        """Open a worktree of ``repo``'s base commit, removed at the end, after removing those of dead
        processes; ``name``: not the fix's. Raises RepositoryError if objects are missing or another process
        has it, StateFolderError, SandboxError, ToolFailedError."""
        place = self._workspace / "worktrees" / (name or repo.fix_id)
        with self._claimed(place):
            try:
                worktree = self._make(repo, place)
            except OSError as error:
                raise _disk_full(place, error) from error
            with closing(worktree):
                yield worktree

    def remove_leftovers(self) -> None:
        """``remove_leftovers`` of this state folder."""
        remove_leftovers(self._workspace)

    @contextmanager
    def _claimed(self, place: Path) -> Iterator[None]:
        """The empty folder ``place``, ours until the end, however this process ends."""
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with hold(self._lock):
                _remove_dead(place.parent)
                place.mkdir()
                lock = hold(place / _LOCK)
        except FileExistsError as error:
            raise RepositoryError(
                f"The worktree {place} is in use by another process.",
                next_step="Wait for it to end.",
                kind="locked",
            ) from error
        except OSError as error:
            raise _disk_full(place, error) from error
        with lock:
            try:
                yield
            finally:
                _empty(place)
                with hold(self._lock):
                    _remove(place)

    def _make(self, repo: RepoContext, place: Path) -> RunnerWorktree:
        layered = self._layered
        if layered is None:
            layered = self._sandbox.mounts_layers(self._workspace)
        if not layered:
            return CheckoutWorktree.create(repo, self._clients, place)
        base = Bases(self._workspace / BASES, self._clients, self._report).open(repo)
        try:
            return LayeredWorktree(base, repo.base_commit, self._clients, place)
        except BaseException:
            base.close()
            raise


def remove_leftovers(workspace: Path) -> None:
    """Remove the worktrees of dead processes; another live run's is left alone."""
    folder = workspace / "worktrees"
    if folder.is_dir():
        # In turns: between making a folder and holding its lock, it looks like a dead one's.
        with hold(workspace / _TURNS):
            _remove_dead(folder)


def cache_of_its_own(cache: Path, scope: Scope) -> Path:
    """Return the folder below the shared cache; gates make it, and the next process finds it."""
    # An identifier is anybody's text: it names no path.
    name = f"{scope.fix_id}\0{scope.gate_transition_id}".encode("utf-8", "replace")
    return cache / f"again-{hashlib.sha256(name).hexdigest()[:32]}"


def forget_cache(cache: Path, scope: Scope) -> None:
    """The transition has ended, and that is on record: what can't be removed costs space alone."""
    with suppress(OSError):
        remove_tree(cache_of_its_own(cache, scope))


def _remove_dead(folder: Path) -> None:
    for place in [path for path in folder.iterdir() if path.is_dir()]:
        with suppress(FileNotFoundError):  # it ended by itself just now
            lock = try_hold(place / _LOCK)
            if lock is not None:
                with lock:
                    _remove(place)


def _remove(place: Path) -> None:
    """Call it with the turns lock held: ``_remove_dead`` would recreate the lock file."""
    _empty(place)
    (place / _LOCK).unlink(missing_ok=True)
    place.rmdir()


def _empty(place: Path) -> None:
    for entry in place.iterdir():
        if entry.is_dir():
            remove_tree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def _disk_full(place: Path, error: OSError) -> StateFolderError:
    return StateFolderError(
        f"No worktree can be made in {place}: {error.strerror}.",
        next_step="Free some space there, or choose another state directory.",
        kind="no_worktree",
    )
