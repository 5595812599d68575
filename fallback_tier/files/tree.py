"""A tree of files, read from outside: one folder, or layers that a sandbox mounts one over the other.

Layers follow overlayfs (kernel documentation, filesystems/overlayfs.rst, option ``userxattr``): a
character device 0:0 hides what lies below it, and so does a folder that is marked opaque.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fallback_audit.disk_errors import raise_failed
from fallback_audit.frozen import Frozen

#: The mark of a folder whose lower layers don't show through, where no privileges were needed.
OPAQUE = "user.overlay.opaque"

_WHITEOUT = os.makedev(0, 0)


#: git's mode of what is not there.
ABSENT = "000000"


class RawChange(Frozen):
    """How one path differs from the base commit. Modes as git prints them; ``ABSENT`` where absent."""

    path: str
    status: str
    old_mode: str
    new_mode: str


class FileTree(Frozen):
    """Files that a command finds at ``root``.

    ``lower``: layers that nobody writes to, the lowest first; ``upper`` takes what is written, ``work``
    is the kernel's own (same file system). A plain folder has none of the three. ``is_disposable``: no git
    outside a sandbox reads it, so that its ``.git`` may be written too.
    """

    root: Path
    lower: tuple[Path, ...] = ()
    upper: Path | None = None
    work: Path | None = None
    is_disposable: bool = False

    @property
    def layers(self) -> tuple[Path, ...]:
        """Where the files really lie, the topmost first."""
        above = () if self.upper is None else (self.upper,)
        return (*above, *reversed(self.lower)) or (self.root,)

    def locate(self, path: str) -> Path:
        """Return where a relative path really lies, without following links. Raises OSError: ENOENT if it
        is missing, ELOOP if it is, or is behind, a link."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        found = list(self.layers)
        for part in pure.parts:
            found = merged(found, part)
            if not found:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if found[0].is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return found[0]

    def find(self, path: str) -> Path | None:
        """As ``locate``; None where nothing is there that can be reached without a link."""
        try:
            return self.locate(path)
        except OSError as error:
            raise_failed(error, path)
            return None

    def has_folder(self, path: str) -> bool:
        """Is there a folder of this name, no link?"""
        found = self.find(path)
        return found is not None and found.is_dir()

    def over(self, layer: Path) -> "FileTree":
        """The same files with one more layer below all others, which nobody writes to."""
        return self.model_copy(update={"lower": (layer, *self.lower)})

    def add(self, path: str, content: bytes) -> None:
        """Write a new file and its folders. Raises FileExistsError if something is in the way,
        FileNotFoundError if the path leads out of the tree."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        top = self.layers[0]
        for folder in [*reversed(pure.parents)][1:]:
            found = self.entry(folder)
            if found is not None and not stat.S_ISDIR(found.lstat().st_mode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
            (top / folder).mkdir(exist_ok=True)
        if self.entry(pure) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with (top / path).open("xb") as file:
            file.write(content)

    def entry(self, path: PurePosixPath) -> Path | None:
        """What has this name, a link itself included; the caller has looked at its folders."""
        folders = list(self.layers)
        for part in path.parts:
            folders = merged(folders, part)
        return folders[0] if folders else None


def merged(folders: Sequence[Path], name: str) -> list[Path]:
    """Return what an entry of merged folders (topmost first) is made of: one file or link, the folders that
    are merged, or nothing."""
    found: list[Path] = []
    for number, folder in enumerate(folders, start=1):
        place = folder / name
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if is_whiteout(status):
            break
        if not stat.S_ISDIR(status.st_mode):
            return found or [place]
        found.append(place)
        if number < len(folders) and is_opaque(place):
            break
    return found


def is_whiteout(status: os.stat_result) -> bool:
    """Does this entry stand for a removal?"""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == _WHITEOUT


def is_opaque(folder: Path) -> bool:
    """Does this folder hide the folders below it, instead of being merged with them?"""
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def write_whiteout(place: Path) -> None:
    """Hide what has this name in the layers below. No privilege is needed since Linux 5.8."""
    os.mknod(place, stat.S_IFCHR | 0o600, _WHITEOUT)
