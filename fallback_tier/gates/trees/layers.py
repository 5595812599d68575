"""A worktree in layers: its cost grows with what is written, not with the repository.

From below: the base commit's checkout (``bases``), shared and never written; the patch (``patch_layer``);
what commands write. A sandbox mounts the three as one (overlayfs), for itself alone: outside, nothing is
mounted, and two attempts share nothing that either can write.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fallback_tier.execution import ClientRunner
from fallback_tier.files.folders import remove_tree
from fallback_tier.files.tree import OPAQUE, FileTree, RawChange, is_opaque, merged
from fallback_tier.gates.trees.bases import Base
from fallback_tier.gates.trees.patch_layer import PatchLayer
from fallback_tier.gates.trees.private_git import changed_index, commit_index


class LayeredWorktree:
    """The base commit's files with a patch over them, and what commands wrote over both."""

    def __init__(self, base: Base, base_commit: str, clients: ClientRunner, place: Path) -> None:
        self._place = place
        self._base = base
        self._base_commit = base_commit
        self._clients = clients
        self._patch = PatchLayer(place, base, base_commit, clients)
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
