"""A worktree in layers: its cost grows with what is written, not with the repository.

From below: the base commit's checkout (``bases``), shared and never written; the patch (``patch_layer``);
what commands write. A sandbox mounts the three as one (overlayfs), for itself alone: outside, nothing is
mounted, and two attempts share nothing that either can write.
"""

import filecmp
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fallback_tier.errors import PatchError, ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.files.folders import remove_tree
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
from fallback_tier.gates.trees.bases import Base
from fallback_tier.gates.trees.checkout import check_applied
from fallback_tier.gates.trees.isolation import GIT_TIMEOUT_S, git
from fallback_tier.gates.trees.private_git import changed_index, commit_index


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
        """Apply a unified diff to the files, exactly where it says: no fuzz, no offset.

        Raises PatchError with git's own words, no patch is there then; ToolFailedError where the base
        is not what the commit says.
        """
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
    """Remove from ``upper`` what hides an entry of the merged folders ``lower`` (topmost first).

    Only folders that are also below are entered, so that what was installed is neither read nor touched.
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


def _remove_again(place: Path, lower: Sequence[Path]) -> None:
    """Remove of ``place`` what the lowest layer has and one above it removed: a command made it anew.

    What has no name of the repository's stays, also in a folder of that name.
    """
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
    """What lies between the base and what commands write."""

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
        """Apply a unified diff, exactly where it says: no fuzz, no offset.

        Raises PatchError with git's own words, the layer is empty then; ToolFailedError where the base
        is not what the commit says.
        """
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
        """The base's files that tell git about the line ends of the named ones."""
        folders = {folder for name in named for folder in PurePosixPath(name).parents}
        places = (folder / ".gitattributes" for folder in folders)
        return frozenset(str(p) for p in places if _mode(self._base.tree / p).startswith("10"))

    def _copy(self, named: frozenset[str]) -> None:
        """The base's files of these names, each compared with what the commit has."""
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
        """What the commit has under these names; asked once for a name."""
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
        """Empty folders made for a copy go with it."""
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
